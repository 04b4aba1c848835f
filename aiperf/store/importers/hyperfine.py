"""hyperfine's JSON: one command, its runs, one process each.

What must not live here: other tools, what becomes of the numbers.
"""

from __future__ import annotations

from pathlib import Path

from aiperf.formats.document import Node
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
)
from aiperf.units import format_time

TOOL, UNIT = "hyperfine", "run"


def _recognises(document: Node) -> bool:
    """Whether the document has hyperfine's outline."""
    found = document.each("results")
    return any(r.maybe("command") is not None and r.maybe("mean") is not None for r in found)


def _read(document: Node, _: Path) -> Foreign:
    """Read what ``hyperfine --export-json`` wrote. Raises ForeignError."""
    benchmarks = tuple(_benchmark(node) for node in document.each("results"))
    # The file holds neither a version nor a date nor anything of the machine.
    return Foreign(TOOL, "", benchmarks)


def _benchmark(node: Node) -> Benchmark:
    command = node["command"].value if isinstance(node["command"].value, str) else node.text("command")
    times, peaks = node.numbers("times"), _peaks(node)
    notes = [*_cpu_note(node), *_exit_note(node)]
    summary = None
    if not times:
        summary = ToolSummary(node.number("mean"), node.number("min"), node.number("max"), len(node.each("exit_codes")))
        notes.append("the file has no individual runs: a value without spread")
    if len(peaks) != len(times):
        peaks = [None] * len(times)
    return Benchmark(
        command,
        UNIT,
        tuple(Replicate((Timing(seconds, 1, peak),)) for seconds, peak in zip(times, peaks, strict=True)),
        summary=summary,
        own=ToolFigures(node.maybe_number("mean"), node.maybe_number("median"), len(times or node.each("exit_codes"))),
        axes={key: node["parameters"].text(key) for key in node.members("parameters").value},
        notes=tuple(notes),
        skipped=fault_of(times or [node.number("mean")]),
    )


def _peaks(node: Node) -> list[int | None]:
    """Peak memory of each run, bytes, which hyperfine 1.19 began to write."""
    return [int(size) if 0 < size < 2**63 else None for size in node.numbers("memory_usage_byte")]


def _cpu_note(node: Node) -> list[str]:
    """Say that the user and system time are means over all runs: no run has its own."""
    found = [(name, node.maybe(name)) for name in ("user", "system")]
    means = [f"{name} {format_time(value.as_number())}" for name, value in found if value is not None]
    return [f"mean CPU time over all runs: {', '.join(means)} (the file holds none per run)"] if means else []


def _exit_note(node: Node) -> list[str]:
    codes = [code.value for code in node.each("exit_codes")]
    bad = [code for code in codes if code != 0]
    if not bad:
        return []
    shown = ", ".join(dict.fromkeys("a signal" if code is None else str(code)[:12] for code in bad))
    return [f"{count(len(bad), 'run')} of {len(codes)} did not exit with 0: {shown}"]


FORMAT = ToolFormat(TOOL, 'hyperfine: "results" that hold "command" and "mean"', _recognises, _read)
