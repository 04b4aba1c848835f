"""Programs whose time ratio is known: a pure-Python loop, its turns counted so that the whole program has the ratio.

What must not live here: any tool that compares programs.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.figures import true_ratio, turns_for
from tests.bench.shell import ROOT, keep, kept, machine, say

PROGRAM = ROOT / "tests" / "programs" / "spin_known.py"
WANTED = {"equal": 1.0, "plus2": 1.02, "plus5": 1.05}
SECONDS = 0.5
_FIRST_TURNS = 4_000_000
_EMPTY_RUNS, _FULL_RUNS, _CHUNKS = 60, 15, 300


@dataclass(frozen=True)
class Pair:
    """Two programs; the slower is ``before``, so that a tool that sees it says a number above 1."""

    kind: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    truth: float
    """Time of before / time of after, whole programs."""


def command(turns: int) -> tuple[str, ...]:
    """The program; without site packages, so that its start-up is short and the same everywhere."""
    return (sys.executable, "-S", str(PROGRAM), str(turns))


def cpu_seconds(turns: int) -> float:
    """User and system time of one run of the program: other programs' turns on the core are not in it."""
    began = os.posix_spawn(sys.executable, list(command(turns)), os.environ)
    _, status, usage = os.wait4(began, 0)
    if status:
        raise RuntimeError(f"{PROGRAM} ended with status {status}")
    return usage.ru_utime + usage.ru_stime


def pairs(path: Path) -> tuple[Pair, ...]:
    """The three pairs, from the counts kept at ``path`` or from a fresh measurement of start-up and turn.

    True ratio = (start + M turn) / (start + N turn). The ratio M / N is exact; start-up is a few per cent of the
    program, so its error reaches the true ratio shrunk by (ratio - 1) and by that share: ``truth_if`` keeps what the
    ratio would be with the start-up halved and doubled.
    """
    data = kept(path) or _count(path)
    base = data["turns"]["equal"]
    return tuple(Pair(kind, command(data["turns"][kind]), command(base), data["truth"][kind]) for kind in WANTED)


def _count(path: Path) -> dict[str, Any]:
    say("counting the turns of the known programs")
    # Medians of CPU time: a disturbed run is lengthened, sometimes much, and must not pull the count.
    empty = statistics.quantiles((cpu_seconds(0) for _ in range(_EMPTY_RUNS)), n=4)
    first = statistics.quantiles((cpu_seconds(_FIRST_TURNS) for _ in range(_FULL_RUNS)), n=4)
    start, turn = empty[1], (first[1] - empty[1]) / _FIRST_TURNS
    base = round((SECONDS - start) / turn)
    turns = {kind: turns_for(ratio, base=base, start_s=start, turn_s=turn) for kind, ratio in WANTED.items()}

    def truth(start_s: float) -> dict[str, float]:
        return {k: true_ratio(turns[k], base, start_s=start_s, turn_s=turn) for k in WANTED}

    data = {
        **machine(),
        "start_s": start,
        "start_quartiles_s": empty,
        "turn_s": turn,
        "turns": turns,
        "truth": truth(start),
        "truth_if": {"start halved": truth(start / 2), "start doubled": truth(2 * start)},
        "loop_ratio_counted": {k: turns[k] / base for k in WANTED},
        "loop_ratio_timed": {k: _timed_ratio(turns[k], base) for k in WANTED},
    }
    keep(path, data)
    say(f"start-up {start * 1e3:.1f} ms, turn {turn * 1e9:.1f} ns, turns {turns}, true ratios {data['truth']}")
    return data


def _timed_ratio(slow: int, fast: int) -> float:
    """Median ratio of two loops alternated in one process: shows that time follows the number of turns."""
    from tests.programs.spin_known import spin

    def timed(turns: int) -> float:
        began = time.process_time()
        spin(turns)
        return time.process_time() - began

    ratios = []
    for chunk in range(_CHUNKS):
        first, second = (slow, fast) if chunk % 2 else (fast, slow)
        one, two = timed(first // _CHUNKS), timed(second // _CHUNKS)
        ratios.append(one / two if chunk % 2 else two / one)
    return statistics.median(ratios)
