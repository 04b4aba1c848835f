"""``aiperf export``: stored runs as one table in one file.

What must not live here: rows, and formats of files.
"""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from aiperf.cli.options import DEFAULT_RESULTS, ResultsOption
from aiperf.report.numbers import clean
from aiperf.store.export import STDOUT, choose_runs, export_table
from aiperf.store.tables.catalogue import TABLES, table_named
from aiperf.store.tables.measured import COMPARISONS


class TextForm(StrEnum):
    """How a table is written to stdout."""

    csv = "csv"
    json = "json"


def export(
    output: Annotated[Path, typer.Option("--output", "-o", help="Output file: .parquet, .csv or .json; - for stdout.")],
    runs: Annotated[
        list[str], typer.Argument(metavar="[RUN...]", help="Run names, run folders or latest (the default).")
    ] = [],  # noqa: B006
    every: Annotated[bool, typer.Option("--all", help="Export every stored run.")] = False,
    what: Annotated[
        str,
        typer.Option(
            "--what",
            metavar="TABLE",
            help=f"{', '.join(table.name for table in TABLES)}; described by aiperf query --schema.",
        ),
    ] = COMPARISONS.name,
    form: Annotated[TextForm, typer.Option("--format", help="Format for --output -: csv or json.")] = TextForm.csv,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    results: ResultsOption = DEFAULT_RESULTS,
) -> None:
    """Export stored runs as one tidy Parquet, CSV or JSON table, in seconds and bytes."""
    table = table_named(what, where="--what")
    chosen, problems = choose_runs(runs, every=every, results=Path(results))
    to = sys.stdout if str(output) == STDOUT else output
    done = export_table(chosen, table, to, clean=clean, form=form.value, force=force)
    for problem in (*problems, *done.problems):
        print(problem, file=sys.stderr)
    ending = "" if done.runs == 1 else "s"
    print(f"{output}: {done.rows} rows ({table.name}) of {done.runs} run{ending}", file=sys.stderr)
