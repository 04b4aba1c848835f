"""Judges whether a warming-up side has reached steady state, from its readings alone (METHOD 4).

What must not live here: running steps, reading clocks or counters, numpy or torch.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

MIN_WINDOW = 5
SHORTEST_S = 1e-9
NORMAL_MAD = 1.4826
THEIL_SEN_EFFICIENCY = 3 / math.pi
STANDARD_ERRORS = 2.0


@dataclass(frozen=True)
class WarmUpReading:
    """One timed warm-up reading. Counts are totals since the process started, not increments."""

    seconds: float
    """Seconds per iteration."""
    compile_events: int = 0
    """Compilations, autotunings and cuDNN benchmarks so far."""
    allocator_bytes: int = 0
    """Bytes that the caching allocator has reserved."""
    alloc_retries: int = 0


class Steadiness:
    """A sliding window of readings that says when warm-up may end; ``delta`` is the practical threshold as a ratio
    minus 1. Raises ValueError for a window shorter than MIN_WINDOW or a delta that is not positive."""

    def __init__(self, window: int, delta: float) -> None:
        if window < MIN_WINDOW:
            raise ValueError(f"a window of {window} readings cannot show a slope; use {MIN_WINDOW} or more")
        if not delta > 0:
            raise ValueError(f"delta must be positive, not {delta}")
        self.window = window
        self.delta = delta
        self.count = 0
        # One reading more than the window: totals are compared with what they were before the window began.
        self._readings: deque[WarmUpReading] = deque(maxlen=window + 1)

    def feed(self, reading: WarmUpReading) -> None:
        """Take the next reading."""
        self._readings.append(reading)
        self.count += 1

    def verdict(self) -> tuple[bool, str]:
        """Whether the latest window is steady, and ``steady`` or what is still moving, in words."""
        if len(self._readings) <= self.window:
            # The first iteration is a metric of its own, so it never counts as one of the window.
            return False, f"only {self.count} of {self.window + 1} warm-up readings"
        moving = _still_moving(self._readings) or self._drifting()
        return not moving, moving or "steady"

    def _drifting(self) -> str:
        logs = [math.log(max(r.seconds, SHORTEST_S)) for r in list(self._readings)[1:]]
        drift, error = drift_of(logs)
        if abs(drift) < max(self.delta / 4, STANDARD_ERRORS * error):
            return ""
        way = "falling" if drift < 0 else "rising"
        return f"times still {way} ({abs(math.expm1(drift)) * 100:.1f} % over {self.window} iterations)"


def drift_of(logs: Sequence[float]) -> tuple[float, float]:
    """Drift of a series over its own length, and the standard error of that drift; both natural logarithms.

    The slope is Theil and Sen's: the median over all pairs (y_j - y_i) / (j - i). Its error is that of a least-squares
    slope, sigma * sqrt(12 / (n (n^2 - 1))), divided by the root of Theil-Sen's asymptotic efficiency 3 / pi, with
    sigma from the MAD of the residuals. The MAD of few values is too small by about n / (n - 0.8) (Croux and
    Rousseeuw 1992) and two fitted parameters take n / (n - 2) more: together n / (n - 3).
    """
    n = len(logs)
    slope = median((logs[j] - logs[i]) / (j - i) for i in range(n) for j in range(i + 1, n))
    residuals = [y - slope * i for i, y in enumerate(logs)]
    middle = median(residuals)
    sigma = NORMAL_MAD * median(abs(r - middle) for r in residuals) * n / (n - 3)
    error = sigma * math.sqrt(12 / (n * (n * n - 1)) / THEIL_SEN_EFFICIENCY)
    return slope * n, error * n


def _still_moving(readings: Sequence[WarmUpReading]) -> str:
    if _steps(r.compile_events for r in readings):
        return "still compiling"
    if _steps(r.alloc_retries for r in readings):
        return "allocator still retrying"
    if moved := _steps(r.allocator_bytes for r in readings):
        return f"allocator still {'growing' if moved[-1] > 0 else 'shrinking'}"
    return ""


def _steps(totals: Iterable[int]) -> list[int]:
    return [b - a for a, b in pairwise(totals) if a != b]
