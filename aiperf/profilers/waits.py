"""What the warps of a kernel wait for, and two places where accesses queue: atomic units of the L2, banks of an SM.

What must not live here: reading reports (ncu_read.py), classes (classify.py). Names are Nsight Compute's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from aiperf.records.profiled import CounterRow

_ELAPSED = "pct_of_peak_sustained_elapsed"
_UNIT = "lts__d_atomic_input_cycles_active"
ATOMICS, BUSIEST_ATOMICS = f"{_UNIT}.avg.{_ELAPSED}", f"{_UNIT}.max.{_ELAPSED}"
"""How busy the L2's atomic units are: all slices on average, and the busiest: one address is of one slice."""
ATOMIC_SECTORS = ("lts__t_sectors_op_atom.sum", "lts__t_sectors_op_red.sum")
"""Atomics whose result is used, and those whose is not (reductions)."""
CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"
WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"
STALLS = {
    "barrier": "other warps at a barrier",
    "branch_resolving": "the target of a branch",
    "dispatch_stall": "a stalled dispatcher",
    "drain": "stores to leave at the end",
    "gmma": "warp-group products",
    "imc_miss": "constants that are not cached",
    "lg_throttle": "room in the queue of global and local memory",
    "long_scoreboard": "global or local memory",
    "math_pipe_throttle": "a busy arithmetic pipe",
    "membar": "a memory fence",
    "mio_throttle": "room in the queue of shared memory and special functions",
    "misc": "other reasons",
    "no_instruction": "instructions that are not cached",
    "not_selected": "their turn: another warp was chosen",
    "short_scoreboard": "shared memory or special functions",
    "sleeping": "the end of a sleep",
    "tex_throttle": "room in the queue of the texture unit",
    "wait": "a result of fixed latency",
    "warpgroup_arrive": "their warp group",
}
"""Why a warp did not issue -> what it waits for."""
_STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
_SELECTED = _STALL.format("selected")
WAITS = (ATOMICS, BUSIEST_ATOMICS, *ATOMIC_SECTORS, CONFLICTS, WAVEFRONTS, _SELECTED, *map(_STALL.format, STALLS))
"""All that is read of a kernel for this."""


def wanted(offers: Callable[[str], bool]) -> tuple[str, ...]:
    """The metrics to ask for, of those that a profiler offers on this chip by name without suffix."""
    return tuple(name for name in WAITS if offers(name.partition(".")[0]))


def stalls(metrics: Mapping[str, float]) -> dict[str, float]:
    """Reason -> cycles that a warp waits for it for each instruction that is issued; empty where none was read."""
    return {reason: metrics[name] for reason in STALLS if (name := _STALL.format(reason)) in metrics}


def longest_wait(metrics: Mapping[str, float]) -> tuple[str, float] | None:
    """The reason with the most of a warp's cycles, and its share of them in per cent."""
    found = stalls(metrics)
    cycles = sum(found.values()) + metrics.get(_SELECTED, 0.0)
    reason = max(found, key=lambda name: found[name], default="")
    return (reason, 100 * found[reason] / cycles) if reason and found[reason] > 0 else None


def conflict_pct(metrics: Mapping[str, float]) -> float | None:
    """The share of shared memory's wavefronts that are repeats for the sake of bank conflicts; None where it idles."""
    conflicts, wavefronts = metrics.get(CONFLICTS), metrics.get(WAVEFRONTS)
    return 100 * conflicts / wavefronts if conflicts is not None and wavefronts else None


@dataclass(frozen=True)
class MovedWait:
    """The reason whose cycles changed most from one side to another."""

    reason: str
    before: float
    """Cycles of a warp for each instruction; of several kernels the mean, weighted by their time."""
    after: float
    all_before: float
    all_after: float


def moved_most(before: Iterable[CounterRow], after: Iterable[CounterRow]) -> MovedWait | None:
    """The reason that moved most between two sides' kernels; None unless it was read of both."""
    first, last = _cycles(before), _cycles(after)
    if not first or not last:
        return None
    reason = max(STALLS, key=lambda name: abs(last.get(name, 0.0) - first.get(name, 0.0)))
    both = (first.get(reason, 0.0), last.get(reason, 0.0))
    return MovedWait(reason, *both, sum(first.values()), sum(last.values()))


def _cycles(rows: Iterable[CounterRow]) -> dict[str, float]:
    known = [(stalls(row.metrics), row.time_s) for row in rows if row.time_s]
    known = [(found, seconds) for found, seconds in known if found]
    whole = sum(seconds for _, seconds in known)
    return {name: sum(found.get(name, 0.0) * s for found, s in known) / whole for name in STALLS} if known else {}
