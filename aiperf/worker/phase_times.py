"""How long a workload's functions take that no reading of a clock holds: prepare, inputs, outputs, redraw and others.

What must not live here: timing the step, and what a long call means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from statistics import median
from time import perf_counter
from typing import Any

from aiperf.protocol.reported import PhaseTime
from aiperf.worker.latencies import read_latencies
from aiperf.workloads.contract import Workload

PENDING = "pending"
"""By how much the call of ``outputs`` right after an audited step exceeds the shortest: what it had to finish first."""
_OUTPUTS, _INPUTS = "outputs", "inputs"


class PhaseTimes:
    """The calls of one side."""

    def __init__(self) -> None:
        self._seconds: dict[str, list[float]] = {}
        self._calls: list[float] = []
        self._asked: list[float] = []

    def metered(self, workload: Workload) -> Workload:
        """``workload`` with its untimed functions timed; its step stays as it is."""
        timed: dict[str, Any] = {
            name: self._timed(getattr(workload, name), self._seconds.setdefault(name, []))
            for name in ("prepare", "redraw", "reset")
            if getattr(workload, name) is not None
        }
        if workload.latencies is not None:
            # A generator does its work when it is read.
            timed["latencies"] = self._timed(
                lambda: read_latencies(workload), self._seconds.setdefault("latencies", [])
            )
        # A mapping of its own kind may compute when it is read, which belongs to the call; a plain dict does not.
        if (inputs := workload.inputs) is not None:
            timed["inputs"] = self._timed(lambda: dict(inputs()), self._asked)
        return replace(workload, outputs=self._timed(lambda: dict(workload.outputs()), self._calls), **timed)

    @contextmanager
    def audit(self) -> Iterator[None]:
        """An audit, in which the last call of ``outputs`` counts, which follows the audited step, and the longest of
        ``inputs``, which may be the first that meets new ones."""
        self._calls.clear()
        self._asked.clear()
        yield
        if self._asked:
            self._seconds.setdefault(_INPUTS, []).append(max(self._asked))
        if self._calls:
            self._seconds.setdefault(_OUTPUTS, []).append(self._calls[-1])
            self._seconds.setdefault(PENDING, []).append(self._calls[-1] - min(self._calls))

    def sums(self) -> dict[str, PhaseTime]:
        """Function -> its calls so far, those that never came left out."""
        return {
            name: PhaseTime(len(s), sum(s), min(s) if name == PENDING else median(s))
            for name, s in self._seconds.items()
            if s
        }

    @staticmethod
    def _timed(function: Callable[..., Any], into: list[float]) -> Callable[..., Any]:
        def timed(*given: Any) -> Any:
            began = perf_counter()
            try:
                return function(*given)
            finally:
                into.append(perf_counter() - began)

        return timed
