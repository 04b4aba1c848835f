"""``aiperf query``: SQL over the stored runs.

What must not live here: SQL being run, rows being laid out.
"""

from __future__ import annotations

import sys
from itertools import islice
from typing import Annotated

import typer

from aiperf.cli.options import DEFAULT_RESULTS, ResultsOption, time_of, with_format
from aiperf.errors import usage
from aiperf.report.layout.formats import OutputFormat, print_in
from aiperf.report.views.query_table import query_view, schema_view
from aiperf.store.query import SECONDS, ask
from aiperf.store.tables.catalogue import QUERY_TABLES

_EXAMPLE = """For example: aiperf query "SELECT scenario, verdict, count(*) FROM comparisons GROUP BY ALL" """.rstrip()
_TABLE_ROWS = 1000


@with_format()
def query(
    form: OutputFormat,
    sql: Annotated[str, typer.Argument(metavar="[SQL]", help="One SELECT statement; see --schema.")] = "",
    results: ResultsOption = DEFAULT_RESULTS,
    limit: Annotated[
        int | None,
        typer.Option(
            min=1, help=f"Maximum number of rows; default: all, {_TABLE_ROWS} in a table.", show_default=False
        ),
    ] = None,
    timeout: Annotated[str, typer.Option("--timeout", help="Time limit for the query, e.g. 10min.")] = f"{SECONDS:g}s",
    schema: Annotated[bool, typer.Option("--schema", help="List the views and their columns.")] = False,
) -> None:
    """Query stored runs with DuckDB SQL: views runs, cases, comparisons, samples, telemetry, profile_rows, ..."""
    if schema:
        print_in(form, schema_view(QUERY_TABLES))
        return
    if not sql.strip():
        raise usage("no SQL statement given.", f"{_EXAMPLE}; --schema lists the views.")
    seconds = time_of("--timeout", timeout)
    most = limit if limit is not None or form in (OutputFormat.csv, OutputFormat.json) else _TABLE_ROWS
    with ask(sql, results=results, limit=None if most is None else most + 1, seconds=seconds) as answer:
        print_in(form, query_view(answer.columns, answer.kinds, islice(answer.rows, most)))
        more = next(answer.rows, None) is not None
        for damaged in answer.damaged:
            print(damaged.sentence, file=sys.stderr)
    if more and limit is None:
        print(f"only the first {most} rows are shown; --limit N shows more, --format csv all", file=sys.stderr)
