"""google/benchmark's JSON: repetitions of one process, each the mean of many iterations.

What must not live here: other tools, what becomes of the numbers.
"""

from __future__ import annotations

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
    count,
    fault_of,
    moment,
    one_process,
)

TOOL, UNIT = "google-benchmark", "repetition"
_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_AGGREGATES = ("mean", "median", "stddev", "cv", "BigO", "RMS")


def _recognises(document: Node) -> bool:
    """Whether the document has google/benchmark's outline."""
    return document.maybe("context") is not None and document.maybe("benchmarks") is not None


def _read(document: Node, _: Path) -> Foreign:
    """Read what ``--benchmark_out_format=json`` wrote, of version 1.0 or newer. Raises ForeignError."""
    context = document.members("context")
    started, doubt = moment(context.text("date"))
    groups: dict[tuple[str, ...], list[Node]] = {}
    for node in document.each("benchmarks"):
        name = node.text("run_name") or _without_aggregate(node)
        key = (name, node.text("family_index"), node.text("per_family_instance_index"))
        groups.setdefault(key, []).append(node)
    return Foreign(
        TOOL,
        context.text("library_version").lstrip("v"),
        tuple(_benchmark(name, nodes, context) for (name, *_), nodes in groups.items()),
        started=started,
        hostname=context.text("host_name"),
        machine=_machine(context),
        notes=(doubt,) if doubt else (),
    )


def _benchmark(name: str, nodes: list[Node], context: Node) -> Benchmark:
    taken = [n for n in nodes if not _aggregate(n)]
    errors = [n.text("error_message") for n in taken if n.maybe("error_occurred")]
    skips = [n.text("skip_message") for n in taken if n.maybe("skipped")]
    notes = _notes(taken or nodes, context)
    if errors:
        return Benchmark(name, UNIT, notes=notes, failed=errors[0] or "without a message")
    if skips:
        return Benchmark(name, UNIT, notes=notes, skipped=skips[0] or "the tool skipped it")
    if not taken:
        return _of_aggregates(name, nodes, notes)
    timings = [Timing(_seconds(n), n.whole("iterations")) for n in taken]
    left_out = [f"{count(len(nodes) - len(taken), 'aggregate')} left out"] if len(nodes) > len(taken) else []
    return Benchmark(
        name,
        UNIT,
        tuple(Replicate((timing,)) for timing in timings),
        own=_figures(nodes),
        notes=(one_process(UNIT), *notes, *left_out),
        skipped=fault_of([t.seconds for t in timings]),
    )


def _of_aggregates(name: str, nodes: list[Node], notes: tuple[str, ...]) -> Benchmark:
    mean = next((n for n in nodes if _aggregate(n) == "mean"), None)
    if mean is None:
        return Benchmark(name, UNIT, notes=notes, skipped="the file holds neither its repetitions nor their mean")
    summary = ToolSummary(_seconds(mean), samples=mean.fact("repetitions"))
    said = (*notes, "the file holds aggregates only: the mean, a value without spread")
    return Benchmark(name, UNIT, summary=summary, own=_figures(nodes), notes=said, skipped=fault_of([summary.mean]))


def _figures(nodes: list[Node]) -> ToolFigures | None:
    """Mean and median of the tool's own aggregates; None when the file has none of them."""
    found = {_aggregate(n): n for n in nodes}
    mean, median = (_seconds(found[name]) if name in found else None for name in ("mean", "median"))
    number = next((n.fact("repetitions") for n in nodes), 0)
    return None if mean is None and median is None else ToolFigures(mean, median, number)


def _seconds(node: Node) -> float:
    unit = node.text("time_unit", "ns")
    if unit not in _SECONDS:
        raise ForeignError(f"{node.at}.time_unit is {unit[:20]!r}, not one of {', '.join(_SECONDS)}")
    return node.number("real_time") * _SECONDS[unit]


def _aggregate(node: Node) -> str:
    """Name of the aggregate that an entry is; empty for a repetition. Before 1.5 only the entry's name shows it."""
    if node.text("run_type") == "aggregate":
        return node.text("aggregate_name") or "unknown"
    ending = node["name"].value.rpartition("_")[2] if isinstance(node["name"].value, str) else ""
    return ending if not node.text("run_type") and ending in _AGGREGATES else ""


def _without_aggregate(node: Node) -> str:
    name, aggregate = node["name"].value, _aggregate(node)
    if not isinstance(name, str):
        raise node["name"].wrong("text")
    return name.removesuffix(f"_{aggregate}") if aggregate else name


def _notes(nodes: list[Node], context: Node) -> tuple[str, ...]:
    threads = nodes[0].fact("threads")
    build = context.text("library_build_type")
    found = [
        f"it ran on {threads} threads; the time is real_time as the file states it" if threads > 1 else "",
        "the benchmark library was a debug build" if build == "debug" else "",
        "the CPU's frequency was scaled" if context.value.get("cpu_scaling_enabled") is True else "",
    ]
    return tuple(note for note in found if note)


def _machine(context: Node) -> dict[str, Any]:
    """The number of CPUs and their caches: the file names no model."""
    found: dict[str, Any] = {}
    if cpus := context.fact("num_cpus"):
        found["cpus"] = cpus
    if caches := [c.value for c in context.each("caches")]:
        found["caches"] = caches
    return found


FORMAT = ToolFormat(TOOL, 'google/benchmark: "context", and "benchmarks" that hold "real_time"', _recognises, _read)
