"""Student's t, chi-square and beta: tail probabilities and quantiles as floats, good to 12 digits.

By mpmath, 3 MB, where scipy would bring 140 for these four functions. What must not live here: data of a run.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, lru_cache
from statistics import NormalDist
from typing import Any

_DIGITS = 22
"""Of the arithmetic: with a million degrees of freedom a third of them cancel."""
_CLOSE = 1e-7
"""Relative size of a step of Newton's after which the next would change nothing."""
_STEPS = 200


@cache
def _mp() -> Any:
    from mpmath import MPContext

    context = MPContext()  # its own: the digits of another user of the library stay what they are
    context.dps = _DIGITS
    return context


def t_tail(t: float, df: float) -> float:
    """P(T > t) of Student's t with ``df`` > 0 degrees of freedom."""
    mp = _mp()
    square, df = mp.mpf(t) ** 2, mp.mpf(df)
    tail = mp.betainc(df / 2, mp.mpf(1) / 2, 0, df / (df + square), regularized=True) / 2
    return float(tail if t >= 0 else 1 - tail)


@lru_cache(4096)
def t_quantile(p: float, df: float) -> float:
    """The t with P(T <= t) = ``p``, 0 < p < 1."""
    if p < 0.5:
        return -t_quantile(1 - p, df)
    wanted, z = 1 - p, NormalDist().inv_cdf(p)
    # From the normal quantile, which lies below, Newton's steps come up without passing it, because the tail is convex;
    # with more degrees of freedom Cornish and Fisher's expansion begins closer.
    t = z if df < 3 else z + (z**3 + z) / (4 * df) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * df * df)
    scale = math.lgamma((df + 1) / 2) - math.lgamma(df / 2) - math.log(df * math.pi) / 2
    for _ in range(_STEPS):
        density = math.exp(scale - (df + 1) / 2 * math.log1p(t * t / df))
        step = (t_tail(t, df) - wanted) / density
        t += step
        if abs(step) <= _CLOSE * abs(t):
            break
    return t


@lru_cache(1024)
def chi_square_quantile(p: float, df: float) -> float:
    """The x with P(X <= x) = ``p`` of chi-square with ``df`` degrees of freedom, 0 < p < 1."""
    mp = _mp()
    half = mp.mpf(df) / 2
    top = 1.0
    while (cdf := lambda x: float(mp.gammainc(half, 0, mp.mpf(x) / 2, regularized=True)))(top) < p:
        top *= 2
    return _solve(cdf, p, top)


@lru_cache(1024)
def beta_quantile(p: float, a: float, b: float) -> float:
    """The x with P(X <= x) = ``p`` of the beta distribution, 0 < p < 1."""
    return _solve(lambda x: float(_mp().betainc(a, b, 0, x, regularized=True)), p, 1.0)


def _solve(cdf: Callable[[float], float], p: float, high: float) -> float:
    """Where a distribution on [0, ``high``] reaches ``p``, by halving."""
    low = 0.0
    while (middle := (low + high) / 2) not in (low, high):
        if cdf(middle) < p:
            low = middle
        else:
            high = middle
    return middle
