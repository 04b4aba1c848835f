"""BenchmarkDotNet's JSON: launches, each a process with its iterations.

What must not live here: other tools, what becomes of the numbers.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from aiperf.formats.document import Node
from aiperf.store.importers.common import (
    Benchmark,
    Foreign,
    Replicate,
    Timing,
    ToolFigures,
    ToolFormat,
    ToolSummary,
    fault_of,
    moment,
    one_process,
)
from aiperf.units import format_time

TOOL = "benchmarkdotnet"
_NANO = 1e-9
_BEGAN = re.compile(r"-(\d{8}-\d{6})$")
"""When a run began, at the end of its title: ``Sorts-20260305-030356``."""


def _recognises(document: Node) -> bool:
    """Whether the document has BenchmarkDotNet's outline."""
    return document.maybe("HostEnvironmentInfo") is not None and document.maybe("Benchmarks") is not None


def _read(document: Node, _: Path) -> Foreign:
    """Read what its JSON exporters wrote, full or brief. Raises ForeignError."""
    info = document.members("HostEnvironmentInfo")
    nodes = document.each("Benchmarks")
    # Several jobs run the same method: what tells them apart stands only in DisplayInfo.
    jobs = {_job(node) for node in nodes}
    runtime = info.text("RuntimeVersion") or info.text("ClrVersion")
    began = _BEGAN.search(document.text("Title"))
    started, doubt = moment(began[1] if began else "")
    return Foreign(
        TOOL,
        info.text("BenchmarkDotNetVersion"),
        tuple(_benchmark(node, several_jobs=len(jobs) > 1) for node in nodes),
        started=started,
        machine=_machine(info),
        software={"dotnet": runtime} if runtime else {},
        notes=(doubt,) if doubt else (),
    )


def _benchmark(node: Node, *, several_jobs: bool) -> Benchmark:
    base = f"{node.text('Type')}.{node.text('Method')}"
    axes = _axes(node) | ({"job": _job(node)} if several_jobs else {})
    title = node.text("FullName") or base
    stats = node.maybe("Statistics")
    if stats is None:
        return Benchmark(title, "iteration", base=base, axes=axes, failed="BenchmarkDotNet has no results for it")
    launches = _launches(node)
    unit = "launch" if len(launches) > 1 else "iteration"
    replicates = launches if len(launches) > 1 else [Replicate((t,)) for r in launches for t in r.timings]
    replicates = replicates or [Replicate((Timing(t * _NANO),)) for t in stats.numbers("OriginalValues")]
    times = [t.seconds for r in replicates for t in r.timings]
    note, summary = one_process("iteration"), None
    if not times:
        low, mean, high = (stats.number(key) * _NANO for key in ("Min", "Mean", "Max"))
        summary = ToolSummary(mean, low, high, stats.fact("N"))
        note = "the file holds no measurements (the full JSON exporter keeps them): a value without spread"
    return Benchmark(
        title,
        unit,
        tuple(replicates),
        summary=summary,
        base=base,
        axes=axes,
        own=_figures(node, stats),
        notes=() if unit == "launch" else (note,),
        skipped=fault_of(times or [summary.mean if summary else 0.0]),
    )


def _launches(node: Node) -> list[Replicate]:
    """A replicate for every launch, of its results: overhead taken off and outliers removed by the tool itself."""
    found: dict[int, list[Timing]] = {}
    for entry in node.each("Measurements"):
        # Before 0.11.2 the mode alone says it.
        if "Result" in (entry.text("IterationStage"), entry.text("IterationMode")):
            operations = entry.whole("Operations")
            timing = Timing(entry.number("Nanoseconds") * _NANO / operations, operations)
            found.setdefault(entry.fact("LaunchIndex"), []).append(timing)
    return [Replicate(tuple(timings)) for timings in found.values()]


def _figures(node: Node, stats: Node) -> ToolFigures:
    mean, median, error = (stats.maybe_number(key) for key in ("Mean", "Median", "StandardError"))
    allocated = node.members("Memory").maybe_number("BytesAllocatedPerOperation")
    others = (
        f"standard error {format_time(error * _NANO)}" if error is not None else "",
        f"{allocated:.0f} B allocated/op" if allocated is not None else "",
    )
    mean, median = (None if value is None else value * _NANO for value in (mean, median))
    return ToolFigures(mean, median, stats.fact("N"), others=tuple(text for text in others if text))


def _axes(node: Node) -> dict[str, Any]:
    """``Size=100&Kind=x``; what is no name with a value is kept whole."""
    text = node.text("Parameters")
    parts = [part.partition("=") for part in text.split("&")] if text else []
    if all(equals for _, equals, _ in parts):
        return {key: value for key, _, value in parts}
    return {"parameters": text}


def _job(node: Node) -> str:
    """``Sorts.Sort: Job-AB(Runtime=...) [Size=1]`` -> ``Job-AB(Runtime=...)``."""
    return node.text("DisplayInfo").partition(": ")[2].partition(" [")[0]


def _machine(info: Node) -> dict[str, Any]:
    name = info.maybe("ProcessorName")
    # Before 0.11 it is an object with the value.
    model = name.text("Value") if name is not None and isinstance(name.value, dict) else info.text("ProcessorName")
    found = {"cpu_model": model, "cpus": info.fact("LogicalCoreCount") or info.fact("ProcessorCount")}
    return {k: v for k, v in found.items() if v}


FORMAT = ToolFormat(TOOL, 'BenchmarkDotNet: "HostEnvironmentInfo" and "Benchmarks"', _recognises, _read)
