"""The table for people at a terminal: fits the width, says everything in words, colour only underlines them.

What must not live here: rows being built, verdicts, other dialects.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TextIO

from aiperf.records import CUT_SHORT, RunRecord
from aiperf.report.numbers import confidence
from aiperf.report.summary import header_lines
from aiperf.report.table import Row, Table
from aiperf.report.touched import touched_lines

PIPED_WIDTH = 100
"""Width of a table that goes to a file or a pipe, unless COLUMNS says otherwise."""
STYLES = {
    "improved": "green",
    "regressed": "red",
    "equivalent": "cyan",
    "inconclusive": "yellow",
    "invalid": "bold red",
    "failed": "bold red",
    "skipped": "dim",
    "interrupted": "yellow",
    "unfit": "bold red",
    "not begun": "dim",
    "no record": "bold red",
}
_GAP = 2
_VALUES = 4
"""The first columns: both values, the speedup and its interval."""
_MIN_LABEL = 12
_MAX_LABEL = 44


@dataclass(frozen=True)
class Line:
    """One line of output: its text, and which part of it a colour may underline."""

    text: str
    style: str = ""
    start: int = 0
    """Where the styled part begins."""


@dataclass(frozen=True)
class _Column:
    title: str
    cell: Callable[[Row], str]


def table_lines(table: Table, *, width: int = PIPED_WIDTH, every_metric: bool = False) -> list[Line]:
    """Lay the table out in at most ``width`` cells: columns are lost from the right, then the values of both sides.

    The speedup goes only where nothing else is left beside it, the verdict never; what is lost is said below
    once a value or the interval is among it.

    ``every_metric`` shows the rows that only inform as well as those that the cases are about.
    """
    groups = [(name, [r for r in rows if r.headline or r.is_price or every_metric]) for name, rows in table.groups()]
    shown = [row for _, rows in groups for row in rows if row.verdict]
    every = _columns(table)
    columns, label, sizes = _fit(shown, every, width)
    lines = []
    if shown:
        cells = [column.title for column in columns]
        lines.append(Line(_join(" scenario / case", cells, label, sizes).rstrip(), "bold"))
    for name, rows in groups:
        lines.extend(_group_lines(name, rows, columns=columns, label=label, sizes=sizes, width=width))
    lost = [column.title for column in every if column not in columns]
    # Of the limit and the change the other columns tell enough.
    told = shown and any(column.title in lost for column in every[:_VALUES])
    return [*lines, *left_out(lost, width)] if told else lines


def left_out(titles: Sequence[str], width: int) -> list[Line]:
    """Say which columns found no room."""
    said = f" no room for {', '.join(titles)}: widen the terminal or export"
    return [Line(part, "dim") for part in wrap(said, width, indent="   ")] if titles else []


def run_lines(
    run: RunRecord,
    table: Table,
    *,
    summary: str,
    width: int = PIPED_WIDTH,
    every_metric: bool = False,
    footer: Sequence[str] = (),
) -> list[Line]:
    """Lay out the whole report of a run: header, table, summary line, footer lines."""
    lines = [Line(part) for text in header_lines(run) for part in wrap(text, width)]
    lines += [Line(""), *table_lines(table, width=width, every_metric=every_metric), Line("")]
    told = [Line(part) for text in touched_lines(table) for part in wrap(f" {text}", width, indent="     ")]
    lines += [*told, Line("")] if told else []
    return lines + [Line(part) for text in (summary, *footer) for part in wrap(text, width)]


def plain(lines: Iterable[Line]) -> str:
    """Join lines as text without any control character but the newline."""
    return "".join(f"{line.text}\n" for line in lines)


def terminal_width(file: TextIO) -> int:
    """Cells to fill: the terminal's width, COLUMNS, or ``PIPED_WIDTH``; never under 40."""
    fallback = shutil.get_terminal_size((PIPED_WIDTH, 24)).columns
    if file.isatty() or os.environ.get("COLUMNS", "").isdigit():
        return max(40, fallback)
    return PIPED_WIDTH


def show(lines: Iterable[Line], *, file: TextIO | None = None) -> None:
    """Print lines, coloured when ``file`` (stdout) is a terminal that wants it; NO_COLOR is honoured."""
    out = file or sys.stdout
    if not out.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        out.write(_encodable(plain(lines), out))
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(file=out, highlight=False, markup=False, emoji=False)
    for line in lines:
        text = Text(line.text)
        if line.style:
            text.stylize(line.style, line.start)
        console.print(text, soft_wrap=True)


def wrap(text: str, width: int, *, indent: str = "") -> list[str]:
    """``text`` in lines of at most ``width`` cells, broken between words; later lines begin with ``indent``."""
    lead = text[: len(text) - len(text.lstrip(" "))]
    lines, current = [], lead
    for word in text.split(" ")[len(lead) :]:
        trial = f"{current} {word}" if current.strip() else current + word
        if cell_count(trial) > width and current.strip():
            lines.append(current)
            current = indent + word
        else:
            current = trial
        while cell_count(current) > width:
            lines.append(cut_to(current, width, mark=""))
            current = indent + current[len(lines[-1]) :]
    return [*lines, current]


def _columns(table: Table) -> list[_Column]:
    interval = f"{confidence(table.alpha)} interval" if table.alpha is not None else "interval"
    # Lost before the interval, after the limit and the change: who profiled wants to see it.
    mechanism = [_Column("mechanism", lambda r: r.mechanism)] if any(r.mechanism for r in table.rows) else []
    return [
        _Column("before", lambda r: r.before_text),
        _Column("after", lambda r: r.after_text),
        _Column("speedup", lambda r: r.speedup_text),
        _Column(interval, lambda r: r.interval_text),
        *mechanism,
        _Column("of limit", lambda r: r.limit_text),
        _Column("change", lambda r: r.change_text),
        _Column("verdict", lambda r: r.verdict_text),
    ]


def _fit(rows: Sequence[Row], columns: list[_Column], width: int) -> tuple[list[_Column], int, list[int]]:
    """Columns that fit beside the longest label, the label's width and theirs."""
    label = min(_MAX_LABEL, max([cell_count(" scenario / case"), *(cell_count(_label(r)) for r in rows)]))
    kept, values, ratio = list(columns), columns[:2], columns[2:3]
    losses = [*([column] for column in reversed(columns[3:-1])), values, ratio]
    while True:
        sizes = [max([cell_count(c.title), *(cell_count(c.cell(r)) for r in rows)]) for c in kept]
        room = width - sum(size + _GAP for size in sizes)
        if room >= label or (room >= _MIN_LABEL and _squeeze(kept)):
            return kept, min(label, room), sizes
        if not losses:
            return kept, max(1, room), sizes
        gone = losses.pop(0)
        kept = [column for column in kept if column not in gone]


def _squeeze(kept: Sequence[_Column]) -> bool:
    """Whether cutting labels short is better than losing another column: once only the ratio is left."""
    return len(kept) <= 4


def _group_lines(
    name: str, rows: Sequence[Row], *, columns: Sequence[_Column], label: int, sizes: Sequence[int], width: int
) -> list[Line]:
    with_values = [row for row in rows if row.verdict]
    if not with_values and len({(r.status, r.sentence) for r in rows}) == 1:
        return _bare_lines(f" {name}", rows[0], width=width, count=len(rows))
    lines = [Line(cut_to(f" {name}", width))]
    for row in rows:
        if not row.verdict:
            lines.extend(_bare_lines(_label(row), row, width=width))
            continue
        text = _join(_label(row), [column.cell(row) for column in columns], label, sizes).rstrip()
        word = row.verdict_text
        lines.append(Line(text, STYLES.get(row.verdict, ""), len(text) - len(word)))
        lines.extend(Line(part) for note in _notes(row) for part in wrap(f"     {note}", width, indent="     "))
    return lines


def _bare_lines(head: str, row: Row, *, width: int, count: int = 1) -> list[Line]:
    """Say of a case without a verdict its status and reason beside its name."""
    cases = f" ({count} cases)" if count > 1 else ""
    fix = f"; {row.fix}" if row.fix else ""
    word = row.status if row.status != "measured" else "not compared"
    text = f"{head}   {word}: {row.sentence}{fix}{cases}"
    first, *rest = wrap(text, width, indent="     ")
    return [Line(first, STYLES.get(row.status, ""), len(head)), *(Line(r, STYLES.get(row.status, "")) for r in rest)]


def _notes(row: Row) -> list[str]:
    """Say what the row's numbers do not."""
    notes = []
    if row.verdict in ("invalid", "interrupted", "unfit") or (
        row.verdict == "inconclusive" and row.reason != "interval_straddles"
    ):
        notes.append(row.sentence)
    if row.quality:
        notes.append(f"check: {row.quality}")
    if row.mechanism_note:
        notes.append(row.mechanism_note)
    expected = row.expect if row.headline and row.against in ("before", "") else ""
    if expected and row.verdict not in (expected, "inconclusive", "invalid", *CUT_SHORT):
        notes.append(f"the scenario expects: {expected}")
    return [note for note in notes if note]


def _label(row: Row) -> str:
    return f"   {row.name}" if row.headline else f"     {row.name}"


def _join(label: str, cells: Sequence[str], size: int, sizes: Sequence[int]) -> str:
    """One line: the label to the left, values to the right of their columns, the verdict to the left of its own."""
    parts = [pad(cut_to(label, size), size)]
    parts += [pad(cell, width, right=True) for cell, width in zip(cells[:-1], sizes[:-1], strict=True)]
    return (" " * _GAP).join([*parts, cells[-1]])


def pad(text: str, size: int, *, right: bool = False) -> str:
    """``text`` filled up with spaces to ``size`` cells."""
    space = " " * max(0, size - cell_count(text))
    return space + text if right else text + space


def cut_to(text: str, size: int, *, mark: str = "…") -> str:
    """``text`` in at most ``size`` cells; ``mark`` stands for what was cut."""
    if cell_count(text) <= size:
        return text
    kept = text
    while kept and cell_count(kept) + len(mark) > size:
        kept = kept[:-1]
    return kept + mark if size > len(mark) else mark


def cell_count(text: str) -> int:
    """Cells that a text takes on a terminal: two for a wide character."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _encodable(text: str, out: TextIO) -> str:
    """``text`` as the stream's encoding can hold it (LANG=C pipes are ASCII on some systems)."""
    encoding = getattr(out, "encoding", None) or "utf-8"
    return text.encode(encoding, "replace").decode(encoding)
