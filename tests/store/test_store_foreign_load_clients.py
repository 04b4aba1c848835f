"""Files of clients that load servers: one run is the replicate, failed requests leave no time, waiting counts."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

import pytest
from foreign_files import case_of, document, fault_of_changed, take_changed, take_fixture

from aiperf.analysis.notes import note_sentences
from aiperf.store.importers.keep import Imported

FROM_SENDING = "its times count from sending"


def values(imported: Imported) -> dict[str, float]:
    return {record.case.title.rsplit(" ", 1)[-1]: record.summaries[0].value for record in imported.records}


def said(imported: Imported) -> str:
    return " ".join(note_sentences(imported.records[0]))


def test_requests_of_vllm_count_from_their_arrival_and_failed_ones_are_left_out(tmp_path: Path) -> None:
    imported = take_fixture("vllm_bench.json", tmp_path)
    found = values(imported)
    assert found["ttft"] == pytest.approx((0.05 + 0.08 + 0.17) / 3)
    assert found["end_to_end"] == pytest.approx((0.08 + 0.106 + 0.21) / 3)
    assert found["inter_token"] == pytest.approx((0.015 + 0.013 + 0.02) / 3)
    record = imported.records[0]
    assert (record.replicate, len(record.pairs), len(record.pairs[0].samples)) == ("run", 1, 3)
    assert record.case.axes == {"request_rate": "8.0", "max_concurrency": "2"}
    assert "1 request failed and left no time" in said(imported)
    assert FROM_SENDING not in said(imported)


def test_an_older_file_of_vllm_counts_from_sending_and_that_is_said(tmp_path: Path) -> None:
    changed = document("vllm_bench.json")
    del changed["queue_times"], changed["latencies"]
    imported = take_changed("vllm_bench.json", changed, tmp_path)
    assert values(imported)["end_to_end"] == pytest.approx((0.08 + 0.086 + 0.11) / 3)
    assert FROM_SENDING in said(imported)


def test_lists_of_other_requests_are_a_damaged_file(tmp_path: Path) -> None:
    changed = document("vllm_bench.json")
    changed["ttfts"].pop()
    fault = fault_of_changed("vllm_bench.json", changed, tmp_path)
    assert "are not of the same requests" in fault.what


def test_requests_of_guidellm_count_from_the_time_that_was_targeted_where_it_is_known(tmp_path: Path) -> None:
    found = values(take_fixture("guidellm.json", tmp_path))
    changed = document("guidellm.json")
    requests = changed["benchmarks"][0]["requests"]["successful"]
    assert found["end_to_end"] == pytest.approx(fmean(r["request_scheduled_latency"] for r in requests))
    first = [r["time_to_first_token_ms"] / 1000 + r["request_dispatch_delay"] for r in requests]
    assert found["ttft"] == pytest.approx(fmean(first))
    assert found["inter_token"] == pytest.approx(fmean(r["inter_token_latency_ms"] for r in requests) / 1000)
    for request in changed["benchmarks"][0]["requests"]["successful"]:
        request["request_scheduled_latency"] = None
    imported = take_changed("guidellm.json", changed, tmp_path)
    assert values(imported)["end_to_end"] == pytest.approx(fmean(r["request_latency"] for r in requests))
    assert FROM_SENDING in said(imported)


def test_records_of_nvidias_aiperf_are_read_line_by_line(tmp_path: Path) -> None:
    imported = take_fixture("nvidia_aiperf.jsonl", tmp_path)
    found = values(imported)
    assert found["ttft"] == pytest.approx((0.2559 + 0.0049) / 2)
    assert found["end_to_end"] == pytest.approx((0.2975 + 0.0449) / 2)
    assert case_of(imported, "ttft").status == "imported"
    assert "1 request failed and left no time" in said(imported)
