"""nvbench's JSON: states of a benchmark; their samples lie beside it in binary files when --jsonbin was used.

What must not live here: other tools, what becomes of the numbers.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiperf.formats.document import ForeignError, Node
from aiperf.store.importers.common import (
    Benchmark,
    Foreign,
    Replicate,
    Timing,
    ToolFigures,
    ToolFormat,
    ToolSummary,
    fault_of,
    one_process,
)

TOOL, UNIT = "nvbench", "sample"
_MOST_SAMPLES = 10_000_000
_WORD = 4
"""Bytes of a little-endian float32, which is what the side files hold."""


@dataclass(frozen=True)
class _Way:
    """One of nvbench's ways to measure: where its mean, count and samples are."""

    prefix: str
    time: str
    samples: str
    device: bool
    note: str = ""

    def tag(self, what: str) -> str:
        return f"{self.prefix}/{what}"


_WAYS = (
    _Way("nv/cold", "time/gpu", "sample_times", device=True),
    _Way("nv/batch", "time/gpu", "", device=True, note="the batch mean: launches back to back with warm caches"),
    _Way("nv/cpu_only", "time/cpu", "sample_times", device=False),
)
"""The preferred one first: GPU time of isolated launches."""


def _recognises(document: Node) -> bool:
    """Whether the document has nvbench's outline."""
    found = document.each("benchmarks")
    return document.maybe("context") is None and any(b.maybe("states") is not None for b in found)


def _read(document: Node, path: Path) -> Foreign:
    """Read nvbench's JSON (format 1) and the side files beside ``path``. Raises ForeignError."""
    version = document.members("meta").members("version")
    form = version.members("json").text("major", "1")
    if form != "1":
        raise ForeignError(f"is of nvbench's JSON format {form[:12]}; this aiperf reads format 1")
    devices = {d.text("id"): d for d in document.each("devices")}
    benchmarks = tuple(
        _benchmark(benchmark, state, path)
        for benchmark in document.each("benchmarks")
        for state in benchmark.each("states")
    )
    used = {s.text("device") for b in document.each("benchmarks") for s in b.each("states")}
    gpus = [_gpu(devices[key]) for key in sorted(used) if key in devices]
    return Foreign(
        TOOL,
        version.members("nvbench").text("string"),
        benchmarks,
        machine={"gpus": gpus} if gpus else {},
    )


def _benchmark(benchmark: Node, state: Node, path: Path) -> Benchmark:
    base, axes = benchmark.text("name", "unnamed"), _axes(benchmark, state)
    name = f"{base} {state.text('name')}".strip()
    summaries = {s.text("tag"): _data(s) for s in state.each("summaries")}
    skipped = state.maybe("is_skipped")
    if skipped is not None and skipped.value is True:
        why = state.text("skip_reason", "nvbench skipped it")
        return Benchmark(name, UNIT, base=base, axes=axes, skipped=why)
    way = next((w for w in _WAYS if w.tag(f"{w.time}/mean") in summaries), None)
    if way is None:
        return Benchmark(name, UNIT, base=base, axes=axes, skipped="the file has no mean time for it")
    times, why = _samples(summaries, way, path)
    summary = ToolSummary(
        _value(summaries, way.tag(f"{way.time}/mean")),
        _value(summaries, way.tag(f"{way.time}/min")),
        _value(summaries, way.tag(f"{way.time}/max")),
        _whole(_value(summaries, way.tag("sample_size"))),
    )
    return Benchmark(
        name,
        UNIT,
        tuple(Replicate((Timing(seconds),)) for seconds in times),
        summary=None if times else summary,
        device=way.device,
        base=base,
        axes=axes,
        own=ToolFigures(None if math.isnan(summary.mean) else summary.mean, None, summary.samples),
        notes=tuple(note for note in (one_process(UNIT) if times else why, way.note) if note),
        skipped=fault_of(times or [summary.mean]),
    )


def _samples(summaries: dict[str, dict[str, str]], way: _Way, path: Path) -> tuple[list[float], str]:
    """Return the samples of a state, or none and why."""
    entry = summaries.get(f"nv/json/bin:{way.tag(way.samples)}") if way.samples else None
    if entry is None or not entry.get("filename"):
        return [], "the file has no individual samples (--jsonbin keeps them): a value without spread"
    side = _beside(path, entry["filename"])
    if side is None:
        return [], f"{entry['filename']} with the samples is not next to the file: a value without spread"
    size = _whole(_number(entry.get("size", "")))
    if size > _MOST_SAMPLES:
        return [], f"{side.name} holds more than {_MOST_SAMPLES} samples: a value without spread"
    try:
        data = side.read_bytes() if side.stat().st_size == size * _WORD else b""
    except OSError as error:
        return [], f"{side.name} with the samples cannot be read ({error.strerror}): a value without spread"
    if not data:
        return [], f"{side.name} does not hold the {size} samples that the file announces: a value without spread"
    return [float(value) for (value,) in struct.iter_unpack("<f", data)], ""


def _beside(path: Path, name: str) -> Path | None:
    """Find a side file under the folder of ``path``, never elsewhere: a file from others may name any path.

    Older versions wrote the path as seen from where nvbench was started.
    """
    folder = path.parent.resolve()
    for candidate in (folder / name, folder / f"{path.name}-bin" / Path(name).name):
        try:
            inside = candidate.resolve().is_relative_to(folder)
            if inside and candidate.is_file():
                return candidate
        except (OSError, ValueError, RuntimeError):  # a name that no file system takes, a loop of links
            continue
    return None


def _axes(benchmark: Node, state: Node) -> dict[str, Any]:
    several = len(benchmark.each("devices")) > 1
    device = {"device": state.text("device")} if several else {}
    return device | {axis.text("name"): axis.text("value") for axis in state.each("axis_values")}


def _data(summary: Node) -> dict[str, str]:
    """Name -> value of a summary's data; nvbench writes numbers as text."""
    return {entry.text("name"): entry.text("value") for entry in summary.each("data")}


def _value(summaries: dict[str, dict[str, str]], tag: str) -> float:
    return _number(summaries.get(tag, {}).get("value", ""))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _whole(value: float) -> int:
    return int(value) if math.isfinite(value) and 0 < value < 2**63 else 0


def _gpu(device: Node) -> dict[str, Any]:
    """What distinguishes one kind of GPU from another."""
    keys = ("name", "sm_version", "number_of_sms", "sm_default_clock_rate", "global_memory_size", "ecc_state")
    return {key: device.value[key] for key in keys if device.maybe(key) is not None}


FORMAT = ToolFormat(TOOL, 'nvbench: "devices", and "benchmarks" that hold "states"', _recognises, _read)
