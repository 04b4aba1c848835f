"""From records to the rows of the views: one function for each view, values as DuckDB takes them.

What must not live here: DuckDB, files, raw samples (they are read where they lie), profiles (view_profiles.py).
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from aiperf.records import CaseRecord, Result
from aiperf.store.codec import number, to_plain
from aiperf.store.history import ScannedRun
from aiperf.store.light import Light
from aiperf.store.telemetry_rows import telemetry_rows
from aiperf.store.views import CASES, COMPARISONS, COUNTERS, FINDINGS, RUNS, TELEMETRY

Run = ScannedRun[Light]
Row = dict[str, Any]
_UNDECODED = re.compile("[\ud800-\udfff]")


def run_rows(run: Run) -> Iterator[Row]:
    """One row for a run."""
    record = run.record
    found = {"run": run.folder.name, "status": record.status, "cases": len(run.cases), "folder": str(run.folder)}
    if not record.known:
        yield {**dict.fromkeys(column.name for column in RUNS.columns), **found}
        return
    yield {
        **found,
        "started": _time(record.started),
        "finished": _time(record.finished),
        "precision": record.precision,
        "seed": record.seed,
        "argv": shlex.join(record.argv),
        "host": record.host.get("hostname"),
        "host_id": record.host_id,
        "gpus": [str(gpu.get("name", "")) for gpu in record.host.get("gpus") or [] if isinstance(gpu, dict)],
        "software": json_text(record.software),
        "git": json_text(record.git),
        "settings": json_text(record.settings),
        "planned": len(record.planned),
    }


def case_rows(run: Run) -> Iterator[Row]:
    """One row for each case of a run."""
    for _, light in run.cases:
        record, failure = light.record, light.record.failure
        yield {
            **_keys(run, record),
            "title": record.case.title,
            "axes": json_text(record.case.axes),
            "tags": list(record.case.tags),
            "expect": record.case.expect or None,
            "status": record.status,
            "stop": record.stop or None,
            "skip_reason": record.skip_reason or None,
            "failure_kind": failure.kind if failure else None,
            "failure_side": failure.side if failure else None,
            "failure_phase": failure.phase if failure else None,
            "failure_message": failure.message if failure else None,
            "notes": list(record.notes),
            "pairs": light.pairs,
            "void_pairs": len(light.void),
            "replicate": record.replicate,
            "precision": record.precision,
            "threshold": record.threshold,
            "alpha": record.alpha,
            "seed": record.seed,
            "seconds": record.seconds,
            "own_seconds": record.own_seconds,
            "host_id": record.host_id,
            "started": _time(record.started),
            "finished": _time(record.finished),
        }


def comparison_rows(run: Run) -> Iterator[Row]:
    """One row for each result of each case."""
    started = _time(run.record.started)
    for _, light in run.cases:
        for result in light.record.results:
            row = {**_keys(run, light.record), **_result(light.record, result)}
            yield {**row, "host_id": light.record.host_id, "started": started}


def counter_rows(run: Run) -> Iterator[Row]:
    """One row for each counter of each side of each pair; ``run`` must have been read with its pairs."""
    for _, light in run.cases:
        for slot, pair in enumerate(light.record.pairs):
            for side in pair.runs:
                for name, value in side.counters.items():
                    place = {"slot": slot, "pair": pair.index, "side": side.side}
                    yield {**_keys(run, light.record), **place, "name": name, "value": value}


def finding_rows(run: Run) -> Iterator[Row]:
    """One row for each finding of the run, each that touches a case, and each incident of a pair.

    ``run`` must have been read with its pairs.
    """
    nothing = dict.fromkeys(("case", "scenario", "slot", "pair", "side", "voids"))
    for sentence in run.record.findings:
        yield {"run": run.folder.name, **nothing, "kind": "host", "detail": sentence}
    for _, light in run.cases:
        for sentence in light.record.findings:
            yield {**nothing, **_keys(run, light.record), "kind": "case", "detail": sentence}
    for _, light in run.cases:
        for slot, pair in enumerate(light.record.pairs):
            for incident in pair.incidents:
                place = {"slot": slot, "pair": pair.index, "side": incident.side or None}
                said = {"kind": incident.kind, "voids": incident.voids, "detail": incident.detail}
                yield {**_keys(run, light.record), **place, **said}


ROWS: dict[str, Callable[[Run], Iterator[Row]]] = {
    RUNS.name: run_rows,
    CASES.name: case_rows,
    COMPARISONS.name: comparison_rows,
    COUNTERS.name: counter_rows,
    FINDINGS.name: finding_rows,
    TELEMETRY.name: telemetry_rows,
}
"""View -> what makes its rows of one run."""
WITH_PAIRS = {COUNTERS.name, FINDINGS.name, TELEMETRY.name}
"""Views that need the pairs of a record."""


def json_text(value: Any) -> str:
    """Return ``value`` as the text of a JSON column; a NaN is null, and bytes that were no UTF-8 stand as escapes."""
    text = json.dumps(to_plain(value), ensure_ascii=False, allow_nan=False)
    # DuckDB refuses JSON with half a surrogate pair, even as an escape.
    return _UNDECODED.sub(lambda found: f"\\\\u{ord(found[0]):x}", text)


def _keys(run: Run, record: CaseRecord) -> Row:
    return {"run": run.folder.name, "case": record.case.id, "scenario": record.case.scenario}


def _result(record: CaseRecord, result: Result) -> Row:
    comparison, verdict = result.comparison, result.verdict
    return {
        "metric": comparison.metric,
        "side": result.side,
        "against": result.against,
        "headline": result.headline,
        "unit": comparison.unit,
        "better": comparison.better,
        "before": number(comparison.before.value),
        "after": number(comparison.after.value),
        "ratio": number(comparison.ratio),
        "low": number(comparison.low),
        "high": number(comparison.high),
        "alpha": number(comparison.alpha),
        "sd": number(comparison.sd),
        "pairs": comparison.pairs,
        "pairs_needed": comparison.pairs_needed,
        "mde": number(comparison.mde),
        "second_ratio": number(comparison.second_ratio),
        "threshold": number(verdict.threshold),
        **told(record, result),
    }


def told(record: CaseRecord, result: Result) -> Row:
    """What came of a result: its verdict, or the status of a case that was cut short, which has none."""
    word, verdict = record.outcome(result), result.verdict
    if word != verdict.word:
        return {"verdict": word, "reason": word, "sentence": "", "provisional": False}
    named = ("reason", "sentence", "provisional")
    return {"verdict": word, **{name: getattr(verdict, name) for name in named}}


def _time(text: str) -> datetime | None:
    """UTC without a zone, as DuckDB's TIMESTAMP; None for a text that is no time."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return None
    return when.astimezone(UTC).replace(tzinfo=None) if when.tzinfo else when
