"""What a tracer saw: GPU work with the call that launched it, host calls, ranges; and the side that they add up to.

What must not live here: any tool's format. nsys and torch.profiler both end in these shapes, so that rows, summaries
and timelines are made once. Times are seconds.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from aiperf.profilers.classify import side_bound
from aiperf.profilers.intervals import Interval, inside, length, overlap, place, union
from aiperf.records.profiled import CounterRow, Kind, ProfileNote, SideProfile, Span
from aiperf.records.profiled import Tool as ToolName

COLLECTIVE = re.compile(r"nccl|nvshmem|gloo|rccl|cross_device_reduce|one_shot|two_shot|multimem", re.IGNORECASE)
"""Anywhere in a kernel's name: prefixes change between releases."""
_LAUNCH = re.compile(r"cu(da)?(Launch(?!HostFunc)|GraphLaunch)")
_SYNC = re.compile(r"Synchronize")
"""Calls in which the host waits: cudaStreamWaitEvent makes only a stream wait, cudaEventQuery returns at once."""
_SETTLE = "cudaDeviceSynchronize"
"""The call that aiperf's worker ends each of its ranges with, once for each GPU that it drives."""
_CAPTURE, _CAPTURED = re.compile(r"cu(da)?StreamBeginCapture"), re.compile(r"cu(da)?StreamEndCapture")
_DEVICE_MEANS = ("gpu_span_s", "gpu_busy_s", "host_wait_s", "other_wait_s", "compute_s", "copy_s")
"""Fields of a side that are means over its devices."""
_MEANS = (*_DEVICE_MEANS, "overlap_pct", "copy_overlap_pct", "concurrency", "kernel_concurrency")
"""Fields that are means over its ranks."""
MOST_SPANS = 4000
"""Bars of one side's timeline; a picture of more shows nothing."""


@dataclass(frozen=True)
class DeviceWork:
    """One operation on a GPU."""

    kind: Kind
    name: str
    start: float
    end: float
    device: int
    stream: int
    rank: int
    launched: float | None
    """When the call that launched it began; None when the trace has none."""
    launched_end: float | None = None
    thread: int | None = None
    bytes: float | None = None
    grid: int | None = None
    block: int | None = None
    registers: int | None = None
    shared_bytes: int | None = None


@dataclass(frozen=True)
class Call:
    """One call on the host."""

    name: str
    start: float
    end: float
    rank: int
    thread: int
    recorded: bool = True
    """Of a launch: whether there is a record of what it launched."""


@dataclass(frozen=True)
class Scene:
    """What lies inside the ranges of one side."""

    side: str
    iterations: int
    ranges: dict[int, list[Interval]]
    """Rank -> disjoint ranges."""
    work: tuple[DeviceWork, ...] = ()
    calls: tuple[Call, ...] = ()
    lost: str = ""
    settled: bool = False
    """Whether the ranges are those of aiperf's worker, which ends each by waiting for its GPUs."""


def kernel_kind(name: str) -> Kind:
    """``collective`` for a kernel of a communication library, else ``kernel``."""
    return "collective" if COLLECTIVE.search(name) else "kernel"


def rows_of(scene: Scene, *, tool: ToolName) -> tuple[CounterRow, ...]:
    """One row for each kind, name, rank and device, the longest first."""
    groups: dict[tuple[str, str, int, int], list[DeviceWork]] = {}
    for work in scene.work:
        groups.setdefault((work.kind, work.name, work.rank, work.device), []).append(work)
    ranks = len(scene.ranges)
    rows = [_row(scene.side, tool, works, ranked=ranks > 1) for works in groups.values()]
    return tuple(sorted(rows, key=lambda row: -(row.time_s or 0.0)))


def _row(side: str, tool: ToolName, works: Sequence[DeviceWork], *, ranked: bool) -> CounterRow:
    one = works[0]
    times = [work.end - work.start for work in works]
    moved = [work.bytes for work in works if work.bytes is not None]
    total = sum(moved) if moved else None
    return CounterRow(
        side=side,
        tool=tool,
        kind=one.kind,
        name=one.name,
        rank=one.rank if ranked else None,
        device=one.device,
        count=len(works),
        time_s=sum(times),
        median_s=statistics.median(times),
        bytes=total,
        bytes_per_s=total / sum(times) if total and sum(times) > 0 else None,
        grid=one.grid,
        block=one.block,
        registers=one.registers,
        shared_bytes=one.shared_bytes,
    )


def side_of(scene: Scene, *, tool: ToolName) -> SideProfile:
    """The side as a whole, ranks merged: the slowest wall, the smallest communication, means over devices elsewhere."""
    ranks = [_rank_profile(scene, rank, tool) for rank in sorted(scene.ranges)]
    merged = ranks[0] if len(ranks) == 1 else _merged(ranks)
    bound, why = side_bound(merged, devices=max(1, len({w.device for w in scene.work})))
    return replace(merged, bound=bound, why=why, lost="; ".join(filter(None, [scene.lost, _missing(scene.calls)])))


def _missing(calls: Sequence[Call]) -> str:
    """How many launches have no record of their work; what a graph captures is not launched, and a replay is."""
    launches = [c for c in calls if _LAUNCH.match(c.name)]
    silent = [c for c in launches if not c.recorded]
    captures = {rank: _captures([c for c in calls if c.rank == rank]) for rank in {c.rank for c in silent}}
    missing = sum(not inside(c.start, captures[c.rank]) for c in silent)
    return f"{missing} of {len(launches)} launches have no GPU record" if missing else ""


def _captures(calls: Sequence[Call]) -> list[Interval]:
    """When one rank was capturing a graph, on any stream: its other threads launch into the capture, too."""
    found, opened = [], None
    for c in sorted(calls, key=lambda c: c.start):
        if _CAPTURE.match(c.name):
            opened = c.start if opened is None else opened
        elif _CAPTURED.match(c.name) and opened is not None:
            found.append((opened, c.end))
            opened = None
    return union(found if opened is None else [*found, (opened, math.inf)])


def _rank_profile(scene: Scene, rank: int, tool: ToolName) -> SideProfile:
    work = [w for w in scene.work if w.rank == rank]
    calls = [c for c in scene.calls if c.rank == rank]
    wall = length(scene.ranges[rank])
    blank = SideProfile(scene.side, tool, scene.iterations, wall_s=wall)
    launches = [c for c in calls if _LAUNCH.match(c.name)]
    syncs = [c for c in calls if _SYNC.search(c.name)]
    if scene.settled:
        syncs = _own_syncs(syncs, scene.ranges[rank], gpus=max(1, len({w.device for w in work})))
    blank = replace(
        blank,
        launches=len(launches) if calls else None,
        launch_interval_s=wall / len(launches) if launches else None,
        syncs=len(syncs) if calls else None,
        sync_s=length(union((c.start, c.end) for c in syncs)) if calls else None,
    )
    return _with_gpu(blank, work, scene.ranges[rank]) if work else blank


def _own_syncs(syncs: Sequence[Call], ranges: Sequence[Interval], *, gpus: int) -> list[Call]:
    """Waits of the side itself: without those in which the worker lets its GPUs come to rest at a range's end."""
    groups: dict[int | None, list[Call]] = {}
    for c in sorted((c for c in syncs if c.name == _SETTLE), key=lambda c: c.start):
        groups.setdefault(place(c.start, ranges), []).append(c)
    closing = {id(c) for index, group in groups.items() if index is not None for c in group[-gpus:]}
    return [c for c in syncs if id(c) not in closing]


def _with_gpu(side: SideProfile, work: Sequence[DeviceWork], ranges: Sequence[Interval]) -> SideProfile:
    devices = sorted({w.device for w in work})
    kernels = [w for w in work if w.kind in ("kernel", "graph", "collective")]
    per = [_Device([w for w in work if w.device == device], ranges) for device in devices]
    communication = sum(d.communication for d in per)
    shared = sum(d.hidden for d in per)
    means = {name: statistics.fmean(getattr(d, name) for d in per) for name in _DEVICE_MEANS}
    return replace(
        side,
        **means,  # type: ignore[arg-type]
        kernels=len(kernels),
        mean_kernel_s=statistics.fmean(w.end - w.start for w in kernels) if kernels else None,
        communication_s=communication / len(per) if communication else None,
        exposed_s=(communication - shared) / len(per) if communication else None,
        overlap_pct=_share(shared, communication),
        copy_overlap_pct=_share(sum(d.hidden_copies for d in per), sum(d.copies for d in per)),
        concurrency=_mean(d.concurrency for d in per),
        streams=max(d.streams for d in per) or None,
        kernel_concurrency=_mean(d.kernel_concurrency for d in per),
        threads=len({w.thread for w in work if w.thread is not None}) or None,
    )


class _Device:
    """Times of one device under one rank."""

    def __init__(self, work: Sequence[DeviceWork], ranges: Sequence[Interval]) -> None:
        compute = _times(w for w in work if w.kind in ("kernel", "graph"))
        collective = _times(w for w in work if w.kind == "collective")
        self.gpu_busy_s = length(_times(work))
        self.compute_s = length(compute)
        self.communication = length(collective)
        self.hidden = overlap(collective, compute)
        self.copy_s = length(_times(w for w in work if w.kind in ("memcpy", "memset")))
        copies = _times(w for w in work if w.kind == "memcpy")
        self.copies, self.hidden_copies = length(copies), overlap(copies, compute)
        self.concurrency = _at_once(work)
        kernels = [w for w in work if w.kind == "kernel"]
        self.streams, self.kernel_concurrency = len({w.stream for w in kernels}), _at_once(kernels)
        # What lies between two ranges is not the side's: the span is taken range by range.
        groups: list[list[DeviceWork]] = [[] for _ in ranges]
        for w in work:
            index = None if w.launched is None else place(w.launched, ranges)
            if index is not None:
                groups[index].append(w)
        self.gpu_span_s = sum(max(w.end for w in g) - min(w.start for w in g) for g in groups if g)
        self.host_wait_s, self.other_wait_s = (sum(x) for x in zip(*map(_waits, groups), strict=True))


def _at_once(work: Sequence[DeviceWork]) -> float | None:
    """Operations at a time while any runs."""
    busy = length(_times(work))
    return sum(w.end - w.start for w in work) / busy if busy else None


def _share(part: float, whole: float) -> float | None:
    return 100 * part / whole if whole else None


def _waits(work: Sequence[DeviceWork]) -> tuple[float, float]:
    """Idle time before operations that were launched too late, and before others (HTA's rule)."""
    late = other = 0.0
    end: float | None = None
    for w in sorted(work, key=lambda w: w.start):
        if end is not None and w.start > end:
            if w.launched is not None and w.launched > end:
                late += w.start - end
            else:
                other += w.start - end
        end = w.end if end is None else max(end, w.end)
    return late, other


def _times(work: Iterable[DeviceWork]) -> list[Interval]:
    return union((w.start, w.end) for w in work)


def _merged(ranks: Sequence[SideProfile]) -> SideProfile:
    """Ranks of one side as one. A rank that arrives early at a collective waits in it: the transfer is the smallest."""
    slowest = max(ranks, key=lambda r: r.wall_s or 0.0)
    communication = [r.communication_s for r in ranks if r.communication_s is not None]
    means = {name: _mean(getattr(rank, name) for rank in ranks) for name in _MEANS}
    return replace(
        slowest,
        ranks=len(ranks),
        streams=max((r.streams for r in ranks if r.streams is not None), default=None),
        communication_s=min(communication, default=None),
        skew_s=max(communication) - min(communication) if communication else None,
        exposed_s=min((r.exposed_s for r in ranks if r.exposed_s is not None), default=None),
        **means,  # type: ignore[arg-type]
    )


def _mean(values: Iterable[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return statistics.fmean(known) if known else None


def spans_of(scene: Scene) -> tuple[Span, ...]:
    """Bars of the timeline from the start of each rank's first range; the first of too many."""
    spans: list[Span] = []
    for rank, ranges in scene.ranges.items():
        zero = ranges[0][0]
        named = len(scene.ranges) > 1
        own = rank if named else None
        lead = f"rank {rank} " if named else ""
        spans += [Span(scene.side, f"{lead}range", "range", scene.side, a - zero, b - zero, own) for a, b in ranges]
        for w in scene.work:
            if w.rank == rank:
                lane = f"{lead}GPU {w.device} stream {w.stream}"
                spans.append(Span(scene.side, lane, w.kind, w.name, w.start - zero, w.end - zero, own))
        calls = [c for c in scene.calls if c.rank == rank]
        lanes = _host_lanes(calls, lead)
        for c in calls:
            kind = "launch" if _LAUNCH.match(c.name) else "sync" if _SYNC.search(c.name) else "op"
            spans.append(Span(scene.side, lanes[c.thread], kind, c.name, c.start - zero, c.end - zero, own))
    if len(spans) > MOST_SPANS:
        spans = sorted(spans, key=lambda s: s.start_s)[:MOST_SPANS]
    return tuple(sorted(spans, key=lambda s: (s.lane, s.start_s)))


def _host_lanes(calls: Sequence[Call], lead: str) -> dict[int, str]:
    """Thread -> lane, the thread that called first at the top; bars of two threads in one lane would overlap."""
    threads = list(dict.fromkeys(c.thread for c in sorted(calls, key=lambda c: c.start)))
    if len(threads) < 2:
        return dict.fromkeys(threads, f"{lead}host")
    return {thread: f"{lead}host thread {number}" for number, thread in enumerate(threads, 1)}


def cut_notes(scene: Scene) -> tuple[ProfileNote, ...]:
    """What a timeline leaves out; none when it shows everything."""
    zeros = {rank: ranges[0][0] for rank, ranges in scene.ranges.items()}
    times = [(a - zeros[rank], b - zeros[rank]) for rank, ranges in scene.ranges.items() for a, b in ranges]
    timed: tuple[DeviceWork | Call, ...] = (*scene.work, *scene.calls)
    times += [(one.start - zeros[one.rank], one.end - zeros[one.rank]) for one in timed]
    if len(times) <= MOST_SPANS:
        return ()
    until, end = sorted(start for start, _ in times)[MOST_SPANS], max(end for _, end in times)
    cut = {"side": scene.side, "until_s": until, "end_s": end, "shown": MOST_SPANS, "bars": len(times)}
    return (ProfileNote("timeline_cut", cut),)
