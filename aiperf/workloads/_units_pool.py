"""Processes that repeat a fixed unit of work beside others that burn CPU: the parent's half, and who runs where.

What must not live here: what a unit does (_units_worker.py), timing, changes to any process but its own children.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from aiperf.workloads import _allocators as allocators
from aiperf.workloads._child import Child
from aiperf.workloads._seeded import generator
from aiperf.workloads.contract import SkipSide

_IMAGES, _EDGE = 16, 64
_FLAG = 64
"""Bytes in front of the inputs: the first says whether hogs go on."""
_CPUS = Path("/sys/devices/system/cpu")


def siblings_of(cpu: int) -> list[int]:
    """The hardware threads of this CPU's core, itself among them; itself alone when the host does not tell."""
    try:
        text = (_CPUS / f"cpu{cpu}" / "topology" / "thread_siblings_list").read_text().strip()
    except OSError:
        return [cpu]
    found: list[int] = []
    for part in text.split(","):
        low, _, high = part.partition("-")
        found += range(int(low), int(high or low) + 1)
    return found


@dataclass(frozen=True)
class Places:
    """CPUs of each worker and of the hogs; an empty list leaves the choice to the kernel."""

    workers: list[list[int]]
    hogs: list[int]


def places(allowed: Sequence[int], *, workers: int, worker_cpus: str, hog_cpus: str) -> Places:
    """Who runs where. Raises SkipSide when this process's CPUs cannot give it."""
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
            raise SkipSide(f"no core gives aiperf {workers} hardware threads")
    elif worker_cpus == "reserved":
        own = sorted(allowed)[::-1]
        _enough(len(own), workers + 1, "CPUs, one of them for the others")
    chosen = own[:workers]
    others = [cpu for cpu in sorted(allowed) if cpu not in chosen] if hog_cpus == "other" else []
    return Places([[cpu] for cpu in chosen] or [[] for _ in range(workers)], others)


def _enough(has: int, wanted: int, what: str) -> None:
    if has < wanted:
        raise SkipSide(f"needs {wanted} {what}; aiperf may use {has}")


@dataclass(frozen=True)
class Manner:
    """How the processes are run; each field is what the parameter of host.task of that name makes of it."""

    where: Places
    workers: int
    """Processes with a share of the units each."""
    threads: int
    """Of each worker, which share its units."""
    hogs: int
    collector: str
    allocator: str
    worker_nice: int
    hog_nice: int


class UnitPool:
    """Worker processes that share ``units`` units, and others that burn CPU from a step's start to its end."""

    def __init__(self, work: str, *, seed: int, units: int, turns: int, manner: Manner) -> None:
        """Start the processes. Raises SkipSide when one of them does not get the priority or the malloc asked for."""
        if units % (manner.workers * manner.threads):
            raise ValueError(f"{units} units cannot be shared equally by {manner.workers * manner.threads} workers")
        in_shape, out_shape = [units], [units]
        in_type, out_type = "<i8", "<i8"
        if work == "batch_prep":
            in_shape, in_type = [units, _IMAGES, 3, _EDGE, _EDGE], "|u1"
            out_shape, out_type = [units, _IMAGES, 3], "<f4"
        count = int(np.prod(in_shape))
        out_at = _FLAG + -(-count * np.dtype(in_type).itemsize // _FLAG) * _FLAG
        size = out_at + int(np.prod(out_shape)) * np.dtype(out_type).itemsize
        descriptor = os.memfd_create("aiperf-units")
        os.ftruncate(descriptor, size)
        self.area = mmap.mmap(descriptor, size)
        self.inputs: Any = np.frombuffer(self.area, in_type, count, _FLAG).reshape(in_shape)
        self.results: Any = np.frombuffer(self.area, out_type, int(np.prod(out_shape)), out_at).reshape(out_shape)
        self.redraw(seed)
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
            "gc": manner.collector,
            "share": units // manner.workers,
            "threads": manner.threads,
            "nice": manner.worker_nice,
        }
        try:
            self._start(spec, manner)
        finally:
            os.close(descriptor)
        self.counts = dict.fromkeys(("cpu_changes", "preempted", "cpu_wait_s", "page_faults", "resident_bytes"), 0.0)
        self.burning = False
        self._took: list[float] = []

    def _start(self, spec: dict[str, Any], manner: Manner) -> None:
        env, plain = allocators.environment(manner.allocator), allocators.environment("inherited")
        specs = [{**spec, "first": k * spec["share"], "cpus": manner.where.workers[k]} for k in range(manner.workers)]
        burning = [{**spec, "work": "hog", "cpus": manner.where.hogs, "nice": manner.hog_nice}] * manner.hogs
        self.workers = [_start(s, env) for s in specs]
        self.hogs = [_start(s, plain) for s in burning]
        self.told = [json.loads(child.answer()) for child in [*self.workers, *self.hogs]]
        asked = [manner.worker_nice] * manner.workers + [manner.hog_nice] * manner.hogs
        try:
            for wanted, told in zip(asked, self.told, strict=True):
                if wanted and told["nice"] != wanted:
                    raise SkipSide(f"a nice level of {wanted} is refused: to go below one's own takes CAP_SYS_NICE")
            allocators.require(manner.allocator, [told["malloc"] for told in self.told[: manner.workers]])
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
            hog.tell()
        self.burning = bool(self.hogs)
        for worker in self.workers:
            worker.tell()
        try:
            told = [json.loads(worker.answer()) for worker in self.workers]
        finally:
            self.area[0] = 0
        self.counts = {
            "cpu_changes": float(sum(t["moves"] for t in told)),
            "preempted": float(sum(t["preempted"] for t in told)),
            "cpu_wait_s": float(sum(t["waited"] for t in told)),
            "page_faults": float(sum(t["faults"] for t in told)),
            "resident_bytes": float(sum(t["resident"] for t in told)),
        }
        self._took += [seconds for t in told for seconds in t["took"]]

    def latencies(self) -> list[float]:
        """Seconds that each unit took, on its worker's clock, that ended since this was last called."""
        told, self._took = self._took, []
        return told

    def facts(self) -> dict[str, Any]:
        """Affinities and collectors in force, read back by each process."""
        count = len(self.workers)
        return {
            "worker_cpus": [t["affinity"] for t in self.told[:count]],
            "hog_cpus": [t["affinity"] for t in self.told[count:]],
            "collecting": [t["collecting"] for t in self.told[:count]],
            "worker_nice": [t["nice"] for t in self.told[:count]],
            "hog_nice": [t["nice"] for t in self.told[count:]],
            "malloc": [Path(t["malloc"]).name for t in self.told[:count]],
            "malloc_settings": allocators.settings(),
            "cores": len(os.sched_getaffinity(0)),
        }

    def close(self) -> None:
        """Stop the hogs and end all processes."""
        self.area[0] = 0
        for child in [*self.hogs, *self.workers]:
            child.leave()


def _start(spec: dict[str, Any], env: dict[str, str]) -> Child:
    # a library that starts threads of its own would blur what a worker is
    own = {**env, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    return Child("_units_worker.py", [json.dumps(spec)], pass_fds=(spec["descriptor"],), env=own)
