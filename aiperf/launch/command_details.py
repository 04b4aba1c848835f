"""The finished runs of a pair of whole programs as records: samples, what each side used, who was in their way.

What must not live here: starting a program, waiting for it, comparing what it printed.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from aiperf.launch.child import Ended
from aiperf.launch.command_energy import held_back
from aiperf.launch.environment import pad_bytes
from aiperf.launch.injection import wants_ranges
from aiperf.launch.program import Program
from aiperf.launch.slicing import SLICE_S
from aiperf.launch.trial import IO_BYTES, CommandPlan, Trial
from aiperf.launch.written import WrittenFile
from aiperf.plan.refs import commit_facts
from aiperf.records import EnergyReading, Incident, Sample, Side, SideRun
from aiperf.units import format_time

_FOREIGN_SHARE = 0.05
_CLOCK_SHARE, _CLOCK_S = 0.02, 0.001
"""How far the CPU time of a run may exceed its time on the CPUs that it had: the two come from different clocks."""
_USED = ("voluntary_switches", "involuntary_switches", "read_bytes", "written_bytes", "user_s", "system_s")


@dataclass
class Run:
    """One finished run of one side's program."""

    side: str
    index: int
    child: Program
    ended: Ended
    wall_s: float
    queued_s: float
    total_s: float
    """Time in which it was awake, whether it had the core or queued for it."""
    slices: int = 1
    values: dict[str, float] = field(default_factory=dict)
    """Metric -> what this run gave of it besides its times, unit of the metric."""
    gpu: dict[str, Any] = field(default_factory=dict)
    """What its processes did on GPUs besides those values; empty where it was not asked for."""
    files: tuple[WrittenFile, ...] = ()
    """What it wrote into the files that are compared."""

    @property
    def held_s(self) -> float:
        """Time in which it was put to sleep so that other sides could run."""
        return self.ended.ended - self.child.started - self.total_s


def run_seed(seed: int, phase: str, index: int) -> int:
    """Seed of the environment of one run of each side, drawn from the pair's: what a launch draws, both sides get."""
    return random.Random(f"{seed}-{phase}-{index}").getrandbits(32)


def sample_of(run: Run) -> Sample:
    """Its time and what it used, as one sample of one iteration."""
    return Sample(
        side=run.side,
        round=run.index,
        index=run.index,
        iterations=1,
        wall_s=run.wall_s,
        user_s=run.ended.user_s,
        system_s=run.ended.system_s,
        peak_bytes=run.ended.peak_bytes,
    )


def side_run(
    side: Side, runs: Sequence[Run], plan: CommandPlan, seed: int, energy: EnergyReading | None, *, compared: bool
) -> SideRun:
    """What a side reported besides its samples; ``compared``: what its runs printed was kept."""
    # What injected libraries record is not the program's.
    own = not (runs[0].gpu or wants_ranges(side))
    silent = compared and not any(run.child.printed.size for run in runs)
    held_s = sum(run.held_s for run in runs) if plan.sliced else 0.0
    peaks = [run.ended.peak_bytes for run in runs if run.ended.peak_bytes is not None]
    pads = [pad_bytes(run_seed(seed, "measure", run.index)) for run in runs]
    return SideRun(
        side=side.name,
        pids=tuple(run.child.pid for run in runs),
        warmup=None,
        setup_s=0.0,
        reentry_iterations=0,
        peak_bytes=max(peaks) if peaks else None,
        facts={
            "command": list(side.command),
            "sliced": plan.sliced,
            "why": plan.reason,
            "slices": sum(run.slices for run in runs),
            "queued_s": sum(run.queued_s for run in runs),
            "held_s": held_s,
            **(held_back(energy, slept_s=held_s, runs=len(runs)) if plan.sliced else {}),
            "environment_pad_bytes": pads,
            **({} if peaks else {"peak_below_bytes": max(run.ended.floor_bytes for run in runs)}),
            **_chars([run.child for run in runs]),
            "stragglers": sum(run.child.stragglers for run in runs),
            "counted_by": "cgroup" if all(run.child.grouped for run in runs) else "wait4",
            **_trial_facts(side, plan),
            **({"prints": "nothing"} if silent else {}),
            **({"written_elsewhere": min(run.child.printed.elsewhere for run in runs)} if compared and own else {}),
            **commit_facts(side),
            **({"gpu": runs[0].gpu} if runs[0].gpu else {}),
        },
        usage=_usage([run.ended for run in runs]),
        values={name: tuple(run.values[name] for run in runs) for name in runs[0].values},
    )


def _chars(runs: Sequence[Trial | Program]) -> dict[str, list[int]]:
    """Bytes of files and pipes: of the run that read or wrote the fewest, and of that with the most."""
    found = {name: [getattr(run, name) for run in runs] for name in ("read_chars", "written_chars")}
    return {name: [min(counts), max(counts)] for name, counts in found.items()}


def _usage(ends: Sequence[Ended]) -> dict[str, float]:
    """What its runs used, from wait4; faults are not in it."""
    summed = {name: float(sum(getattr(ended, name) for ended in ends)) for name in _USED}
    return {"iterations": float(len(ends)), **summed}


def _trial_facts(side: Side, plan: CommandPlan) -> dict[str, Any]:
    """What was seen before anything was measured: the first run, and the program that a shim stands for."""
    trial = next((trial for trial in plan.trials if trial.side == side.name), None)
    first = (trial.first or trial) if trial else None
    shim = plan.resolved.get(side.name)
    own_s = {"wall_s": first.wall_s - first.queued_s, "cpu_s": first.cpu_s} if first else {}
    return {
        **({"first_run": {**own_s, "from_disk": first.io_bytes > IO_BYTES, **_chars([first])}} if first else {}),
        **({"slice_s": SLICE_S} if plan.sliced else {}),
        **({"prints": plan.prints[side.name]} if side.name in plan.prints else {}),
        **({"written_elsewhere": plan.elsewhere[side.name]} if side.name in plan.elsewhere else {}),
        **({"prints_otherwise": asdict(plan.changes[side.name])} if side.name in plan.changes else {}),
        **({"shim": shim.shim, "program": shim.argv[0]} if shim and shim.shim else {}),
    }


def impossible(name: str, runs: Sequence[Run], cpus: tuple[int, ...] | None, *, voids: bool) -> Incident | None:
    """A run whose CPU time does not fit into the time that it is said to have taken: the clocks erred, or some of its
    processes worked where they must not. ``voids``: whether the pair then does not count.
    """
    count = len(cpus or os.sched_getaffinity(0))
    for run in runs:
        cpu_s = run.ended.user_s + run.ended.system_s
        if cpu_s > count * run.wall_s * (1 + _CLOCK_SHARE) + _CLOCK_S:
            what = f"{format_time(cpu_s)} of CPU time in {format_time(run.wall_s)} on {count} CPU{'s' * (count > 1)}"
            return Incident("impossible_time", name, f"run {run.index} used {what}", voids=voids)
    return None


def incidents(name: str, runs: Sequence[Run], cpus: tuple[int, ...] | None, *, voids: bool) -> list[Incident]:
    """What touched the runs of a side: others in its way, times that cannot be (``voids`` as there), priorities and
    CPUs that it was not given."""
    found = [each for each in (crowded(name, runs), impossible(name, runs, cpus, voids=voids)) if each is not None]
    seen = {kind: detail for run in reversed(runs) for kind, detail in run.child.apart.items()}
    return found + [Incident(kind, name, detail) for kind, detail in seen.items()]


def crowded(name: str, runs: Sequence[Run]) -> Incident | None:
    """Other processes had the core for a notable part of this side's time."""
    share = sum(run.queued_s for run in runs) / max(sum(run.total_s for run in runs), 1e-9)
    if share <= _FOREIGN_SHARE:
        return None
    return Incident("foreign_cpu", name, f"waited {100 * share:.0f} % of its time for a core that other programs used")
