"""The peaks of a host: which there are, how each is measured, and what was measured.

What must not live here: running the workloads that measure them, and holding a result against them.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from aiperf.host import state_file
from aiperf.records import Case, Measure, Needs, Side

_KIND = "peaks"
FEWEST_LAUNCHES = 3
"""Launches of a peak's best variant on one occasion."""
_KIB, _MIB, _GIB = 1024, 1024**2, 1024**3


@dataclass(frozen=True)
class PeakSpec:
    """One physical ceiling, and the workload whose best sample measures it on this host.

    The best sample over all variants counts: a ceiling that a decent kernel can beat would call honest results
    impossible.
    """

    name: str
    """As in ``Work.peaks``."""
    title: str
    unit: str
    """B/s or FLOP/s: amount / shortest time. s: the shortest time itself, a floor."""
    workload: str
    variants: tuple[dict[str, Any], ...] = ({},)
    """Parameters of the workload, one way of reaching for the ceiling each."""
    needs: Needs = field(default_factory=Needs)
    ranks: int = 1
    measure: Measure = field(default_factory=Measure)
    sweep: str = ""
    """The parameter of which every value's own reach is kept beside the best: what a link gives depends on the size."""

    @property
    def shares(self) -> bool:
        """Whether it may be measured in one process with others: waking a GPU takes seconds, measuring tenths."""
        return self.needs.gpus == 1 and self.ranks == 1

    @property
    def floor(self) -> bool:
        """Whether it is a shortest time instead of a highest rate."""
        return self.unit == "s"


@dataclass(frozen=True)
class Peak:
    """One peak as measured on one host."""

    name: str
    value: float
    """The best sample."""
    unit: str
    low: float
    """Slowest sample of the best variant (longest time for a floor)."""
    high: float
    """Fastest sample of the best variant."""
    when: str
    """ISO 8601, UTC."""
    samples: int
    conditions: dict[str, Any] = field(default_factory=dict)
    """The variant, CPUs, threads, device: what must be known to repeat it."""
    latest: float = 0.0
    """Best sample of the latest occasion, which ``value`` may surpass; 0 where it was not kept."""
    launches: int = 0
    """Launches of the best variant on the latest occasion; 0 where they were not counted."""
    interval_low: float = 0.0
    interval_high: float = 0.0
    """95 % interval of what the best sample of a launch comes to, over those launches; 0 where there was none."""
    by_size: dict[str, float] = field(default_factory=dict)
    """Value of the peak's ``sweep`` (bytes) -> best sample with it; empty where nothing is swept or was kept."""


_GPU = Needs(gpus=1, gpu_memory=4 * _GIB, libraries={"torch": ""})
_PAIR = Needs(gpus=2, gpu_memory=4 * _GIB, libraries={"torch": ""})
_CPU = Needs(memory=2 * _GIB, libraries={"torch": ""})
_DISK = Needs(memory=_GIB, disk=2 * _GIB)
_CUDA = Needs(gpus=1, gpu_memory=_GIB, libraries={"torch": "", "cupy": ""})
_SIZES = ({"n": 4096}, {"n": 8192})
_MESSAGES = (4 * _KIB, 64 * _KIB, _MIB, 16 * _MIB, 256 * _MIB)
"""Bytes of an all-reduce, from those that the latency decides to those that the links do."""


def _gpu_from(capability: str) -> Needs:
    return Needs(gpus=1, gpu_memory=4 * _GIB, libraries={"torch": ""}, compute_capability=capability)


PEAK_SPECS: tuple[PeakSpec, ...] = (
    PeakSpec(
        "cpu_stream",
        "CPU memory, read + written",
        "B/s",
        "peaks.cpu_stream",
        tuple({"way": way, "size": _GIB} for way in ("copy", "sum", "dot")),
        Needs(memory=3 * _GIB, libraries={"torch": ""}),
    ),
    PeakSpec(
        "cpu_gemm_fp32", "CPU matrix multiply, fp32", "FLOP/s", "peaks.cpu_gemm_fp32", ({"n": 1024}, {"n": 2048}), _CPU
    ),
    PeakSpec(
        "cpu_gemm_bf16", "CPU matrix multiply, bf16", "FLOP/s", "peaks.cpu_gemm_bf16", ({"n": 1024}, {"n": 2048}), _CPU
    ),
    PeakSpec(
        "disk_read",
        "Disk, cold sequential read",
        "B/s",
        "peaks.disk_read",
        (
            {"threads": 1},
            {"threads": 8},
            {"threads": 8, "direct": False},
            # Large blocks fall out of a core's cache, and a virtual disk may read ahead better than it takes requests.
            *({"threads": n, "block": 512 * _KIB, "direct": False} for n in (1, 2)),
        ),
        _DISK,
    ),
    PeakSpec(
        "page_cache_read",
        "Page cache, warm read",
        "B/s",
        "peaks.page_cache_read",
        ({"block": 128 * _KIB}, {"block": _MIB}, {"block": 4 * _MIB}),
        _DISK,
    ),
    PeakSpec(
        "dram",
        "GPU memory, read + written",
        "B/s",
        "peaks.dram",
        tuple({"way": way, "size": _GIB} for way in ("copy", "scale", "sum")),
        _GPU,
    ),
    PeakSpec(
        "l2",
        "GPU L2 cache, read + written",
        "B/s",
        "peaks.l2",
        (*({"part": part} for part in (8, 4, 2)), {"way": "copy", "part": 4}),
        _CUDA,
    ),
    PeakSpec("shared", "GPU shared memory, read", "B/s", "peaks.shared", ({},), _CUDA),
    PeakSpec("h2d", "Host to device, pinned", "B/s", "peaks.h2d", ({"size": 256 * _MIB},), _GPU),
    PeakSpec("d2h", "Device to host, pinned", "B/s", "peaks.d2h", ({"size": 256 * _MIB},), _GPU),
    PeakSpec(
        "p2p",
        "GPU to GPU copy, one way",
        "B/s",
        "peaks.p2p",
        ({"size": 256 * _MIB}, {"size": _GIB}),
        Needs(gpus=2, gpu_memory=4 * _GIB, libraries={"torch": ""}, peer_access=True),
    ),
    PeakSpec(
        "all_reduce_nccl",
        "All-reduce over NCCL, bus bytes",
        "B/s",
        "peaks.all_reduce_nccl",
        tuple({"size": size} for size in (*_MESSAGES, _GIB)),
        _PAIR,
        ranks=2,
        sweep="size",
    ),
    PeakSpec(
        "all_reduce_gloo",
        "All-reduce over Gloo, bus bytes",
        "B/s",
        "peaks.all_reduce_gloo",
        tuple({"size": size} for size in sorted({*_MESSAGES, 4 * _MIB, 64 * _MIB})),
        _CPU,
        ranks=2,
        sweep="size",
    ),
    PeakSpec("gemm_fp32", "GPU matrix multiply, fp32", "FLOP/s", "peaks.gemm_fp32", _SIZES, _GPU),
    PeakSpec("gemm_tf32", "GPU matrix multiply, TF32", "FLOP/s", "peaks.gemm_tf32", _SIZES, _gpu_from(">=8.0")),
    PeakSpec("gemm_bf16", "GPU matrix multiply, bf16", "FLOP/s", "peaks.gemm_bf16", _SIZES, _gpu_from(">=8.0")),
    PeakSpec("gemm_fp16", "GPU matrix multiply, fp16", "FLOP/s", "peaks.gemm_fp16", _SIZES, _gpu_from(">=7.0")),
    PeakSpec(
        "gemm_fp8",
        "GPU matrix multiply, fp8",
        "FLOP/s",
        "peaks.gemm_fp8",
        (*({"n": n} for n in (4096, 8192, 16384)), {"n": 8192, "fast_sums": False}),
        _gpu_from(">=8.9"),
    ),
    PeakSpec("launch", "Smallest kernel", "s", "peaks.launch", ({},), _GPU, measure=Measure(statistic="median")),
)


def peak_spec(name: str) -> PeakSpec | None:
    """The peak of that name."""
    return next((r for r in PEAK_SPECS if r.name == name), None)


def peak_case(spec: PeakSpec, variant: int = 0) -> Case:
    """A case with one side, ``peak``, that measures a variant of the peak through the ordinary path.

    Without a GPU it asks for every CPU that this process may use: a ceiling measured on one quiet core would call a
    side that uses more of them impossible.
    """
    needs = spec.needs if spec.needs.gpus else replace(spec.needs, cpus=len(os.sched_getaffinity(0)))
    params = spec.variants[variant]
    shown = ",".join(f"{key}={value}" for key, value in params.items())
    return Case(
        scenario=f"peak-{spec.name}",
        id=f"peak-{spec.name}[{shown}]" if shown else f"peak-{spec.name}",
        title=spec.title,
        why="The ceiling against which results are held.",
        sides=(Side(name="peak", workload=spec.workload, params=dict(params), ranks=spec.ranks),),
        axes=dict(params),
        measure=spec.measure,
        needs=needs,
    )


def shared_case(specs: Sequence[PeakSpec]) -> tuple[Case, dict[str, tuple[PeakSpec, int]]]:
    """One case whose sides are all variants of these peaks, in one process; and which side is which variant."""
    of_side = {f"{r.name}-{number}": (r, number) for r in specs for number in range(len(r.variants))}
    each = {name: peak_case(r, number) for name, (r, number) in of_side.items()}
    first = next(iter(each.values()))
    case = replace(
        first,
        scenario="peaks",
        id="peaks",
        title="The peaks against which results are held",
        sides=tuple(replace(case.sides[0], name=name) for name, case in each.items()),
        axes={},
        measure=Measure(isolation="in_process"),
    )
    return case, of_side


def peak_from(
    spec: PeakSpec, times: Sequence[float], *, amount: float = 0.0, conditions: dict[str, Any] | None = None
) -> Peak:
    """The peak from the times of one step (seconds) that charges ``amount`` (bytes, FLOPs) to the peak.

    Raises ValueError without samples, with a time that is not positive, or when a rate lacks its amount.
    """
    if not times or min(times) <= 0 or (amount <= 0 and not spec.floor):
        raise ValueError(f"{spec.name}: a peak needs positive times and an amount")
    values = sorted(times) if spec.floor else [amount / t for t in sorted(times)]
    when = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return Peak(spec.name, values[0], spec.unit, values[-1], values[0], when, len(values), conditions or {})


def kept(spec: PeakSpec, old: Peak | None, new: Peak) -> Peak:
    """What is known after another occasion: the further reach of both, and how the latest occasion went."""
    best = better(spec, old, new) or new
    latest = {name: getattr(new, name) for name in ("latest", "launches", "interval_low", "interval_high")}
    further = min if spec.floor else max
    sizes = {**(old.by_size if old else {}), **new.by_size}
    both = {size: further(p.by_size[size] for p in (old, new) if p and size in p.by_size) for size in sizes}
    return replace(best, **latest, by_size=both)


def better(spec: PeakSpec, first: Peak | None, second: Peak | None) -> Peak | None:
    """The peak that reaches further, of two variants or of two occasions; either may be missing."""
    if first is None or second is None:
        return first or second
    choose = min if spec.floor else max
    return choose(first, second, key=lambda peak: peak.value)


def load_peaks(host_id: str) -> dict[str, Peak]:
    """Peak name -> peak measured on this host. An unreadable file is renamed aside and counts as empty."""
    return {name: peak for name, peak in state_file.load_as(Peak, _KIND, host_id).items() if peak.value > 0}


def save_peak(host_id: str, peak: Peak) -> None:
    """Store one peak in place of the one before, atomically. Raises OSError when the state folder is read-only."""
    state_file.update(state_file.path_of(_KIND, host_id), {peak.name: asdict(peak)})
