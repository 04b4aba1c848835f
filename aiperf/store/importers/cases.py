"""A foreign benchmark as a case record: one side, a pair for every replicate, and its summary.

What must not live here: any tool's format, files.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from aiperf.analysis.imported import block_size, mean_summary, summary_of
from aiperf.analysis.pairs import ComparisonError
from aiperf.plan.cases import case_id
from aiperf.records import Case, CaseRecord, Failure, Measure, Note, Pair, Sample, Side, text_notes
from aiperf.store.importers.common import Benchmark, Foreign, Replicate, Timing

SIDE = "after"
"""The one side of an imported case: the code as it was then."""
PRECISION = "imported"
"""Stands in the place of the precision with which aiperf measured."""
_LONGEST = 100


def case_records(foreign: Foreign, *, host_id: str) -> tuple[CaseRecord, ...]:
    """Turn every benchmark of a file into a record with an id of its own."""
    built = [(benchmark, _case(foreign, benchmark)) for benchmark in foreign.benchmarks]
    often = Counter(case.id for _, case in built)
    records, seen = [], Counter[str]()
    for benchmark, case in built:
        own = case if often[case.id] == 1 else _distinct(case, benchmark, seen)
        records.append(_record(foreign, benchmark, own, host_id=host_id))
    return tuple(records)


def safe_name(name: str) -> str:
    """Make a scenario's name of a benchmark's: what a file name or a shell would not take becomes a dash."""
    dashed = "".join(c if c.isascii() and (c.isalnum() or c in "_.") else "-" for c in name)
    short = "-".join(part for part in dashed.split("-") if part).strip(".-")
    if len(short) > _LONGEST:
        return f"{short[:_LONGEST]}-{_mark(name)}"
    return short or f"benchmark-{_mark(name)}"


def _mark(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:6]


def _case(foreign: Foreign, benchmark: Benchmark) -> Case:
    name = safe_name(benchmark.base or benchmark.name)
    identity = "\n".join((foreign.tool, benchmark.base or benchmark.name, repr(benchmark.axes)))
    axes = {safe_name(key): value for key, value in benchmark.axes.items()}
    return Case(
        scenario=name,
        id=case_id(name, axes),
        title=benchmark.name,
        why=f"Measured and reported by {foreign.source}, not by aiperf.",
        sides=(Side(SIDE),),
        axes=axes,
        measure=Measure(clock="device" if benchmark.device else "wall"),
        tags=("imported", foreign.tool),
        scenario_hash=hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()[:12],
    )


def _distinct(case: Case, benchmark: Benchmark, seen: Counter[str]) -> Case:
    """Distinguish benchmarks with the same id: by a hash of the name, and by a number where that is one too."""
    marked = f"{case.scenario}-{_mark(f'{benchmark.name} {benchmark.axes}')}"
    seen[marked] += 1
    name = marked if seen[marked] == 1 else f"{marked}-{seen[marked]}"
    return replace(case, scenario=name, id=case_id(name, case.axes))


def _record(foreign: Foreign, benchmark: Benchmark, case: Case, *, host_id: str) -> CaseRecord:
    bare = CaseRecord(
        case=case,
        status="imported",
        precision=PRECISION,
        replicate=benchmark.unit,
        notes=(*_own_figures(foreign, benchmark), *text_notes((*benchmark.notes, *foreign.notes))),
        host_id=host_id,
        started=foreign.started.isoformat(timespec="seconds") if foreign.started else "",
        finished=foreign.finished.isoformat(timespec="seconds") if foreign.finished else "",
    )
    if benchmark.failed:
        return replace(bare, status="failed", failure=Failure(SIDE, "measure", "error", benchmark.failed))
    if benchmark.skipped:
        return replace(bare, status="skipped", skip_reason=f"{foreign.tool}: {benchmark.skipped}")
    try:
        return _measured(bare, benchmark)
    except ComparisonError as error:
        return replace(bare, status="skipped", skip_reason=f"{foreign.tool}: {error}")


def _measured(bare: CaseRecord, benchmark: Benchmark) -> CaseRecord:
    pairs = pairs_of(benchmark, SIDE)
    if not pairs and benchmark.summary is not None:
        given = benchmark.summary
        summary = mean_summary(given.mean, low=given.low, high=given.high, samples=given.samples)
        return replace(bare, summaries=(summary,))
    spent = sum(p.seconds for p in pairs if math.isfinite(p.seconds))
    notes = (*bare.notes, *text_notes(_block_note(benchmark)))
    return replace(bare, pairs=pairs, summaries=(summary_of(pairs, bare.case),), notes=notes, seconds=spent)


def _own_figures(foreign: Foreign, benchmark: Benchmark) -> tuple[Note, ...]:
    """Keep what the tool itself states beside the summary, which is computed here."""
    own = benchmark.own
    if own is None:
        return ()
    values = {"tool": foreign.tool, "mean": own.mean, "median": own.median, "n": own.n, "unit": own.unit}
    return (Note("source_figures", values | {"others": list(own.others)}),)


def _block_note(benchmark: Benchmark) -> list[str]:
    """Say that a block is the replicate; not in ``replicate``, so that files with other sizes of blocks compare."""
    number = len(benchmark.replicates)
    size = block_size(number)
    return [f"{number} {benchmark.unit}s in blocks of {size}: a block is the replicate"] if size > 1 else []


def pairs_of(benchmark: Benchmark, side: str, *, first: int = 0) -> tuple[Pair, ...]:
    """Build a pair of one side for every replicate, or block of replicates; indices count from ``first``."""
    size = block_size(len(benchmark.replicates))
    starts = range(0, len(benchmark.replicates), size)
    chunks = [benchmark.replicates[at : at + size] for at in starts]
    return tuple(_pair(chunk, first + place, side, device=benchmark.device) for place, chunk in enumerate(chunks))


def _pair(replicates: Sequence[Replicate], index: int, side: str, *, device: bool) -> Pair:
    taken = [(place, timing) for place, replicate in enumerate(replicates) for timing in replicate.timings]
    samples = tuple(_sample(t, side, place, i, device=device) for i, (place, t) in enumerate(taken))
    stated = sum(r.seconds for r in replicates if math.isfinite(r.seconds))
    seconds = stated or sum(t.seconds * t.iterations for _, t in taken)
    return Pair(index, (side,), seed=0, samples=samples, runs=(), started=replicates[0].started, seconds=seconds)


def _sample(timing: Timing, side: str, place: int, index: int, *, device: bool) -> Sample:
    seconds = timing.seconds * timing.iterations
    # Sample.wall_s is never None; a wall time that the tool did not read is not a number.
    wall, on_device = (math.nan, seconds) if device else (seconds, None)
    return Sample(side, place, index, timing.iterations, wall, device_s=on_device, peak_bytes=timing.peak_bytes)
