"""``aiperf show``: a scenario, a workload, or the verdict of a case, in sentences.

What must not live here: the sentences.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from aiperf.cli.completion import scenarios
from aiperf.cli.options import DEFAULT_RESULTS, ResultsOption, in_results, with_format
from aiperf.cli.output import case_view
from aiperf.errors import UserError, usage
from aiperf.host.read import read_host
from aiperf.paths import YAML_SUFFIXES
from aiperf.plan.book import find_row
from aiperf.plan.needs import unmet
from aiperf.plan.plan import nodes_used
from aiperf.records import Needs
from aiperf.report.layout.formats import OutputFormat, print_in
from aiperf.report.scenarios import scenarios_view
from aiperf.report.views.listings import cases_view
from aiperf.report.workloads import workload_view
from aiperf.scenario.find import find_subject, list_scenarios
from aiperf.scenario.load import load_scenario
from aiperf.scenario.signature import shipped_workloads
from aiperf.scenario.workloads import describe_workload
from aiperf.store.history import entries
from aiperf.store.profiles import read_profiles
from aiperf.store.read import open_run, read_case
from aiperf.store.reference import latest_measurements
from aiperf.store.write import LATEST, RUN_FILE


@with_format(OutputFormat.table, OutputFormat.markdown, OutputFormat.json)
def show(
    form: OutputFormat,
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="A scenario or workload; or a run: name, folder or latest.", autocompletion=scenarios
        ),
    ],
    case: Annotated[
        str, typer.Argument(metavar="[CASE]", help="Case of that run to explain; not needed if it has only one.")
    ] = "",
    results: ResultsOption = DEFAULT_RESULTS,
) -> None:
    """Explain a scenario with its latest stored measurement, a workload, or the verdict of a case of a run."""
    if case or _is_run(name, results):
        _show_case(form, name, case, results)
        return
    try:
        paths = find_subject(name, workloads=shipped_workloads())
    except UserError:
        if newest := next(reversed(entries(results, scenario=name).entries), None):
            way = f"Show that run: {in_results(f'aiperf show {newest.run.run} {shlex.quote(name)}', results)}"
            if beside := next((name + suffix for suffix in YAML_SUFFIXES if Path(name + suffix).is_file()), ""):
                way += f"; or the file here: aiperf show ./{beside}"
            raise usage(f'"{name}" is not a scenario here, but a stored run measured it.', way) from None
        if find_row(name):
            way = f"Show the row: aiperf book {name}; list its scenarios: aiperf list {name}."
            raise usage(f'"{name}" is a row of the book, not a scenario.', way) from None
        raise
    if not paths:
        print_in(form, workload_view(describe_workload(name, list_scenarios())))
        return
    scenarios = [load_scenario(path) for path in paths]
    latest = [latest_measurements(s.name, results) for s in scenarios]
    for damaged in (d for _, found in latest for d in found):
        print(damaged.sentence, file=sys.stderr)
    nodes = {s.name: nodes_used([s]) for s in scenarios}
    asking = [s for s in scenarios if s.needs != Needs()]
    host = read_host() if asking else None
    lacking = {s.name: found[0][0] for s in asking if host and (found := unmet(s.needs, host))}
    lacking |= {name: f"it is spread over {count} nodes" for name, count in nodes.items() if count > 1}
    measured = [(s, found) for s, (found, _) in zip(scenarios, latest, strict=True)]
    print_in(form, scenarios_view(measured, lacking=lacking, nodes=nodes))


def _is_run(name: str, results: Path) -> bool:
    return name == LATEST or any((folder / RUN_FILE).is_file() for folder in (results / name, Path(name)))


def _show_case(form: OutputFormat, name: str, case: str, results: Path) -> None:
    """Explain a case of a run: the one that is named, or its only one; of several, which there are."""
    stored = open_run(name, results=results)
    records, damaged = stored.read_cases()
    if case:
        record = read_case(stored, case)
    elif len(records) == 1:
        record = records[0]
    elif records:
        print_in(form, cases_view(records, lambda case: in_results(f"aiperf show {name} {shlex.quote(case)}", results)))
        return
    else:
        lost = f" {len(damaged)} damaged record(s) were ignored." if damaged else ""
        profiled = " --profiles" if read_profiles(stored.folder, spans=False)[0] else ""
        way = f"{in_results(f'aiperf report {name}{profiled}', results)} shows what the run has."
        raise usage(f"{stored.folder} has no measured case.{lost}", way)
    for problem in stored.warnings if case else damaged:
        print(problem.sentence, file=sys.stderr)
    # Found by case id, as the run's page does; aiperf report names what is damaged there.
    profile = next((p for p in read_profiles(stored.folder, spans=False)[0] if p.case == record.case.id), None)
    print_in(form, case_view(stored.record, record, profile=profile))
