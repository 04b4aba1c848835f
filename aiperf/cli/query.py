"""``aiperf query``: SQL over the stored runs.

What must not live here: SQL being run, rows being laid out.
"""

from __future__ import annotations

import sys
from itertools import islice
from typing import Annotated

import typer

from aiperf.cli.options import DEFAULT_RESULTS, Format, JsonOption, ResultsOption
from aiperf.errors import usage
from aiperf.report.layout.formats import listing_json
from aiperf.report.layout.terminal import show, terminal_width
from aiperf.report.query_table import query_csv, query_json, query_lines, query_markdown, schema_lines
from aiperf.store.query import QueryResult, ask
from aiperf.store.tables.catalogue import QUERY_TABLES

_EXAMPLE = """For example: aiperf query "SELECT scenario, verdict, count(*) FROM comparisons GROUP BY ALL" """.rstrip()
_TABLE_ROWS = 1000


def query(
    sql: Annotated[str, typer.Argument(help="One SELECT; --schema lists what it can ask.")] = "",
    results: ResultsOption = DEFAULT_RESULTS,
    form: Annotated[Format, typer.Option("--format", help="How to print the rows.")] = Format.table,
    as_json: JsonOption = False,
    limit: Annotated[
        int | None,
        typer.Option(min=1, help=f"Rows at most; without it all, but {_TABLE_ROWS} of a table.", show_default=False),
    ] = None,
    schema: Annotated[bool, typer.Option("--schema", help="List the views and their columns.")] = False,
) -> None:
    """Ask the stored runs in SQL (DuckDB's): views runs, cases, comparisons, samples, telemetry, profile_rows, ..."""
    form = Format.json if as_json else form
    if schema:
        _print_schema(as_json=form is Format.json)
        return
    if not sql.strip():
        raise usage("there is no SQL.", f"{_EXAMPLE}; --schema lists the views.")
    most = limit if limit is not None or form in (Format.csv, Format.json) else _TABLE_ROWS
    with ask(sql, results=results, limit=None if most is None else most + 1) as answer:
        more = _print_rows(answer, form=form, most=most)
        for damaged in answer.damaged:
            print(damaged.sentence, file=sys.stderr)
    if more and limit is None:
        print(f"the first {most} rows; --limit N shows more, --format csv all", file=sys.stderr)


def _print_schema(*, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(listing_json([table.schema() for table in QUERY_TABLES]))
    else:
        show(schema_lines(QUERY_TABLES, width=terminal_width(sys.stdout)))


def _print_rows(answer: QueryResult, *, form: Format, most: int | None) -> bool:
    """Print at most ``most`` rows; whether there were more."""
    rows = islice(answer.rows, most)
    if form is Format.table:
        show(query_lines(answer.columns, answer.kinds, rows, width=terminal_width(sys.stdout)))
    elif form is Format.markdown:
        sys.stdout.writelines(query_markdown(answer.columns, answer.kinds, rows))
    elif form is Format.csv:
        sys.stdout.writelines(query_csv(answer.columns, rows))
    else:
        sys.stdout.writelines(query_json(answer.columns, answer.kinds, rows))
    return next(answer.rows, None) is not None
