"""The view of what was read of the host: every number once, with its mark, and only what the pair holds."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from factory_of_runs import make_measured, voided, write_run

from aiperf.records import CaseRecord, Watch
from aiperf.store.query import ask


def watched() -> CaseRecord:
    record = make_measured("copy[size=1MiB]", pairs=2)
    first, second = record.pairs
    telemetry = {"before": {"sm_clock_mhz": 1980.0}, "warm-up of after": {"power_w": 400.0}, "": {"load": math.nan}}
    runs = tuple(replace(r, usage={"iterations": 10.0, "minor_faults": 3.0}) for r in first.runs if r.side == "after")
    first = replace(first, telemetry=telemetry, runs=runs, watch=Watch(0.002, (1,), {}, {"GPU 0": 41.0}))
    return replace(record, pairs=(first, replace(second, telemetry={}, runs=(), watch=Watch())))


def rows(record: CaseRecord, folder: Path) -> list[dict[str, object]]:
    results = folder / "results"
    write_run(results, [record])
    with ask("FROM telemetry", results=results) as answer:
        return [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]


def test_every_number_of_a_pair_is_a_row_with_its_mark(tmp_path: Path) -> None:
    found = rows(watched(), tmp_path)
    assert [(r["slot"], r["mark"], r["kind"], r["name"], r["value"]) for r in found] == [
        (0, "before", "median", "sm_clock_mhz", 1980.0),
        (0, "warm-up of after", "median", "power_w", 400.0),
        (0, "all readings", "median", "load", None),
        (0, "after", "sum", "iterations", 10.0),
        (0, "after", "sum", "minor_faults", 3.0),
        (0, "all readings", "start", "temperature_c of GPU 0", 41.0),
        (0, "all readings", "share", "sampling_cost", 0.002),
    ]
    assert {(r["case"], r["scenario"], r["pair"]) for r in found} == {("copy[size=1MiB]", "copy", 0)}


def test_pairs_that_do_not_count_are_marked(tmp_path: Path) -> None:
    assert {r["void"] for r in rows(voided(watched(), 0), tmp_path)} == {True}
