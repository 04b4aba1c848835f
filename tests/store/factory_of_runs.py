"""Folders full of small runs, written by the store itself.

What must not live here: tests.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from factory_of_stored_records import make_record

from aiperf.records import CaseRecord, Comparison, HostFinding, Incident, Result, RunRecord, Summary, Verdict
from aiperf.store.write import RunWriter

BEGUN = datetime(2026, 11, 20, 18, 0, 0)


def make_result(*, ratio: float = 2.0, word: str = "improved", metric: str = "time", **changes: Any) -> Result:
    before = Summary("before", 4.0, 3.9, 4.1, 12, 0, 0.0, 0.01)
    after = Summary("after", 4.0 / ratio, 1.9, 2.1, 12, 1, 0.1, 0.01)
    given: dict[str, Any] = {
        "metric": metric,
        "unit": "s",
        "better": "lower",
        "before": before,
        "after": after,
        "pairs": 6,
        "ratio": ratio,
        "low": ratio - 0.1,
        "high": ratio + 0.1,
        "alpha": 0.0158,
        "sd": 0.01,
        "position": 0.001,
        "position_low": -0.01,
        "position_high": 0.01,
        "mde": 0.012,
        "pairs_needed": None,
        "second_ratio": ratio,
        "second_low": None,
        "second_high": None,
        "log_ratios": (0.6, 0.7, 0.8),
    }
    verdict = Verdict(word, "beyond_threshold", f"it is {word}", threshold=0.02)  # type: ignore[arg-type]
    return Result("after", "before", Comparison(**(given | changes)), verdict, primary=metric == "time")


def make_measured(case_id: str = "copy[size=1MiB]", *, ratio: float = 2.0, pairs: int = 6) -> CaseRecord:
    """A record with pairs, samples, counters and two results."""
    record = make_record(case_id, pairs=pairs)
    counted = tuple(
        replace(pair, runs=tuple(replace(run, counters={"launches": 10.0 + pair.index}) for run in pair.runs))
        for pair in record.pairs
    )
    case = replace(record.case, axes={"size": "1MiB"}, tags=("memory",))
    results = (make_result(ratio=ratio), make_result(metric="peak_memory", unit="B"))
    return replace(record, case=case, pairs=counted, results=results, stop="verdict", host_id="h-1", seed=7)


def voided(record: CaseRecord, runner: int) -> CaseRecord:
    """The record with an incident that takes the pair at ``slot`` out."""
    pair = replace(record.pairs[runner], incidents=(Incident("thermal", "after", "hot: 91 C", voids=True),))
    return replace(record, pairs=(*record.pairs[:runner], pair, *record.pairs[runner + 1 :]))


def write_run(results: Path, records: Sequence[CaseRecord] = (), *, hour: int = 0, **changes: Any) -> Path:
    """Write one run that began ``hour`` hours after the first; its folder."""
    began = BEGUN + timedelta(hours=hour)
    writer = RunWriter.create(results, hostname="gpu-07", now=began)
    given: dict[str, Any] = {
        "run": writer.name,
        "argv": ("aiperf", "run", "memory"),
        "started": f"{began.isoformat()}+00:00",
        "status": "finished",
        "host": {"hostname": "gpu-07", "gpus": [{"name": "a GPU"}]},
        "host_id": "h-1",
        "findings": (HostFinding("hpc-kernel-governor", "warn", "Frequency governor", "powersave"),),
        "planned": tuple(record.case.id for record in records),
    }
    for record in records:
        writer.write_case(record)
    writer.write_run(RunRecord(**(given | changes)))
    return writer.folder


def laid_out_otherwise(path: Path) -> None:
    """Write a JSON file again as another tool would."""
    path.write_text(json.dumps(json.loads(path.read_bytes())))
