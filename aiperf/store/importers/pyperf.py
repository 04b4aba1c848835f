"""pyperf's JSON: its runs are processes, each with several values per loop iteration.

What must not live here: other tools, what becomes of the numbers.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from aiperf.formats.document import Node
from aiperf.store.importers.common import Benchmark, Foreign, Replicate, Timing, ToolFormat, count, fault_of, moment

TOOL, UNIT = "pyperf", "process"


def _recognises(document: Node) -> bool:
    """Whether the document has pyperf's outline."""
    found = document.each("benchmarks")
    return document.maybe("version") is not None and any(b.maybe("runs") is not None for b in found)


def _read(document: Node, _: Path) -> Foreign:
    """Read a suite of pyperf 0.9.6 or newer. Raises ForeignError."""
    benchmarks, facts = [], []
    for node in document.each("benchmarks"):
        runs = [Node(_merged(run, node, document), run.at) for run in node.each("runs")]
        facts += runs
        benchmarks.append(_benchmark(runs, node))
    metadata = facts[0] if facts else document.members("metadata")
    dates = [moment(run.text("date")) for run in facts]
    known = [date for date, _ in dates if date]
    last = facts[-1].maybe("duration") if facts else None
    lasted = timedelta(seconds=min(max(0.0, last.as_number()), 1e6)) if last else timedelta()
    return Foreign(
        TOOL,
        metadata.text("perf_version"),
        tuple(benchmarks),
        started=min(known, default=None),
        finished=max(known) + lasted if known else None,
        hostname=metadata.text("hostname"),
        machine=_machine(metadata),
        software=_software(metadata),
        notes=tuple(dict.fromkeys(note for _, note in dates if note)),
    )


def _merged(run: Node, benchmark: Node, suite: Node) -> dict[str, Any]:
    """Merge a run's metadata over its benchmark's and the suite's, which pyperf writes only once; with its values."""
    layers = [owner.members("metadata").value for owner in (suite, benchmark, run)]
    return {
        **layers[0],
        **layers[1],
        **layers[2],
        "values": run.value.get("values"),
        "warmups": run.value.get("warmups"),
    }


def _benchmark(runs: list[Node], node: Node) -> Benchmark:
    name = runs[0].text("name") if runs else ""
    unit = runs[0].text("unit", "second") if runs else "second"
    if unit != "second":
        return Benchmark(name or node.at, UNIT, skipped=f"its unit is {unit}: only times are imported")
    measured = [run for run in runs if run.each("values")]
    replicates = tuple(_process(run) for run in measured)
    times = [t.seconds for r in replicates for t in r.timings]
    warm = sum(len(run.each("warmups")) for run in measured)
    left_out = [f"{count(warm, 'warm-up value')} left out"] if warm else []
    if calibrating := len(runs) - len(measured):
        left_out.append(f"{count(calibrating, 'calibration run')} left out")
    return Benchmark(name or node.at, UNIT, replicates, notes=tuple(left_out), skipped=fault_of(times))


def _process(run: Node) -> Replicate:
    loops = run.whole("loops") * run.whole("inner_loops")
    if loops >= 2**63:
        raise run["loops"].wrong("a number of loops that fits with inner_loops into a whole number")
    peak = run.fact("mem_max_rss") or None
    date, _ = moment(run.text("date"))
    lasted = run.maybe("duration")
    return Replicate(
        tuple(Timing(seconds, loops, peak) for seconds in run.numbers("values")),
        started=date.timestamp() if date else 0.0,
        seconds=lasted.as_number() if lasted else 0.0,
    )


def _machine(metadata: Node) -> dict[str, Any]:
    cpus = metadata.fact("cpu_count")
    return {k: v for k, v in (("cpu_model", metadata.text("cpu_model_name")), ("cpus", cpus)) if v}


def _software(metadata: Node) -> dict[str, str]:
    version = metadata.text("python_version").split(" ")[0]
    found = (("python", version), ("python_implementation", metadata.text("python_implementation")))
    return {key: value for key, value in found if value}


FORMAT = ToolFormat(TOOL, 'pyperf: "benchmarks" that hold "runs", and "version"', _recognises, _read)
