"""A kernel chosen from candidates that differ in compile-time constants: the first right one, or the best one found.

What must not live here: compiling (build.py), what an entry reads and writes (entries.py), the timing of a side.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np

from aiperf.workloads.shared.seeded import generator

_RUNS = 5
"""Runs of a candidate, the shortest of which counts."""
_TURNS = 20
"""Runs of each of two kernels, turn about, of which the shortest counts."""
_WORTH = 0.98
"""A change is kept if the time falls below this share: less may be noise."""
_RTOL, _ATOL = 1e-4, 1e-3

Defines = dict[str, int]


@dataclass(frozen=True)
class CandidateRun:
    """A kernel on one problem."""

    run: Callable[[], object]
    outputs: Mapping[str, Any]
    """Float arrays that ``run`` writes whole."""
    reference: Mapping[str, Any]

    def is_right(self) -> bool:
        """Whether ``run`` writes every element, and as the reference has it."""
        for array in self.outputs.values():
            array.fill(np.nan)
        self.run()
        pairs = ((array, self.reference[name]) for name, array in self.outputs.items())
        return all(np.allclose(array, truth, rtol=_RTOL, atol=_ATOL) for array, truth in pairs)


@dataclass
class Search:
    """Candidates as they are tried, each once."""

    knobs: Mapping[str, Sequence[int]]
    runs_of: Callable[[Defines], list[CandidateRun]]
    """Compiles a candidate; gives its runs, that of the problem to be timed last. Raises RuntimeError with the
    compiler's words where it does not compile."""
    tried: dict[tuple[int, ...], float] = field(default_factory=dict)
    """Values of the knobs -> seconds of a run; infinite for a candidate that is wrong or does not compile."""
    uncompiled: list[str] = field(default_factory=list)
    """What the compiler said of each candidate that does not compile."""
    seconds: float = 0.0
    """What generating, compiling, verifying and timing took."""

    @property
    def rejected(self) -> int:
        """Candidates that do not compile, or that some problem showed to be wrong."""
        return sum(np.isinf(found) for found in self.tried.values())

    def first_right(self, seed: int) -> Defines:
        """The first right candidate in an order drawn from ``seed``. Raises ValueError where none is right,
        RuntimeError where none compiles."""
        began = perf_counter()
        drawn = list(itertools.product(*self.knobs.values()))
        for place in generator(seed, "candidates").permutation(len(drawn)):
            if np.isfinite(self._try(drawn[place])):
                self.seconds += perf_counter() - began
                return self._defines(drawn[place])
        errors = f"; {len(self.uncompiled)} do not compile: {self.uncompiled[0]}" if self.uncompiled else ""
        if len(self.uncompiled) == len(drawn):
            raise RuntimeError(f"no candidate compiles: {self.uncompiled[0]}")
        raise ValueError(f"no candidate computes what the reference has{errors}")

    def refine(self, start: Defines) -> Defines:
        """The candidate from which no change of one knob is faster, found from ``start`` by such changes."""
        began = perf_counter()
        best, refined = tuple(start[name] for name in self.knobs), True
        while refined:
            refined = False
            for place, values in enumerate(self.knobs.values()):
                for value in values:
                    other = (*best[:place], value, *best[place + 1 :])
                    if self._try(other) < _WORTH * self._try(best):
                        best, refined = other, True
        self.seconds += perf_counter() - began
        return self._defines(best)

    def compare(self, first: Defines, best: Defines) -> tuple[float, float]:
        """Seconds of a run of each, timed anew and turn about, so that both meet the same load; no part of
        ``seconds``."""
        if first == best:
            only = _shortest(self.runs_of(first)[-1].run, _TURNS)
            return only, only
        one, other = (self.runs_of(defines)[-1].run for defines in (first, best))
        turns = [(_seconds(one), _seconds(other)) for _ in range(_TURNS)]
        return min(t for t, _ in turns), min(t for _, t in turns)

    def _defines(self, values: tuple[int, ...]) -> Defines:
        return dict(zip(self.knobs, values, strict=True))

    def _try(self, values: tuple[int, ...]) -> float:
        if values not in self.tried:
            self.tried[values] = self._measured(values)
        return self.tried[values]

    def _measured(self, values: tuple[int, ...]) -> float:
        try:
            runs = self.runs_of(self._defines(values))
        except RuntimeError as error:
            self.uncompiled.append(str(error))
            return float("inf")
        return _shortest(runs[-1].run, _RUNS) if all(r.is_right() for r in runs) else float("inf")


def _seconds(run: Callable[[], object]) -> float:
    began = perf_counter()
    run()
    return perf_counter() - began


def _shortest(run: Callable[[], object], times: int) -> float:
    return min(_seconds(run) for _ in range(times))
