"""gpu.concurrent: independent jobs share one GPU, by streams, by host threads or by processes.

What must not live here: items that depend on one another (see stream/), timing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import torch

from aiperf.workloads.contract import Context, SkipSide, Work, Workload
from aiperf.workloads.gpu.jobs import CHAINED, NAMES, Job, make_jobs
from aiperf.workloads.gpu.live import LiveRequests
from aiperf.workloads.gpu.mps import Mps
from aiperf.workloads.gpu.pool import KINDS, GpuPool
from aiperf.workloads.gpu.threads import Crew
from aiperf.workloads.shared.chain import Chain
from aiperf.workloads.shared.child import HelperEnded
from aiperf.workloads.shared.queues import Queues, fork, join
from aiperf.workloads.shared.seeded import own_seed

_PER_THREAD = 2
"""The handle that stands for the calling thread's own default stream (cudaStreamPerThread)."""
_LEGACY = 0
_HIGH = -1
_POOL = 32
"""Streams that torch makes; from there on it hands out the same ones again."""


def concurrent(
    context: Context,
    *,
    jobs: list[str],
    copies: int = 1,
    share: Literal["serial", "streams", "threads", "processes", "mps"] = "streams",
    streams: int = 1,
    stream_flags: Literal["legacy", "blocking", "nonblocking", "per_thread"] = "nonblocking",
    stray_legacy: int = 0,
    rounds: int = 80000,
    requests: int = 20,
    thread_percentage: int = 100,
    time_first: bool = False,
    background_passes: int = 1,
    priority: Literal["equal", "first_high"] = "equal",
) -> Workload:
    """Run every job of ``jobs`` once, ``copies`` times over with arrays of their own; a step ends when the last one has
    ended.

    ``streams`` spreads the jobs over that many streams made with ``stream_flags`` (``legacy``: the default stream for
    all), ``serial`` puts them on one; ``stray_legacy`` kernels of 32 threads go to the legacy default stream after each
    job. ``threads`` gives each job a host thread, whose launches name the legacy or the ``per_thread`` default stream.
    Jobs of one process: tiny, small and filling (one, 16 and 128 blocks for ``rounds`` steps of an exact recurrence),
    gemm (4096 cubed, bf16), copy (256 MiB in HBM), h2d (8 MiB from pinned memory), decode and prefill (one token and
    4096 through 12 layers). Jobs of ``processes`` and ``mps``, ``requests`` times: infer and train a step on a batch of
    32, filling 8 products of 8192 cubed in bf16; ``thread_percentage`` caps a client of MPS, and with ``time_first``
    the first process reports how long each of its requests took.

    ``time_first`` with two jobs on two ``streams``: the host launches the first job ``requests`` times, waits for each
    and reports how long it took, while the second job runs ``background_passes`` times. ``priority`` ``first_high``
    gives the first job's stream a higher priority than the others', which have CUDA's lowest, the default. Items are
    jobs done. Source: chapters 3, 11, 16 and 19.
    """
    asked = SimpleNamespace(**locals())
    _check(asked)
    asked.jobs = jobs = jobs * copies
    if context.on_gpu and share in ("processes", "mps"):
        return _by_processes(asked)
    context.use_gpu("jobs that share a GPU need a GPU")
    ranked = _priorities(priority, len(jobs)) if time_first else ()
    made, chain = make_jobs(context, jobs, rounds=rounds, priorities=ranked)
    if share == "threads":
        assert chain is not None
        return _by_threads(asked, made, chain)
    return _live(asked, made) if time_first else _by_streams(asked, made)


def _priorities(priority: str, count: int) -> list[int]:
    """Of each stream, as torch counts: a lower number is a higher priority."""
    return [_HIGH if priority == "first_high" and not index else 0 for index in range(count)]


def _check(asked: SimpleNamespace) -> None:
    share, flags, stray, percentage = asked.share, asked.stream_flags, asked.stray_legacy, asked.thread_percentage
    known = KINDS if share in ("processes", "mps") else tuple(CHAINED) if share == "threads" else NAMES
    unknown = [job for job in asked.jobs if job not in known]
    if unknown or not asked.jobs:
        raise ValueError(f"jobs {', '.join(unknown) or 'are none'}; share {share} knows {', '.join(known)}")
    if asked.streams < 1 or stray < 0:
        raise ValueError(f"streams is {asked.streams}, stray_legacy is {stray}; allowed: 1 or more, and 0 or more")
    if share == "threads" and flags not in ("legacy", "per_thread"):
        raise ValueError(f"stream_flags {flags}: threads name no stream; write legacy or per_thread")
    if share != "threads" and flags == "per_thread":
        raise ValueError("stream_flags per_thread is for share: threads")
    _check_live(asked)
    if stray and share != "streams":
        raise ValueError("stray_legacy is for share: streams")
    if not 1 <= percentage <= 100 or (percentage < 100 and share != "mps"):
        raise ValueError(f"thread_percentage is {percentage}; it is for share: mps, from 1 to 100")
    if min(asked.rounds, asked.requests, asked.copies) < 1:
        raise ValueError(
            f"rounds, requests and copies are {asked.rounds}, {asked.requests}, {asked.copies}; each must be 1 or more"
        )


def _check_live(asked: SimpleNamespace) -> None:
    share, jobs = asked.share, len(asked.jobs) * asked.copies
    if asked.time_first and share not in ("processes", "mps") and (share, jobs, asked.streams) != ("streams", 2, 2):
        raise ValueError("time_first is for share: processes and mps, and for two jobs on streams: 2")
    live = asked.time_first and share == "streams"
    if live and (asked.stray_legacy or asked.stream_flags == "legacy"):
        raise ValueError("time_first on streams takes no stray_legacy, and no stream_flags legacy")
    if asked.priority != "equal" and not (live and asked.stream_flags == "nonblocking"):
        raise ValueError("priority first_high is for share: streams with time_first and stream_flags nonblocking")
    if asked.background_passes < 1 or (asked.background_passes > 1 and not live):
        raise ValueError(
            f"background_passes is {asked.background_passes}; it is 1 or more, and above 1 for share: streams with "
            "time_first"
        )


class _Lanes:
    """The streams of a side, made with the stated flag."""

    def __init__(self, device: str, count: int, flags: str, priority: str = "equal") -> None:
        place = torch.device(device)
        self._held: list[Any] = []
        self.legacy = torch.cuda.default_stream(place)
        if flags == "legacy":
            self.streams = [self.legacy] * count
        elif flags == "blocking" or count > _POOL:
            import cupy

            self._held = [cupy.cuda.Stream(non_blocking=flags != "blocking") for _ in range(count)]
            self.streams = [torch.cuda.ExternalStream(held.ptr, device=place) for held in self._held]
        else:
            self.streams = [torch.cuda.Stream(place, priority=given) for given in _priorities(priority, count)]


def _by_streams(asked: SimpleNamespace, jobs: Sequence[Job]) -> Workload:
    device, stray = asked.context.device, asked.stray_legacy
    lanes = _Lanes(device, 1 if asked.share == "serial" else asked.streams, asked.stream_flags, asked.priority)
    queues = Queues(device)
    extra, _ = make_jobs(asked.context, ["tiny"], rounds=1) if stray else ([], None)

    def step() -> None:
        _spread(queues, lanes.streams, [job.run for job in jobs], lanes.legacy, [job.run for job in extra] * stray)

    facts = {"streams": len({stream.cuda_stream for stream in lanes.streams}), "stray_kernels": stray * len(jobs)}
    return _workload(asked, jobs, step, facts=facts)


def _live(asked: SimpleNamespace, jobs: Sequence[Job]) -> Workload:
    device, requests, passes = asked.context.device, asked.requests, asked.background_passes
    first, second = _Lanes(device, 2, asked.stream_flags, asked.priority).streams
    served, background = jobs
    live = LiveRequests(
        Queues(device), (first, second), request=served.run, background=background.run, requests=requests, passes=passes
    )
    counts = {f"{index}_done": job.done for index, job in enumerate(jobs) if job.done is not None}

    def step() -> None:
        for count in counts.values():
            count.zero_()
        live.step()

    made = _workload(asked, jobs, step, facts={"stream_priorities": [first.priority, second.priority]})
    results = made.outputs
    assert results is not None
    return replace(
        made,
        work=Work(
            bytes=requests * served.bytes + passes * background.bytes,
            flops=requests * served.flops + passes * background.flops,
            items=requests + passes,
            item="jobs",
        ),
        outputs=lambda: {**results(), **counts},
        latencies=live.take_latencies,
        latency_source="monotonic clock from each request's launch to its stream's end",
        counters=lambda: {"requests_alone": float(live.alone)},
    )


def _spread(
    queues: Any,
    lanes: Sequence[Any],
    runs: Sequence[Callable[[], object]],
    legacy: Any,
    strays: Sequence[Callable[[], object]],
) -> None:
    """The jobs in turn on the lanes, after each of them the strays; the current stream goes on after all."""
    fork(queues, lanes)
    for index, run in enumerate(runs):
        queues.queue(lanes[index % len(lanes)], run)
        for stray in strays:
            queues.queue(legacy, stray)
    join(queues, [*lanes, legacy] if strays else lanes)


def _by_threads(asked: SimpleNamespace, jobs: Sequence[Job], chain: Chain) -> Workload:
    """Each thread launches its job without naming a stream and waits for its own default stream."""
    context, per_thread, rounds = asked.context, asked.stream_flags == "per_thread", asked.rounds
    pointer = _PER_THREAD if per_thread else _LEGACY

    def call(name: str, job: Job) -> None:
        grid, block = CHAINED[name]
        words = grid * block
        arguments = (np.uint64(job.source.data_ptr()), np.uint64(job.result.data_ptr()), np.int64(words))
        with chain.stream(pointer) as stream:
            chain.entry("chain")((grid,), (block,), (*arguments, np.int32(rounds), *chain.constants()))
            stream.synchronize()

    calls = [partial(call, name, job) for name, job in zip(asked.jobs, jobs, strict=True)]
    torch.cuda.synchronize()
    crew = Crew(calls, start=lambda: torch.cuda.set_device(torch.device(context.device)))

    def step() -> None:
        # The threads' own streams know nothing of what the timed stream holds.
        torch.cuda.current_stream().synchronize()
        crew.round()

    facts = {"threads": len(jobs), "default_stream": "per-thread" if per_thread else "legacy"}
    return _workload(asked, jobs, step, facts=facts, close=crew.close)


def _workload(
    asked: SimpleNamespace,
    jobs: Sequence[Job],
    step: Callable[[], None],
    *,
    facts: Mapping[str, Any],
    close: Callable[[], None] | None = None,
) -> Workload:
    def redraw(seed: int) -> None:
        for index, job in enumerate(jobs):
            job.redraw(own_seed(seed, str(index)))

    torch.cuda.synchronize()
    keys = [f"{index}_{name}" for index, name in enumerate(asked.jobs)]
    return Workload(
        step=step,
        work=Work(
            bytes=sum(job.bytes for job in jobs), flops=sum(job.flops for job in jobs), items=len(jobs), item="jobs"
        ),
        outputs=lambda: {key: job.result for key, job in zip(keys, jobs, strict=True)},
        inputs=lambda: {key: job.source for key, job in zip(keys, jobs, strict=True)},
        redraw=redraw,
        facts=facts,
        close=close,
    )


def _by_processes(asked: SimpleNamespace) -> Workload:
    context, kinds, mps, percentage = asked.context, asked.jobs, asked.share == "mps", asked.thread_percentage
    env = {} if percentage == 100 else {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(percentage)}
    number = torch.device(context.device).index or 0
    with contextlib.ExitStack() as held:
        daemon = Mps(number) if mps else None
        if daemon is not None:
            held.callback(daemon.close)
            number = 0
        client = {**(daemon.env if daemon is not None else {}), **env}

        def ready() -> None:
            # The clock's own context in this process, which would else come after them.
            torch.cuda.synchronize(torch.device(context.device))
            if daemon is not None:
                daemon.await_up()

        try:
            pool = GpuPool(kinds, seed=context.seed, requests=asked.requests, device=number, env=client, ready=ready)
        except HelperEnded as error:
            if daemon is None:
                raise
            logged = f"; MPS logged: {fault}" if (fault := daemon.faults()) else ""
            raise SkipSide(f"the processes did not become clients of MPS: {error}{logged}") from error
        held.callback(pool.close)
        servers = daemon.servers() if daemon is not None else 0
        if daemon is not None and not servers:
            raise SkipSide("MPS has started no server for its clients")
        close = held.pop_all().close
    return Workload(
        step=pool.step,
        work=Work(items=len(kinds) * asked.requests, item="requests"),
        outputs=lambda: {"results": pool.results},
        inputs=lambda: {"inputs": pool.inputs},
        redraw=pool.redraw,
        latencies=pool.take_latencies if asked.time_first else None,
        latency_source="monotonic clock of the first process around each of its requests" if asked.time_first else "",
        facts={"processes": len(kinds), "mps_servers": servers, "device": pool.facts[0], **env},
        close=close,
    )
