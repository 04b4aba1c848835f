"""``aiperf calibrate``: A/A sessions and injected slowdowns on this host.

What must not live here: running sessions, statistics.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from aiperf.cli.options import (
    DEFAULT_RESULTS,
    OnlyOption,
    PinOption,
    PrecisionOption,
    QuietOption,
    ResultsOption,
    SeedOption,
    axis_values,
    make_settings,
    progress_note,
    with_format,
)
from aiperf.errors import Exit, usage
from aiperf.host.read import read_host
from aiperf.plan.plan import make_plan
from aiperf.recipes.calibrate import Wanted, run_calibration
from aiperf.records import Invocation
from aiperf.report.layout.formats import OutputFormat, Printed, document_json, print_in
from aiperf.report.layout.text import Line
from aiperf.report.views.calibration_table import calibration_page, session_line
from aiperf.scenario.find import find_scenarios
from aiperf.scenario.load import load_scenarios


@with_format(OutputFormat.table, OutputFormat.markdown, OutputFormat.json)
def calibrate(
    form: OutputFormat,
    selectors: Annotated[list[str], typer.Argument(metavar="[SCENARIO ...]")] = ["same-vs-same"],  # noqa: B006
    sessions: Annotated[int, typer.Option("--sessions", min=2, help="A/A sessions per case.")] = 20,
    inject: Annotated[
        str, typer.Option("--inject", help="Slowdowns to detect, e.g. 0.02,0.05; empty for none.")
    ] = "0.02,0.05",
    power_sessions: Annotated[
        int, typer.Option("--power-sessions", min=2, help="Sessions per injected slowdown.")
    ] = 10,
    only: OnlyOption = [],  # noqa: B006
    precision: PrecisionOption = "standard",
    seed: SeedOption = 0,
    results: ResultsOption = DEFAULT_RESULTS,
    pin: PinOption = "auto",
    quiet: QuietOption = False,
) -> None:
    """Estimate this host's noise floor with A/A sessions: false positives, threshold, power; kept per host."""
    settings = make_settings(precision=precision, results=results, seed=seed, pin=pin)
    host, note = read_host(), progress_note(quiet)
    plan = make_plan(load_scenarios(find_scenarios(selectors)), host, settings, only=axis_values(only))
    for line in plan.notes:
        print(line, file=sys.stderr)
    for skip in plan.skips:
        print(f"{skip.case.id} skipped: {skip.reason}", file=sys.stderr)
    if not plan.cases:
        raise typer.Exit(int(Exit.SKIPPED))
    outcome = run_calibration(
        plan,
        Wanted(sessions, _slowdowns(inject), power_sessions),
        host=host,
        settings=settings,
        invocation=Invocation("calibrate", tuple(sys.argv)),
        done=lambda what, number, of, record: note(session_line(what, number, of, record)),
    )
    for problem in outcome.problems:
        print(f"aiperf: {problem}", file=sys.stderr)
    pages = [calibration_page(o.calibration, o.powers, name=o.case.id, mode=o.mode) for o in outcome.outcomes]
    page = [*(paragraph for page in pages for paragraph in page), [lambda width: [Line(str(outcome.folder))]]]
    print_in(form, Printed(page, json=lambda: document_json(outcome.outcomes)))
    raise typer.Exit(int(outcome.exit))


def _slowdowns(text: str) -> tuple[float, ...]:
    try:
        found = tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise usage(f'invalid value "{text}".', "For example: 0.02,0.05.", where="--inject") from None
    if any(not 0 < share < 10 for share in found):
        raise usage(f'"{text}" must list numbers above 0 and below 10.', "For example: 0.02,0.05.", where="--inject")
    return found
