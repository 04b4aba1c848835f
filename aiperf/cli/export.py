"""``aiperf export``: stored runs as one table in one file.

What must not live here: rows, and formats of files.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from aiperf.cli.options import DEFAULT_RESULTS, ResultsOption
from aiperf.report.numbers import clean
from aiperf.report.profile_export import PROFILE_COLUMNS, SIDE_COLUMNS, profile_rows, side_rows
from aiperf.store.export import STDOUT, Exported, choose_runs, export_file, export_stream, write_rows
from aiperf.store.export_rows import What as Row
from aiperf.store.profiles import read_profiles
from aiperf.store.read import StoredRun


class What(StrEnum):
    """What a row of the table is."""

    comparisons = "comparisons"
    samples = "samples"
    latencies = "latencies"
    cases = "cases"
    telemetry = "telemetry"
    profiles = "profiles"
    sides = "sides"


class TextForm(StrEnum):
    """How a table is written to stdout."""

    csv = "csv"
    json = "json"


_MEASURED: dict[What, Row] = {
    What.comparisons: "comparisons",
    What.samples: "samples",
    What.latencies: "latencies",
    What.cases: "cases",
    What.telemetry: "telemetry",
}
_PROFILED = {What.profiles: (PROFILE_COLUMNS, profile_rows), What.sides: (SIDE_COLUMNS, side_rows)}


def export(
    output: Annotated[Path, typer.Option("--output", "-o", help="FILE.parquet, .csv or .json; - for stdout.")],
    runs: Annotated[
        list[str], typer.Argument(metavar="[RUN...]", help="Runs (name, folder or latest); default latest.")
    ] = [],  # noqa: B006
    every: Annotated[bool, typer.Option("--all", help="Every stored run.")] = False,
    what: Annotated[
        What,
        typer.Option(
            "--what",
            help="One row a comparison, a raw sample, a unit of work timed by itself, a case, a reading of clocks, "
            "power and counters in a pair, an activity of a profile, or a profiled side.",
        ),
    ] = What.comparisons,
    form: Annotated[TextForm, typer.Option("--format", help="With --output -: csv or json.")] = TextForm.csv,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    results: ResultsOption = DEFAULT_RESULTS,
) -> None:
    """Write stored runs into one Parquet, CSV or JSON file: one tidy table, raw numbers in seconds and bytes."""
    chosen, problems = choose_runs(runs, every=every, results=Path(results))
    kind = _MEASURED.get(what)
    if kind is None:
        done = _profiled(chosen, output, what=what, form=form, force=force)
    elif str(output) == STDOUT:
        done = export_stream(chosen, sys.stdout, form=form.value, what=kind, clean=clean)
    else:
        done = export_file(chosen, output, what=kind, clean=clean, force=force)
    for problem in (*problems, *done.problems):
        print(problem, file=sys.stderr)
    ending = "" if done.runs == 1 else "s"
    print(f"{output}: {done.rows} rows ({what.value}) of {done.runs} run{ending}", file=sys.stderr)


def _profiled(runs: Sequence[StoredRun], output: Path, *, what: What, form: TextForm, force: bool) -> Exported:
    """What the profilers told of every run, raw numbers in the same manner."""
    columns, rows_of = _PROFILED[what]
    told = [(run.record.run or run.folder.name, *read_profiles(run.folder)) for run in runs]
    rows = ({"run": clean(name), **row} for name, profiles, _ in told for row in rows_of(profiles))
    to = sys.stdout if str(output) == STDOUT else output
    total = write_rows({"run": "text", **columns}, rows, to, form=form.value, force=force)
    return Exported(len(runs), total, tuple(damaged.sentence for _, _, spoilt in told for damaged in spoilt))
