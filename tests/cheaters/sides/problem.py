"""The problem that most sides of the shelf solve: a vector through three functions, and helpers that several share.

What must not live here: any cheat.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
from collections.abc import Callable
from typing import Any

import numpy as np

from aiperf.workloads.contract import Context, Work, Workload

_PR_SET_PDEATHSIG = 1


def solve(x: np.ndarray, out: np.ndarray) -> None:
    """What an honest step computes."""
    np.tanh(x, out=out)
    np.exp(out, out=out)
    np.sin(out, out=out)


def solved(x: np.ndarray) -> np.ndarray:
    """The same in a new array."""
    out = np.empty_like(x)
    solve(x, out)
    return out


def vector(context: Context, items: int) -> tuple[np.ndarray, np.ndarray]:
    """Input and output."""
    x = np.random.default_rng(context.seed).standard_normal(items)
    return x, np.empty_like(x)


def checksum(x: np.ndarray) -> int:
    """Of every bit of an array, far cheaper than solving it."""
    return int(np.bitwise_xor.reduce(x.view(np.uint64)))


def job(step: Callable[[], object], x: np.ndarray, out: np.ndarray, **hooks: Any) -> Workload:
    """A workload with one input and one output."""
    return Workload(step, Work(items=x.size), outputs=lambda: {"out": out}, inputs=lambda: {"x": x}, **hooks)


def honest(x: np.ndarray, out: np.ndarray, **hooks: Any) -> Workload:
    """Solves the problem in every step."""
    return job(lambda: solve(x, out), x, out, **hooks)


def shared(items: int) -> np.ndarray:
    """An array of zeros that forked children see and write."""
    return np.frombuffer(mmap.mmap(-1, 8 * items), dtype=np.float64)


def fork(body: Callable[[], None]) -> int:
    """A child that runs ``body`` until it returns, or until this process is gone; its process id."""
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    try:
        if os.getppid() == parent:
            body()
    finally:
        os._exit(0)


def end(pid: int) -> None:
    """Kill a child and wait for it."""
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
