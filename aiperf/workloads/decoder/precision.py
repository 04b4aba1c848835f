"""Weights in fp8, and when decoding leaves them: layers that are rounded, and a choice between two models by margins.

What must not live here: the model, graphs, how a side's tokens are compared.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
import torch.nn.functional as F

from aiperf.workloads.decoder.caches import Cache

_LIMIT = 448.0
"""The largest number of e4m3."""
NEWEST = 0.2
"""Weight of the newest margin among the smoothed ones."""
_SPREAD = 16.0
"""Activations are multiplied by it before they are rounded: e4m3 then keeps its 4 significant bits from 0.001 to 28."""


class Rounded:
    """A weight [out, in] in fp8 (e4m3), with one scale."""

    def __init__(self, weight: Any) -> None:
        scale = weight.abs().amax().float() / _LIMIT
        self.codes = (weight / scale).clamp_(-_LIMIT, _LIMIT).to(torch.float8_e4m3fn)
        self.scale = scale.reshape(1)
        self.spread = torch.full_like(self.scale, 1 / _SPREAD)


def linear(x: Any, weight: Any) -> Any:
    """X [..., in] times a weight [out, in]; beside one in fp8 activations are rounded to fp8, too."""
    if not isinstance(weight, Rounded):
        return F.linear(x, weight)
    codes = (x * _SPREAD).clamp_(-_LIMIT, _LIMIT).to(torch.float8_e4m3fn).flatten(0, -2)
    y = torch._scaled_mm(codes, weight.codes.t(), scale_a=weight.spread, scale_b=weight.scale, out_dtype=x.dtype)
    return y.unflatten(0, x.shape[:-1])


def halves(x: Any, weight: Any) -> Any:
    """Both halves of ``linear``; of many tokens each in one block, which what follows then passes twice as fast."""
    one = isinstance(weight, Rounded) or x.shape[-2] == 1
    return linear(x, weight).chunk(2, dim=-1) if one else [F.linear(x, half) for half in weight.chunk(2)]


class Forward(Protocol):
    """What a token goes through: a model, or a captured step of one."""

    def forward(self, tokens: Any, cache: Cache) -> Any:
        """Logits [batch, 1, vocab] after ``tokens`` [batch, 1]."""


def smoothed(margins: Any, newest: float = NEWEST) -> Any:
    """Each of ``margins`` [count] with those before it; ``newest`` is its own weight."""
    found = [margins[0]]
    for margin in margins[1:]:
        found.append(found[-1].lerp(margin, newest))
    return torch.stack(found)


class Switched:
    """Decodes in low precision while choices are clear: from a smoothed margin of ``enter`` on until it falls below
    ``leave``. The host looks after ``every`` so many tokens; between, nothing waits for the device."""

    def __init__(
        self, exact: Forward, rounded: Forward, *, enter: float, leave: float, every: int, newest: float
    ) -> None:
        self._models, self._bounds, self._every, self._newest = (exact, rounded), (enter, leave), every, newest
        self.restart()

    def restart(self) -> None:
        """A new text, whose first tokens go through the exact model."""
        self._low, self._count = False, 0
        self._margin: Any = None
        self.low_steps = self.switches = 0

    def forward(self, tokens: Any, cache: Cache) -> Any:
        """Logits [batch, 1, vocab] after ``tokens`` [batch, 1]."""
        logits = self._models[self._low].forward(tokens, cache)
        best = logits[:, -1].topk(2, dim=-1).values.float()
        margin = (best[:, 0] - best[:, 1]).amin()
        self._margin = margin if self._margin is None else self._margin.lerp(margin, self._newest)
        self._count += 1
        self.low_steps += self._low
        if self._count % self._every == 0:
            low = float(self._margin) >= self._bounds[self._low]
            self.switches += low != self._low
            self._low = low
        return logits
