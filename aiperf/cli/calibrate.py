"""``aiperf calibrate``: A/A sessions and injected slowdowns on this host.

What must not live here: running sessions, statistics.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from aiperf.analysis.metrics import DEFAULT_METRIC
from aiperf.cli.options import (
    DEFAULT_RESULTS,
    JsonOption,
    OnlyOption,
    PinOption,
    PrecisionOption,
    QuietOption,
    ResultsOption,
    SeedOption,
    axis_values,
    make_settings,
)
from aiperf.errors import Exit, usage
from aiperf.host.read import read_host
from aiperf.plan.plan import make_plan
from aiperf.recipes.calibrate import CalibrationOutcome, SessionFailed, Wanted, calibrate_case
from aiperf.recipes.run_record import begin_run, end_run, new_record
from aiperf.recipes.session import MeasurementSession
from aiperf.records import CaseRecord, Invocation
from aiperf.report.calibration_table import calibration_lines
from aiperf.report.layout.formats import listing_json
from aiperf.report.layout.terminal import show as show_lines
from aiperf.report.layout.terminal import terminal_width
from aiperf.report.layout.text import Line
from aiperf.scenario.find import find_scenarios
from aiperf.scenario.load import load_scenarios


def calibrate(
    selectors: Annotated[list[str], typer.Argument(metavar="[SCENARIO ...]")] = ["same-vs-same"],  # noqa: B006
    sessions: Annotated[int, typer.Option("--sessions", min=2, help="A/A sessions per case.")] = 20,
    inject: Annotated[str, typer.Option("--inject", help="Slowdowns to look for, or an empty text.")] = "0.02,0.05",
    power_sessions: Annotated[int, typer.Option("--power-sessions", min=2, help="Sessions per slowdown.")] = 10,
    only: OnlyOption = [],  # noqa: B006
    precision: PrecisionOption = "standard",
    seed: SeedOption = 0,
    results: ResultsOption = DEFAULT_RESULTS,
    pin: PinOption = "auto",
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Measure a side against its copy: false positives, noise between sessions, threshold, power; kept per host."""
    settings = make_settings(precision=precision, results=results, seed=seed, pin=pin)
    host = read_host()
    plan = make_plan(load_scenarios(find_scenarios(selectors)), host, settings, only=axis_values(only))
    for skip in plan.skips:
        print(f"{skip.case.id} skipped: {skip.reason}", file=sys.stderr)
    if not plan.cases:
        raise typer.Exit(int(Exit.SKIPPED))
    wanted = Wanted(sessions, _slowdowns(inject), power_sessions)
    writer, run = begin_run(
        new_record(plan, host=host, settings=settings, invocation=Invocation("calibrate", tuple(sys.argv))), settings
    )
    found: list[CalibrationOutcome] = []
    code = Exit.INTERRUPTED
    try:
        with MeasurementSession(host, settings) as session:
            for case in plan.cases:
                outcome = calibrate_case(
                    case,
                    wanted,
                    session=session,
                    settings=settings,
                    host_id=run.host_id,
                    writer=writer,
                    done=_told(quiet),
                )
                found.append(outcome)
        code = Exit.USAGE if any(outcome.problem for outcome in found) else Exit.OK
    except KeyboardInterrupt:
        print("interrupted: the case at hand was not calibrated", file=sys.stderr)
    except SessionFailed as error:
        print(f"aiperf: {error}", file=sys.stderr)
        code = Exit.WRONG
    finally:
        end_run(writer, run, "interrupted" if code is Exit.INTERRUPTED else "finished")
    for outcome in found:
        if outcome.problem:
            print(f"aiperf: {outcome.problem}", file=sys.stderr)
    _print(found, writer.folder, as_json=as_json)
    raise typer.Exit(int(code))


def _print(found: Sequence[CalibrationOutcome], folder: Path, *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(listing_json(found))
        return
    width = terminal_width(sys.stdout)
    lines: list[Line] = []
    for outcome in found:
        name, mode = outcome.case.id, outcome.mode
        lines += calibration_lines(outcome.calibration, outcome.powers, name=name, mode=mode, width=width)
        lines.append(Line(""))
    show_lines([*lines, Line(str(folder))])


def _slowdowns(text: str) -> tuple[float, ...]:
    try:
        found = tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise usage(f'"{text}" is no list of shares.', "Write for instance 0.02,0.05.", where="--inject") from None
    if any(not 0 < share < 10 for share in found):
        raise usage(f'"{text}" holds a share that is not above 0.', "Write for instance 0.02,0.05.", where="--inject")
    return found


def _told(quiet: bool):  # type: ignore[no-untyped-def]
    def told(what: str, number: int, of: int, record: CaseRecord) -> None:
        if quiet:
            return
        time = next((r for r in record.results if r.comparison.metric == DEFAULT_METRIC), None)
        text: str = record.status
        if time is not None:
            c = time.comparison
            text = f"{time.verdict.word}  {c.ratio:.4f}  [{c.low:.4f}, {c.high:.4f}]  {c.pairs} pairs"
        print(f"{record.case.scenario} {what} {number}/{of}: {text}  {record.seconds:.0f} s", file=sys.stderr)

    return told
