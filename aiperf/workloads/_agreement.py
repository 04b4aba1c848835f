"""How far two ways of training or of predicting lie apart: the named checks of model.py and parallel.py.

What must not live here: models, bounds (a scenario states its own).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from torch import nn

from aiperf.workloads._errors import squares
from aiperf.workloads.contract import Outcome

_LOSS_SHARE = 0.01


def gradients_close(before: Mapping[str, Any], after: Mapping[str, Any]) -> Outcome:
    """How far gradients in a lower precision lie from the others, all read as one vector, relative to its length.

    0.045 is where the cosine of two vectors of equal length falls below 0.999. No single gradient may be further off
    than half its own length, however little it adds to the vector. The loss, where there is one among the outputs, may
    differ by a hundredth.
    """
    names = sorted((before.keys() & after.keys()) - {"loss"})
    if before.keys() != after.keys() or not names:
        return Outcome(False, f"one side gives {sorted(before)}, the other {sorted(after)}")
    if misshapen := _misshapen(before, after):
        return Outcome(False, misshapen)
    distance, lost = _distance(*({name: side[name] for name in names} for side in (before, after)))
    if lost:
        return Outcome(False, f"the gradient of {lost} lies off by more than half its own length", distance)
    if "loss" in before and not np.allclose(before["loss"], after["loss"], rtol=_LOSS_SHARE):
        told = f"the loss is {np.mean(after['loss']):.6g} against before's {np.mean(before['loss']):.6g}"
        return Outcome(False, told, distance)
    return Outcome(math.isfinite(distance), f"the gradients differ by {distance:.3g} of their length", distance)


_ELSEWHERE = 0.02
"""Distance of a token's prediction from before's, over its length, past which it counts as another one."""


def predictions_close(before: Mapping[str, Any], after: Mapping[str, Any]) -> Outcome:
    """Which share of the tokens has another prediction, off by more than a fiftieth of its own length.

    For models whose router decides between experts: where two suit a token almost equally, a last bit decides, and
    that token (and a little those that look back at it) takes another way.
    """
    if before.keys() != after.keys() or not before:
        return Outcome(False, f"one side gives {sorted(before)}, the other {sorted(after)}")
    if misshapen := _misshapen(before, after):
        return Outcome(False, misshapen)
    off = [
        np.linalg.norm(after[name] - array, axis=-1) <= _ELSEWHERE * np.linalg.norm(array, axis=-1)
        for name, array in before.items()
    ]
    # Counted by what agrees, so that what is no number is no agreement.
    share = 1 - float(np.mean(np.concatenate([near.ravel() for near in off])))
    return Outcome(True, f"{share:.2%} of the predictions are others", share)


def _misshapen(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Which arrays differ in shape; empty when none do."""
    pairs = ((name, np.shape(array), np.shape(other[name])) for name, array in one.items())
    differing = ((name, first, second) for name, first, second in pairs if first != second)
    return next((f"{name} has shape {second} against before's {first}" for name, first, second in differing), "")


_ALONE = 0.5
_SPECK = 1e-6
"""Share of the whole length below which an array is rounding noise and may be anything."""


def _distance(
    one: Mapping[str, Any], other: Mapping[str, Any], origin: Mapping[str, Any] | None = None
) -> tuple[float, str]:
    """Length of the difference of two sets of arrays over the length of the first, or of its way from ``origin``.

    In float64. Also the name of an array that lies further off than half its own length; empty when there is none.
    """
    sums = {name: squares(array, other[name], origin[name] if origin else None) for name, array in one.items()}
    apart, own = ({name: math.sqrt(found[i]) for name, found in sums.items()} for i in (0, 1))
    length = math.hypot(*own.values())
    lost = [name for name in sums if apart[name] > max(_ALONE * own[name], _SPECK * length)]
    return (math.hypot(*apart.values()) / length if length else math.nan), min(lost, default="")


def update_close(module: nn.Module) -> Callable[[Mapping[str, Any], Mapping[str, Any]], Outcome]:
    """A check of weights after training: how far the two updates lie apart, relative to their own length.

    Both are read from the weights as they are now, before any training; 0.05 means that the second way of training
    went 5 % of the distance elsewhere. No single weight array may go half of its own distance elsewhere.
    """
    start = {name: p.detach().float().cpu().numpy().copy() for name, p in module.named_parameters()}

    def check(before: Mapping[str, Any], after: Mapping[str, Any]) -> Outcome:
        if before.keys() != start.keys() or after.keys() != start.keys():
            return Outcome(False, f"one side gives {sorted(before)}, the other {sorted(after)}")
        if misshapen := _misshapen(start, before) or _misshapen(start, after):
            return Outcome(False, misshapen)
        distance, lost = _distance(before, after, start)
        if lost:
            return Outcome(False, f"the update of {lost} lies off by more than half its own length", distance)
        return Outcome(math.isfinite(distance), f"the updates differ by {distance:.3g} of their length", distance)

    return check
