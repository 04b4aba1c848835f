"""asv's results of one commit on one machine: samples of several processes, or only their median.

What must not live here: other tools, what becomes of the numbers.
"""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from datetime import UTC, datetime
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
)
from aiperf.units import format_time

TOOL, UNIT = "asv", "sample"
_FORMAT = 2
_LARGEST = 4 * 1024**2
_NO_PROCESS = "the file does not say which samples are from one process: their spread is not that between processes"


def _recognises(document: Node) -> bool:
    """Whether the document has asv's outline."""
    return document.maybe("result_columns") is not None and document.maybe("results") is not None


def _read(document: Node, path: Path) -> Foreign:
    """Read ``results/<machine>/<commit>-<environment>.json`` of asv 0.5 or newer. Raises ForeignError."""
    if document.value.get("version") != _FORMAT:
        raise ForeignError(f"it is of asv's format {document.text('version', '1')}; aiperf reads {_FORMAT}")
    declared = _declarations(path)
    columns = [str(column.value) for column in document.each("result_columns")]
    results = document["results"]
    found: list[Benchmark] = []
    started: list[float] = []
    for name in _names(results):
        row = dict(zip(columns, (n.value for n in results.each(name)), strict=False))
        entry = Node(row, f"results.{name}")
        started += [t for t in (entry.maybe_number("started_at"),) if t is not None]
        found += _benchmarks(name, entry, Node(declared.get(name, {}), name))
    params = document.members("params")
    return Foreign(
        TOOL,
        "",
        tuple(found),
        started=_moment(min(started)) if started else None,
        hostname=params.text("machine"),
        machine=_machine(params),
        software={"python": version} if (version := document.text("python")) else {},
        git={"sha": sha} if (sha := document.text("commit_hash")) else {},
    )


def _names(results: Node) -> list[str]:
    if not isinstance(results.value, dict):
        raise results.wrong("an object")
    return list(results.value)


def _declarations(path: Path) -> dict[str, Any]:
    """Units and names of parameters, from the ``benchmarks.json`` that asv keeps beside the machines' folders."""
    for folder in path.resolve().parents[:2]:
        file = folder / "benchmarks.json"
        try:
            if file.stat().st_size < _LARGEST:
                found = json.loads(file.read_bytes())
                return {k: v for k, v in found.items() if isinstance(v, dict)} if isinstance(found, dict) else {}
        except (OSError, ValueError, RecursionError):
            continue
    return {}


def _benchmarks(name: str, entry: Node, declared: Node) -> list[Benchmark]:
    """One benchmark for every combination of parameters, in asv's order."""
    unit = declared.text("unit") or ("seconds" if name.rpartition(".")[2].startswith("time") else "")
    values = [[str(v.value) for v in axis.items()] for axis in entry.each("params")]
    keys = [key.value for key in declared.each("param_names")]
    names = [str(keys[i]) if i < len(keys) else f"param{i + 1}" for i in range(len(values))]
    if math.prod(len(axis) for axis in values) > 100_000:
        raise ForeignError(f"{entry.at} has more than 100000 combinations of parameters")
    points = [dict(zip(names, (v.strip("'") for v in p), strict=True)) for p in itertools.product(*values)]
    return [_benchmark(name, entry, place, axes, unit) for place, axes in enumerate(points)]


def _benchmark(name: str, entry: Node, place: int, axes: dict[str, Any], unit: str) -> Benchmark:
    title = f"{name}({', '.join(map(str, axes.values()))})" if axes else name
    bare = Benchmark(title, UNIT, base=name, axes=axes)
    result = _at(entry, "result", place)
    if result is None:
        return replace(bare, failed="asv has no result for it")
    if isinstance(result.value, float) and math.isnan(result.value):
        return replace(bare, skipped="it does not apply to these parameters")
    if unit != "seconds":
        return replace(bare, skipped=f"its unit is {unit}, not a time" if unit else "its unit is not known")
    return _timed(bare, entry, place, result.as_number())


def _timed(bare: Benchmark, entry: Node, place: int, median: float) -> Benchmark:
    number, repeat = _at(entry, "stats_number", place), _at(entry, "stats_repeat", place)
    iterations = number.value if number is not None and type(number.value) is int and 0 < number.value < 2**48 else 1
    count = repeat.value if repeat is not None and type(repeat.value) is int and repeat.value > 0 else 0
    low, high = (_at(entry, f"stats_ci_99_{end}", place) for end in "ab")
    ends = [end.as_number() for end in (low, high) if end is not None]
    interval = (f"99 % interval {format_time(ends[0])} … {format_time(ends[1])}",) if len(ends) == 2 else ()
    samples = _at(entry, "samples", place)
    times = [] if samples is None else [item.as_number() for item in samples.items()]
    note = _NO_PROCESS if times else "the file holds no samples (asv run --record-samples keeps them): asv's median"
    return replace(
        bare,
        replicates=tuple(Replicate((Timing(seconds, iterations),)) for seconds in times),
        summary=None if times else ToolSummary(median, samples=count),
        own=ToolFigures(median=median, n=count, others=interval),
        notes=(note,),
        skipped=fault_of(times or [median]),
    )


def _at(entry: Node, column: str, place: int) -> Node | None:
    """What a column holds for one combination of parameters; None where asv wrote none."""
    items = entry.each(column)
    return items[place] if place < len(items) and items[place].value is not None else None


def _moment(milliseconds: float) -> datetime | None:
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (OverflowError, OSError, ValueError):
        return None


def _machine(params: Node) -> dict[str, Any]:
    cpus = params.text("num_cpu")
    found = {"cpu_model": params.text("cpu"), "cpus": int(cpus) if cpus.isascii() and cpus.isdigit() else 0}
    return {k: v for k, v in found.items() if v}


FORMAT = ToolFormat(TOOL, 'asv: "result_columns" and "results"', _recognises, _read)
