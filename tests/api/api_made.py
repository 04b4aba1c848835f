"""What the tests of the Python interface share: functions to compare in a folder of their own, and a fast precision."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

FUNCTIONS = """
import functools
import random


def make(seed, *, count=500):
    drawn = random.Random(seed)
    return ([drawn.random() for _ in range(count)],)


def loop(xs):
    out = []
    for x in xs:
        out.append(2 * x)
    return out


def comprehension(xs):
    return [2 * x for x in xs]


def often(xs):
    for _ in range(200):
        out = loop(xs)
    return out


def scaled(xs, by, count):
    assert (len(xs), by) == (count, 4.0)
    return [by * x for x in xs]


def wrong(xs):
    return [3 * x for x in xs]


def fails(xs):
    raise RuntimeError("no such model")


def outer():
    def inner():
        return 1

    return inner


def kept(function):
    @functools.wraps(function)
    def call(*args):
        return function(*args)

    return call


@kept
def wrapped(xs):
    return [2 * x for x in xs]


class Parser:
    @staticmethod
    def fast(xs):
        return xs

    @classmethod
    def made(cls, xs):
        return xs

    def parse(self, xs):
        return xs


named = lambda xs: [2 * x for x in xs]
"""
PRECISION = """\
looks: [3]
alpha: 0.05
delta: 0.9
width: 5
case_seconds: 20
rounds: 2
round_seconds: 0.002
side_seconds: 0.01
warmup_seconds: 0.05
warmup_window: 5
audits: 1
provisional: true
"""


@contextmanager
def functions_in(folder: Path, name: str = "aiperf_api_functions") -> Iterator[ModuleType]:
    """The module of ``FUNCTIONS``, imported from a file in ``folder``, with a precision beside it."""
    (folder / "fast.yaml").write_text(PRECISION)
    path = folder / f"{name}.py"
    path.write_text(FUNCTIONS)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    try:
        yield module
    finally:
        del sys.modules[name]
