"""A workload's own check of two sides' outputs, which must also refuse outputs that were spoilt on purpose.

What must not live here: how outputs get here, and the checks that every workload has (compare.py).
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from aiperf.protocol.checking import CompareReply, ShownSide
from aiperf.protocol.measuring import Check
from aiperf.worker import raw
from aiperf.worker.output_exchange import read_pieces
from aiperf.workloads.contract import Outcome

NamedCheck = Callable[[Mapping[str, Any], Mapping[str, Any]], Outcome]
Outputs = Callable[[], dict[str, Any]]
"""Makes the arrays of one audit anew each time: a check may write into what it is given."""


def read_outputs(side: ShownSide, path: Path, rank: int) -> list[Outputs]:
    """The outputs of each audit of one rank of a side, as its file holds them. Raises NotHandedOver."""
    pieces, claims = side.pieces[rank], side.claims[rank]
    octets = read_pieces(path, pieces) if pieces else []

    def of(audit: int) -> dict[str, Any]:
        found = {}
        for piece, held in zip(pieces, octets, strict=True):
            if piece.audit == audit and piece.kind == "whole":
                claim = claims[audit].outputs[piece.name]
                found[piece.name] = raw.decode(held.copy(), claim.dtype, claim.shape)
        return found

    return [partial(of, audit) for audit in range(len(claims))]


def named_check(
    theirs: Sequence[Outputs], ours: Sequence[Outputs], check: Check, checks: Mapping[str, NamedCheck], *, prove: bool
) -> CompareReply:
    """Compare every audit of ``ours`` with the same of ``theirs``, the base. ``prove``: fails where the check passes
    with outputs however spoilt."""
    if check.name not in checks:
        known = ", ".join(sorted(checks)) or "none"
        return _failed(f'the workload has no check "{check.name}" (it has: {known})')
    found = checks[check.name]
    values: list[float] = []
    for index, (base, mine) in enumerate(zip(theirs, ours, strict=True)):
        try:
            outcome = found(base(), mine())
        except Exception as error:  # whatever it meets in outputs that it did not expect
            traceback.print_exc()
            return _failed(f"audit {index}: check {check.name} failed with {type(error).__name__}: {error}", values)
        values += [] if outcome.value is None else [outcome.value]
        if detail := _refusal(outcome, check):
            return _failed(f"audit {index}: {detail}", values)
        if prove and index == 0 and not _refuses_spoilt(found, check, base, mine):
            return _failed(f"check {check.name} accepts anything: it passes with {_SPOILT} outputs too", values)
    return CompareReply(passed=True, compared="", max_error=max(values, default=None), audits=len(ours))


def _failed(detail: str, values: Sequence[float] = ()) -> CompareReply:
    return CompareReply(passed=False, compared="", detail=detail, max_error=max(values, default=None))


def _refusal(outcome: Outcome, check: Check) -> str:
    """Why outputs do not pass; empty when they do."""
    if not outcome.passed:
        return outcome.detail or f"check {check.name} failed"
    if check.bound is not None and (outcome.value is None or not outcome.value <= check.bound):
        return f"{check.name} is {outcome.value}, bound {check.bound:g}"
    return ""


def _refuses_spoilt(found: NamedCheck, check: Check, base: Outputs, mine: Outputs) -> bool:
    """Whether it refuses any of several damages: no measure of quality sees every one."""
    for spoilt in _spoilt(mine):
        # An exception is a refusal as well.
        passed = False
        with suppress(Exception):
            passed = not _refusal(found(base(), spoilt), check)
        if not passed:
            return True
    return False


_SPOILT = "negated, shuffled, zeroed and random"


def _spoilt(mine: Outputs) -> Iterator[dict[str, Any]]:
    """The outputs with every array damaged, in one way after the other."""
    for damage in (_negated, _shuffled, _zeroed, _random):
        yield {name: damage(array) for name, array in mine().items()}


def _negated(array: Any) -> Any:
    return ~array if array.dtype.kind in "biu" else -array if array.dtype.kind in "fc" else array


def _shuffled(array: Any) -> Any:
    import numpy as np

    return np.random.default_rng(0).permutation(array.reshape(-1)).reshape(array.shape)


def _zeroed(array: Any) -> Any:
    import numpy as np

    return np.zeros_like(array)


def _random(array: Any) -> Any:
    """Numbers that have nothing to do with it, of its size."""
    import numpy as np

    drawn = np.random.default_rng(0).standard_normal(array.shape)
    if array.dtype.kind not in "biufc":
        return array
    size = float(np.sqrt(np.mean(np.square(np.abs(array.astype(complex)))))) if array.size else 0.0
    with np.errstate(invalid="ignore", over="ignore"):
        return (drawn * (size or 1.0)).astype(array.dtype)
