"""Student's t, chi-square and beta: tail probabilities and quantiles as floats, good to 12 digits.

t by a continued fraction in floats, because every look and report asks for it; what floats cannot by mpmath, 3 MB,
where scipy would bring 140. What must not live here: data of a run.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, lru_cache
from statistics import NormalDist
from typing import Any

_DIGITS = 22
"""Of mpmath's arithmetic: with a million degrees of freedom a third of them cancel."""
_MOST_IN_FLOATS = 1000
"""Degrees of freedom up to which floats keep the digits promised above."""
_TINY = 1e-300
"""In place of a denominator that would be 0 (Lentz)."""
_FAR = 40.0
"""From it on a tail of many degrees of freedom is next to 0, and mpmath's series soon does not converge."""
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
    if not (square := t * t / df):
        return 0.5
    if df <= _MOST_IN_FLOATS or abs(t) >= _FAR:
        tail = _beta_share(df / 2, 0.5, 1 / (1 + square), 1 / (1 + 1 / square)) / 2
    else:
        mp = _mp()
        exact = mp.mpf(t) ** 2
        tail = float(mp.betainc(mp.mpf(df) / 2, mp.mpf(1) / 2, 0, df / (df + exact), regularized=True) / 2)
    return tail if t >= 0 else 1 - tail


def _beta_share(a: float, b: float, x: float, y: float) -> float:
    """The regularised incomplete beta function at ``x`` = 1 - ``y``, where one of ``a`` and ``b`` is a half."""
    if x > (a + 1) / (a + b + 2):
        return 1 - _beta_share(b, a, y, x)
    if x == 0:
        return 0.0
    log_beta = math.log(math.pi) / 2 - _log_half_step(a if b == 0.5 else b)
    front = math.exp(a * (math.log1p(-y) if y < 0.5 else math.log(x)) + b * math.log(y) - log_beta) / a
    # Numerical Recipes' continued fraction, by Lentz' method as Thompson and Barnett changed it.
    c, d = 1.0, 1 / ((1 - (a + b) * x / (a + 1)) or _TINY)
    value, m = d, 0
    while True:
        m += 1
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d, c = 1 / ((1 + term * d) or _TINY), (1 + term / c) or _TINY
            value *= d * c
        if abs(d * c - 1) < 1e-15:
            return front * value


def _log_half_step(a: float) -> float:
    """Logarithm of gamma(a + 1/2) / gamma(a); the two cancel where ``a`` is large, so there by their expansion."""
    if a < 20:
        return math.lgamma(a + 0.5) - math.lgamma(a)
    return math.log(a) / 2 - 1 / (8 * a) + 1 / (192 * a**3) - 1 / (640 * a**5) + 17 / (14336 * a**7)


@lru_cache(4096)
def t_quantile(p: float, df: float) -> float:
    """The t with P(T <= t) = ``p``, 0 < p < 1."""
    if p < 0.5:
        return -t_quantile(1 - p, df)
    wanted, z = 1 - p, NormalDist().inv_cdf(p)
    # From the normal quantile, which lies below, Newton's steps come up without passing it, because the tail is convex;
    # with more degrees of freedom Cornish and Fisher's expansion begins closer.
    t = z if df < 3 else z + (z**3 + z) / (4 * df) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * df * df)
    scale = _log_half_step(df / 2) - math.log(df * math.pi) / 2
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


def sign_test_count(values: int, error: float) -> int:
    """How many of ``values`` must lie on one side so that chance puts as many there with a probability of at most
    ``error``; all of them where even that is likelier."""
    needed, tail = values, 0.5**values
    while needed > 1 and (tail := tail + math.comb(values, needed - 1) * 0.5**values) <= error:
        needed -= 1
    return needed
