"""Markdown, CSV and JSON only read the table, and say the same as it does."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import fields, replace

from factory_of_records import make_case, make_comparison, make_result, make_run, measured, sample_records
from printed import markdown_of

from aiperf.records import CaseRecord
from aiperf.report.layout.formats import document_json
from aiperf.report.summary import summary_line
from aiperf.report.views.cells import change_text, interval_text, limit_text, speedup_text
from aiperf.report.views.run_rows import RunRow, build_rows
from aiperf.report.views.run_table import run_csv, run_json, run_page

MARKDOWN = """\
## 2026-11-20T18-05-03-gpu-07

host gpu-07 · 2 × NVIDIA H200 · driver 580.159 · torch 2.11+cu130 · 2 host findings  
precision standard · δ 2 % · up to 40 pairs a case · budget 10 m 00 s  

| scenario | case | metric | before | after | speedup | 98.4 % interval | of limit | change | verdict |
| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |
| pageable-vs-pinned-copy | h2d 1MiB | time | 88.1 µs | 31.4 µs | 2.81× | 2.77 … 2.84 | 61 % (h2d, after) | −64.4 % | improved |
| pageable-vs-pinned-copy | h2d 256MiB | time | 15.3 ms | 4.95 ms | 3.10× | 3.05 … 3.13 | 97 % (h2d, after) | −67.7 % | improved |
| pageable-vs-pinned-copy | h2d 256MiB | peak\\_memory | 1.5 GiB | 1.25 GiB | −16.7 % | −17.4 … −16.0 % | – | −16.7 % | improved |
| all-reduce-after-backward-vs-ddp-overlap | ranks=2 | time | 41.2 ms | 40.9 ms | 1.007× | 0.99 … 1.02 | – | −0.70 % | equivalent |
| tip-that-may-help |  | time | 2.00 s | 1.96 s | 1.020× | 0.998 … 1.041 | – | −1.96 % | inconclusive |

- host-bounce-vs-gpudirect-storage: skipped: GPUDirect Storage is not active (nvidia-fs not loaded); aiperf show host-bounce-vs-gpudirect-storage says what it needs
- time-slicing-vs-mps: failed: before, set-up: CUDA out of memory (asked 4.0 GiB, 1.2 GiB free) and more; aiperf show RUN CASE has its stderr

**2 improved · 1 equivalent · 1 inconclusive (needs about 55 pairs) · 1 skipped · 1 failed · 1 m 28 s**
"""  # noqa: E501, W291


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_markdown_is_this_to_the_character() -> None:
    records = sample_records()
    assert markdown_of(run_page(make_run(), build_rows(records), summary=summary_line(records))) == MARKDOWN


def test_markdown_of_nothing_is_its_header_and_summary() -> None:
    text = markdown_of(
        run_page(make_run(host={}, settings={}, findings=()), build_rows([]), summary="nothing measured · 0 s")
    )
    assert text.splitlines() == [
        "## 2026-11-20T18-05-03-gpu-07", "", "host unknown · no GPU  ", "precision standard  ", "",
        "**nothing measured · 0 s**",
    ]  # fmt: skip


def test_text_that_means_something_in_markdown_is_escaped() -> None:
    record = CaseRecord(case=make_case("a|b"), status="skipped", skip_reason="needs `x` <b> *y*")
    text = markdown_of(run_page(make_run(), build_rows([record]), summary="s"))
    assert "- a\\|b: skipped: needs \\`x\\` \\<b> \\*y\\*" in text


def test_csv_has_raw_numbers_in_si_units_and_a_stable_header() -> None:
    rows = rows_of("".join(run_csv(build_rows(sample_records()))))
    assert tuple(rows[0]) == tuple(f.name for f in fields(RunRow))
    assert tuple(rows[0])[:14] == (
        "scenario", "case", "metric", "side", "against", "primary", "unit", "better", "before", "after", "after_spread",
        "ratio", "low", "high",
    )  # fmt: skip
    first, memory, skipped, failed = rows[0], rows[2], rows[5], rows[6]
    assert (float(first["before"]), float(first["after"]), first["unit"]) == (88.1e-6, 31.4e-6, "s")
    assert (first["limit_share"], first["limit_peak"], first["limit_side"]) == ("0.61", "h2d", "after")
    assert (memory["metric"], memory["primary"]) == ("peak_memory", "false")
    assert math.isclose(float(memory["change"]), -1 / 6)
    assert (skipped["status"], skipped["ratio"], skipped["verdict"]) == ("skipped", "", "")
    assert skipped["sentence"].startswith("GPUDirect Storage is not active")
    assert failed["status"] == "failed"


def test_a_change_has_the_sign_of_the_value_and_its_interval_is_in_order() -> None:
    lower = make_comparison(2.0, 1.0, interval=(1.9, 2.1), metric="latency", unit="B")
    higher = make_comparison(1.0, 2.0, interval=(1.9, 2.1), ratio=2.0, better="higher", metric="rate", unit="B/s")
    rows = build_rows([measured(make_case(), make_result(lower), make_result(higher))]).rows
    assert [r.change for r in rows] == [-0.5, 1.0]
    assert rows[0].change_low < rows[0].change < rows[0].change_high
    assert (rows[1].change_low, rows[1].change_high) == (0.8999999999999999, 1.1)
    assert [speedup_text(r) for r in rows] == ["−50.0 %", "+100 %"]


def test_the_limit_of_the_nearest_roof_of_the_side_is_shown_and_before_stands_in() -> None:
    (record, *_) = sample_records()
    before, after = record.limits
    both = build_rows([replace(record, limits=(before, after, replace(after, peak_name="dram", share=0.7)))]).rows[0]
    assert (both.limit_peak, both.limit_side, limit_text(both)) == ("dram", "after", "70 %")
    lone = build_rows([replace(record, limits=(before,))]).rows[0]
    assert (lone.limit_side, limit_text(lone)) == ("before", "22 %")


def test_json_holds_the_run_the_rows_and_the_counts() -> None:
    records = sample_records()
    document = json.loads(run_json(make_run(), build_rows(records), records=records, warnings=["a is damaged"]))
    assert document["schema_version"] == 4
    assert document["run"]["host"]["hostname"] == "gpu-07"
    assert document["outcomes"] == {"improved": 2, "equivalent": 1, "inconclusive": 1, "skipped": 1, "failed": 1}
    assert document["warnings"] == ["a is damaged"]
    assert [row["verdict"] for row in document["rows"]][:3] == ["improved"] * 3
    assert document["rows"][5]["ratio"] is None


def test_an_unbounded_interval_is_null_in_json_empty_in_csv_and_a_dash_in_the_table() -> None:
    wide = make_comparison(1.0, 1.0, interval=(0.0, math.inf), sd=math.nan)
    records = [measured(make_case(), make_result(wide, "inconclusive"))]
    table = build_rows(records)
    assert json.loads(run_json(make_run(), table, records=records))["rows"][0]["high"] is None
    assert rows_of("".join(run_csv(table)))[0]["high"] == ""
    assert (interval_text(table.rows[0]), change_text(table.rows[0])) == ("–", "–")


def test_a_listing_is_a_json_array() -> None:
    assert json.loads(document_json([make_case().sides[0]]))[0]["name"] == "before"
    assert json.loads(document_json([])) == []
