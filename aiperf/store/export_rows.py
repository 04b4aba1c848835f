"""The rows and columns of an export: tidy, one comparison, case, sample or reading a row, raw numbers in SI units.

What must not live here: files and their formats.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

from aiperf.records import CaseRecord, Pair, Result, RunRecord, Sample, Summary
from aiperf.scenario.text import axis_text
from aiperf.store.telemetry_rows import telemetry_numbers
from aiperf.store.view_rows import told

What = Literal["comparisons", "samples", "latencies", "cases", "telemetry"]
Row = dict[str, Any]

AXIS = "axis."
"""Begins the column of an axis; there is one for every axis of any exported case."""
_RUN = {"run": "text", "started": "text", "host_id": "text", "hostname": "text", "git_sha": "text", "git_diff": "text"}
_CASE = {"scenario": "text", "case": "text", "status": "text", "replicate": "text", "precision": "text"}
_OF_KIND: dict[What, dict[str, str]] = {
    "comparisons": {
        "metric": "text",
        "unit": "text",
        "better": "text",
        "headline": "flag",
        "side": "text",
        "against": "text",
        "before": "number",
        "after": "number",
        "ratio": "number",
        "low": "number",
        "high": "number",
        "alpha": "number",
        "pairs": "whole",
        "sd": "number",
        "mde": "number",
        "pairs_needed": "whole",
        "threshold": "number",
        "verdict": "text",
        "reason": "text",
        "sentence": "text",
        "provisional": "flag",
    },
    "cases": {
        "title": "text",
        "clock": "text",
        "cache": "text",
        "isolation": "text",
        "pairs": "whole",
        "void_pairs": "whole",
        "stop": "text",
        "reason": "text",
        "notes": "text",
        "threshold": "number",
        "alpha": "number",
        "scale": "number",
        "seconds": "number",
        "own_seconds": "number",
        "case_started": "text",
        "case_finished": "text",
    },
    "samples": {
        "slot": "whole",
        "pair": "whole",
        "void": "flag",
        "position": "whole",
        "pair_started": "number",
        "side": "text",
        "round": "whole",
        "index": "whole",
        "iterations": "whole",
        "wall_s": "number",
        "device_s": "number",
        "user_s": "number",
        "system_s": "number",
        "peak_bytes": "whole",
        "audit": "flag",
    },
    "latencies": {
        "slot": "whole",
        "pair": "whole",
        "void": "flag",
        "side": "text",
        "round": "whole",
        "index": "whole",
        "audit": "flag",
        "unit": "whole",
        "latency_s": "number",
    },
    "telemetry": {
        "slot": "whole",
        "pair": "whole",
        "void": "flag",
        "mark": "text",
        "kind": "text",
        "name": "text",
        "value": "number",
    },
}
_SAMPLE = tuple(name for name in _OF_KIND["samples"] if name in Sample.__dataclass_fields__)


def columns_of(what: What, axes: Iterable[str]) -> dict[str, str]:
    """Column -> kind (text, whole, number, flag) in the order of the file."""
    return {**_RUN, **_CASE, **{AXIS + name: "text" for name in axes}, **_OF_KIND[what]}


def case_rows(run: RunRecord, record: CaseRecord, what: What, *, clean: Callable[[str], str]) -> Iterator[Row]:
    """Yield the rows of one case; ``samples`` needs its pairs with theirs. What was not measured is None.

    ``clean`` makes any text fit for one line.
    """
    lead = {**_run_cells(run), **_case_cells(record)}
    found = _OF_RECORD[what](record)
    for row in found:
        yield {key: _cell(value, clean) for key, value in {**lead, **row}.items()}


def _cell(value: Any, clean: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return clean(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _run_cells(run: RunRecord) -> Row:
    if not run.known:
        return {**dict.fromkeys(_RUN), "run": run.run}
    return {
        "run": run.run,
        "started": run.started,
        "host_id": run.host_id,
        "hostname": str(run.host.get("hostname") or ""),
        "git_sha": run.git.get("sha", ""),
        "git_diff": run.git.get("diff", ""),
    }


def _case_cells(record: CaseRecord) -> Row:
    case = record.case
    lead = {
        "scenario": case.scenario,
        "case": case.id,
        "status": record.status,
        "replicate": record.replicate,
        "precision": record.precision,
    }
    return lead | {AXIS + name: axis_text(value) for name, value in case.axes.items()}


def _comparisons(record: CaseRecord) -> Iterator[Row]:
    yield from (_comparison(record, result) for result in record.results)
    yield from (_value(record, summary) for summary in record.summaries)
    if not record.results and not record.summaries:
        yield {"reason": _reason(record)}


def _comparison(record: CaseRecord, result: Result) -> Row:
    found = result.comparison
    named = ("metric", "unit", "better", "ratio", "low", "high", "alpha", "pairs", "sd", "mde", "pairs_needed")
    return {name: getattr(found, name) for name in named} | {
        "headline": result.headline,
        "side": result.side,
        "against": result.against,
        "before": found.before.value,
        "after": found.after.value,
        "threshold": result.verdict.threshold,
        **told(record, result),
    }


def _value(record: CaseRecord, summary: Summary) -> Row:
    """An imported side: its value under ``after``, the spread of its logs under ``sd``; no side is against it."""
    return {
        "metric": "time",
        "unit": "s",
        "better": "lower",
        "headline": True,
        "side": summary.side,
        "after": summary.value,
        "pairs": sum(summary.side in pair.order for pair in record.pairs),
        "sd": summary.log_sd,
        "sentence": "; ".join(record.notes),
    }


def _case(record: CaseRecord) -> Iterator[Row]:
    measure, ours = record.case.measure, "imported" not in (record.status, record.precision)
    yield {
        "title": record.case.title,
        "clock": measure.clock,
        "cache": measure.cache,
        "isolation": measure.isolation,
        "pairs": len(record.pairs),
        "void_pairs": sum(p.void for p in record.pairs),
        "stop": record.stop,
        "reason": _reason(record),
        "notes": "; ".join(record.notes),
        "threshold": record.threshold if ours else None,
        "alpha": record.alpha if ours else None,
        "scale": record.scale if ours else None,
        "seconds": record.seconds,
        "own_seconds": record.own_seconds if ours else None,
        "case_started": record.started,
        "case_finished": record.finished,
    }


def _reason(record: CaseRecord) -> str:
    if record.failure is not None:
        return ", ".join(p for p in (record.failure.side, record.failure.phase, record.failure.message) if p)
    return record.skip_reason


def _samples(record: CaseRecord) -> Iterator[Row]:
    for slot, pair in enumerate(record.pairs):
        yield from _pair_samples(slot, pair)


def _pair_samples(slot: int, pair: Pair) -> Iterator[Row]:
    lead = {"slot": slot, "pair": pair.index, "void": pair.void, "pair_started": pair.started or None}
    places = {side: place for place, side in enumerate(pair.order)}
    for sample in pair.samples:
        own = {name: getattr(sample, name) for name in _SAMPLE}
        yield {**lead, "position": places.get(sample.side), **own}


def _latencies(record: CaseRecord) -> Iterator[Row]:
    """How long each unit of work took, in the turn that the named sample ends."""
    for slot, pair in enumerate(record.pairs):
        lead = {"slot": slot, "pair": pair.index, "void": pair.void}
        for sample in pair.samples:
            own = {name: getattr(sample, name) for name in ("side", "round", "index", "audit")}
            for unit, seconds in enumerate(sample.latencies_s):
                yield {**lead, **own, "unit": unit, "latency_s": seconds}


def _telemetry(record: CaseRecord) -> Iterator[Row]:
    for slot, pair in enumerate(record.pairs):
        lead = {"slot": slot, "pair": pair.index, "void": pair.void}
        for kind, mark, name, value in telemetry_numbers(pair):
            yield {**lead, "mark": mark, "kind": kind, "name": name, "value": value}


_OF_RECORD: dict[What, Callable[[CaseRecord], Iterator[Row]]] = {
    "comparisons": _comparisons,
    "cases": _case,
    "samples": _samples,
    "latencies": _latencies,
    "telemetry": _telemetry,
}
