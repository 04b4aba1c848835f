"""What the processes of one run left of their GPU work and their NVTX ranges: read, added up, judged.

What must not live here: how it came to lie there (injection.py and injected/), and statistics over runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiperf.launch.program_output import NoValue
from aiperf.records import FailureKind, ProgramMetric

_VERSION = "1"
_CODES = {
    1: "invalid value", 2: "out of memory", 9: "invalid configuration", 98: "invalid device function",
    209: "no kernel image for this GPU", 700: "illegal address", 701: "too many resources", 702: "timed out",
    715: "illegal instruction", 716: "misaligned address", 719: "launch failure", 720: "cooperative launch too large",
}  # fmt: skip
_MOST_NAMES = 40
"""Kernel names that a record keeps of a side, those that took longest."""


@dataclass
class KernelTime:
    """The kernels of one name."""

    count: int = 0
    seconds: float = 0.0


@dataclass
class GpuUse:
    """What one GPU did for one run."""

    kernels: int = 0
    kernel_s: float = 0.0
    busy_s: float = 0.0
    """Time in which at least one kernel ran, of each process by itself."""


@dataclass
class GpuWork:
    """What every GPU did for every process of one run, added up."""

    processes: int = 0
    launches: int = 0
    graph_launches: int = 0
    first_ns: int = 0
    last_ns: int = 0
    zero: int = 0
    """Kernels that lasted no time at all."""
    late: int = 0
    """Kernels whose records came too late for their overlap to be known exactly."""
    dropped: int = 0
    gpus: dict[str, GpuUse] = field(default_factory=dict)
    """By the GPU's unique id."""
    copies: dict[str, tuple[int, int, float]] = field(default_factory=dict)
    """Direction -> number, bytes, seconds."""
    names: dict[str, KernelTime] = field(default_factory=dict)
    errors: list[tuple[int, int, str]] = field(default_factory=list)
    """How often, the code, and the call that gave it."""
    problems: list[str] = field(default_factory=list)
    """Why something of it is not known."""

    @property
    def kernels(self) -> int:
        """Of all GPUs."""
        return sum(gpu.kernels for gpu in self.gpus.values())

    def values(self) -> dict[str, float]:
        """The metrics of a run; times in seconds."""
        copied = [(moved, seconds) for kind, (_, moved, seconds) in self.copies.items() if kind != "fill"]
        return {
            "gpu_busy": sum(gpu.busy_s for gpu in self.gpus.values()),
            "gpu_kernel_time": sum(gpu.kernel_s for gpu in self.gpus.values()),
            "gpu_copy_time": sum(seconds for _, _, seconds in self.copies.values()),
            "gpu_span": (self.last_ns - self.first_ns) / 1e9,
            "gpu_kernels": float(self.kernels),
            "gpu_copied": float(sum(moved for moved, _ in copied)),
        }

    def facts(self) -> dict[str, Any]:
        """What a record keeps of a run besides its metrics."""
        longest = sorted(self.names.items(), key=lambda one: one[1].seconds, reverse=True)
        return {
            "processes": self.processes,
            "launches": self.launches,
            "graph_launches": self.graph_launches,
            "gpus": {uuid: {"kernels": g.kernels, "busy_s": g.busy_s} for uuid, g in self.gpus.items()},
            "copies": {kind: {"count": n, "bytes": b, "seconds": s} for kind, (n, b, s) in self.copies.items()},
            "names": [[name, one.count, one.seconds] for name, one in longest[:_MOST_NAMES]],
            "names_left_out": max(0, len(longest) - _MOST_NAMES),
            "late": self.late,
        }


class BadLaunch(NoValue):
    """A run ended well, and something that it launched did not; the text says what."""

    kind: FailureKind = "error"


def read_gpu_work(folder: Path) -> GpuWork:
    """The GPU work of every process of one run that ended well.

    Raises NoValue where it is not known, BadLaunch where a launch failed: a program that fails is not a fast one.
    """
    work = GpuWork()
    for lines in _files(folder, "gpu"):
        _add_process(work, lines)
    if work.problems:
        raise NoValue(f"its GPU time is not known: {work.problems[0]}")
    if not work.processes:
        raise NoValue("it used no GPU: none of its processes loaded the CUDA driver")
    if work.errors:
        raise BadLaunch(f"a launch failed: {'; '.join(_error(*one) for one in work.errors)}")
    if not work.kernels:
        raise BadLaunch("it launched no kernel on a GPU")
    if work.zero:
        raise BadLaunch(
            f"{work.zero} of its {work.kernels} kernels lasted 0 µs: they failed, or it ended without waiting for them"
        )
    # A graph's kernels come with no launch of their own, and what it captured was launched without running.
    if work.dropped or (not work.graph_launches and work.kernels < work.launches):
        raise NoValue(
            f"CUPTI recorded {work.kernels} kernels of {work.launches} launches ({work.dropped} were dropped)"
        )
    return work


def read_ranges(metrics: Sequence[ProgramMetric], folder: Path) -> dict[str, float]:
    """The value of every metric that is a range, from all processes of one run; times in seconds. Raises NoValue."""
    counts: dict[str, int] = {}
    seconds: dict[str, float] = {}
    problems: list[str] = []
    for lines in _files(folder, "nvtx"):
        problems += _unfinished(lines)
        for count, ns, _, _, _, name in _of(lines, "range"):
            counts[name] = counts.get(name, 0) + int(count)
            seconds[name] = seconds.get(name, 0.0) + int(ns) / 1e9
    asked = [metric for metric in metrics if metric.range]
    if asked and problems:
        raise NoValue(f"its ranges are not known: {problems[0]}")
    for metric in asked:
        if not counts.get(metric.range):
            others = f"; it has {', '.join(sorted(counts)[:10])}" if counts else "; it has none at all"
            raise NoValue(f"no NVTX range {metric.range} was opened and closed{others}")
    return {metric.name: _part(metric.part, counts[metric.range], seconds[metric.range]) for metric in asked}


def _part(part: str, count: int, seconds: float) -> float:
    return {"mean": seconds / count, "total": seconds, "count": float(count)}[part]


def _files(folder: Path, kind: str) -> Iterable[list[list[str]]]:
    for path in sorted(folder.glob(f"{kind}-*.tsv")):
        lines = [line.split("\t") for line in path.read_text(encoding="utf-8", errors="replace").splitlines()]
        if lines and lines[0][:2] == ["aiperf-records", _VERSION]:
            yield lines


def _of(lines: Iterable[list[str]], key: str) -> list[list[str]]:
    return [line[1:] for line in lines if line[0] == key]


def _unfinished(lines: Iterable[list[str]]) -> list[str]:
    """Why a process's file is not whole; empty when it is."""
    if ["1"] in _of(lines, "complete"):
        return []
    pid = next((text for (text,) in _of(lines, "pid")), "?")
    program = next((Path(text).name for (text,) in _of(lines, "program")), "a program")
    return [f"process {pid} ({program}) ended by a signal or by _exit, before its last records were written"]


def _add_process(work: GpuWork, lines: list[list[str]]) -> None:
    work.processes += 1
    work.problems += _unfinished(lines)
    work.problems += [text for (text,) in _of(lines, "problem")]
    work.errors += [(int(count), int(code), call) for count, code, call in _of(lines, "error")]
    work.dropped += sum(int(count) for (count,) in _of(lines, "dropped"))
    for plain, graphs in _of(lines, "launches"):
        work.launches += int(plain)
        work.graph_launches += int(graphs)
    for _, uuid, kernels, ns, busy, first, last, zero, late in _of(lines, "gpu"):
        gpu = work.gpus.setdefault(uuid, GpuUse())
        gpu.kernels += int(kernels)
        gpu.kernel_s += int(ns) / 1e9
        gpu.busy_s += int(busy) / 1e9
        # Of all processes and GPUs together: CUPTI's clock is the host's.
        firsts = [at for at in (work.first_ns, int(first)) if at]
        work.first_ns, work.last_ns = min(firsts, default=0), max(work.last_ns, int(last))
        work.zero += int(zero)
        work.late += int(late)
    for _, kind, count, moved, ns in _of(lines, "copy"):
        former = work.copies.get(kind, (0, 0, 0.0))
        work.copies[kind] = (former[0] + int(count), former[1] + int(moved), former[2] + int(ns) / 1e9)
    for _, count, ns, _, _, name in _of(lines, "kernel"):
        one = work.names.setdefault(name, KernelTime())
        one.count += int(count)
        one.seconds += int(ns) / 1e9


def _error(count: int, code: int, call: str) -> str:
    times = "" if count == 1 else f" {count} times"
    return f"{call} returned error {code}{f' ({_CODES[code]})' if code in _CODES else ''}{times}"
