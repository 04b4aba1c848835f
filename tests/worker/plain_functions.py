"""Plain functions that the worker tests load by path."""

import random

import numpy as np

from aiperf.workloads.contract import Context, Work, Workload

SEEN = []
_KEPT = {}


def numbers(seed, count=4):
    """One argument: a list of as many numbers."""
    drawn = random.Random(seed)
    return [drawn.random() for _ in range(count)]


def by_name(seed):
    return {"xs": numbers(seed), "scale": 2.0}


def in_order(seed):
    return numbers(seed), 3.0


def from_the_library(count=4):
    """No seed: it draws from numpy's own generator."""
    return np.random.standard_normal(count)


def fixed():
    return [1.0, 2.0]


def nothing(seed):
    SEEN.append(seed)


def misnamed(rng):
    return rng


def sized(seed, n):
    return (n,)


def first(seed, n):
    """What is counted in, but not how often: both take ``n``."""
    return ([1] * n,)


def with_count(seed, n):
    """Every argument in order, also the one that the scenario gives by name."""
    return [1] * n, n + 1


def by_n(seed, n):
    return [1.0] * n, 2.0


def counted(xs, n):
    return [len(xs), n]


def several(*xs, n):
    return [len(xs), n]


def a_workload(seed):
    return Workload(lambda: None)


def scaled(xs, scale=1.0):
    return [x * scale for x in xs]


def doubled(x, /, *, times=2):
    return [x] * times


def in_place(xs):
    xs.sort()
    return list(xs)


def cached(xs):
    if "out" not in _KEPT:
        _KEPT["out"] = np.square(xs)
    return _KEPT["out"]


def reversed_view(xs):
    return xs[::-1]


def lazy(xs):
    return (x for x in xs)


def no_data(xs):
    return object()


def none_needed():
    return 7


def misread(first, *, n: int = 1):
    """Makes a workload and does not say so."""
    return Workload(lambda: None, Work(), outputs=dict)


def silent(context: Context) -> Workload:
    """Gives no outputs."""
    return Workload(lambda: None)


class Parser:
    @staticmethod
    def parse(text):
        return text.split()


TABLE = [1]
