"""``aiperf show``: a scenario, a workload, or the verdict of a case, in sentences.

What must not live here: the sentences.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from aiperf.cli.options import DEFAULT_RESULTS, ResultsOption, in_results, with_format
from aiperf.cli.output import case_view
from aiperf.errors import usage
from aiperf.report.layout.formats import OutputFormat, print_in
from aiperf.report.scenarios import scenarios_view
from aiperf.report.workloads import workload_view
from aiperf.scenario.find import find_subject, list_scenarios
from aiperf.scenario.load import load_scenario
from aiperf.scenario.signature import shipped_workloads
from aiperf.scenario.workloads import describe_workload
from aiperf.store.profiles import read_profiles
from aiperf.store.read import open_run, read_case
from aiperf.store.reference import latest_measurements
from aiperf.store.write import LATEST, RUN_FILE


@with_format(OutputFormat.table, OutputFormat.markdown, OutputFormat.json)
def show(
    form: OutputFormat,
    name: Annotated[str, typer.Argument(help="A scenario or workload; or a run (name, folder or latest) with a CASE.")],
    case: Annotated[str, typer.Argument(metavar="[CASE]", help="Case of that run whose verdict to explain.")] = "",
    results: ResultsOption = DEFAULT_RESULTS,
) -> None:
    """Explain a scenario with its latest stored measurement, a workload, or the verdict of a case of a run."""
    if case:
        stored = open_run(name, results=results)
        record = read_case(stored, case)
        for damaged in stored.warnings:
            print(damaged.sentence, file=sys.stderr)
        # Found by case id, as the run's page does; aiperf report names what is damaged there.
        profile = next((p for p in read_profiles(stored.folder, spans=False)[0] if p.case == record.case.id), None)
        print_in(form, case_view(stored.record, record, profile=profile))
        return
    if name == LATEST or (results / name / RUN_FILE).is_file():
        raise usage(
            f'"{name}" is a run: it needs a case.',
            f"{in_results(f'aiperf report {name}', results)} lists its cases; then name one.",
        )
    paths = find_subject(name, workloads=shipped_workloads())
    if not paths:
        print_in(form, workload_view(describe_workload(name, list_scenarios())))
        return
    scenarios = [load_scenario(path) for path in paths]
    latest = [latest_measurements(s.name, results) for s in scenarios]
    for damaged in (d for _, found in latest for d in found):
        print(damaged.sentence, file=sys.stderr)
    print_in(form, scenarios_view([(s, found) for s, (found, _) in zip(scenarios, latest, strict=True)]))
