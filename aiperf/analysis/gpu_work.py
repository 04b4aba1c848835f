"""Whether programs that are compared by their GPU time gave the GPU equal work, as far as its records show.

What must not live here: times, verdicts, sentences.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from aiperf.analysis.pairs import side_run, valid
from aiperf.records import Case, Note, Pair

_COUNTED = ("gpu_kernels", "gpu_copied")
_SAME = 0.005
"""Share by which two counts may differ and still be called equal: some programs poll or allocate as time goes."""


def unequal_gpu_work(pairs: Sequence[Pair], case: Case) -> Note | None:
    """The kernels and bytes of each side where they differ, mean over runs; None where they do not, or are not known.

    A side may well need fewer kernels for the same result, so it is a note and no fault.
    """
    found: dict[str, dict[str, float]] = {}
    for name in _COUNTED:
        by_side = {side.name: _mean(pairs, side.name, name) for side in case.sides}
        known = {side: value for side, value in by_side.items() if value is not None}
        if len(known) == len(by_side) and max(known.values()) - min(known.values()) > _SAME * max(known.values()):
            found[name] = known
    return Note("unequal_gpu_work", found) if found else None


def _mean(pairs: Sequence[Pair], side: str, name: str) -> float | None:
    runs = [side_run(pair, side) for pair in valid(pairs)]
    values = [value for run in runs if run is not None for value in run.values.get(name, ())]
    return statistics.fmean(values) if values else None
