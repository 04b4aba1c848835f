"""Work of the host itself: touching memory by page size, and processes that share its cores. Workload: host.task.

It has no kernels. What must not live here: devices, models, timing.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np

from aiperf.workloads.contract import Context, Size, Work, Workload
from aiperf.workloads.host import pages as page_kinds
from aiperf.workloads.host.units_pool import UnitPool
from aiperf.workloads.shared.child import Helper, answers, end, shared_memory
from aiperf.workloads.shared.seeded import generator, memory_peak

_PAGE = 4096
_ROW = 1 << 17
_PATTERN = 1 << 20


def _fill(buffer: Any, seed: int) -> None:
    """Repeat one seeded block over the buffer, so that every page is written."""
    block = generator(seed, "block").standard_normal(min(_PATTERN, len(buffer)))
    for at in range(0, len(buffer), len(block)):
        part = buffer[at : at + len(block)]
        part[:] = block[: len(part)]


def _touch_held(context: Context, *, size: int, kind: str, access: str, touches: int) -> Workload:
    """Reads of a buffer that is already in memory, at random places or from end to end."""
    buffer = page_kinds.fresh(size, pages=kind)
    _fill(buffer, context.seed)
    index = generator(context.seed, "index").integers(0, len(buffer), touches)
    rows = buffer.reshape(-1, _ROW)
    out = np.zeros(touches if access == "random" else len(rows))

    def random() -> None:
        np.take(buffer, index, out=out, mode="clip")

    def sequential() -> None:
        np.add.reduce(rows, axis=1, out=out)

    work = Work(bytes=touches * 8.0, items=touches, item="touches")
    if access == "sequential":
        peaks = memory_peak("cpu", moved=size, working_set=size)
        work = Work(bytes=float(size), items=size // 8, item="elements", peaks=peaks)
    inputs = {"buffer": buffer, "index": index} if access == "random" else {"buffer": buffer}

    def redraw(seed: int) -> None:
        _fill(buffer, seed)
        index[:] = generator(seed, "index").integers(0, len(buffer), touches)

    return Workload(
        step=random if access == "random" else sequential,
        work=work,
        outputs=lambda: {"out": out},
        inputs=lambda: inputs,
        redraw=redraw,
        facts={"pages": kind, "anon_huge_bytes": page_kinds.huge_bytes(buffer)},
    )


def _touch_first(context: Context, *, size: int, kind: str) -> Workload:
    """Map fresh memory and write one value into each 4 KiB of it; the step also unmaps the previous mapping."""
    values = generator(context.seed, "values").standard_normal(size // _PAGE)
    held: dict[str, Any] = {}

    def step() -> None:
        held.pop("buffer", None)
        buffer = page_kinds.fresh(size, pages=kind)
        buffer[:: _PAGE // 8] = values
        held["buffer"] = buffer

    step()
    return Workload(
        step=step,
        work=Work(bytes=float(size), items=size // _PAGE, item="4 KiB pages"),
        outputs=lambda: {"out": held["buffer"][:: _PAGE // 8]},
        inputs=lambda: {"values": values},
        facts={"pages": kind, "anon_huge_bytes": page_kinds.huge_bytes(held["buffer"])},
        close=held.clear,
    )


def _matmul(asked: SimpleNamespace) -> Workload:
    """Processes with their share of ``units`` products each; they end when their input does."""
    seed, workers, units, n, threads = asked.context.seed, asked.workers, asked.units, asked.n, asked.threads_each
    if threads == "cores_per_worker":
        threads = str(max(1, len(os.sched_getaffinity(0)) // workers))
    if threads != "default" and not threads.isdigit():
        raise ValueError(f'threads_each "{threads}" is neither default, cores_per_worker nor a number')
    if units % workers:
        raise ValueError(f"{units} units cannot be shared equally by {workers} workers")
    descriptor, area = shared_memory("aiperf-matmul", 3 * units * n * n * 4)
    left, right, products = np.frombuffer(area, np.float32).reshape(3, units, n, n)
    for name, array in (("left", left), ("right", right)):
        array[:] = generator(seed, name).standard_normal(array.shape, dtype=np.float32)
    share, script = units // workers, Path(__file__).with_name("matmul_worker.py")
    arguments = [(descriptor, units, n, k * share, share, threads) for k in range(workers)]
    children = [Helper(script, each, pass_fds=(descriptor,)) for each in arguments]
    os.close(descriptor)
    in_force = [int(child.answer()) for child in children]
    flops = 2.0 * n**3 * units
    return Workload(
        step=partial(answers, children),
        work=Work(flops=flops, items=units, item="products", peaks={"cpu_gemm_fp32": flops}),
        outputs=lambda: {"products": products},
        inputs=lambda: {"left": left, "right": right},
        reference=lambda: {"products": left.astype(np.float64) @ right.astype(np.float64)},
        facts={"threads_each": in_force, "workers": workers, "cores": len(os.sched_getaffinity(0))},
        close=partial(end, children),
    )


_TURNS = {"spin": 12000, "request": 150, "batch_prep": 1}
"""Size of a unit: about a millisecond on one core."""
_PRIORITY = "the priority of its processes is what the side asks for"


def _units(asked: SimpleNamespace) -> Workload:
    if asked.workers < 1 or asked.units < 1 or asked.hogs < 0:
        raise ValueError("workers and units must be 1 or more, hogs 0 or more")
    if asked.worker_kind == "thread" and asked.worker_cpus != "free":
        raise ValueError("worker_cpus binds processes: leave it at free with worker_kind thread")
    if not all(-20 <= level <= 19 for level in (asked.worker_nice, asked.hog_nice)):
        raise ValueError("worker_nice and hog_nice lie between -20 and 19")
    pool = UnitPool(asked, turns=_TURNS[asked.work])
    return Workload(
        step=pool.step,
        work=Work(items=asked.units, item="units"),
        outputs=lambda: {"results": pool.results},
        inputs=lambda: {"inputs": pool.inputs},
        redraw=pool.redraw,
        counters=lambda: pool.counts,
        latencies=pool.latencies,
        latency_source="each worker's perf_counter around a unit",
        facts=pool.facts(),
        close=pool.close,
        done_outside=_PRIORITY if (asked.worker_nice, asked.hog_nice, asked.worker_policy) != (0, 0, "fair") else "",
    )


def task(
    context: Context,
    *,
    work: Literal["touch", "matmul", "batch_prep", "spin", "request"],
    bytes: Size = 256 << 20,
    pages: Literal["4k", "thp"] = "4k",
    access: Literal["random", "sequential", "first_touch"] = "random",
    touches: int = 262144,
    workers: int = 2,
    units: int = 4,
    n: int = 512,
    threads_each: str = "cores_per_worker",
    worker_cpus: Literal["free", "one_each", "siblings", "reserved"] = "free",
    hogs: int = 0,
    hog_cpus: Literal["free", "other"] = "free",
    collector: Literal["default", "frozen"] = "default",
    worker_kind: Literal["process", "thread"] = "process",
    allocator: Literal["inherited", "glibc", "jemalloc", "tcmalloc"] = "inherited",
    worker_nice: int = 0,
    worker_policy: Literal["fair", "fifo"] = "fair",
    hog_nice: int = 0,
) -> Workload:
    """One of five pieces of host work.

    ``touch``: ``touches`` random reads, one sequential pass, or the first touch of ``bytes`` of memory (in whole MiB)
    with the page size asked for by madvise; what the kernel gave is in ``anon_huge_bytes``. ``matmul``: ``workers``
    processes multiply ``units`` pairs of float32 n x n matrices between them; ``threads_each`` is ``default`` (torch's
    own choice), ``cores_per_worker`` or a number. ``batch_prep`` (numpy over 16 images of bytes), ``spin`` (an integer
    recurrence in the interpreter), ``request`` (small objects and JSON, beside 200,000 objects that stay): ``workers``
    single-threaded processes, or threads of one process, share ``units`` units, while ``hogs`` processes burn CPU.

    ``worker_cpus``: the kernel's choice, a core each, hardware threads of one core, or the last CPUs, which ``hog_cpus:
    other`` keeps the hogs off. ``worker_nice``, ``hog_nice``: nice levels. ``worker_policy: fifo``: workers have the
    lowest real-time priority of SCHED_FIFO. ``collector`` ``frozen`` freezes, then disables Python's garbage collector.
    ``allocator`` is preloaded into the workers, ``glibc`` keeps others out.

    Counters: units that ended on another CPU than the one before, times a worker was preempted, seconds that workers
    waited for a CPU, minor page faults, and bytes resident after the step. Items: units. Latencies: of each unit.
    Source: book chapter 3, appendix.
    """
    asked = SimpleNamespace(**locals())
    if work in _TURNS:
        return _units(asked)
    if work == "matmul":
        return _matmul(asked)
    if bytes % (_ROW * 8):
        raise ValueError("bytes must be whole MiB")
    if pages == "thp":
        page_kinds.require_huge_pages()
    if access == "first_touch":
        return _touch_first(context, size=bytes, kind=pages)
    return _touch_held(context, size=bytes, kind=pages, access=access, touches=touches)
