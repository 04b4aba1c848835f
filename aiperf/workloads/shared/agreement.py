"""How far the outputs of two sides that differ by design lie apart: the named checks of several families.

What must not live here: workloads, bounds (a scenario states its own).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from aiperf.workloads.contract import Outcome
from aiperf.workloads.shared.parts import by_wide_parts

if TYPE_CHECKING:
    from torch import nn

_LOSS_SHARE = 0.01


def relative_frobenius(before: Mapping[str, Any], after: Mapping[str, Any]) -> Outcome:
    """||after - before|| / ||before|| over all outputs, in float64; an error that is not finite fails."""
    if fault := _mismatch(before, after):
        return Outcome(False, fault)
    sums = [squares(np.asarray(array), np.asarray(after[name])) for name, array in before.items()]
    difference, norm = (sum(side) for side in zip(*sums, strict=True))
    value = math.sqrt(difference / norm) if norm else math.inf
    if not math.isfinite(value):
        return Outcome(False, "an output holds values that are not finite, or only zeros", value)
    return Outcome(True, f"relative Frobenius error {value:.2g}", value)


def gradients_close(before: Mapping[str, Any], after: Mapping[str, Any]) -> Outcome:
    """Distance of two sets of gradients, each read as one vector, relative to the length of the first.

    0.045 is where the cosine of two vectors of equal length falls below 0.999. No single gradient may differ by more
    than half its own length, however little it adds to the vector. A loss among the outputs may differ by 1 %.
    """
    names = sorted(before.keys() - {"loss"})
    if fault := _mismatch(before, after) or ("" if names else "neither side has a gradient among its outputs"):
        return Outcome(False, fault)
    distance, lost = _distance(*({name: side[name] for name in names} for side in (before, after)))
    if lost:
        return Outcome(False, f"the gradient of {lost} differs by more than half its own length", distance)
    if "loss" in before and not np.allclose(before["loss"], after["loss"], rtol=_LOSS_SHARE):
        detail = f"the loss is {np.mean(after['loss']):.6g} against before's {np.mean(before['loss']):.6g}"
        return Outcome(False, detail, distance)
    return Outcome(math.isfinite(distance), f"the gradients differ by {distance:.3g} of their length", distance)


def losses_close(before: Mapping[str, Any], after: Mapping[str, Any]) -> Outcome:
    """The largest distance of the loss of an update from before's, over before's."""
    fault = _mismatch(before, after) or ("" if "loss" in before else "neither side has a loss among its outputs")
    if fault:
        return Outcome(False, fault)
    one, other = np.ravel(before["loss"]), np.ravel(after["loss"])
    value = float(np.max(np.abs(other - one) / np.abs(one)))
    detail = f"the losses differ by at most {100 * value:.2g} %, the last is {other[-1]:.4g} against {one[-1]:.4g}"
    return Outcome(math.isfinite(value), detail, value)


_ELSEWHERE = 0.02
"""Distance of a token's prediction from before's, over its length, above which it counts as a different one."""


def predictions_close(before: Mapping[str, Any], after: Mapping[str, Any]) -> Outcome:
    """Share of the tokens whose prediction differs by more than a fiftieth of its own length: where two experts suit a
    token almost equally, rounding decides."""
    if fault := _mismatch(before, after):
        return Outcome(False, fault)
    off = [
        np.linalg.norm(after[name] - array, axis=-1) <= _ELSEWHERE * np.linalg.norm(array, axis=-1)
        for name, array in before.items()
    ]
    # Counted by what agrees: a comparison with NaN is false, so NaN never agrees.
    share = 1 - float(np.mean(np.concatenate([near.ravel() for near in off])))
    return Outcome(True, f"{100 * share:.2f} % of the predictions differ", share)


def _mismatch(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """How the names or shapes of two sets of outputs differ, as a sentence; empty when they are alike."""
    if before.keys() != after.keys() or not before:
        return f"one side gives {sorted(before)}, the other {sorted(after)}"
    shapes = ((name, np.shape(array), np.shape(after[name])) for name, array in before.items())
    return next((f"{name} has shape {b} against before's {a}" for name, a, b in shapes if a != b), "")


_ALONE = 0.5
_SPECK = 1e-6
"""Share of the whole length below which an array is rounding noise and is not compared by itself."""


def squares(first: Any, second: Any, origin: Any = None) -> tuple[float, float]:
    """Sums of the squares of ``second - first`` and of ``first``, or of ``first - origin``, in float64."""

    def part_sums(library: Any, start: int, mine: Any, other: Any, *zero: Any) -> tuple[float, float]:
        apart, own = other - mine, mine - zero[0] if zero else mine
        return float(library.square(library.abs(apart)).sum()), float(library.square(library.abs(own)).sum())

    held = (first, second) if origin is None else (first, second, origin)
    sums = by_wide_parts(part_sums, *(array.reshape(-1) for array in held))
    return math.fsum(apart for apart, _ in sums), math.fsum(own for _, own in sums)


def _distance(
    one: Mapping[str, Any], other: Mapping[str, Any], origin: Mapping[str, Any] | None = None
) -> tuple[float, str]:
    """Length of the difference of two sets of arrays over the length of the first (less ``origin``), in float64, and
    the name of an array that differs by more than half its own length; empty when none does."""
    sums = {name: squares(array, other[name], origin[name] if origin else None) for name, array in one.items()}
    apart, own = ({name: math.sqrt(found[i]) for name, found in sums.items()} for i in (0, 1))
    length = math.hypot(*own.values())
    lost = [name for name in sums if apart[name] > max(_ALONE * own[name], _SPECK * length)]
    return (math.hypot(*apart.values()) / length if length else math.nan), min(lost, default="")


def update_close(module: nn.Module) -> Callable[[Mapping[str, Any], Mapping[str, Any]], Outcome]:
    """A check of weights after training: the distance of the two updates of the weights as they are now, relative to
    the length of the first. No single array may differ by more than half the length of its own update."""
    start = {name: p.detach().float().cpu().numpy().copy() for name, p in module.named_parameters()}

    def check(before: Mapping[str, Any], after: Mapping[str, Any]) -> Outcome:
        if fault := _mismatch(start, before) or _mismatch(start, after):
            return Outcome(False, fault)
        distance, lost = _distance(before, after, start)
        if lost:
            return Outcome(False, f"the update of {lost} differs by more than half its own length", distance)
        return Outcome(math.isfinite(distance), f"the updates differ by {distance:.3g} of their length", distance)

    return check
