"""The formats that commands print in: which there are, which one was asked for, and printing it.

What must not live here: what a command prints. A command hands over a ``Printed``; adding a format is a field of it.
"""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

from aiperf.errors import UserError, invalid_value, usage
from aiperf.report.layout.page import Page, page_lines, page_markdown
from aiperf.report.layout.terminal import is_narrow, show, terminal_width
from aiperf.report.numbers import clean, known
from aiperf.store.cells import inert
from aiperf.store.codec import dump_json, to_plain


class OutputFormat(StrEnum):
    """How a command prints what it found."""

    table = "table"
    markdown = "markdown"
    csv = "csv"
    json = "json"


Text = str | Iterable[str]
"""A document, whole or in pieces."""


@dataclass(frozen=True)
class Printed:
    """What a command prints, in every format that it has."""

    page: Page
    """For people, in a terminal and as Markdown."""
    json: Callable[[], Text]
    csv: Callable[[], Text] | None = None
    """None where it has none."""
    markdown: Callable[[], Text] | None = None
    """Its Markdown, where that is not the page's."""


def chosen_format(
    text: str, *, as_json: bool = False, allowed: Sequence[OutputFormat] = tuple(OutputFormat)
) -> OutputFormat:
    """The format that ``--format`` and ``--json`` name. Raises UserError for one that the command does not print."""
    form = "json" if as_json else text
    if form not in allowed:
        raise UserError(invalid_value("--format", form, allowed))
    return OutputFormat(form)


def print_in(form: OutputFormat, printed: Printed, *, warnings: Sequence[str] = ()) -> None:
    """Print to stdout; ``warnings`` go to stderr, but with JSON, which holds them itself.

    Raises UserError for CSV of what has none; commands without CSV refuse it before they begin (``chosen_format``).
    """
    if form is OutputFormat.table:
        show(page_lines(printed.page, width=terminal_width(sys.stdout), narrow=is_narrow(sys.stdout)))
    else:
        made = _document(form, printed)
        sys.stdout.writelines([made] if isinstance(made, str) else made)
    for warning in warnings if form is not OutputFormat.json else ():
        print(warning, file=sys.stderr)


def printed_listing(rows: Sequence[Any], page: Page, *, kind: type[Any] | None = None) -> Printed:
    """A listing in every format: ``page`` for people, the records ``rows`` (of the dataclass ``kind``) for programs."""
    return Printed(page, json=lambda: document_json(list(rows)), csv=lambda: records_csv(rows, kind=kind))


def _document(form: OutputFormat, printed: Printed) -> Text:
    if form is OutputFormat.json:
        return printed.json()
    if form is OutputFormat.markdown:
        return printed.markdown() if printed.markdown else page_markdown(printed.page)
    if printed.csv is None:
        raise usage("this command has no CSV output.", "Use --format json, or aiperf export.", where="--format")
    return printed.csv()


def document_json(document: Any) -> str:
    """One JSON document; what was not measured is null."""
    return dump_json(document).decode("utf-8")


def records_csv(
    rows: Sequence[Any], *, kind: type[Any] | None = None, more: Sequence[Mapping[str, Any]] = ()
) -> Iterator[str]:
    """Records of one dataclass as CSV: a header of its fields, then raw numbers in SI units, text on one line.

    ``kind`` is their class where there may be none; ``more`` are further values of each row, by column.
    """
    kind = kind or (type(rows[0]) if rows else None)
    names = [f.name for f in fields(kind)] if kind else []
    added = list(more[0]) if more else []
    yield csv_line([*names, *added])
    for place, row in enumerate(rows):
        beside = more[place] if more else {}
        yield csv_line([*(plain_cell(getattr(row, name)) for name in names), *(plain_cell(beside[a]) for a in added)])


def csv_line(cells: Sequence[Any]) -> str:
    """One line of CSV, ended by a newline alone."""
    out = io.StringIO()
    # With this end csv quotes a lone carriage return, which readers take for the end of a row.
    csv.writer(out, lineterminator="\r\n").writerow(map(inert, cells))
    return out.getvalue().removesuffix("\r\n") + "\n"


def plain_cell(value: Any) -> Any:
    """A value as a CSV cell holds it: sequences joined, mappings as JSON; what was not measured is empty."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(value) if known(value) else ""
    if isinstance(value, tuple | list):
        return " | ".join(clean(str(one)) for one in value)
    plain = to_plain(value)
    return json.dumps(plain, ensure_ascii=False) if isinstance(plain, dict) else "" if plain is None else plain
