"""``aiperf book``: what the book claims, which scenario covers it, and what was measured of it here.

What must not live here: the rows, answering them, layout.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from aiperf.analysis.book import Answered, answer_rows, missing, unknown_rows, unmeasured
from aiperf.cli.options import DEFAULT_RESULTS, ResultsOption, not_together, with_format
from aiperf.cli.output import HtmlOption, refuse_page_in, write_page
from aiperf.errors import UserError, usage
from aiperf.host.fingerprint import fingerprint
from aiperf.host.read import read_host
from aiperf.plan.book import BookRow, find_row, load_book
from aiperf.plan.cited import cited_rows
from aiperf.report.html.book_page import render_book
from aiperf.report.layout.formats import OutputFormat, print_in
from aiperf.report.views.book_table import book_view, missing_page
from aiperf.scenario.wording import nearest
from aiperf.store.reference import Profiled, newest_measured, profiled_record


@with_format()
def book(
    form: OutputFormat,
    row_id: Annotated[
        str, typer.Argument(metavar="[ROW]", help="Only this row, e.g. ch05/random-vs-sequential-read.")
    ] = "",
    chapters: Annotated[
        list[str], typer.Option("--chapter", metavar="N|app", help="Only this chapter; repeatable.")
    ] = [],  # noqa: B006 - typer reads the default and never changes it
    only_missing: Annotated[
        bool, typer.Option("--missing", help="Only core and useful rows that have no scenario.")
    ] = False,
    every: Annotated[
        bool, typer.Option("--all", help="Show every row of every chapter instead of the summary.")
    ] = False,
    html: HtmlOption = False,
    output: Annotated[
        str,
        typer.Option("--output", metavar="PATH", help="Output file; default: book.html in the results folder."),
    ] = "",
    results: ResultsOption = DEFAULT_RESULTS,
) -> None:
    """Compare the book's claims with what was measured: every before/after row and its scenarios.

    Each row is judged by all the cases that its citations name, on the side that they name: the best one if a citation
    names several (a sweep), the last one if it names none. Rows about memory, accuracy or another reading are judged
    by their scenario's own metric, not by time. A row that needs a GPU uses the newest record from a GPU, if there is
    one; every other row uses the newest record.
    """
    refuse_page_in(form, html=html, output=output)
    rows, host = (_row(row_id, chapters) if row_id else load_book(chapters)), read_host()
    asked = tuple(dict.fromkeys(row.chapter for row in rows)) if chapters else ()
    # Whether a row has a scenario is known without asking what the scenario needs.
    cited = cited_rows(host, results=results, wanted=() if only_missing else {row.chapter for row in rows})
    measured, damaged = newest_measured(results, host_id=fingerprint(host)[0])
    answered = answer_rows(rows, cited, measured)
    unread = unmeasured(answered)
    answered = missing(answered) if only_missing else answered
    if html:
        where = ", ".join(gpu.name for gpu in host.gpus) or f"{host.cpu_model}, no GPU"
        path = Path(output) if output else results / "book.html"
        write_page(path, render_book(answered, host=where), form, fresh=not output)
    else:
        page = missing_page(answered, unmeasured=unread, chapters=asked) if only_missing else None
        found, faults = _profiled(answered, results) if row_id else (None, ())
        summary = not (chapters or every or row_id)
        print_in(form, book_view(answered, page=page, summary=summary, profiled=found))
        for fault in faults:
            print(fault, file=sys.stderr)
    for scenario, row_id in unknown_rows(load_book(), cited):
        print(f"{scenario} cites {row_id}, which is not in the book's catalogue.", file=sys.stderr)
    for spoilt in damaged:
        print(spoilt.sentence, file=sys.stderr)


def _profiled(answered: Sequence[Answered], results: Path) -> tuple[Profiled | None, Sequence[UserError]]:
    """The record that the answer of a row rests on, with its profile; and what is damaged."""
    best = next((a.best for a in answered if a.best), None)
    try:
        return (profiled_record(best, results) if best else None), ()
    except UserError as error:
        return None, (error,)


def _row(row_id: str, chapters: list[str]) -> tuple[BookRow, ...]:
    """The row that is named. Raises UserError."""
    if chapters:
        raise not_together("--chapter", "a row")
    if (row := find_row(row_id)) is None:
        known = [each.id for each in load_book()]
        hint = nearest(row_id, known) or "aiperf book --chapter N lists the rows of a chapter."
        raise usage(f'"{row_id}" is not a row of the book.', hint)
    return (row,)
