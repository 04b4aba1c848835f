"""Did two sides compute the same? What both handed over of each audit in, one reply out.

What must not live here: files, arrays of a side's libraries, any tolerance that depends on who wins.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from aiperf.protocol.checking import RTOL, CompareReply
from aiperf.protocol.claims import AuditedOutput, OutputChange
from aiperf.protocol.measuring import Check
from aiperf.worker import raw
from aiperf.worker.closeness import within
from aiperf.worker.octets import Found, Handed, is_as_shown, left_unwritten, same_bytes, seen_bytes, worst_seen

_MIB = 1 << 20
_BOTH = 2
"""An error within a tolerance is at most so many times it: the element's own share, and that of the root mean square.
"""


@dataclass
class _Tally:
    """What is found while outputs are compared, besides the first fault."""

    errors: list[float] = field(default_factory=list)
    loosened: list[float] = field(default_factory=list)
    """Usual tolerances of types that an output misses, where the check names a looser one, or is a workload's own."""
    changes: dict[str, OutputChange] = field(default_factory=dict)
    whole: int = 0
    seen: int = 0

    @property
    def max_error(self) -> float | None:
        return max(self.errors, default=None)

    def note(self, name: str, base: AuditedOutput, mine: AuditedOutput, error: float | None) -> None:
        """Count an output's error; remember it where its type or size is another one than the base's."""
        self.errors += [] if error is None else [error]
        elements = math.prod(base.shape), math.prod(mine.shape)
        if base.dtype == mine.dtype and elements[0] == elements[1]:
            return
        former = self.changes.get(name)
        known = [e for e in (error, former.max_error if former else None) if e is not None]
        self.changes[name] = OutputChange(name, (base.dtype, mine.dtype), elements, max(known, default=None))


def compare(ours: Sequence[Handed], theirs: Sequence[Handed], check: Check, names: tuple[str, str]) -> CompareReply:
    """Compare every audit of ``theirs`` (names[0]), whose reference is the truth, with the same of ``ours`` (names[1]).

    Of a named check, which its workload makes, only what no check may pass, outputs that are missing or were never
    written; and without a reason, whether others than are usual would pass.
    """
    if not ours or len(ours) != len(theirs):
        detail = f"{names[0]} has {len(theirs)} audited outputs, {names[1]} has {len(ours)}"
        return CompareReply(passed=False, compared="audits", detail=detail)
    tally = _Tally()
    detail = next(
        (f"{who} {fault}" for who, side in ((names[0], theirs), (names[1], ours)) if (fault := _idle(side))), ""
    )
    for index, (mine, base) in enumerate(zip(ours, theirs, strict=True)):
        if detail:
            break
        if detail := _Pair(mine, base, check, names, tally).fault():
            detail = f"audit {index}: {detail}"
    compared = f"{names[1]} with {names[0]}, {_describe(check)}"
    return CompareReply(
        passed=not detail,
        compared=compared + _looked_at(tally) if check.kind != "named" and not detail else compared,
        detail=detail,
        max_error=tally.max_error,
        loosened=min(tally.loosened, default=None),
        audits=len(ours),
        changes=tuple(tally.changes.values()),
        output_bytes=tally.whole,
        seen_bytes=tally.seen,
    )


def _describe(check: Check) -> str:
    if check.kind == "bitwise":
        return "bit for bit"
    if check.kind == "named":
        return f"check {check.name}" + (f", bound {check.bound:g}" if check.bound is not None else "")
    text = f"relative tolerance {check.rtol:g}" if check.rtol is not None else "tolerance of its dtype"
    return text + (", and both with its reference" if check.reference else "")


def _looked_at(tally: _Tally) -> str:
    if tally.seen >= tally.whole:
        return ", whole outputs"
    return f", digests of the whole and {tally.seen / _MIB:.3g} of {tally.whole / _MIB:.3g} MiB drawn at random"


def _idle(side: Sequence[Handed]) -> str:
    """An output that still holds in every audit what that wrote over it; whole numbers may do so once by chance."""
    for name in side[0].claims.outputs if len(side) > 1 else ():
        if all(left_unwritten(handed, name) for handed in side):
            return f"leaves {name} unwritten: it still holds what the audits wrote over it before the step"
    return ""


class _Pair:
    """One audit of two sides."""

    def __init__(self, mine: Handed, base: Handed, check: Check, names: tuple[str, str], tally: _Tally) -> None:
        self._mine, self._base, self._check, self._tally = mine, base, check, tally
        self._first, self._second = names

    def fault(self) -> str:
        """What is wrong first, empty when nothing is."""
        for side, handed in ((self._first, self._base), (self._second, self._mine)):
            if handed.fault:
                return f"{side}: {handed.fault}"
        mine, base = self._mine.claims.outputs, self._base.claims.outputs
        if detail := self._missing(mine, base):
            return detail
        details = [self._output(name) for name in base if name in mine]
        self._tally.whole += sum(output.nbytes for output in base.values())
        return next(filter(None, details), "")

    def _missing(self, mine: dict[str, AuditedOutput], base: dict[str, AuditedOutput]) -> str:
        more_is_wrong = self._check.kind != "named"
        if base.keys() - mine.keys() or (more_is_wrong and mine.keys() - base.keys()):
            return f"{self._first} gives {sorted(base)}, {self._second} gives {sorted(mine)}"
        if not base:
            return "there are no outputs to compare"
        if not any(math.prod(output.shape) for output in base.values()):
            return "the outputs have no elements to compare"
        return ""

    def _output(self, name: str) -> str:
        base, mine = (Found.of(handed, name) for handed in (self._base, self._mine))
        both_whole = base.whole is not None and mine.whole is not None
        self._tally.seen += base.whole.nbytes if both_whole else min(seen_bytes(base), seen_bytes(mine))
        for side, found in ((self._first, base), (self._second, mine)):
            if found.bytes_do_not_fit:
                return f"{side} handed over {name} with more or fewer bytes than its type and shape have"
            if found.claim.nbytes and not seen_bytes(found):
                return f"{side} handed over no data for {name}"
        same = base.claim.digest == mine.claim.digest and same_bytes(base, mine) is not False
        detail, error = "", None
        if self._check.kind == "bitwise":
            detail = self._bitwise(name, base, mine, same=same)
        elif self._check.kind == "tolerance":
            detail, error = self._close(name, base, mine, same=same)
        elif not same and not self._check.reason and not _usually_close(base, mine):
            self._tally.loosened.append(RTOL.get(base.claim.dtype, 0.0))
        self._tally.note(name, base.claim, mine.claim, error)
        # An equal lie about equal bytes hides nothing.
        return detail if detail or same else self._lie(name, base, mine)

    def _lie(self, name: str, base: Found, mine: Found) -> str:
        """Bytes that were made after those that the side spoke of."""
        for side, found in ((self._first, base), (self._second, mine)):
            if not is_as_shown(found):
                return f"{side} handed over other bytes of {name} than it had right after the step"
        return ""

    def _bitwise(self, name: str, base: Found, mine: Found, *, same: bool) -> str:
        if not same:
            if base.claim.shape != mine.claim.shape or base.claim.dtype != mine.claim.dtype:
                kinds = [f"{found.claim.dtype}{found.claim.shape}" for found in (mine, base)]
                return f"{name} is {kinds[0]} against {self._first}'s {kinds[1]}"
            return self._where(name, base, mine)
        if "nan" in (worst_seen(base), worst_seen(mine)):
            return f"{name} still holds NaN on both sides: the step did not write all of it"
        return ""

    def _where(self, name: str, base: Found, mine: Found) -> str:
        import numpy as np

        if base.whole is None or mine.whole is None:
            told = base.claim.digest != mine.claim.digest
            return f"{name} differs" + ("" if told else " in parts of it, though both sides made the same digest")
        a, b = base.values(), mine.values()
        wrong = ~((a == b) | (_nan(a) & _nan(b)))
        if not wrong.any():
            return f"{name} differs in bits that compare equal: the sign of a zero, or the payload of a NaN"
        first = tuple(int(i[0]) for i in np.nonzero(wrong)) if a.ndim else ()
        values = f"{b[first]} against {self._first}'s {a[first]}"
        if a.size == 1:
            return f"{name} is {values}"
        return f"{name} differs in {int(wrong.sum())} of {a.size} elements, first at {first}: {values}"

    def _close(self, name: str, base: Found, mine: Found, *, same: bool) -> tuple[str, float | None]:
        """What is wrong with one output, empty when nothing is, and its largest error; None where none was computed."""
        import numpy as np

        floats = raw.is_floating(base.claim.dtype) or raw.is_floating(mine.claim.dtype)
        if base.claim.shape != mine.claim.shape:
            return f"{name} has shape {mine.claim.shape} against {self._first}'s {base.claim.shape}", None
        if same and not (self._check.reference and floats):
            sick = {worst_seen(base), worst_seen(mine)} != {"finite"}
            return (f"{name} has non-finite values on both sides (poison counts)" if sick else ""), 0.0
        if base.whole is None or (mine.whole is None and not same):
            if base.claim.digest == mine.claim.digest and not same:
                return self._where(name, base, mine), None
            why = "for the comparison with its reference" if same else "and its digest differs; use a named check"
            return f"{name} is too large to keep {why}", None
        if not floats:
            equal = same or np.array_equal(base.values(), mine.values())
            return ("" if equal else self._where(name, base, mine)), 0.0
        return self._within(name, base, base if same else mine, same=same)

    def _within(self, name: str, base: Found, mine: Found, *, same: bool) -> tuple[str, float | None]:
        """Two arrays against each other, and against their truth where the check asks for that."""
        a, b = base.values(), mine.values()
        usual = RTOL.get(base.claim.dtype, 0.0)
        rtol = self._check.rtol if self._check.rtol is not None else usual
        pairs = [] if same else [(name, a, b, self._first)]
        if self._check.reference:
            truth = self._base.reference(name)
            if truth is None:
                return f"the workload of {self._first} gives no reference for {name}", None
            if truth.shape != a.shape:
                return f"{name} has shape {a.shape}, its reference {truth.shape}", None
            pairs += [(f"{self._first}'s {name}" if not same else name, truth, a, "the reference")]
            pairs += [] if same else [(name, truth, b, "the reference")]
        worst = 0.0
        for what, want, got, whose in pairs:
            detail, error = within(want, got, rtol, self._check.atol, whose=whose)
            worst = max(worst, error)
            if detail:
                return f"{what} {detail}", worst
        if rtol > usual and worst > _BOTH * usual:
            self._tally.loosened.append(usual)
        return "", worst


def _usually_close(base: Found, mine: Found) -> bool:
    """Whether two outputs that differ are within the tolerance of their type, as far as they were handed over."""
    if base.whole is None or mine.whole is None:
        return True
    usual = RTOL.get(base.claim.dtype, 0.0)
    alike = bool(usual) and base.claim.shape == mine.claim.shape
    return alike and not within(base.values(), mine.values(), usual, None, whose="")[0]


def _nan(a: Any) -> Any:
    import numpy as np

    return np.isnan(a) if a.dtype.kind in "fc" else np.zeros(a.shape, dtype=bool)
