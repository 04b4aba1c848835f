"""Lines of a terminal: measuring, padding, cutting and wrapping text by cells.

What must not live here: tables, colours being printed, what any line says.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from aiperf.report.numbers import clean

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
    "passed": "green",
    "no baseline": "yellow",
    "not comparable": "bold red",
}
"""Colour of a verdict, or of the status of a case without one."""


@dataclass(frozen=True)
class Line:
    """One line of output: its text, and which part of it a colour may underline."""

    text: str
    style: str = ""
    start: int = 0
    """Where the styled part begins."""


def plain(lines: Iterable[Line]) -> str:
    """Join lines as text without any control character but the newline."""
    return "".join(f"{line.text}\n" for line in lines)


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


def sentence_lines(
    texts: Iterable[str], width: int, *, lead: str = "", indent: str = "", style: str = ""
) -> list[Line]:
    """Sentences, each wrapped: the first line begins with ``lead``, later ones with ``indent``."""
    return [Line(part, style) for text in texts for part in wrap(f"{lead}{clean_keep(text)}", width, indent=indent)]


def pad(text: str, size: int, *, right: bool = False) -> str:
    """``text`` filled up with spaces to ``size`` cells; ``right`` aligns it to the right."""
    space = " " * max(0, size - cell_count(text))
    return space + text if right else text + space


def cut_to(text: str, size: int, *, mark: str = "…") -> str:
    """``text`` in at most ``size`` cells; ``mark`` replaces what was cut from its end."""
    if cell_count(text) <= size:
        return text
    kept = text
    while kept and cell_count(kept) + len(mark) > size:
        kept = kept[:-1]
    return kept + mark if size > len(mark) else mark


def middle_cut(text: str, size: int) -> str:
    """``text`` in at most ``size`` cells, cut in its middle: names of kernels differ at their ends."""
    if cell_count(text) <= size:
        return text
    if size < 5:
        return cut_to(text, size)
    tail = text
    while cell_count(tail) > (size - 1) // 2:
        tail = tail[1:]
    return cut_to(text, size - cell_count(tail) - 1, mark="") + "…" + tail


def cell_count(text: str) -> int:
    """Cells that a text takes on a terminal: two for a wide character."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def clean_keep(line: str) -> str:
    """``clean`` that keeps the indentation."""
    return line[: len(line) - len(line.lstrip(" "))] + clean(line)
