"""The check of attention over all earlier keys against attention over a window: each by the truth of its own mask.

What must not live here: backends, drawing of inputs, timing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from aiperf.workloads.attention.masks import Mask
from aiperf.workloads.contract import Outcome

_PROBES = 64
"""Queries whose truth is computed; the first and the last are among them."""


class WindowCheck:
    """Knows every seed that the inputs were drawn from, since a check comes after all audits."""

    def __init__(self, arrays: Mapping[str, Any], mask: Mask, draw: Callable[[int], None]) -> None:
        self._arrays, self._mask, self._draw = arrays, mask, draw
        self._seeds: list[int] = []
        self._truths: dict[int, tuple[Any, Any]] = {}

    def redraw(self, seed: int) -> None:
        """Draw the inputs and note the seed."""
        self._draw(seed)
        self._seeds.append(seed)

    def each_by_its_mask(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> Outcome:
        """How far probed queries of either side lie from the float64 truth: ``before`` sees all earlier keys, ``after``
        those of the window that both sides name. The larger of the two relative Frobenius errors."""
        rows = _probed(self._mask.q_len)
        if before["out"].shape != after["out"].shape:
            return Outcome(False, f"results of shape {after['out'].shape} against before's {before['out'].shape}")
        sides = [np.asarray(side["out"])[:, :, rows].astype(np.float64) for side in (before, after)]
        if not all(np.isfinite(np.asarray(side["out"], dtype=np.float32)).all() for side in (before, after)):
            return Outcome(False, "a result is not finite")
        errors = [max(map(_apart, sides, truths)) for truths in self._known()]
        value = min(errors)
        return Outcome(True, f"probed queries are {value:.2g} of their length from the truth of their mask", value)

    def _known(self) -> list[tuple[Any, Any]]:
        """(all earlier keys, the window) for every seed; the inputs are afterwards what they were."""
        seeds = list(dict.fromkeys(self._seeds))
        for seed in seeds:
            if seed not in self._truths:
                self._draw(seed)
                masks = [replace(self._mask, kind=kind) for kind in ("causal", "sliding")]
                self._truths[seed] = (self._truth(masks[0]), self._truth(masks[1]))
        self._draw(self._seeds[-1])
        return [self._truths[seed] for seed in seeds]

    def _truth(self, mask: Mask) -> Any:
        q, k, v = (self._arrays[name] for name in "qkv")
        rows = torch.tensor(_probed(mask.q_len), device=q.device)
        seen = mask.allowed(rows[:, None], torch.arange(mask.kv_len, device=q.device)[None, :])
        found = []
        for head in range(q.shape[1]):
            keys, values = (t[:, head * t.shape[1] // q.shape[1]].double() for t in (k, v))
            scores = q[:, head, rows].double() @ keys.transpose(-1, -2) * q.shape[-1] ** -0.5
            found.append(scores.masked_fill(~seen, float("-inf")).softmax(-1) @ values)
        return torch.stack(found, dim=1).cpu().numpy()


def _probed(q_len: int) -> list[int]:
    return sorted({round(at) for at in np.linspace(0, q_len - 1, min(_PROBES, q_len))})


def _apart(found: Any, truth: Any) -> float:
    return float(np.linalg.norm(found - truth) / np.linalg.norm(truth))
