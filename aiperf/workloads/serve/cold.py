"""Whether a server met the prompts of a trace for the first time: a probe by time, for servers that do not say.

What must not live here: sending requests, and what servers count themselves.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from aiperf.workloads.serve.trace import words

_ROUNDS = 4
_WITNESSES = 2
"""Prompts of the trace's own a round."""
_VISIBLE = 1.25
"""Factor between the times to the first token of fresh and repeated prompts from which a cache is seen in them."""


@dataclass(frozen=True)
class CacheProbe:
    """Seconds to the first token of single requests to an idle server."""

    fresh: tuple[float, ...] = ()
    """Prompts that nobody can have sent before."""
    again: tuple[float, ...] = ()
    """The same once more."""
    witnesses: tuple[float, ...] = ()
    """Prompts that every run of this trace sends before its first turn, and nothing else does."""

    @property
    def found(self) -> Literal["cold", "known", "unseen"]:
        """known: the witnesses were answered like repeated prompts; unseen: those take as long as fresh ones.

        Groups count as apart where no member of one is beyond one of the other: of equal ones that happens once in 70
        for what is repeated, once in 495 for the witnesses.
        """
        if not self.fresh or max(self.again) >= min(self.fresh):
            return "unseen"
        fresh, again = median(self.fresh), median(self.again)
        if again * _VISIBLE > fresh:
            return "unseen"
        near_repeated = median(self.witnesses) < math.sqrt(fresh * again)
        return "known" if near_repeated and max(self.witnesses) < min(self.fresh) else "cold"

    def summary(self) -> str:
        """What was seen, as a clause of a sentence."""
        if not self.fresh:
            return "a request of the probe failed"
        fresh, again, ours = (1000 * median(times) for times in (self.fresh, self.again, self.witnesses))
        return (
            f"to the first token fresh prompts took {fresh:.3g} ms, repeated ones {again:.3g}, the trace's {ours:.3g}"
        )


def probe_cache(time_of: Callable[[str], float | None], prompts: Sequence[str], *, salt: str) -> CacheProbe:
    """Send prompts as long as the longest of ``prompts``, one at a time. ``time_of``: seconds to the first token of
    one, None where it failed; ``salt`` makes the fresh ones those of this launch alone."""
    length = max(len(prompt.split()) for prompt in prompts)
    fresh, ours = random.Random(f"{salt}-probe"), random.Random("\n".join(prompts))
    times: tuple[list[float | None], ...] = ([], [], [])
    for _ in range(_ROUNDS):
        new = words(length, fresh)
        for place, prompt in ((0, new), (1, new), *((2, words(length, ours)) for _ in range(_WITNESSES))):
            times[place].append(time_of(prompt))
            if times[place][-1] is None:
                return CacheProbe()
    return CacheProbe(*(tuple(t for t in group if t is not None) for group in times))
