"""Did two sides compute the same? Snapshots in, one reply out.

What must not live here: producing outputs, and any tolerance that depends on who wins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from aiperf.protocol.messages import Check, CompareReply
from aiperf.worker.audit import Snapshot
from aiperf.worker.closeness import within
from aiperf.workloads.contract import Outcome

_RTOL = {
    "float64": 1e-9,
    "float32": 1e-4,
    "float16": 1e-2,
    "bfloat16": 2e-2,
    "complex64": 1e-4,
    "complex128": 1e-9,
    **dict.fromkeys(("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"), 0.15),
}

NamedCheck = Callable[[Mapping[str, Any], Mapping[str, Any]], Outcome]


def compare(
    ours: list[Snapshot], theirs: list[Snapshot], check: Check, checks: Mapping[str, NamedCheck], names: tuple[str, str]
) -> CompareReply:
    """Compare every audit of ``theirs`` (names[0]) with the same audit of ``ours`` (names[1])."""
    if check.kind == "none":
        return CompareReply(passed=True, compared="nothing: the scenario says why")
    if not ours or len(ours) != len(theirs):
        detail = f"{names[0]} has {len(theirs)} audited outputs, {names[1]} has {len(ours)}"
        return CompareReply(passed=False, compared="audits", detail=detail)
    compared = f"{names[1]} with {names[0]}, {_describe(check)}"
    reply = CompareReply(passed=True, compared=compared, audits=len(ours))
    worst: float | None = None
    for index, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        detail, error = _one(mine, other, check, checks, names)
        worst = error if worst is None else max(worst, error or 0.0)
        if detail:
            return replace(reply, passed=False, detail=f"audit {index}: {detail}", max_error=worst)
    return replace(reply, max_error=worst)


def _describe(check: Check) -> str:
    if check.kind == "bitwise":
        return "bit for bit"
    if check.kind == "named":
        return f"check {check.name}" + (f", bound {check.bound:g}" if check.bound is not None else "")
    text = f"relative tolerance {check.rtol:g}" if check.rtol is not None else "tolerance of the coarser dtype"
    return text + (", and both with the reference" if check.reference else "")


def _one(
    mine: Snapshot, other: Snapshot, check: Check, checks: Mapping[str, NamedCheck], names: tuple[str, str]
) -> tuple[str, float | None]:
    if check.kind == "named":
        return _named(mine, other, check, checks)
    if mine.digests.keys() != other.digests.keys():
        return f"{names[0]} gives {sorted(other.digests)}, {names[1]} gives {sorted(mine.digests)}", None
    if not mine.digests:
        return "there are no outputs to compare", None
    if check.kind == "bitwise":
        for name, digest in mine.digests.items():
            if other.digests[name] != digest:
                return _where(mine, other, name, names[0]), None
        left = next((name for name, values in mine.values.items() if values == "nan"), "")
        return (f"{left} still holds NaN on both sides: the step did not write all of it" if left else ""), None
    worst = 0.0
    for name in mine.digests:
        detail, error = _close(mine, other, name, check, names[0])
        worst = max(worst, error or 0.0)
        if detail:
            return detail, error if error is None else worst
    return "", worst


def _named(mine: Snapshot, other: Snapshot, check: Check, checks: Mapping[str, NamedCheck]) -> tuple[str, float | None]:
    if check.name not in checks:
        known = ", ".join(sorted(checks)) or "none"
        return f'the workload has no check "{check.name}" (it has: {known})', None
    outcome = checks[check.name](other.arrays, mine.arrays)
    if not outcome.passed:
        return outcome.detail or f"check {check.name} failed", outcome.value
    if check.bound is not None and (outcome.value is None or not outcome.value <= check.bound):
        return f"{check.name} is {outcome.value}, bound {check.bound:g}", outcome.value
    return "", outcome.value


def _where(mine: Snapshot, other: Snapshot, name: str, base: str) -> str:
    import numpy as np

    a, b = other.arrays.get(name), mine.arrays.get(name)
    if a is None or b is None:
        return f"{name} differs"
    if a.shape != b.shape or mine.dtypes[name] != other.dtypes[name]:
        return f"{name} is {mine.dtypes[name]}{b.shape} against {base}'s {other.dtypes[name]}{a.shape}"
    wrong = ~((a == b) | (_nan(a) & _nan(b)))
    if not wrong.any():
        return f"{name} differs in bits that compare equal: the sign of a zero, or the payload of a NaN"
    first = tuple(int(i[0]) for i in np.nonzero(wrong)) if a.ndim else ()
    return f"{name} differs in {int(wrong.sum())} of {a.size} elements, first at {first}"


def _nan(a: Any) -> Any:
    import numpy as np

    return np.isnan(a) if a.dtype.kind in "fc" else np.zeros(a.shape, dtype=bool)


def _close(mine: Snapshot, other: Snapshot, name: str, check: Check, base: str) -> tuple[str, float | None]:
    """What is wrong with one output of ``mine``, empty when nothing is, and its largest error; None where none was
    computed. ``base`` is the name of the side of ``other``."""
    same = mine.digests[name] == other.digests[name]
    floats = mine.dtypes[name].startswith(("float", "bfloat", "complex"))
    if same and not (check.reference and floats):
        sick = mine.values[name] != "finite"
        return (f"{name} holds values that are not finite on both sides (poison counts)" if sick else ""), 0.0
    if name not in mine.arrays or (name not in other.arrays and not same):
        kept = f"{name} is too large to keep"
        if not same:
            return f"{kept} and its digest differs; use check: bitwise or a named check", None
        return f"{kept} for the comparison with its reference", None
    return _held_against(mine, other, name, check, base, same=same)


def _held_against(
    mine: Snapshot, other: Snapshot, name: str, check: Check, base: str, *, same: bool
) -> tuple[str, float]:
    """The two arrays against each other, and against their reference where the check asks for that."""
    import numpy as np

    b = mine.arrays[name]
    a = b if same else other.arrays[name]
    if a.shape != b.shape:
        return f"{name} has shape {b.shape} against {base}'s {a.shape}", float("inf")
    if a.dtype.kind not in "fc" and b.dtype.kind not in "fc":
        return ("" if same or np.array_equal(a, b) else _where(mine, other, name, base)), 0.0
    rtol = check.rtol if check.rtol is not None else max(_RTOL.get(s.dtypes[name], 0.0) for s in (mine, other))
    pairs = [] if same else [(name, a, b, base)]
    if check.reference:
        truth = mine.reference.get(name)
        if truth is None:
            return f"the workload gives no reference for {name}", float("inf")
        if truth.shape != a.shape:
            return f"{name} has shape {a.shape}, its reference {truth.shape}", float("inf")
        pairs += [] if same else [(f"{base}'s {name}", truth, a, "the reference")]
        pairs += [(name, truth, b, "the reference")]
    worst = 0.0
    for what, want, got, whose in pairs:
        detail, error = within(np.asarray(want), np.asarray(got), rtol, check.atol, whose=whose)
        worst = max(worst, error)
        if detail:
            return f"{what} {detail}", worst
    return "", worst
