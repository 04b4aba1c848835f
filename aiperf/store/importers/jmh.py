"""JMH's JSON: forks, each a process with its iterations.

What must not live here: other tools, what becomes of the numbers.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

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

TOOL = "jmh"
_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "hr": 3600.0, "day": 86400.0}


@dataclass(frozen=True)
class _Unit:
    seconds: float
    rate: bool
    """``ops/us`` rather than ``us/op``."""

    def time(self, score: float) -> float:
        """Seconds of an operation; 0 for a rate of 0, which ``fault_of`` reports."""
        if not self.rate:
            return score * self.seconds
        return self.seconds / score if score else 0.0


def _recognises(document: Node) -> bool:
    """Whether the document has JMH's outline."""
    found = document.items()
    return bool(found) and all(e.maybe("benchmark") is not None and e.maybe("primaryMetric") is not None for e in found)


def _read(document: Node, _: Path) -> Foreign:
    """Read what ``-rf json`` wrote. Raises ForeignError."""
    entries = document.items()
    modes = defaultdict(set)
    for entry in entries:
        modes[entry.text("benchmark")].add(entry.text("mode"))
    first = entries[0]
    found = {"java": first.text("jdkVersion"), "jvm": first.text("vmName")}
    return Foreign(
        TOOL,
        first.text("jmhVersion"),
        tuple(_benchmark(entry, several_modes=len(modes[entry.text("benchmark")]) > 1) for entry in entries),
        # The file holds neither a date nor anything of the machine.
        software={k: v for k, v in found.items() if v},
    )


def _benchmark(entry: Node, *, several_modes: bool) -> Benchmark:
    name, metric = entry.text("benchmark"), entry["primaryMetric"]
    written = metric.text("scoreUnit")
    axes = {key: entry.members("params").text(key) for key in entry.members("params").value}
    axes |= {"mode": entry.text("mode")} if several_modes else {}
    forks = _forks(metric, _unit(written, metric))
    unit = "fork" if len(forks) > 1 else "iteration"
    replicates = forks if len(forks) > 1 else [Replicate((t,)) for fork in forks for t in fork.timings]
    times = [t.seconds for r in replicates for t in r.timings]
    summary = None if times else ToolSummary(_unit(written, metric).time(metric.number("score")))
    return Benchmark(
        name,
        unit,
        tuple(replicates),
        summary=summary,
        base=name.rpartition(".")[2] if name.count(".") < 2 else ".".join(name.split(".")[-2:]),
        axes=axes,
        own=_figures(metric, written, sum(t.iterations for r in replicates for t in r.timings)),
        notes=_notes(entry, written, unit, bool(times)),
        skipped=fault_of(times or [summary.mean if summary else 0.0]),
    )


def _unit(text: str, metric: Node) -> _Unit:
    over, _, under = text.partition("/")
    if under == "op" and over in _SECONDS:
        return _Unit(_SECONDS[over], rate=False)
    if over == "ops" and under in _SECONDS:
        return _Unit(_SECONDS[under], rate=True)
    raise ForeignError(f"{metric.at}.scoreUnit is {text[:20]!r}, not a time per op or ops per time")


def _forks(metric: Node, unit: _Unit) -> list[Replicate]:
    """A replicate for every fork; of the mode ``sample`` each iteration is the mean of its histogram."""
    plain = [[Timing(unit.time(v.as_number())) for v in fork.items()] for fork in metric.each("rawData")]
    counted = [[_of_histogram(i, unit) for i in fork.items()] for fork in metric.each("rawDataHistogram")]
    return [Replicate(tuple(timings)) for timings in plain or counted if timings]


def _of_histogram(iteration: Node, unit: _Unit) -> Timing:
    total, number = 0.0, 0
    for entry in iteration.items():
        value, *rest = (item.as_number() for item in entry.items() or [entry])
        if len(rest) != 1 or not (rest[0].is_integer() and 0 < rest[0] < 2**40):
            raise entry.wrong("a value and how often it came")
        total, number = total + unit.time(value) * rest[0], number + int(rest[0])
    return Timing(total / number if number else 0.0, max(number, 1))


def _figures(metric: Node, unit: str, readings: int) -> ToolFigures:
    error = metric.maybe_number("scoreError")
    others = () if error is None else (f"error ± {error:.3g} {unit}",)
    middle = metric.members("scorePercentiles").maybe_number("50.0")
    return ToolFigures(metric.maybe_number("score"), middle, readings, unit, others)


def _notes(entry: Node, unit: str, replicate: str, raw: bool) -> tuple[str, ...]:
    threads = entry.fact("threads")
    found = [
        one_process("iteration") if replicate == "iteration" and raw else "",
        f"JMH counts {unit}; the time is that of one operation, its inverse" if unit.startswith("ops/") else "",
        f"it ran on {threads} threads; operations of all of them count" if threads > 1 else "",
        "" if raw else "the file holds no raw data: JMH's score, a value without spread",
    ]
    return tuple(note for note in found if note)


FORMAT = ToolFormat(TOOL, 'JMH: a list of objects with "benchmark" and "primaryMetric"', _recognises, _read)
