"""NVTX ranges of domain ``aiperf``: which tool call makes them, and context managers for side, phase and iteration.

Sides and phases are start/end ranges: push/pop ranges would lose the kernels that other threads launch. ncu syntax:
``aiperf@before`` selects a side, ``aiperf@iteration/`` (slash) the push/pop ranges. What must not live here: when a
phase begins or ends, timing of workloads, anything a profiler writes.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from statistics import median
from types import TracebackType

from aiperf.worker.nvtx_tools import DOMAIN, TOOLS, RangeTool

SWITCH = "AIPERF_NVTX"
INJECTION = ("NVTX_INJECTION64_PATH", "NVTX_INJECTION32_PATH")
ITERATION = "iteration"

__all__ = ["DOMAIN", "Ranges", "cost_per_range", "range_name", "wanted"]


def range_name(text: str) -> str:
    """``text`` in lower case with every character outside ``[a-z0-9_-]`` made ``_``: ncu needs no escapes then. Raises
    ValueError for an empty text."""
    if not text:
        raise ValueError("a range needs a name")
    return re.sub(r"[^a-z0-9_-]", "_", text.lower())


def wanted() -> tuple[bool, str]:
    """Whether this process should emit ranges, and why: a tool is attached, or AIPERF_NVTX is on (off wins)."""
    switch = os.environ.get(SWITCH, "").lower()
    if switch in ("off", "0", "no"):
        return False, f"{SWITCH} is {switch}"
    if os.environ.get("NVTX_DISABLE"):
        return False, "NVTX_DISABLE is set"
    for name in INJECTION:
        if os.environ.get(name):
            return True, f"{name} is set"
    if switch:
        return True, f"{SWITCH} is {switch}"
    return False, "no tool is attached"


_NOTHING = nullcontext()
"""Serves every call of ranges that are off."""


class _Nested:
    """Push/pop around a block; keeps no state, so one instance serves every iteration."""

    __slots__ = ("_pop", "_push")

    def __init__(self, push: Callable[[str], object], pop: Callable[[], object]) -> None:
        self._push, self._pop = push, pop

    def __enter__(self) -> None:
        self._push(ITERATION)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._pop()


class Ranges:
    """The ranges of one worker process. Open them with ``Ranges.open()``; off, every call is an empty one."""

    def __init__(self, tool: RangeTool | None, reason: str) -> None:
        self.backend = tool.name if tool else "none"
        """Which call makes the ranges: nvtx, nvtx (forced), libnvtx3interop, torch.cuda.nvtx, none."""
        self.domain = tool.domain if tool else ""
        """Empty when the backend knows no domains: then a profiler's filter is the bare range name."""
        self.reason = reason
        """Why this backend, or why none."""
        self._tool = tool
        self._iteration: AbstractContextManager[None] = _Nested(tool.push, tool.pop) if tool else _NOTHING

    @classmethod
    def open(cls, force: bool = False, *, tools: Sequence[Callable[[], RangeTool]] = TOOLS) -> Ranges:
        """Ranges through the first tool that works, or silent ones when none is wanted or none works. ``force`` emits
        them even with no profiler attached. Never raises."""
        want, reason = wanted()
        if not (want or force):
            return cls(None, reason)
        refusals: list[str] = []
        for make in tools:
            try:
                tool = make()
            except Exception as error:
                # Any failure of a third-party library only means that the next one is tried.
                refusals.append(f"{make.__name__}: {type(error).__name__}: {error}")
                continue
            return cls(tool, reason if want else "forced")
        return cls(None, "; ".join(refusals))

    @property
    def on(self) -> bool:
        """Whether ranges are emitted."""
        return self._tool is not None

    def start(self, name: str) -> object:
        """Begin a process-wide range and return its handle for ``end``."""
        return self._tool.start(range_name(name)) if self._tool else None

    def end(self, handle: object) -> None:
        """End the range of this handle, from any thread."""
        if self._tool:
            self._tool.end(handle)

    def side(self, name: str) -> AbstractContextManager[None]:
        """Wrap everything a side does in a process-wide range, named as the side."""
        return self._span(self._tool, range_name(name)) if self._tool else _NOTHING

    @staticmethod
    @contextmanager
    def _span(tool: RangeTool, name: str) -> Iterator[None]:
        handle = tool.start(name)
        try:
            yield
        finally:
            tool.end(handle)

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Wrap one phase of a side in a process-wide range: ``before.measure`` is emitted as ``before_measure``."""
        return self.side(name)

    def iteration(self) -> AbstractContextManager[None]:
        """Wrap one call of step in a push/pop range of this thread."""
        return self._iteration


def cost_per_range(n: int = 20_000, *, on: bool) -> float:
    """Seconds that one iteration range costs, the loop included: median of five batches of ``n``. ``on`` forces the
    ranges."""
    ranges = Ranges.open(force=True) if on else Ranges(None, "asked to be off")
    batches = []
    for _ in range(5):
        begin = time.perf_counter()
        for _ in range(n):
            with ranges.iteration():
                pass
        batches.append((time.perf_counter() - begin) / n)
    return median(batches)
