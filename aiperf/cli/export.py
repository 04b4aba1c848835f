"""``aiperf export``: stored runs as one table in one file.

What must not live here: rows, and formats of files.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from aiperf.cli.options import DEFAULT_RESULTS, ResultsOption, with_format
from aiperf.errors import usage
from aiperf.report.layout.formats import OutputFormat
from aiperf.report.numbers import clean, counted
from aiperf.store.export import STDOUT, choose_runs, export_table
from aiperf.store.tables.catalogue import TABLES, table_named
from aiperf.store.tables.measured import COMPARISONS


@with_format(OutputFormat.csv, OutputFormat.json)
def export(
    form: OutputFormat,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Output file: .parquet, .csv or .json; - for stdout.")
    ] = None,
    runs: Annotated[
        list[str], typer.Argument(metavar="[RUN ...]", help="Run names, run folders or latest (the default).")
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
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    results: ResultsOption = DEFAULT_RESULTS,
) -> None:
    """Export stored runs as one tidy Parquet, CSV or JSON table, in seconds and bytes.

    The file's extension selects the format; --format applies to --output -.
    """
    if output is None:
        raise usage("is missing.", "For example: aiperf export -o runs.parquet", where="--output")
    table = table_named(what, where="--what")
    chosen, problems = choose_runs(runs, every=every, results=Path(results))
    to = sys.stdout if str(output) == STDOUT else output
    done = export_table(chosen, table, to, clean=clean, form=form.value, force=force)
    for problem in (*problems, *done.problems):
        print(problem, file=sys.stderr)
    print(f"{output}: {counted(done.rows, 'row')} ({table.name}) of {counted(done.runs, 'run')}", file=sys.stderr)
