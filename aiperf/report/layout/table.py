"""The one table: declared columns over rows, laid out for a terminal or as Markdown.

What must not live here: what any table says. The rows themselves are what programs get (formats.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from aiperf.report.layout.text import Line, cell_count, clean_keep, cut_to, middle_cut, pad, wrap
from aiperf.report.numbers import DASH, clean

R = TypeVar("R")
R_contra = TypeVar("R_contra", contravariant=True)
Dialect = Literal["both", "terminal", "markdown"]
"""Where something is shown."""
_GAP = "  "
_NOTE = " " * 5


@dataclass(frozen=True)
class TableColumn(Generic[R_contra]):
    """One column: its header, what it says of a row, and what becomes of it where a terminal is narrow."""

    key: str
    """Name of the field that it shows; unique in the table."""
    header: str
    text: Callable[[R_contra], str]
    right: bool = False
    """Whether its cells are aligned to the right."""
    rank: int = 0
    """Narrow tables lose the column of the highest rank first, of equals the rightmost; rank 0 stays."""
    group: str = ""
    """Columns of one group go together; what is said to be lost is then this name."""
    fold: Literal["", "cut", "middle", "wrap"] = ""
    """What becomes of a column that is not lost when its rank's turn comes: cut at its end, in its middle, or (the
    last column) wrapped under itself."""
    least: int = 20
    """Cells that a folded column keeps."""
    most: int = 0
    """Cells that it takes at most; 0 is as many as it needs."""
    optional: bool = False
    """Whether it is left out where no row says anything in it."""
    quiet: bool = False
    """Whether its loss alone goes unmentioned, because other columns say enough of it."""
    markdown: Callable[[R_contra], str] | None = None
    """Its text in Markdown, where that differs."""
    dialect: Dialect = "both"


@dataclass(frozen=True)
class Table(Generic[R]):
    """Columns over rows, with what is written between the rows."""

    columns: Sequence[TableColumn[R]]
    rows: Sequence[R]
    headings: Sequence[str] = ()
    """One a row: a line above the first of several rows that share it; empty for none."""
    above: Callable[[R], Sequence[Line]] = field(default=lambda row: ())
    """Notes above a row; wrapped here."""
    below: Callable[[R], Sequence[Line]] = field(default=lambda row: ())
    """Notes below a row; wrapped here."""
    instead: Callable[[R], Line | None] = field(default=lambda row: None)
    """One sentence, wrapped here, in place of the cells of a row that has nothing to show in them."""
    style: Callable[[R], str] = field(default=lambda row: "")
    """Colour of a row's last cell."""
    indent: int = 1
    """Cells left free before the first column."""
    dialect: Dialect = "both"


@dataclass
class _Shown(Generic[R]):
    """A column that is still shown."""

    column: TableColumn[R]
    cells: dict[int, str]
    """Place of the row -> text."""
    size: int


def text_column(key: str, header: str, place: int, **more: Any) -> TableColumn[Sequence[str]]:
    """The column at ``place`` of rows that are sequences of texts."""
    return TableColumn(key, header, lambda row: row[place], **more)


def listing(
    headers: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = (), dialect: Dialect = "both"
) -> Table[Sequence[str]]:
    """A table of texts whose last column is wrapped; those at the places ``right`` are aligned to the right instead."""
    wrapped = {len(headers) - 1} - {*right}
    columns = [
        text_column(str(place), header, place, right=place in right, fold="wrap" if place in wrapped else "")
        for place, header in enumerate(headers)
    ]
    return Table(columns, rows, dialect=dialect)


def table_lines(table: Table[R], *, width: int, narrow: bool = True) -> list[Line]:
    """Lay the table out in at most ``width`` cells; what found no room is said below. Nothing for no rows.

    Unless it is ``narrow``, each row is one line, and only sentences are wrapped at ``width``.
    """
    replaced = {place: line for place, row in enumerate(table.rows) if (line := table.instead(row))}
    shown, lost = fitted(table, width=width, narrow=narrow, without=replaced)
    lines: list[Line] = []
    if len(replaced) < len(table.rows) and any(own.column.header for own in shown):
        lines += _row_lines([own.column.header for own in shown], shown, table.indent, style="bold", whole=True)
    # Names that differ only where the cut falls are written in full below.
    named = next((own for own in shown if own.column.fold == "middle"), None)
    cuts = Counter(_cut(text, named) for text in set(named.cells.values())) if named else Counter[str]()
    heading = ""
    for place, row in enumerate(table.rows):
        above = table.headings[place] if table.headings else ""
        if above and above != heading:
            lines += [Line(part) for part in wrap(f" {clean(above)}", width, indent=_NOTE)]
        heading = above
        lines += _notes(table.above(row), width)
        if place in replaced:
            whole = replaced[place]
            first, *rest = wrap(whole.text, width, indent=_NOTE)
            lines += [Line(first, whole.style, whole.start), *(Line(part, whole.style) for part in rest)]
        else:
            lines += _row_lines([own.cells[place] for own in shown], shown, table.indent, style=table.style(row))
            if named and cuts[_cut(named.cells[place], named)] > 1:
                lines += _notes([Line(named.cells[place], "dim")], width)
        lines += _notes(table.below(row), width)
    return [*lines, *left_out(lost, width)]


def fitted(
    table: Table[R], *, width: int, narrow: bool = True, without: Container[int] = ()
) -> tuple[list[_Shown[R]], list[str]]:
    """The columns that fit in ``width`` cells with their sizes, and the headers of those that found no room.

    Unless the table is ``narrow``, none gives way.
    """
    places = [place for place in range(len(table.rows)) if place not in without]
    shown: list[_Shown[R]] = []
    for column in table.columns:
        if column.dialect == "markdown":
            continue
        cells = {place: clean_keep(column.text(table.rows[place])) for place in places}
        if not column.optional or any(cell not in ("", DASH) for cell in cells.values()):
            size = max(map(cell_count, (column.header, *cells.values())))
            shown.append(_Shown(column, cells, min(size, column.most) if column.most and narrow else size))
    every = list(shown)
    while narrow and places and (over := _width(shown, table.indent) - width) > 0:
        droppable = [own for own in shown if own.column.rank and not own.column.fold]
        top = max((own.column.rank for own in droppable), default=0)
        folded = next((own for own in shown if own.column.fold and own.column.rank >= top), None)
        if folded and (folded.size - over >= min(folded.column.least, folded.size) or not droppable):
            folded.size = max(folded.column.least if folded.column.fold == "wrap" else 1, folded.size - over)
            break
        if not droppable:
            break
        gone = next(own.column for own in reversed(droppable) if own.column.rank == top)
        shown = [own for own in shown if own.column is not gone and not (gone.group and own.column.group == gone.group)]
    lost = [own.column for own in every if own not in shown]
    named = list(dict.fromkeys(column.group or column.header for column in lost))
    return shown, named if any(not column.quiet for column in lost) else []


def left_out(lost: Sequence[str], width: int) -> list[Line]:
    """Say which columns found no room."""
    said = f" no room for {', '.join(lost)}: widen the terminal or export"
    return [Line(part, "dim") for part in wrap(said, width, indent="   ")] if lost else []


def table_markdown(table: Table[R]) -> list[str]:
    """The table in Markdown, each row in its cells; nothing for no rows."""
    columns = [column for column in table.columns if column.dialect != "terminal"]
    cells = [[clean((column.markdown or column.text)(row)) for column in columns] for row in table.rows]
    kept = [
        place
        for place, column in enumerate(columns)
        if not column.optional or any(row[place] not in ("", DASH) for row in cells)
    ]
    if not cells:
        return []
    titles = [escape(columns[place].header) for place in kept]
    rule = ["---:" if columns[place].right else "---" for place in kept]
    return [table_row(titles), table_row(rule), *(table_row([escape(row[place]) for place in kept]) for row in cells)]


def table_row(cells: Sequence[str]) -> str:
    """One line of a Markdown table; the cells are escaped already."""
    return f"| {' | '.join(cells)} |"


def escape(text: str) -> str:
    """``text`` as Markdown shows it, whatever marks it holds."""
    for mark in ("\\", "|", "`", "*", "_", "<", "["):
        text = text.replace(mark, f"\\{mark}")
    return text


def _width(shown: Sequence[_Shown[R]], indent: int) -> int:
    return indent + sum(own.size for own in shown) + len(_GAP) * (len(shown) - 1)


def _cut(text: str, own: _Shown[R]) -> str:
    return (middle_cut if own.column.fold == "middle" else cut_to)(text, own.size)


def _row_lines(
    cells: Sequence[str], shown: Sequence[_Shown[R]], indent: int, *, style: str, whole: bool = False
) -> list[Line]:
    """One row: its cells in their columns, a wrapped last cell on lines of its own; the last cell is coloured."""
    *_, last = shown
    lead = " " * indent
    for cell, own in zip(cells[:-1], shown[:-1], strict=True):
        lead += pad(_cut(cell, own), own.size, right=own.column.right) + _GAP
    if last.column.fold == "wrap":
        first, *rest = wrap(cells[-1], last.size) if cells[-1] else [""]
    else:
        first, rest = pad(_cut(cells[-1], last), last.size if last.column.right else 0, right=True), []
    text = (lead + first).rstrip()
    start = 0 if whole else max(0, len(text) - len(first.strip()))
    indented = " " * cell_count(lead)
    return [Line(text, style, start), *(Line(indented + part, style) for part in rest)]


def _notes(notes: Sequence[Line], width: int) -> list[Line]:
    return [Line(part, note.style) for note in notes for part in wrap(_NOTE + clean(note.text), width, indent=_NOTE)]
