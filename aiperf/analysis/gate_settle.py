"""From the rows of a first and a fresh session to what the gate says: confirmation, Holm over all rows, exit code.

What must not live here: judging one session, measuring, printing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from aiperf.analysis import gate_wording as wording
from aiperf.analysis.estimates import holm
from aiperf.analysis.gate import GateRow, Level
from aiperf.errors import MEANING, Exit
from aiperf.plan.gates import OnInconclusive

_PRECEDENCE = (Exit.USAGE, Exit.WRONG, Exit.REGRESSION, Exit.UNFIT, Exit.NO_BASELINE, Exit.INCONCLUSIVE)
_EXIT_OF = {
    "invalid": Exit.WRONG,
    "failed": Exit.WRONG,
    "regressed": Exit.REGRESSION,
    "unfit": Exit.UNFIT,
    "no_baseline": Exit.NO_BASELINE,
    "not_comparable": Exit.NO_BASELINE,
}
_MEANING = MEANING | {Exit.USAGE: "usage error, or nothing could be saved", Exit.INTERRUPTED: "interrupted"}


def flagged(rows: Sequence[GateRow]) -> tuple[GateRow, ...]:
    """Rows that look worse than allowed: they are measured again before anything fails."""
    return tuple(row for row in rows if row.status == "regressed")


def settle(first: Sequence[GateRow], again: Sequence[GateRow], *, level: Level = "rebuild") -> tuple[GateRow, ...]:
    """Rows of the first session, the flagged ones as the fresh session leaves them, all p-values Holm-adjusted.

    A flagged row was picked for looking bad, the fresh session was not: so its word stands, but only a row that both
    sessions call regressed can fail. Its p is that of both sessions together, p = q (1 - ln q), q = p1 p2 (Fisher),
    adjusted over every row that was tested.
    """
    fresh = {_key(row): row for row in again}
    # A case without a result the second time has one row, whatever was flagged.
    lone = {row.case: row for row in again if row.ratio is None}
    rows = [
        _confirmed(row, fresh.get(_key(row)) or lone.get(row.case), level=level) if row.status == "regressed" else row
        for row in first
    ]
    tested = [place for place, row in enumerate(rows) if row.p is not None]
    adjusted = holm([rows[place].p or 0.0 for place in tested])
    for place, p in zip(tested, adjusted, strict=True):
        rows[place] = _corrected(replace(rows[place], p=p), count=len(tested))
    return tuple(rows)


def _key(row: GateRow) -> tuple[str, str, str]:
    return row.case, row.side, row.metric


def _confirmed(first: GateRow, again: GateRow | None, *, level: Level) -> GateRow:
    if again is None:
        return replace(first, status="inconclusive", confirmed=False, sentence=wording.once(first.sentence))
    seconds = first.seconds + again.seconds
    if again.status == "regressed":
        sentence = wording.confirmed(first.sentence, again.sentence)
        # Held against one stored baseline the sessions are not independent: the fresh one speaks alone.
        p = _both(first.p, again.p) if level == "rebuild" else again.p
        return replace(again, sentence=sentence, p=p, confirmed=True, seconds=seconds)
    sentence = wording.not_confirmed(first.sentence, again.sentence)
    # What looked worse and then could not be looked at is not skipped: it is open.
    status = "inconclusive" if again.status == "skipped" else again.status
    return replace(
        again, metric=first.metric, side=first.side, unit=first.unit, status=status, sentence=sentence,
        confirmed=False, seconds=seconds,
    )  # fmt: skip


def _both(first: float | None, again: float | None) -> float:
    q = (1.0 if first is None else first) * (1.0 if again is None else again)
    return q * (1 - math.log(q)) if q > 0 else 0.0


def _corrected(row: GateRow, *, count: int) -> GateRow:
    """A regression that so many rows would show by chance is none that was found."""
    if row.status != "regressed" or row.p is None or row.alpha is None or row.p < row.alpha:
        return row
    sentence = wording.not_after_holm(row.sentence, p=row.p, alpha=row.alpha, rows=count)
    return replace(row, status="inconclusive", sentence=sentence)


def gate_exit(
    rows: Sequence[GateRow],
    *,
    on_inconclusive: OnInconclusive,
    level: Level = "rebuild",
    interrupted: bool = False,
    unsaved: bool = False,
) -> Exit:
    """Exit code of the rows: 2 before 5, 1, 6, 4, 3, 0; 77 when every row was skipped; 130 when interrupted.

    Without a baseline means new at head where base was rebuilt, and that is no failure: else the change that adds a
    benchmark could never pass.
    """
    if interrupted:
        return Exit.INTERRUPTED
    statuses = {row.status for row in rows} - ({"no_baseline"} if level == "rebuild" else set())
    codes = {_EXIT_OF[status] for status in statuses if status in _EXIT_OF}
    if unsaved:
        codes.add(Exit.USAGE)
    if on_inconclusive == "fail" and any(row.status == "inconclusive" for row in rows):
        codes.add(Exit.INCONCLUSIVE)
    if codes:
        return next(code for code in _PRECEDENCE if code in codes)
    return Exit.SKIPPED if rows and all(row.status == "skipped" for row in rows) else Exit.OK


def gate_sentence(rows: Sequence[GateRow], code: Exit, *, on_inconclusive: OnInconclusive) -> str:
    """The last line: the reason, and what the exit code means."""
    return f"{_reason(rows, code, on_inconclusive)} · exit code {int(code)}: {_MEANING[code]}"


def _reason(rows: Sequence[GateRow], code: Exit, on_inconclusive: OnInconclusive) -> str:
    if code is Exit.INTERRUPTED:
        return f"interrupted with {_count(sum(_is_judged(row) for row in rows), 'row')} judged"
    if code is Exit.USAGE:
        return "the measurements could not be saved"
    if code is Exit.SKIPPED:
        return f"skipped: none of {_count(len(rows), 'case')} can run here"
    if code is Exit.OK:
        return _fine(rows, on_inconclusive)
    names = [status for status, its in _EXIT_OF.items() if its is code] or ["inconclusive"]
    guilty = [row for row in rows if row.status in names]
    more = f", and {len(guilty) - 1} more" if len(guilty) > 1 else ""
    return f"{guilty[0].status.replace('_', ' ')}: {guilty[0].metric} of {guilty[0].case}{more}"


def _is_judged(row: GateRow) -> bool:
    """Whether a row was held against its bound in some session, or is known to be wrong: not one that was cut short."""
    return row.p is not None or row.confirmed is not None or row.status == "invalid"


def _fine(rows: Sequence[GateRow], on_inconclusive: OnInconclusive) -> str:
    passed = sum(row.status == "passed" and row.ratio is not None for row in rows)
    unmeasured = sum(row.status == "passed" for row in rows) - passed
    parts = [f"passed: {_count(passed, 'row')} no worse than allowed"] if passed else []
    if unmeasured:
        parts.append(
            f"{'' if passed else 'passed: '}{wording.NOTHING_CHANGED}, {_count(unmeasured, 'case')} not measured"
        )
    parts = parts or ["nothing failed"]
    if open_ := sum(row.status == "inconclusive" for row in rows):
        parts.append(f"{open_} inconclusive, let pass" + (" with a warning" if on_inconclusive == "warn" else ""))
    if new := sum(row.status == "no_baseline" for row in rows):
        parts.append(f"{new} new at head")
    if skipped := sum(row.status == "skipped" for row in rows):
        parts.append(f"{skipped} skipped")
    return ", ".join(parts)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
