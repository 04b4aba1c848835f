"""``aiperf show``: a scenario, a workload, or the verdict of a case, in sentences.

What must not live here: the sentences.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from aiperf.cli.options import DEFAULT_RESULTS, JsonOption, ResultsOption, in_results
from aiperf.errors import usage
from aiperf.report.explain import explain_case
from aiperf.report.layout.formats import listing_json
from aiperf.report.layout.terminal import show as show_lines
from aiperf.report.layout.terminal import terminal_width
from aiperf.report.layout.text import Line
from aiperf.report.scenarios import explain_scenario, scenario_plain
from aiperf.report.workloads import explain_workload
from aiperf.scenario.find import find_subject, list_scenarios
from aiperf.scenario.load import load_scenario
from aiperf.scenario.signature import shipped_workloads
from aiperf.scenario.workloads import describe_workload
from aiperf.store.profiles import read_profiles
from aiperf.store.read import open_run, read_case
from aiperf.store.reference import latest_measurements
from aiperf.store.write import LATEST, RUN_FILE


def show(
    name: Annotated[
        str, typer.Argument(help="A scenario or a workload; or a run (its name, folder or latest) with a CASE.")
    ],
    case: Annotated[str, typer.Argument(metavar="[CASE]", help="A case of that run: explains its verdict.")] = "",
    results: ResultsOption = DEFAULT_RESULTS,
    as_json: JsonOption = False,
) -> None:
    """Explain a scenario with its latest stored measurement, a workload, or the verdict of a case of a run."""
    width = terminal_width(sys.stdout)
    if case:
        stored = open_run(name, results=results)
        record = read_case(stored, case)
        for damaged in stored.warnings:
            print(damaged.sentence, file=sys.stderr)
        if as_json:
            sys.stdout.write(listing_json([record]))
            return
        # Found by case id, as the run's page does; what is damaged there is told by aiperf report.
        profile = next((p for p in read_profiles(stored.folder, spans=False)[0] if p.case == record.case.id), None)
        text = explain_case(stored.record, record, profile=profile, width=width)
        show_lines([Line(line) for line in text.splitlines()])
        return
    if name == LATEST or (results / name / RUN_FILE).is_file():
        raise usage(
            f'"{name}" is a run: it needs a case.',
            f"{in_results(f'aiperf report {name}', results)} lists its cases; then name one.",
        )
    paths = find_subject(name, workloads=shipped_workloads())
    if not paths:
        _show_workload(name, as_json=as_json)
        return
    scenarios = [load_scenario(path) for path in paths]
    latest = [latest_measurements(s.name, results) for s in scenarios]
    for damaged in (d for _, found in latest for d in found):
        print(damaged.sentence, file=sys.stderr)
    measured = [(s, found) for s, (found, _) in zip(scenarios, latest, strict=True)]
    if as_json:
        sys.stdout.write(listing_json([scenario_plain(s, found) for s, found in measured]))
        return
    text = "\n".join(explain_scenario(s, found, width=width) for s, found in measured)
    show_lines([Line(line) for line in text.splitlines()])


def _show_workload(name: str, *, as_json: bool) -> None:
    entry = describe_workload(name, list_scenarios())
    if as_json:
        sys.stdout.write(listing_json([entry]))
        return
    show_lines(explain_workload(entry, width=terminal_width(sys.stdout)))
