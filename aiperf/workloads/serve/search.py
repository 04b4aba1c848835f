"""The highest rate at which a share of the requests meets its objectives: which rate to try next, what the tries say.

What must not live here: sending requests, and what an objective is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

_STEP = 2.0
"""Factor between the first tries, until one lies on either side."""
_CLOSEST = 1.1
"""Factor below which single tries do not tell two rates apart: the search then tries around them again."""
_NEAR = 1.25
"""Factor between two rates beside each other."""
_FITTED = 2.0
"""Tries within this factor of the crossing say together where it is; further out the share bends otherwise."""
_ROUNDS, _LONGEST_STEP, _CLOSE = 50, 3.0, 1e-9
"""Of the fit by Newton's method."""


@dataclass
class RateSearch:
    """Tries of one launch."""

    start: float
    share: float
    tries: list[tuple[float, int, int]] = field(default_factory=list)
    """Rate, requests that met their objectives, requests."""

    def next_rate(self) -> float:
        """The rate to try next: further out until the share is met and missed, then around the crossing."""
        if not self.tries:
            return self.start
        above, below = self._sides()
        if not below:
            return max(rate for rate, _, _ in self.tries) * _STEP
        if not above:
            return min(rate for rate, _, _ in self.tries) / _STEP
        (low, _), (high, _) = above[-1], below[0]
        if high / low > _CLOSEST:
            return math.sqrt(low * high)
        # Near the crossing tries scatter: some below it and some above it tell where it is.
        return math.sqrt(low * high) * (_CLOSEST if len(self.tries) % 2 else 1 / _CLOSEST)

    def _sides(self) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
        """Rates and fitted shares, rising by rate: where the share is met, and where it is not."""
        fitted = falling(self.tries)
        return [t for t in fitted if t[1] >= self.share], [t for t in fitted if t[1] < self.share]

    def estimate(self) -> float | None:
        """Where the share falls below what is asked; None while every try lies on one side of it.

        A fit that may only fall with the rate says about where. It goes by the tries beside the crossing alone, of
        which the good ones lead the search upwards: what it says is too high. So a smooth curve through all tries near
        it has the last word, but at a cliff, which no smooth curve follows.
        """
        above, below = self._sides()
        if not above or not below:
            return None
        (low, high_share), (high, low_share) = above[-1], below[0]
        part = (high_share - self.share) / (high_share - low_share)
        crossing = float(math.exp(math.log(low) + part * (math.log(high) - math.log(low))))
        near = [tried for tried in self.tries if 1 / _FITTED <= tried[0] / crossing <= _FITTED]
        smooth = None if self.is_cliff else smooth_crossing(near, self.share)
        return crossing if smooth is None else smooth

    @property
    def is_cliff(self) -> bool:
        """Whether the share falls from met to less than half of it between rates beside each other: what the server
        cannot hold, it drops, and the rate found is where that begins."""
        above, below = self._sides()
        return bool(above and below) and below[0][0] / above[-1][0] < _NEAR and below[0][1] < self.share / 2


def falling(tries: list[tuple[float, int, int]]) -> list[tuple[float, float]]:
    """Rate -> share, by rate: the shares that never rise with the rate and are closest to those of the tries, each
    weighted by its requests (pool adjacent violators: Ayer and others, 1955)."""
    totals: dict[float, tuple[int, int]] = {}
    for rate, met, total in tries:
        known = totals.get(rate, (0, 0))
        totals[rate] = (known[0] + met, known[1] + total)
    blocks: list[tuple[list[float], int, int]] = []
    for rate in sorted(totals):
        block: tuple[list[float], int, int] = ([rate], *totals[rate])
        while blocks and block[1] / block[2] > blocks[-1][1] / blocks[-1][2]:
            rates, met, total = blocks.pop()
            block = (rates + block[0], met + block[1], total + block[2])
        blocks.append(block)
    return [(rate, met / total) for rates, met, total in blocks for rate in rates]


def smooth_crossing(tries: list[tuple[float, int, int]], share: float) -> float | None:
    """The rate at which a logistic curve over the logarithm of the rate has this share, fitted to the tries by largest
    likelihood; half a request is added to the met and to the missed of each, so that none is beyond the curve. None
    where the curve does not fall, or has the share at none of the rates tried."""
    points = [(math.log(rate), met + 0.5, total + 1.0) for rate, met, total in tries]
    if len({x for x, _, _ in points}) < 2:
        return None
    middle = sum(x for x, _, _ in points) / len(points)
    level, slope = 0.0, -1.0
    for _ in range(_ROUNDS):
        # Gradient and curvature of the likelihood in both.
        g0 = g1 = h00 = h01 = h11 = 0.0
        for x, met, total in points:
            away = x - middle
            fitted = 1 / (1 + math.exp(-max(-700.0, min(700.0, level + slope * away))))
            rest, weight = met - total * fitted, max(total * fitted * (1 - fitted), 1e-12)
            g0, g1 = g0 + rest, g1 + rest * away
            h00, h01, h11 = h00 + weight, h01 + weight * away, h11 + weight * away * away
        if (size := h00 * h11 - h01 * h01) <= 0:
            return None
        steps = ((h11 * g0 - h01 * g1) / size, (h00 * g1 - h01 * g0) / size)
        level, slope = (
            v + max(-_LONGEST_STEP, min(_LONGEST_STEP, s)) for v, s in zip((level, slope), steps, strict=True)
        )
        if max(map(abs, steps)) < _CLOSE:
            break
    if slope >= 0:
        return None
    found = middle + (math.log(share / (1 - share)) - level) / slope
    return math.exp(found) if min(points)[0] <= found <= max(points)[0] else None
