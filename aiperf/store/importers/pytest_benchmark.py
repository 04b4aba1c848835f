"""pytest-benchmark's JSON: rounds of one process, each of several iterations.

What must not live here: other tools, what becomes of the numbers.
"""

from __future__ import annotations

import json
from datetime import timedelta
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

TOOL, UNIT = "pytest-benchmark", "round"
_UNWRITTEN = "UNSERIALIZABLE["


def _recognises(document: Node) -> bool:
    """Whether the document has pytest-benchmark's outline."""
    return document.maybe("machine_info") is not None and document.maybe("benchmarks") is not None


def _read(document: Node, _: Path) -> Foreign:
    """Read what ``--benchmark-json`` or ``--benchmark-save`` wrote. Raises ForeignError."""
    info = document.members("machine_info")
    finished, doubt = moment(document.text("datetime"))
    benchmarks = tuple(_benchmark(node) for node in document.each("benchmarks"))
    measured = sum(t.seconds * t.iterations for b in benchmarks for r in b.replicates for t in r.timings)
    return Foreign(
        TOOL,
        document.text("version"),
        benchmarks,
        started=finished - timedelta(seconds=measured) if finished and 0 <= measured < 1e6 else finished,
        finished=finished,
        hostname=info.text("node"),
        machine=_machine(info),
        software=_software(info),
        git=_git(document.members("commit_info")),
        notes=(doubt,) if doubt else (),
    )


def _benchmark(node: Node) -> Benchmark:
    name, stats, axes = node["name"].value, node["stats"], _axes(node)
    if not isinstance(name, str):
        raise node["name"].wrong("text")
    iterations, times = stats.whole("iterations"), stats.numbers("data")
    note, summary = one_process(UNIT), None
    if not times:
        summary = ToolSummary(stats.number("mean"), stats.number("min"), stats.number("max"), stats.fact("rounds"))
        note = "the file has no individual rounds (--benchmark-save-data keeps them): a value without spread"
    return Benchmark(
        name,
        UNIT,
        tuple(Replicate((Timing(seconds, iterations),)) for seconds in times),
        summary=summary,
        base=name.partition("[")[0] if axes else "",
        axes=axes,
        own=ToolFigures(stats.maybe_number("mean"), stats.maybe_number("median"), stats.fact("rounds")),
        notes=(note,),
        skipped=fault_of(times or [stats.number("mean")]),
    )


def _axes(node: Node) -> dict[str, Any]:
    """The test's parameters; one that is not plain becomes its JSON text.

    pytest-benchmark cannot write functions, modules and the like: then the id that pytest shows names the case.
    """
    found = node.members("params").value
    if any(isinstance(v, str) and v.startswith(_UNWRITTEN) for v in found.values()):
        key = next(iter(found)) if len(found) == 1 else "param"
        return {key: node.text("param") or node.text("name").partition("[")[2].removesuffix("]")}
    return {k: v if isinstance(v, str | int | float | bool) else json.dumps(v) for k, v in found.items()}


def _machine(info: Node) -> dict[str, Any]:
    cpu = info.maybe("cpu")
    # Older versions write the CPU's name as a text, or nothing.
    of_cpu = cpu if cpu is not None and isinstance(cpu.value, dict) else Node({}, "machine_info.cpu")
    model = of_cpu.text("brand_raw") or of_cpu.text("brand") or info.text("processor")
    found = {"cpu_model": model, "cpus": of_cpu.fact("count")}
    return {k: v for k, v in found.items() if v}


def _software(info: Node) -> dict[str, str]:
    version = info.text("python_implementation_version") or info.text("python_version")
    found = {"python": version, "python_implementation": info.text("python_implementation").lower()}
    return {k: v for k, v in found.items() if v}


def _git(commit: Node) -> dict[str, str]:
    sha = commit.text("id")
    if not sha or sha == "unversioned" or set(sha) - set("0123456789abcdef"):
        return {}
    dirty = commit.maybe("dirty")
    return {"sha": sha} | ({"diff": "unknown"} if dirty is not None and dirty.value is True else {})


FORMAT = ToolFormat(TOOL, 'pytest-benchmark: "machine_info", and "benchmarks" that hold "stats"', _recognises, _read)
