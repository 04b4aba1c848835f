"""Processes that repeat a fixed unit of work beside others that burn CPU: the parent's half, and who runs where.

What must not live here: what a unit does (units_worker.py), timing, changes to any process but its own children.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from aiperf.workloads.contract import SkipSide
from aiperf.workloads.host import allocators
from aiperf.workloads.shared.child import Helper, answers, end, shared_memory
from aiperf.workloads.shared.numa import cpus_of
from aiperf.workloads.shared.seeded import generator

_IMAGES, _EDGE = 16, 64
_WORKER = Path(__file__).with_name("units_worker.py")
_FLAG = 64
"""Bytes in front of the inputs: the first says whether hogs go on."""
_CPUS = Path("/sys/devices/system/cpu")
_COUNTS = {
    "cpu_changes": "moves",
    "preempted": "preempted",
    "cpu_wait_s": "waited",
    "page_faults": "faults",
    "resident_bytes": "resident",
}
"""Counter -> what a worker calls it."""


def siblings_of(cpu: int) -> list[int]:
    """The hardware threads of this CPU's core, itself among them; itself alone when the topology is unknown."""
    try:
        return cpus_of((_CPUS / f"cpu{cpu}" / "topology" / "thread_siblings_list").read_text())
    except OSError:
        return [cpu]


@dataclass(frozen=True)
class Places:
    """CPUs of each worker and of the hogs; an empty list leaves the choice to the kernel."""

    workers: list[list[int]]
    hogs: list[int]


def places(allowed: Sequence[int], *, workers: int, worker_cpus: str, hog_cpus: str) -> Places:
    """Who runs where. Raises SkipSide when this process has too few CPUs or cores for it."""
    cores: dict[int, list[int]] = {}
    for cpu in sorted(allowed):
        cores.setdefault(min(siblings_of(cpu)), []).append(cpu)
    own: list[int] = []
    if worker_cpus == "one_each":
        own = [core[0] for core in cores.values()]
        _enough(len(own), workers, "cores")
    elif worker_cpus == "siblings":
        own = next((core for core in cores.values() if len(core) >= workers > 1), [])
        if not own:
            raise SkipSide(f"no core offers aiperf {workers} hardware threads")
    elif worker_cpus == "reserved":
        own = sorted(allowed)[::-1]
        _enough(len(own), workers + 1, "CPUs, one of them for the others")
    chosen = own[:workers]
    others = [cpu for cpu in sorted(allowed) if cpu not in chosen] if hog_cpus == "other" else []
    return Places([[cpu] for cpu in chosen] or [[] for _ in range(workers)], others)


def _enough(has: int, wanted: int, what: str) -> None:
    if has < wanted:
        raise SkipSide(f"needs {wanted} {what}; aiperf may use {has}")


class UnitPool:
    """Worker processes that share ``units`` units, and others that burn CPU from a step's start to its end."""

    def __init__(self, asked: SimpleNamespace, *, turns: int) -> None:
        """Start the processes that host.task is ``asked`` for; ``turns`` is the size of a unit. Raises SkipSide when
        one of them does not get the CPUs, the priority or the malloc asked for."""
        work, units, self._asked = asked.work, asked.units, asked
        threads = asked.workers if asked.worker_kind == "thread" else 1
        count = asked.workers // threads
        allowed = sorted(os.sched_getaffinity(0))
        where = places(allowed, workers=count, worker_cpus=asked.worker_cpus, hog_cpus=asked.hog_cpus)
        if units % asked.workers:
            raise ValueError(f"{units} units cannot be shared equally by {asked.workers} workers")
        in_shape, out_shape = [units], [units]
        in_type, out_type = "<i8", "<i8"
        if work == "batch_prep":
            in_shape, in_type = [units, _IMAGES, 3, _EDGE, _EDGE], "|u1"
            out_shape, out_type = [units, _IMAGES, 3], "<f4"
        elements = int(np.prod(in_shape))
        out_at = _FLAG + -(-elements * np.dtype(in_type).itemsize // _FLAG) * _FLAG
        size = out_at + int(np.prod(out_shape)) * np.dtype(out_type).itemsize
        descriptor, self.area = shared_memory("aiperf-units", size)
        self.inputs: Any = np.frombuffer(self.area, in_type, elements, _FLAG).reshape(in_shape)
        self.results: Any = np.frombuffer(self.area, out_type, int(np.prod(out_shape)), out_at).reshape(out_shape)
        self.redraw(asked.context.seed)
        spec = {
            "work": work,
            "descriptor": descriptor,
            "size": size,
            "in_shape": in_shape,
            "in_type": in_type,
            "out_shape": out_shape,
            "out_type": out_type,
            "out_at": out_at,
            "turns": turns,
            "gc": asked.collector,
            "share": units // count,
            "threads": threads,
            "nice": asked.worker_nice,
            "realtime": asked.worker_policy == "fifo",
        }
        try:
            self._start(spec, where)
        finally:
            os.close(descriptor)
        self.counts = dict.fromkeys(_COUNTS, 0.0)
        self.burning = False
        self._took: list[float] = []

    def _start(self, spec: dict[str, Any], where: Places) -> None:
        asked = self._asked
        env, plain = allocators.environment(asked.allocator), allocators.environment("inherited")
        specs = [{**spec, "first": k * spec["share"], "cpus": cpus} for k, cpus in enumerate(where.workers)]
        hog = {**spec, "work": "hog", "cpus": where.hogs, "nice": asked.hog_nice, "realtime": False}
        burning = [hog] * asked.hogs
        self.workers = [_start(s, env) for s in specs]
        self.hogs = [_start(s, plain) for s in burning]
        self.in_force = [json.loads(child.answer()) for child in [*self.workers, *self.hogs]]
        levels = [asked.worker_nice] * len(self.workers) + [asked.hog_nice] * asked.hogs
        try:
            for wanted, found in zip(levels, self.in_force, strict=True):
                if wanted and found["nice"] != wanted:
                    raise SkipSide(
                        f"the kernel refuses a nice level of {wanted}: going below one's own takes CAP_SYS_NICE"
                    )
            if spec["realtime"] and not all(found["realtime"] for found in self.in_force[: len(self.workers)]):
                raise SkipSide("the kernel refuses SCHED_FIFO: it takes CAP_SYS_NICE or an rtprio limit above 0")
            allocators.require(asked.allocator, [found["malloc"] for found in self.in_force[: len(self.workers)]])
        except SkipSide:
            self.close()
            raise

    def redraw(self, seed: int) -> None:
        """New inputs in place."""
        high = 256 if self.inputs.dtype == np.uint8 else 1 << 30
        self.inputs[...] = generator(seed, "units").integers(0, high, self.inputs.shape, dtype=self.inputs.dtype)

    def _settle(self) -> None:
        """Take the hogs' answers of the step before."""
        if self.burning:
            for hog in self.hogs:
                hog.answer()
            self.burning = False

    def step(self) -> None:
        """Hogs and workers start together; the step ends with the last worker, and then the hogs stop."""
        self._settle()
        self.area[0] = 1
        for hog in self.hogs:
            hog.send()
        self.burning = bool(self.hogs)
        try:
            reports = [json.loads(answer) for answer in answers(self.workers)]
        finally:
            self.area[0] = 0
        self.counts = {name: float(sum(report[key] for report in reports)) for name, key in _COUNTS.items()}
        self._took += [seconds for report in reports for seconds in report["took"]]

    def latencies(self) -> list[float]:
        """Seconds that each unit took, on its worker's clock, that ended since this was last called."""
        ended, self._took = self._took, []
        return ended

    def facts(self) -> dict[str, Any]:
        """Affinities and collectors in force, read back by each process."""
        workers, hogs = self.in_force[: len(self.workers)], self.in_force[len(self.workers) :]
        return {
            "worker_cpus": [found["affinity"] for found in workers],
            "hog_cpus": [found["affinity"] for found in hogs],
            "collecting": [found["collecting"] for found in workers],
            "worker_nice": [found["nice"] for found in workers],
            "worker_realtime": [found["realtime"] for found in workers],
            "hog_nice": [found["nice"] for found in hogs],
            "malloc": [Path(found["malloc"]).name for found in workers],
            "malloc_settings": allocators.settings(),
            "cores": len(os.sched_getaffinity(0)),
        }

    def close(self) -> None:
        """Stop the hogs and end all processes."""
        self.area[0] = 0
        end([*self.hogs, *self.workers])


def _start(spec: dict[str, Any], env: dict[str, str]) -> Helper:
    # a library that starts threads of its own would blur what a worker is
    own = {**env, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    return Helper(_WORKER, [json.dumps(spec)], pass_fds=(spec["descriptor"],), env=own)
