"""The book beside the machine in every format: chapter by chapter, claim, measurement, answer.

What must not live here: answering (analysis/book.py), the HTML page (html/book_page.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from aiperf.analysis.book import ANSWERS, LADDERS, Answered, counts, stated_text
from aiperf.plan.book import APPENDIX
from aiperf.report.book_words import best_text, row_claim_text
from aiperf.report.layout.formats import Printed, document_json, records_csv
from aiperf.report.layout.page import Block, Page, Sentences, page_markdown
from aiperf.report.layout.table import Table, TableColumn, listing, table_lines
from aiperf.report.layout.text import Line, sentence_lines
from aiperf.report.mechanism import claim_sentences, sourced_sentences
from aiperf.report.numbers import counted
from aiperf.report.views.cells import another_plain
from aiperf.store.reference import Profiled

_ROWS = "aiperf book --chapter N lists the rows of a chapter with their measurements, aiperf book --all every row."
_STYLES = {"reproduced": "green", "stronger": "green", "not reproduced": "red", "weaker": "yellow", "partly": "yellow"}


@dataclass(frozen=True)
class BookLine:
    """A row of the book as programs get it: the claim, the measurement that answers it, the answer."""

    row: str
    weight: str
    lane: str
    scenarios: tuple[str, ...]
    answer: str
    agreeing: int
    cases: int
    missing: tuple[str, ...]
    """Named cases without a record."""
    differs: tuple[str, ...]
    """How the cited pairs differ from the row's set-up."""
    lacks: tuple[str, ...]
    """What each citation says that it lacks of the row; empty where one of them lacks nothing."""
    why: str
    mechanism: str
    """Why the sides differ, as the scenario says; of a claim that is not met alone."""
    counters: tuple[str, ...]
    """Whether the counters that the scenario names moved, in the case that the answer rests on; of a single row that
    rests on the last side against the first."""
    claim_low: float | None = None
    claim_high: float | None = None
    label: str = ""
    measured: float | None = None
    """The ratio of the case that the answer rests on, of which the fields below are too."""
    low: float | None = None
    high: float | None = None
    metric: str = ""
    verdict: str = ""
    provisional: bool | None = None
    case: str = ""
    side: str = ""
    host: str = ""
    here: bool | None = None
    run: str = ""
    another_low: float | None = None
    """Where the ratio is expected on another host of the kind (95 %), if enough hosts are known."""
    another_high: float | None = None
    hosts: int = 0
    """Hosts that this rests on."""


def chapter_title(name: str) -> str:
    """``Chapter 7`` or ``Appendix``."""
    return "Appendix" if name == APPENDIX else f"Chapter {int(name.removeprefix('ch'))}"


def by_chapter(answered: Iterable[Answered]) -> list[tuple[str, list[Answered]]]:
    """(chapter, its rows), in the book's order."""
    return [(name, list(rows)) for name, rows in groupby(answered, key=lambda a: a.row.chapter)]


def book_view(
    answered: Sequence[Answered],
    *,
    page: Page | None = None,
    summary: bool = False,
    profiled: Profiled | None = None,
) -> Printed:
    """Every row under its chapter, the counts and what each answer means; or another ``page`` of these rows.

    A ``summary`` leaves the rows out in a terminal and says how to see them. Of a single row only its answer is
    explained, and whether the counters that its scenario names moved, by what was ``profiled``.
    """
    below, counters = _counters(answered, profiled)
    one = len(answered) == 1
    meanings = [(a, means) for a, means in ANSWERS.items() if not one or a == answered[0].answer]
    chapters = [_chapter(name, own) for name, own in by_chapter(answered)]
    rules: Page = [
        *([] if one else [[lambda width: totals_lines(answered, width=width)]]),
        [listing(("answer", "it means"), meanings)],
        *([] if one else [[Sentences([LADDERS])]]),
    ]
    chapters += [[Sentences(below)]] if below else []
    whole: Page = [[Sentences(["The book and this machine"], mark="## ", dialect="markdown")], *chapters, *rules]
    short: Page = [*rules, [Sentences([_ROWS], dialect="terminal")]]
    lines = [_line(a, counters) for a in answered]
    # In JSON with all that the catalogue says of each row.
    document = [{**vars(line), "book": a.row} for line, a in zip(lines, answered, strict=True)]
    return Printed(
        page or (short if summary else whole),
        markdown=(lambda: page_markdown(whole)) if page is None else None,
        json=lambda: document_json(document),
        csv=lambda: records_csv(lines, kind=BookLine),
    )


def _counters(answered: Sequence[Answered], found: Profiled | None) -> tuple[list[str], tuple[str, ...]]:
    """What to say below a single row, and each claim of it with its result."""
    best = next((a.best for a in answered if a.best), None)
    if best is None or found is None or not found.record.case.moves:
        return [], ()
    if not (best.first and best.last):
        against = f"the answer rests on {best.side} against {best.against}"
        return [f"Counters are compared between the first and the last side of a case; {against}."], ()
    record, profile = found.record, found.profile
    return sourced_sentences(record, profile, found.origin), tuple(claim_sentences(record, profile))


def totals_lines(answered: Sequence[Answered], *, width: int) -> list[Line]:
    """How many rows of each chapter have which answer; a narrow terminal gets one sentence."""
    used = [answer for answer, number in counts(answered).items() if number]
    rows = []
    for name, own in [*by_chapter(answered), ("", list(answered))]:
        found = counts(own)
        rows.append([str(found[answer] or "") for answer in used] + [chapter_title(name) if name else "all"])
    table = table_lines(listing([*used, "rows of"], rows, right=range(len(used))), width=width)
    if max((len(line.text) for line in table), default=0) <= width:
        return table
    found = counts(answered)
    said = f"{len(answered)} rows: {', '.join(f'{found[answer]} {answer}' for answer in used)}."
    return sentence_lines([said], width)


def missing_page(
    rows: Sequence[Answered], *, unmeasured: Sequence[Answered] = (), chapters: Sequence[str] = ()
) -> Page:
    """The rows that must have a scenario and have none, and those whose scenario is ``unmeasured`` so far; of these
    ``chapters`` only."""
    said = []
    if unmeasured:
        many = f"{len(unmeasured)} {'have' if len(unmeasured) > 1 else 'has'} a scenario"
        said.append(f"{many} that has not been measured yet, here or in results/reference: {_ids(unmeasured)}.")
    if not rows:
        asked = f"of {', '.join(chapters)} " if chapters else ""
        every = f"Every core or useful row {asked}that can run has a scenario"
        said = [f"{every}.", *said]
        return [[Sentences(said)]]
    cells = [(a.row.id, a.row.lane, a.row.family, f"{a.row.before}, against {a.row.after}") for a in rows]
    said = [f"{counted(len(rows), 'core or useful row')} without a scenario.", *said]
    return [[listing(("row", "lane", "family", "before, against after"), cells)], [Sentences(said)]]


def texts(a: Answered) -> tuple[str, str, str, str, str, str]:
    """Row, scenarios, claim, measurement, answer and reason as people read them."""
    return (a.row.id, ", ".join(a.scenarios), row_claim_text(a.row), best_text(a), a.answer, reason_text(a))


def reason_text(a: Answered) -> str:
    """Why it is answered so, how the cited pairs differ from the row's set-up, and of a claim that is not met what the
    scenario says of its sides."""
    explained = f"The scenario says: {a.mechanism}" if a.mechanism else ""
    *said, last = [*filter(None, (a.why, stated_text("Differs", a.differs), explained))] or [""]
    return " ".join([*(f"{part.rstrip('.')}." for part in said), last])


def _chapter(name: str, answered: Sequence[Answered]) -> list[Block]:
    return [Sentences([chapter_title(name)], style="bold", mark="### "), _table(answered)]


def _table(answered: Sequence[Answered]) -> Table[Answered]:
    return Table(
        [
            TableColumn("row", "", lambda a: a.row.id, dialect="terminal"),
            TableColumn("answer", "", lambda a: a.answer, dialect="terminal"),
            TableColumn("row", "row", lambda a: a.row.id, dialect="markdown"),
            TableColumn("scenarios", "scenarios", lambda a: ", ".join(a.scenarios), dialect="markdown"),
            TableColumn("claim", "claimed", lambda a: row_claim_text(a.row), dialect="markdown"),
            TableColumn("measured", "measured", best_text, dialect="markdown"),
            TableColumn("answer", "answer", lambda a: a.answer, dialect="markdown"),
            TableColumn("why", "why", reason_text, dialect="markdown"),
        ],
        answered,
        below=_below,
        style=lambda a: _STYLES.get(a.answer, ""),
    )


def _below(a: Answered) -> list[Line]:
    """What is compared, claim, measurement, scenarios and reason."""
    said = [f"{a.row.before}, against {a.row.after}"]
    if a.best is not None or a.row.claim is not None:
        measured = f"; measured {best_text(a)}" if a.best is not None else ""
        said.append(f"claimed {row_claim_text(a.row)}{measured}")
    said += [f"scenario {', '.join(a.scenarios)}"] if a.scenarios else []
    said += [f"nearest: {a.row.nearest}"] if a.row.nearest and not a.scenarios else []
    said += [reason_text(a)] if reason_text(a) else []
    return [Line(text) for text in said]


def _ids(rows: Sequence[Answered]) -> str:
    return ", ".join(a.row.id for a in rows)


def _line(a: Answered, counters: tuple[str, ...]) -> BookLine:
    claim, best = a.row.claim, a.best
    found: dict[str, Any] = {}
    if claim:
        found |= {"claim_low": claim.low, "claim_high": claim.high, "label": claim.label}
    copied = ("low", "high", "metric", "verdict", "provisional", "case", "side", "host", "here", "run")
    if best:
        found |= {name: getattr(best, name) for name in copied} | {"measured": best.ratio} | another_plain(best.another)
    return BookLine(
        a.row.id,
        a.row.weight,
        a.row.lane,
        a.scenarios,
        a.answer,
        a.agreeing,
        a.cases,
        a.missing,
        a.differs,
        a.lacks,
        a.why,
        a.mechanism,
        counters,
        **found,
    )
