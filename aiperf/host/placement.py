"""Chooses the CPUs that the sides of a pair share, quiet ones first.

What must not live here: starting workers, and any lasting change of this process's own affinity.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aiperf.errors import UserError, usage
from aiperf.host import proc

_INTERRUPT_WEIGHT = 0.05
"""What serving every device interrupt adds to a CPU's score: a judgement (METHOD 1)."""
_VISIT_SECONDS = 0.01
_CHUNK_SECONDS = 0.0005
_MOST_PROBED = 16
_MOST_SECONDS = 1.0


@dataclass(frozen=True)
class CpuProbe:
    """What one CPU did with fixed work, against the best chunk seen on any of them."""

    cpu: int
    loss: float | None
    """Mean chunk time over the best chunk time, minus 1: what a busy loop does not get. None: watched only."""
    jitter: float | None
    """95th percentile of chunk times over their median, minus 1. None: watched only."""
    busy: float
    """Share of the watched time that others kept this CPU busy."""
    interrupts: float
    """This CPU's share of the candidates' device interrupts, since boot or while watched, whichever is larger."""

    @property
    def score(self) -> float:
        """Smaller is quieter; compares CPUs that were probed alike."""
        return (self.loss or 0.0) + 0.5 * (self.jitter or 0.0) + self.busy + _INTERRUPT_WEIGHT * self.interrupts


def parse_cpus(text: str, *, allowed: Sequence[int] | None = None) -> tuple[int, ...]:
    """CPU numbers from ``0-3,5``. Raises UserError for nonsense and for CPUs that this process may not use."""
    usable = tuple(sorted(os.sched_getaffinity(0))) if allowed is None else tuple(allowed)
    try:
        cpus = proc.parse_cpu_list(text)
    except ValueError:
        raise _pin_error(
            f'"{text}" is not auto, none or a CPU list.', "Write numbers and ranges, e.g. 0-3,5."
        ) from None
    missing = [cpu for cpu in cpus if cpu not in usable]
    if missing:
        raise _pin_error(
            f"CPU {format_cpus(missing)} is not among the CPUs this process may use ({format_cpus(usable)}).",
            "Choose from those, or widen the affinity (taskset, cgroup, Slurm) first.",
        )
    return cpus


def format_cpus(cpus: Sequence[int]) -> str:
    """CPU numbers as people and the kernel write them: ``0-3,5``."""
    parts: list[str] = []
    run: list[int] = []
    for cpu in [*sorted(cpus), None]:
        if run and cpu != run[-1] + 1:
            parts.append(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}")
            run = []
        if cpu is not None:
            run.append(cpu)
    return ",".join(parts)


def place(
    pin: str,
    *,
    cpus_wanted: int = 1,
    allowed: Sequence[int] | None = None,
    whole_cores: bool = False,
    probe_seconds: float = 0.15,
) -> tuple[int, ...] | None:
    """The CPUs that every side shares; None for ``pin`` none. Raises UserError for a bad list.

    ``auto`` takes as many quiet CPUs as are wanted, unprobed where the host has no more or the case wants all
    (``cpus_wanted`` 0); ``whole_cores``: all hardware threads of their cores. A list is taken as it is.
    """
    usable = tuple(sorted(os.sched_getaffinity(0))) if allowed is None else tuple(allowed)
    if pin == "none":
        return None
    if pin != "auto":
        return parse_cpus(pin, allowed=usable)
    count = cpus_wanted or len(usable)
    return quiet_cpus(count, candidates=usable, whole_cores=whole_cores, probe_seconds=probe_seconds)


def others(chosen: Sequence[int], allowed: Sequence[int]) -> tuple[int, ...]:
    """The CPUs on which aiperf itself should stay while sides run: the unchosen ones, or all when none is left."""
    return tuple(cpu for cpu in allowed if cpu not in chosen) or tuple(allowed)


def on_same_nodes(cpus: Sequence[int], among: Sequence[int], *, root: Path = proc.ROOT) -> tuple[int, ...]:
    """Those of ``among`` on the NUMA nodes of ``cpus``: what is touched there lies where these CPUs want it.

    All of them where the kernel shows fewer than two nodes, or none of theirs.
    """
    nodes = proc.numa_nodes(root)
    near = {cpu for there in nodes.values() if set(there) & set(cpus) for cpu in there}
    return (tuple(cpu for cpu in among if cpu in near) if len(nodes) > 1 else ()) or tuple(among)


def quiet_cpus(
    count: int,
    *,
    candidates: Sequence[int] | None = None,
    whole_cores: bool = False,
    probe_seconds: float = 0.15,
    root: Path = proc.ROOT,
) -> tuple[int, ...]:
    """The ``count`` quietest candidates, sorted; hardware threads of one core are not taken together if avoidable, or
    with ``whole_cores`` those of the quietest CPUs' cores, which may be more CPUs than ``count``.

    With as many candidates as wanted nothing is probed.
    """
    usable = tuple(sorted(os.sched_getaffinity(0))) if candidates is None else tuple(candidates)
    if count >= len(usable):
        return usable
    ranking = [probe.cpu for probe in probe_cpus(usable, count=count, probe_seconds=probe_seconds, root=root)]
    chosen: list[int] = []
    if whole_cores:
        for cpu in ranking:
            if len(chosen) < count and cpu not in chosen:
                chosen += [its for its in proc.siblings(cpu, root) if its in usable]
        return tuple(sorted(chosen))
    for cpu in ranking:
        if len(chosen) < count and not set(proc.siblings(cpu, root)) & set(chosen):
            chosen.append(cpu)
    spare = [cpu for cpu in ranking if cpu not in chosen]
    return tuple(sorted(chosen + spare[: count - len(chosen)]))


def probe_cpus(
    candidates: Sequence[int], *, count: int = 1, probe_seconds: float = 0.15, root: Path = proc.ROOT
) -> tuple[CpuProbe, ...]:
    """Candidates, quietest first, after ``probe_seconds`` for each that is probed (sixteen at most, a second in all).

    First all are watched while this process idles; the least busy then run fixed chunks of work, visited in turn so
    that a passing disturbance hits more than one. The calling thread's affinity is restored.
    """
    busy, interrupts = _watch(candidates, probe_seconds, root)
    calm = sorted(candidates, key=lambda cpu: busy[cpu] + _INTERRUPT_WEIGHT * interrupts[cpu])
    probed = calm[: min(_MOST_PROBED, max(4, 2 * count))]
    times = _run_chunks(probed, min(probe_seconds, _MOST_SECONDS / len(probed)) if probed else 0.0)
    best = min((min(chunks) for chunks in times.values() if chunks), default=0.0)
    probes = [_judge(cpu, times[cpu], best, busy[cpu], interrupts[cpu]) for cpu in probed if times[cpu]]
    rest = [CpuProbe(cpu, None, None, busy[cpu], interrupts[cpu]) for cpu in calm if cpu not in {p.cpu for p in probes}]
    return (*sorted(probes, key=lambda p: (p.score, p.cpu)), *rest)


def _watch(candidates: Sequence[int], seconds: float, root: Path) -> tuple[dict[int, float], dict[int, float]]:
    """Share of time busy and share of device interrupts, per candidate, over ``seconds``."""
    times, counts = proc.cpu_times(root), proc.device_interrupts(root)
    time.sleep(seconds)
    later, counts_later = proc.cpu_times(root), proc.device_interrupts(root)
    busy = {}
    for cpu in candidates:
        passed = proc.cpu_time_between(times, later, (cpu,))
        busy[cpu] = passed.busy / passed.total if passed.total > 0 else 0.0
    now = _shares({cpu: counts_later.get(cpu, 0) - counts.get(cpu, 0) for cpu in candidates})
    ever = _shares({cpu: counts_later.get(cpu, 0) for cpu in candidates})
    return busy, {cpu: max(now[cpu], ever[cpu]) for cpu in candidates}


def _shares(counts: dict[int, int]) -> dict[int, float]:
    # A handful of interrupts in a short window says nothing about which CPU serves them.
    total = sum(counts.values())
    return {cpu: count / total if total >= 20 else 0.0 for cpu, count in counts.items()}


def _run_chunks(cpus: Sequence[int], seconds: float) -> dict[int, list[float]]:
    """Chunk times per CPU; empty for a CPU that refuses this thread."""
    size = _chunk_size()
    times: dict[int, list[float]] = {cpu: [] for cpu in cpus}
    home = os.sched_getaffinity(0)
    try:
        for _ in range(max(1, round(seconds / _VISIT_SECONDS))):
            for cpu in cpus:
                times[cpu] += _visit(cpu, size)
    finally:
        os.sched_setaffinity(0, home)
    return times


def _visit(cpu: int, size: int) -> list[float]:
    try:
        os.sched_setaffinity(0, {cpu})
    except OSError:
        return []
    _chunk(size)  # the first chunk after a move fills this CPU's caches
    chunks = []
    end = time.perf_counter() + _VISIT_SECONDS
    while (begin := time.perf_counter()) < end:
        _chunk(size)
        chunks.append(time.perf_counter() - begin)
    return chunks


def _chunk(size: int) -> int:
    total = 0
    for number in range(size):
        total += number
    return total


def _chunk_size() -> int:
    trial = 2000
    durations = []
    for _ in range(5):
        begin = time.perf_counter()
        _chunk(trial)
        durations.append(time.perf_counter() - begin)
    return max(100, round(trial * _CHUNK_SECONDS / max(min(durations), 1e-7)))


def _judge(cpu: int, chunks: list[float], best: float, busy: float, interrupts: float) -> CpuProbe:
    ordered = sorted(chunks)
    median, tail = ordered[len(ordered) // 2], ordered[int(0.95 * (len(ordered) - 1))]
    mean = sum(ordered) / len(ordered)
    return CpuProbe(cpu, loss=mean / best - 1, jitter=tail / median - 1, busy=busy, interrupts=interrupts)


def _pin_error(what: str, hint: str) -> UserError:
    return usage(what, hint, where="--pin")
