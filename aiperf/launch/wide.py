"""Are the answers to inputs far from the usual ones, or varied where audits leave them alone, the same on two sides?

What must not live here: drawing inputs (worker/redraw.py), checks of the usual inputs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from aiperf.protocol.checking import RTOL
from aiperf.protocol.claims import UnannouncedAnswer
from aiperf.protocol.measuring import Check
from aiperf.protocol.messages import WideReply

_MOVED = 4.0
"""Times what moved inputs change in the base side's answer, that two honest answers may lie apart: both round in every
sum, where the move is one of the inputs alone."""
_VARIED_RTOL = 0.15
"""That of the coarsest type: a side that minds inputs which were varied is closer, one that does not far away."""
_REMEDY = 'if they never have others, say so with fixed_inputs="..." in the Workload'
_SHARE = 0.01
"""Of the elements that were looked at, which must be wrong: of quantised numbers a few may fall to another side."""
_FEW = 16
"""Elements of an output of sides that differ by design: fewer may be the same on other inputs by chance."""


def wide_fault(base: Sequence[WideReply], other: Sequence[WideReply], check: Check, *, names: tuple[str, str]) -> str:
    """The first output, rank by rank, that is wrong on inputs far from the usual ones: not finite where the one it is
    compared with has finite numbers of the same type, or another number. Empty where there is none."""
    for theirs, ours in zip(base, other, strict=False):
        for name, output in ours.outputs.items():
            want = theirs.outputs.get(name)
            if not want or want.dtype != output.dtype:
                continue
            if want.worst == "finite" != output.worst:
                first = f"where {names[0]}'s are finite"
                return f"{names[1]}: {name} has non-finite values on large inputs, {first}"
            same = theirs.inputs == ours.inputs
            if same and (fault := _apart(name, theirs, ours, check, rtol=RTOL.get(want.dtype))):
                return f"{names[1]}: {name} differs from {names[0]}'s on large inputs, {fault}"
    return ""


def varied_fault(base: Sequence[WideReply], other: Sequence[WideReply], check: Check, *, names: tuple[str, str]) -> str:
    """The first output, rank by rank, that differs after inputs were varied that audits leave as they are; empty where
    there is none, or where the sides have not met the same."""
    for theirs, ours in ((a.other, b.other) for a, b in zip(base, other, strict=False)):
        if not ours.varied or (theirs.varied, theirs.inputs) != (ours.varied, ours.inputs):
            continue
        found = [(n, "in its bytes") for n, digest in ours.digests.items() if theirs.digests.get(n, digest) != digest]
        found += [
            (n, _far(theirs.values.get(n, ()), values, check, rtol=_VARIED_RTOL)) for n, values in ours.values.items()
        ]
        for name, fault in (each for each in found if each[1]):
            inputs = " and ".join(ours.varied)
            what = f"when {inputs}, the same in every audit, had other values"
            if ours.extreme:
                what = f"when {inputs} had extreme values (in the audits this output never changed)"
            return f"{names[1]}: {name} differs from {names[0]}'s {what}, {fault}; {_REMEDY}"
    return ""


def unannounced_fault(
    base: Sequence[WideReply], other: Sequence[WideReply], check: Check, *, names: tuple[str, str]
) -> Iterator[tuple[int, str]]:
    """Which of two sides (0 or 1), rank by rank, worked otherwise where nothing announced a step, with a sentence: it
    left an output as it was where the other's moved with the inputs, or finishes it when it is asked for and the other
    does not. Of sides that differ by design only many real numbers say so: few, or whole ones, may stay by chance."""
    by_design = bool(check.reason) or check.kind == "named"
    for pair in ((a.unannounced, b.unannounced) for a, b in zip(base, other, strict=False)):
        for place, (own, theirs) in enumerate((pair, pair[::-1])):
            for name in own.read if not theirs.read else ():
                if name in theirs.left:
                    yield place, f"{names[place]}: outputs() changed {name}: it finishes work of the step"
            if not own.inputs or theirs.inputs != own.inputs:
                continue
            stale = (n for n, count in own.still.items() if count and not theirs.still.get(n))
            for name in (n for n in stale if _moved(n, theirs, fewest=_FEW if by_design else 1)):
                count = f"{own.still[name]} of {own.steps} unannounced steps"
                yield place, f"{names[place]}: {count} left {name} as it was, although inputs changed"
        theirs, own = pair
        if theirs.inputs == own.inputs and not by_design:
            for name, want in theirs.new.items():
                if fault := _far(want, own.new.get(name, ()), check, rtol=_VARIED_RTOL):
                    what = f"{name} differs from {names[0]}'s on unannounced new inputs"
                    yield 1, f"{names[1]}: {what}, {fault}"


def _moved(name: str, answer: UnannouncedAnswer, *, fewest: int) -> bool:
    """Whether an output is clearly another one since the inputs have changed: ``fewest`` real numbers, or fewer and
    whole ones where one is enough."""
    if name in answer.digests:
        return fewest == 1 and len(set(answer.digests[name])) > 1
    known = answer.known.get(name, ())
    far = _far(known, answer.new.get(name, ()), Check("tolerance"), rtol=_VARIED_RTOL)
    return len(known) >= fewest and bool(far)


def _apart(name: str, base: WideReply, other: WideReply, check: Check, *, rtol: float | None) -> str:
    """How far two answers lie apart; empty where they are as close as they can be expected to be.

    ``|got - want| <= rtol |want| + rtol RMS(want) + 4 m``: ``m`` is what inputs that move by the tolerance of their
    type change in the base side's answer, so that an answer which such inputs hardly determine accuses nobody.
    """
    moved = base.moved.get(name)
    if rtol is None or moved is None or not math.isfinite(moved):
        return ""
    return _far(base.values.get(name, ()), other.values.get(name, ()), check, rtol=rtol, more=_MOVED * moved)


def _far(want: Sequence[float], got: Sequence[float], check: Check, *, rtol: float, more: float = 0.0) -> str:
    if not want or len(want) != len(got):
        return ""
    rtol = max(rtol, check.rtol or 0.0)
    floor = max(rtol * math.hypot(*want) / math.sqrt(len(want)), check.atol or 0.0) + more
    wrong = [(abs(g - w), w, g) for w, g in zip(want, got, strict=True) if abs(g - w) > floor + rtol * abs(w)]
    if len(wrong) <= _SHARE * len(want):
        return ""
    _, expected, found = max(wrong)
    return f"in {len(wrong)} of {len(want)} elements drawn: {found:.9g} against {expected:.9g} at worst"
