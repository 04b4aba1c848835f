"""What a measured speedup says of the book's claim: one word a row, by rules with numbers.

What must not live here: reading records or the catalogue, printing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from aiperf.analysis.metrics import MEMORY, metric_of, speed_metric
from aiperf.analysis.over_hosts import CaseOverHosts
from aiperf.analysis.rows import ComparisonRow
from aiperf.plan.book import BookRow, Claim
from aiperf.plan.cited import Cited
from aiperf.records import Case
from aiperf.scenario.citations import Citation

LEAST_SHARE, MOST_SHARE = 0.8, 1.25
"""A claim is met by an interval that overlaps these shares of it; below or above them it is missed or surpassed."""
Answer = Literal[
    "reproduced",
    "stronger",
    "weaker",
    "inconclusive",
    "not reproduced",
    "partly",
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
    "partly": "a part of the row is reproduced: others of the cases that the citations name have no record or another "
    "answer, or the citations lack something that the row asks for",
    "no claim of speed": "measured, but the row is not about time, so a time can neither confirm nor refute it",
    "impossible as printed": "the book's own numbers do not add up to what it claims; what was "
    "measured is shown but not judged",
    "not runnable here": "this host, or every host that the project can use, lacks something the row needs",
    "not measured yet": "no stored record of the named cases, from this host or in results/reference",
    "no scenario yet": "no scenario cites the row",
}
"""What each answer means. The first ones stand from good to bad: where none of several cases reproduces the row, the
worst answer is the row's. How cases and the sides of a ladder answer is said in LADDERS."""
LADDERS = (
    "A row is judged only by the cases that its citations name: all of them must have a record, and all must "
    "reproduce it. "
    "If each of the citations lacks something that the row asks for, the row is reproduced only partly. "
    "A ladder answers a row with one side: the one that the scenario's citation names, the best one if it names "
    "several (a sweep), or the last one if it names none. It is compared with the first side unless the citation "
    "names another. "
    "If a scenario expects a gain in some of the named cases and none in others, the others reproduce the row with "
    "the verdict expected of them, on every side that is named. "
    "A case uses its newest record; for a row that needs a GPU, the newest one from a GPU, if there is one."
)
GOOD: tuple[Answer, ...] = ("reproduced", "stronger")
UNMET: tuple[Answer, ...] = ("weaker", "not reproduced")
_GAIN = ("", "improved")
"""What a scenario expects where it expects a gain; no word means one, too."""
_ORDER = {answer: place for place, answer in enumerate(ANSWERS)}


@dataclass(frozen=True, kw_only=True)
class Measured(ComparisonRow):
    """One comparison of the newest record of a case."""

    expect: str = ""
    """The verdict that the scenario expected, where it said so; rows are answered by what it expects now."""
    host: str = ""
    here: bool = True
    """Measured on this host; otherwise a reference record of another one."""
    first: bool = True
    """It is held against the first side of the case."""
    last: bool = True
    """Its side is the last one of the case."""
    run: str = ""
    scenario_hash: str = ""
    gpu: bool = False
    """The case ran on a GPU."""
    newest: bool = True
    """No record of its case is newer; of those with a GPU and those without, one each is told."""
    another: CaseOverHosts | None = None
    """The same comparison on hosts of the kind, where they are enough to predict another one's."""


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
    """Cases with this answer; of a row that is answered in part, those that reproduce it."""
    cases: int = 0
    """Cases that were judged."""
    missing: tuple[str, ...] = ()
    """Ids of the named cases without a record."""
    differs: tuple[str, ...] = ()
    """How the cited pairs differ from the row's set-up."""
    lacks: tuple[str, ...] = ()
    """What each citation says that it lacks of the row; empty where one of them lacks nothing."""
    mechanism: str = ""
    """Why the sides of ``best`` differ, as its scenario says; of a row that is weaker or not reproduced alone."""


def answer_rows(rows: Iterable[BookRow], cited: Sequence[Cited], measured: Sequence[Measured]) -> tuple[Answered, ...]:
    """Answer every row by the scenarios that cite it and what was measured of them.

    What a scenario expects of a case is taken from its file as it is now, not from the record: it was not measured.
    """
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
    names, differs = tuple(c.scenario for c in citing), _stated(row, citing, "differs")
    citations = {c.scenario: c.named.get(row.id, Citation(row.id)) for c in citing}
    about = [found for name in names for found in by_scenario.get(name, ()) if _answers(citations[name], found)]
    about = _of_its_machine(row, about)
    about = _of_its_kind(row, [_expected(citations[found.scenario], found) for found in about])
    controls = {name for name in names if _is_control(row, citations[name])}
    controls -= {found.scenario for found in about if found.expect in _GAIN}
    # Where every scenario of a row says that nothing is gained, what they measured is the answer.
    passed_over: set[str] = set() if controls == set(names) else controls
    wanted = [case for name in names if name not in passed_over for case in _cases(citations[name], name)]
    complete = any(not citations[name].lacks for name in names if name not in passed_over)
    lacks = () if complete else _stated(row, citing, "lacks")
    kept = [found for found in about if found.scenario not in passed_over]
    judged = _by_case(row, kept, crossing=controls != set(names))
    if not judged:
        answer, why = _unmeasured(row, citing)
        why = " ".join(filter(None, (stated_text("Lacks", lacks), why)))
        return Answered(row, answer, why, names, missing=tuple(wanted), differs=differs, lacks=lacks)
    lacking = tuple(case for case in wanted if case not in judged)
    answer = _together([answer for answer, _ in judged.values()], whole=not (lacking or lacks))
    shown, best = min(judged.values(), key=lambda item: _place(*item, together=answer))
    agreed = GOOD if answer == "partly" else (answer,)
    agreeing = sum(other in agreed for other, _ in judged.values())
    others = {case: other for case, (other, _) in judged.items() if other not in (*GOOD, shown)}
    why = _of_a_measured_row(row, best, {c.scenario: c.hashes for c in citing})
    still_open = _still_open(lacking, others if answer == "partly" else {})
    why = " ".join(filter(None, (still_open, stated_text("Lacks", lacks), why)))
    answer = "impossible as printed" if row.impossible else answer
    mechanism = next((c.why for c in citing if answer in UNMET and c.scenario == best.scenario), "")
    return Answered(row, answer, why, names, best, agreeing, len(judged), lacking, differs, lacks, mechanism)


def _cases(citation: Citation, scenario: str) -> list[str]:
    """Ids of the cases that a citation names."""
    return [f"{scenario}[{point}]" if point else scenario for point in citation.cases]


def _answers(citation: Citation, found: Measured) -> bool:
    """Whether a comparison is one that a citation names."""
    if found.case not in _cases(citation, found.scenario):
        return False
    if not citation.sides:
        return found.last and found.first
    return found.side in citation.sides and (found.against == citation.against if citation.against else found.first)


def _expected(citation: Citation, found: Measured) -> Measured:
    """A comparison with what the file expects of its case now; it expects something of one metric and side alone."""
    verdicts = dict(zip(_cases(citation, found.scenario), citation.expect, strict=False))
    return replace(found, expect=verdicts.get(found.case, "") if found.first and found.primary else "")


def _by_case(row: BookRow, about: Sequence[Measured], *, crossing: bool) -> dict[str, tuple[Answer, Measured]]:
    """Case -> its answer and the side that gives it. Where the citation names several, one that gains is enough for a
    gain, and all must agree where none is expected; of sides with one answer it is the fastest."""
    judged: dict[str, tuple[Answer, Measured]] = {}
    answers = ((_row_answer(row, found, crossing=crossing), found) for found in about)
    for answer, found in sorted(answers, key=lambda item: (_ORDER[item[0]], -(item[1].ratio or 0.0))):
        if found.case not in judged or found.expect not in _GAIN:
            judged[found.case] = (answer, found)
    return judged


def _place(answer: Answer, found: Measured, *, together: Answer) -> tuple[int, bool]:
    """By which the case is chosen that a row shows: one that gives the row's answer, and of a gain rather than none."""
    return _ORDER[answer] if together == "partly" else int(answer != together), found.expect not in _GAIN


def _together(answers: Sequence[Answer], *, whole: bool) -> Answer:
    """The answer of several cases; ``whole``: none that was named lacks a record, and the row asks for nothing else."""
    good = sum(answer in GOOD for answer in answers)
    if good and (not whole or good < len(answers)):
        return "partly"
    return (min if good else max)(answers, key=_ORDER.__getitem__)


def _still_open(lacking: Sequence[str], others: Mapping[str, Answer]) -> str:
    """What a row that is answered in part lacks."""
    said = [f"No record of {', '.join(lacking)}."] if lacking else []
    return " ".join([*said, *(f"{case}: {answer}." for case, answer in others.items())])


def _stated(row: BookRow, citing: Sequence[Cited], key: Literal["differs", "lacks"]) -> tuple[str, ...]:
    """What each citation says of itself, with its scenario unless all say the same."""
    stated = [(c.scenario, getattr(c.named[row.id], key)) for c in citing if row.id in c.named]
    texts = {text for _, text in stated}
    if len(texts) == 1 and len(stated) == len(citing):
        return tuple(filter(None, texts))
    return tuple(f"{name}: {text}" for name, text in stated if text)


def stated_text(word: str, stated: Sequence[str]) -> str:
    """``Differs: no decode; no resize.``, and nothing where nothing is stated."""
    return f"{word}: {'; '.join(stated)}." if stated else ""


def _of_its_machine(row: BookRow, about: Sequence[Measured]) -> list[Measured]:
    """What was told of one record of each case: the newest, or of a row that needs a GPU the newest with one. A CPU's
    record, however new, says little of a claim about a GPU."""
    wanted = row.lane.startswith("gpu") or bool(row.needs.get("gpus"))
    with_gpu = {found.case for found in about if found.gpu} if wanted else set()
    return [found for found in about if (found.gpu if found.case in with_gpu else found.newest)]


def _of_its_kind(row: BookRow, about: Sequence[Measured]) -> list[Measured]:
    """What speaks to a row: memory to one that gains it, where it was measured, bytes that the scenario judges before
    the process's; to one that claims a number of speed, or says itself that it gains no time, speed alone; to all
    others what each scenario judges."""
    counted = {found.case for found in about if found.primary and found.unit == "B"}
    memory = (found for found in about if (found.primary and found.unit == "B") or found.metric in MEMORY)
    kept = [found for found in memory if found.primary or found.case not in counted] if row.gains else []
    judged = [found for found in about if found.primary and (_of_speed(found) or not _wants_speed(row))]
    own = {found.case for found in judged}
    return kept or judged + [found for found in about if _of_speed(found) and found.case not in own]


def _gains(row: BookRow) -> bool:
    """Whether the row claims a gain with a number."""
    return row.claim is not None and row.claim.low > 1


def _is_control(row: BookRow, citation: Citation) -> bool:
    """A scenario that expects no gain of any named case, where the row claims one, says nothing of the claim beside
    scenarios that expect it."""
    return _gains(row) and bool(citation.expect) and not any(word in _GAIN for word in citation.expect)


def _row_answer(row: BookRow, found: Measured, *, crossing: bool) -> Answer:
    """What a comparison says of a row; ``crossing``: a gain is expected of some case that answers it."""
    if found.metric in MEMORY:
        return _direction(found.verdict, "improved")
    if not _of_speed(found):
        return _direction(found.verdict, found.expect or "improved")
    if row.not_time:
        return "no claim of speed"
    # Beside cases of which a gain is expected, the claimed number is theirs; the others answer by their direction.
    other = crossing and _gains(row) and found.expect not in _GAIN
    return case_answer(None if other else row.claim, found)


_OF_SPEED = ("s", "1/s")
"""Units of times and rates: a claim of speed says nothing of an error, of bytes or of a share."""


def _tells_speed(metric: str, unit: str) -> bool:
    return metric not in MEMORY and unit in _OF_SPEED


def _of_speed(found: Measured) -> bool:
    return _tells_speed(found.metric, found.unit)


def _wants_speed(row: BookRow) -> bool:
    """Whether the row claims a number of speed, or says itself that it gains something that is no time."""
    return bool(row.claim or row.not_time)


def answering_metric(case: Case, row: BookRow) -> str:
    """What a case answers a row by that gains no memory: the metric that it judges, or the time where that would say
    nothing of the row."""
    metric = case.measure.metric
    return metric if _tells_speed(metric, metric_of(case, metric).unit) or not _wants_speed(row) else speed_metric(case)


def _of_a_measured_row(row: BookRow, best: Measured, hashes: Mapping[str, tuple[str, ...]]) -> str:
    changed = best.scenario_hash not in (hashes.get(best.scenario) or (best.scenario_hash,))
    old = "Measured before its scenario file was changed." if changed else ""
    # So worded that it is not taken for a bound on what was measured.
    arithmetic = f"By the book's own numbers: {row.impossible}" if row.impossible else ""
    return " ".join(text for text in (_by_design(row, best), arithmetic or row.note, old) if text)


def _by_design(row: BookRow, best: Measured) -> str:
    """Why a verdict that is no gain of time stands for none against the row; empty where time is what it gains."""
    costs = best.verdict == "regressed"
    if not _of_speed(best):
        judged = f"Judged by {'memory' if best.metric in MEMORY else best.metric}"
        return f"{judged}: {row.not_time}." if row.not_time else f"{judged}."
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
