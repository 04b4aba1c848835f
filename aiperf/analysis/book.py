"""What a measured speedup says of the book's claim: one word a row, by rules with numbers.

What must not live here: reading records or the catalogue, printing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from aiperf.analysis.metrics import MEMORY
from aiperf.analysis.rows import ComparisonRow
from aiperf.plan.book import BookRow, Claim
from aiperf.plan.cited import Cited
from aiperf.scenario.citations import Citation

LEAST_SHARE, MOST_SHARE = 0.8, 1.25
"""A claim is met by an interval that overlaps these shares of it; below or above them it is missed or surpassed."""
Answer = Literal[
    "reproduced",
    "stronger",
    "weaker",
    "inconclusive",
    "not reproduced",
    "no claim of speed",
    "impossible as printed",
    "not runnable here",
    "not measured yet",
    "no scenario yet",
]
ANSWERS: Mapping[Answer, str] = {
    "reproduced": f"improved, and the interval overlaps {LEAST_SHARE:g} to {MOST_SHARE:g} times the claim; "
    "if the book gives no number, the verdict is the expected one (for memory, if the row is about memory)",
    "stronger": f"improved, and the whole interval is above {MOST_SHARE:g} times the claim",
    "weaker": f"improved, but the whole interval is below {LEAST_SHARE:g} times the claim",
    "inconclusive": "measured, but the verdict is inconclusive or invalid and the interval does not exclude the claim",
    "not reproduced": "equivalent or regressed where a gain is claimed; or inconclusive, but the whole interval is "
    f"below {LEAST_SHARE:g} times the claim",
    "no claim of speed": "measured, but the row is not about time, so a time can neither reproduce nor refute it",
    "impossible as printed": "the book's own numbers do not add up to what it claims; what was "
    "measured is shown but not judged",
    "not runnable here": "this host, or any host that the project can use, lacks what it needs",
    "not measured yet": "no stored record of this host and none in results/reference",
    "no scenario yet": "no scenario cites the row",
}
"""What each answer means. The order is also the order of preference: a row with several cases is answered by its best,
because the book claims a gain without saying at which size. How a ladder answers is said in LADDERS."""
LADDERS = (
    "A ladder answers a row by one side: the one that the scenario's citation names, the best of them if it names "
    "several (a sweep), or the last side if it names none. It is compared with the first side unless the citation "
    "names another."
)
_ORDER = {answer: place for place, answer in enumerate(ANSWERS)}


@dataclass(frozen=True, kw_only=True)
class Measured(ComparisonRow):
    """One comparison of the newest record of a case."""

    expect: str = ""
    """The verdict that the scenario expects, where it says so."""
    host: str = ""
    here: bool = True
    """Measured on this host; otherwise a reference record of another one."""
    first: bool = True
    """It is held against the first side of the case."""
    last: bool = True
    """Its side is the last one of the case."""
    run: str = ""
    scenario_hash: str = ""


@dataclass(frozen=True)
class Answered:
    """One row of the book with what was measured of it."""

    row: BookRow
    answer: Answer
    why: str = ""
    scenarios: tuple[str, ...] = ()
    best: Measured | None = None
    """The case that the answer rests on."""
    agreeing: int = 0
    """Cases with this answer."""
    cases: int = 0
    """Cases that were judged."""


def answer_rows(rows: Iterable[BookRow], cited: Sequence[Cited], measured: Sequence[Measured]) -> tuple[Answered, ...]:
    """Answer every row by the scenarios that cite it and what was measured of them."""
    citing: dict[str, list[Cited]] = {}
    for scenario in cited:
        for row_id in scenario.rows:
            citing.setdefault(row_id, []).append(scenario)
    by_scenario: dict[str, list[Measured]] = {}
    for found in measured:
        by_scenario.setdefault(found.scenario, []).append(found)
    return tuple(_answered(row, citing.get(row.id, []), by_scenario) for row in rows)


def counts(answered: Iterable[Answered]) -> dict[Answer, int]:
    """Answer -> how many rows, in the order of ANSWERS; zeros are kept."""
    found = Counter(a.answer for a in answered)
    return {answer: found[answer] for answer in ANSWERS}


def missing(answered: Iterable[Answered]) -> tuple[Answered, ...]:
    """Rows that must have a scenario and have none."""
    return tuple(a for a in answered if a.row.wanted and not a.scenarios)


def waiting(answered: Iterable[Answered]) -> tuple[Answered, ...]:
    """Rows without a scenario that must have one as soon as their family of workloads exists."""
    return tuple(a for a in answered if a.row.waiting and not a.scenarios)


def unmeasured(answered: Iterable[Answered]) -> tuple[Answered, ...]:
    """Rows that must have a scenario, have one, and are answered by no record."""
    return tuple(a for a in answered if a.row.wanted and a.scenarios and a.best is None and not a.row.impossible)


def unknown_rows(rows: Iterable[BookRow], cited: Iterable[Cited]) -> tuple[tuple[str, str], ...]:
    """(scenario, row id) of every cited row that the book does not have; ``rows`` are all of it."""
    known = {row.id for row in rows}
    return tuple((c.scenario, row_id) for c in cited for row_id in c.rows if row_id not in known)


def case_answer(claim: Claim | None, found: Measured) -> Answer:
    """What one case says of a claim."""
    if claim is None:
        return _direction(found.verdict, found.expect or "improved")
    gain, low, high = claim.low > 1, found.low or 0.0, found.high or math.inf
    if found.verdict == "invalid":
        return "inconclusive"
    if high < LEAST_SHARE * claim.low:
        return "weaker" if found.verdict == "improved" else "not reproduced"
    if found.verdict == "inconclusive":
        return "inconclusive"
    if low > MOST_SHARE * claim.high:
        return "stronger"
    return "reproduced" if found.verdict == "improved" or not gain else "not reproduced"


def _direction(word: str, expected: str) -> Answer:
    if word == expected:
        return "reproduced"
    return "inconclusive" if word in ("inconclusive", "invalid") else "not reproduced"


def _answered(row: BookRow, citing: Sequence[Cited], by_scenario: Mapping[str, Sequence[Measured]]) -> Answered:
    names = tuple(c.scenario for c in citing)
    about = [
        found
        for cited in citing
        for found in by_scenario.get(cited.scenario, ())
        if _answers(cited.named.get(row.id), found)
    ]
    about = _of_its_kind(row, about)
    gains = [found for found in about if not _is_control(row, found)]
    # Where every scenario of a row says that nothing is gained, what they measured is the answer.
    only_controls = {found.scenario for found in about} == {cited.scenario for cited in citing}
    judged = [(_row_answer(row, found), found) for found in (gains or (about if only_controls else ()))]
    judged.sort(key=lambda item: _ORDER[item[0]])
    if not judged:
        answer, why = _unmeasured(row, citing)
        return Answered(row, answer, why, names)
    answer, best = judged[0]
    agreeing = len({found.case for other, found in judged if other == answer})
    why = _of_a_measured_row(row, best, {c.scenario: c.hashes for c in citing})
    answer = "impossible as printed" if row.impossible else answer
    return Answered(row, answer, why, names, best, agreeing, len({found.case for _, found in judged}))


def _answers(citation: Citation | None, found: Measured) -> bool:
    """Whether a comparison is the one that a row is about."""
    if citation is None:
        return found.last and found.first
    return found.side in citation.sides and (found.against == citation.against if citation.against else found.first)


def _of_its_kind(row: BookRow, about: Sequence[Measured]) -> list[Measured]:
    """What speaks to a row: memory to one that gains it, where it was measured; times to all others."""
    kept = [found for found in about if found.metric in MEMORY] if row.gains else []
    return kept or [found for found in about if found.metric not in MEMORY]


def _is_control(row: BookRow, found: Measured) -> bool:
    """A case that expects no gain where the row claims one says nothing of the claim beside cases that expect it."""
    return row.claim is not None and row.claim.low > 1 and found.expect not in ("", "improved")


def _row_answer(row: BookRow, found: Measured) -> Answer:
    if found.metric in MEMORY:
        return _direction(found.verdict, "improved")
    return "no claim of speed" if row.not_time else case_answer(row.claim, found)


def _of_a_measured_row(row: BookRow, best: Measured, hashes: Mapping[str, tuple[str, ...]]) -> str:
    changed = best.scenario_hash not in (hashes.get(best.scenario) or (best.scenario_hash,))
    old = "Measured before its scenario file was changed." if changed else ""
    # So worded that it is not taken for a bound on what was measured.
    arithmetic = f"By the book's own numbers: {row.impossible}" if row.impossible else ""
    return " ".join(text for text in (_by_design(row, best), arithmetic or row.note, old) if text)


def _by_design(row: BookRow, best: Measured) -> str:
    """Why a verdict that is no gain of time stands for none against the row; empty where time is what it gains."""
    costs = best.verdict == "regressed"
    if best.metric in MEMORY:
        return f"Judged by memory: {row.not_time}."
    if row.not_time:
        return f"{'Costs time by design' if costs else 'Not judged by time'}: {row.not_time}."
    return "Costs time, as the scenario expects." if costs and best.expect == "regressed" else ""


def _unmeasured(row: BookRow, citing: Sequence[Cited]) -> tuple[Answer, str]:
    """Answer and reason of a row without a judged case."""
    if row.impossible:
        return "impossible as printed", row.impossible
    if not citing:
        if row.not_runnable:
            return "not runnable here", row.not_runnable
        return "no scenario yet", row.marginal
    if all(c.problem for c in citing):
        return "not runnable here", "; ".join(dict.fromkeys(c.problem for c in citing))
    gained = f"Will not be judged by time: {row.not_time}." if row.not_time else ""
    return "not measured yet", " ".join(text for text in (gained, row.note) if text)
