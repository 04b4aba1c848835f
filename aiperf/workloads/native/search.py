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
    """Compiles a candidate; gives its runs, that of the problem to be timed last."""
    tried: dict[tuple[int, ...], float] = field(default_factory=dict)
    """Values of the knobs -> seconds of a run; infinite for a wrong candidate."""
    seconds: float = 0.0
    """What generating, compiling, verifying and timing took."""

    @property
    def rejected(self) -> int:
        """Candidates that some problem showed to be wrong."""
        return sum(np.isinf(found) for found in self.tried.values())

    def first_right(self, seed: int) -> Defines:
        """The first right candidate in an order drawn from ``seed``. Raises ValueError where none is right."""
        began = perf_counter()
        drawn = list(itertools.product(*self.knobs.values()))
        for place in generator(seed, "candidates").permutation(len(drawn)):
            if np.isfinite(self._try(drawn[place])):
                self.seconds += perf_counter() - began
                return self._defines(drawn[place])
        raise ValueError("no candidate computes what the reference has")

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

    def seconds_of(self, defines: Defines) -> float:
        """Of a run of a candidate that was tried."""
        return self.tried[tuple(defines[name] for name in self.knobs)]

    def _defines(self, values: tuple[int, ...]) -> Defines:
        return dict(zip(self.knobs, values, strict=True))

    def _try(self, values: tuple[int, ...]) -> float:
        if values not in self.tried:
            runs = self.runs_of(self._defines(values))
            self.tried[values] = _shortest(runs[-1].run) if all(r.is_right() for r in runs) else float("inf")
        return self.tried[values]


def _shortest(run: Callable[[], object]) -> float:
    def once() -> float:
        began = perf_counter()
        run()
        return perf_counter() - began

    return min(once() for _ in range(_RUNS))
