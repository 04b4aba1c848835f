"""The book beside the machine, for people and programs: chapter by chapter, claim, measurement, answer.

What must not live here: answering (analysis/book.py), the HTML page (html/book_page.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from aiperf.analysis.book import ANSWERS, LADDERS, Answered, counts
from aiperf.plan.book import APPENDIX
from aiperf.report.book_words import best_text, row_claim_text
from aiperf.report.columns import text_table
from aiperf.report.layout.table import escape, table_row
from aiperf.report.layout.text import Line, wrap
from aiperf.report.query_table import query_csv

_INDENT = " " * 24
_STYLES = {"reproduced": "green", "stronger": "green", "not reproduced": "red", "weaker": "yellow"}


def chapter_title(name: str) -> str:
    """``Chapter 7`` or ``Appendix``."""
    return "Appendix" if name == APPENDIX else f"Chapter {int(name.removeprefix('ch'))}"


def by_chapter(answered: Iterable[Answered]) -> list[tuple[str, list[Answered]]]:
    """(chapter, its rows), in the book's order."""
    return [(name, list(rows)) for name, rows in groupby(answered, key=lambda a: a.row.chapter)]


def book_lines(answered: Sequence[Answered], *, width: int = 100) -> list[Line]:
    """Every row under its chapter: the answer, then claim, measurement and reason; the counts come last."""
    lines: list[Line] = []
    for name, rows in by_chapter(answered):
        lines += [Line(chapter_title(name), "bold"), *(line for a in rows for line in _row(a, width)), Line("")]
    return [*lines, *totals_lines(answered, width=width)]


def totals_lines(answered: Sequence[Answered], *, width: int = 100) -> list[Line]:
    """How many rows of each chapter have which answer."""
    used = [answer for answer, number in counts(answered).items() if number]
    rows = []
    for name, own in [*by_chapter(answered), ("", list(answered))]:
        found = counts(own)
        rows.append([str(found[answer] or "") for answer in used] + [chapter_title(name) if name else "all"])
    table = text_table([*map(str, used), "rows of"], rows, width=width, right=range(len(used)))
    if max((len(line.text) for line in table), default=0) <= width:
        return table
    found = counts(answered)
    said = f"{len(answered)} rows: {', '.join(f'{found[answer]} {answer}' for answer in used)}."
    return [Line(part) for part in wrap(said, width)]


def missing_lines(
    rows: Sequence[Answered],
    *,
    waiting: Sequence[Answered] = (),
    unmeasured: Sequence[Answered] = (),
    chapters: Sequence[str] = (),
    width: int = 100,
) -> list[Line]:
    """The rows that must have a scenario and have none, those ``waiting`` for a family, and how many scenarios have
    been ``unmeasured`` so far; of these ``chapters`` only."""
    said = []
    if waiting:
        many = f"{len(waiting)} more wait{'s'[: len(waiting) == 1]}"
        said.append(f"{many} for families of workloads that come later: {_ids(waiting)}.")
    if unmeasured:
        many = f"{len(unmeasured)} {'have' if len(unmeasured) > 1 else 'has'} a scenario"
        said.append(f"{many} that was not measured yet, here or in results/reference: {_ids(unmeasured)}.")
    if not rows:
        asked = ", ".join(chapters) if chapters else "chapters 1 to 14 and the appendix"
        every = f"Every core row of {asked} that a CPU or one GPU can run has a scenario"
        said = [f"{every}{' where its workloads exist' if waiting else ''}.", *said]
        return [Line(part) for text in said for part in wrap(text, width)]
    cells = [(a.row.id, a.row.lane, a.row.family, f"{a.row.before}, against {a.row.after}") for a in rows]
    table = text_table(("row", "lane", "family", "before, against after"), cells, width=width)
    said = [f"{len(rows)} core row{'s' if len(rows) > 1 else ''} without a scenario.", *said]
    return [*table, Line(""), *(Line(part) for text in said for part in wrap(text, width))]


def _ids(rows: Sequence[Answered]) -> str:
    return ", ".join(a.row.id for a in rows)


def rules_lines(*, width: int = 100) -> list[Line]:
    """What each answer means."""
    table = text_table(("answer", "it means"), list(ANSWERS.items()), width=width)
    return [*table, Line(""), *(Line(part) for part in wrap(LADDERS, width))]


def book_table(answered: Iterable[Answered]) -> tuple[list[str], list[list[Any]]]:
    """(columns, rows) for programs: numbers in full, one line a row of the book."""
    columns = ["row", "weight", "lane", "scenarios", "claim_low", "claim_high", "label"]
    columns += ["metric", "measured", "low", "high", "verdict", "provisional", "case", "side", "host", "here", "run"]
    columns += ["answer", "agreeing", "cases", "why"]
    return columns, [_cells(a) for a in answered]


def book_csv(answered: Iterable[Answered]) -> str:
    """Return the table as CSV."""
    return "".join(query_csv(*book_table(answered)))


def book_plain(answered: Iterable[Answered]) -> list[dict[str, Any]]:
    """Every row as a mapping, with all that the catalogue says of it."""
    return [{**dict(zip(*_named(a), strict=True)), "book": a.row} for a in answered]


def book_markdown(answered: Sequence[Answered]) -> str:
    """Return every chapter as a Markdown table."""
    titles = ("row", "scenarios", "claimed", "measured", "answer", "why")
    parts = ["## The book beside the machine", ""]
    for name, rows in by_chapter(answered):
        parts += [f"### {chapter_title(name)}", "", table_row(titles), table_row(["---"] * len(titles))]
        parts += [table_row([escape(cell) for cell in texts(a)]) for a in rows]
        parts.append("")
    return "\n".join(parts)


def texts(a: Answered) -> tuple[str, str, str, str, str, str]:
    """Row, scenarios, claim, measurement, answer and reason as people read them."""
    return (a.row.id, ", ".join(a.scenarios), row_claim_text(a.row), best_text(a), a.answer, a.why)


def _row(a: Answered, width: int) -> list[Line]:
    head = f" {a.answer:<22} {a.row.id}"
    said = []
    if a.best is not None or a.row.claim is not None:
        measured = f"; measured {best_text(a)}" if a.best is not None else ""
        said.append(f"claimed {row_claim_text(a.row)}{measured}")
    said += [f"scenario {', '.join(a.scenarios)}"] if a.scenarios else []
    said += [f"nearest: {a.row.nearest}"] if a.row.nearest and not a.scenarios else []
    said += [a.why] if a.why else []
    rest = [Line(part) for text in said for part in wrap(_INDENT + text, width, indent=_INDENT)]
    return [Line(head, _STYLES.get(a.answer, "")), *rest]


def _named(a: Answered) -> tuple[list[str], list[Any]]:
    columns, (cells,) = book_table([a])
    return columns, cells


def _cells(a: Answered) -> list[Any]:
    row, claim, best = a.row, a.row.claim, a.best
    claimed = [claim.low, claim.high, claim.label] if claim else [None, None, ""]
    found = [best.metric, best.ratio, best.low, best.high] if best else ["", None, None, None]
    judged = [best.word, best.provisional] if best else ["", None]
    where = [best.case, best.side, best.host, best.here, best.run] if best else ["", "", "", None, ""]
    last = [a.answer, a.agreeing, a.cases, a.why]
    return [row.id, row.weight, row.lane, list(a.scenarios), *claimed, *found, *judged, *where, *last]
