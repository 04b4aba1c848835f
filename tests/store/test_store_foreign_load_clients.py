"""Files of clients that load servers: one run is the replicate, failed requests leave no time, waiting counts."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from foreign_files import FOLDER, case_of, document, fault_of_changed, take_changed, take_fixture

from aiperf.analysis.notes import note_sentences
from aiperf.formats.load_clients import read_client
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


def test_records_of_nvidias_aiperf_are_read_without_the_warm_up_and_by_the_servers_count_of_tokens(
    tmp_path: Path,
) -> None:
    imported = take_fixture("nvidia_aiperf.jsonl", tmp_path)
    lines = (FOLDER / "nvidia_aiperf.jsonl").read_text(encoding="utf-8").splitlines()
    kept = [json.loads(line) for line in lines if '"benchmark_phase":"profiling"' in line and '"error"' not in line]
    assert (len(lines), len(kept)) == (7, 3)

    def mean(name: str) -> float:
        return fmean(record["metrics"][name]["value"] for record in kept) / 1000

    found = values(imported)
    assert found["ttft"] == pytest.approx(mean("time_to_first_token"))
    assert found["end_to_end"] == pytest.approx(mean("request_latency"))
    # Six tokens by the server; the client's own tokenizer found two to three times as many.
    assert found["inter_token"] == pytest.approx(mean("decode_duration") / 5, rel=1e-3)
    assert mean("inter_token_latency") < 0.5 * found["inter_token"]
    assert case_of(imported, "ttft").status == "imported"
    assert "2 requests failed and left no time" in said(imported)
    read = read_client("\n".join(lines).encode())
    assert read is not None
    (run,) = read.runs
    assert [request.tokens for request in run.answered] == [6, 6, 6]
    assert run.answered[0].gaps == pytest.approx([gap / 1000 for gap in chunks(kept[0])])
    assert {request.error for request in run.requests} == {"", '{"error": {"message": "the engine gave up"}}'}


def chunks(record: dict[str, Any]) -> list[float]:
    found: list[float] = record["metrics"]["inter_chunk_latency"]["value"]
    return found


def test_without_the_servers_count_nvidias_aiperf_counts_by_its_own_tokenizer(tmp_path: Path) -> None:
    record = json.loads((FOLDER / "nvidia_aiperf.jsonl").read_text(encoding="utf-8").splitlines()[2])
    del record["metrics"]["usage_completion_tokens"]
    read = read_client(json.dumps(record).encode())
    assert read is not None
    (request,) = read.runs[0].requests
    assert (request.tokens, request.gaps) == (17, ()), "chunks are not tokens"
    assert request.inter_token == pytest.approx(record["metrics"]["inter_token_latency"]["value"] / 1000)


def test_requests_of_genai_perf_are_timed_by_the_chunks_that_hold_text(tmp_path: Path) -> None:
    imported = take_fixture("genai_perf.json", tmp_path)
    found = values(imported)
    # The second one has two chunks in one response and one in two, and the server counted four tokens in it.
    assert found["ttft"] == pytest.approx((0.05 + 0.07) / 2)
    assert found["end_to_end"] == pytest.approx((0.08 + 0.08) / 2)
    assert found["inter_token"] == pytest.approx((0.03 / 2 + 0.01 / 3) / 2)
    record = imported.records[0]
    assert (record.case.axes, len(record.pairs[0].samples)) == ({"concurrency": "2"}, 2)
    assert imported.source == "genai-perf with Perf Analyzer 2.56.0"
    assert "1 request failed and left no time" in said(imported)
    assert FROM_SENDING in said(imported)


def test_each_load_of_genai_perf_is_a_run_of_its_own_and_whole_answers_have_no_first_token(tmp_path: Path) -> None:
    changed = document("genai_perf.json")
    (first,) = changed["experiments"]
    whole = {
        "object": "chat.completion",
        "choices": [{"message": {"content": "a b"}}],
        "usage": {"completion_tokens": 2},
    }
    answer = {"timestamp": 10**18, "response_timestamps": [10**18 + 7_000_000], "request_inputs": {}}
    answer["response_outputs"] = [{"response": json.dumps(whole, indent=1)}]
    other = {"experiment": {"mode": "request_rate", "value": 2.5}, "requests": [answer], "window_boundaries": []}
    changed["experiments"] = [first, other]
    imported = take_changed("genai_perf.json", changed, tmp_path)
    titles = [record.case.title for record in imported.records if record.status == "imported"]
    assert titles == [
        *(f"genai-perf concurrency 2 {name}" for name in ("ttft", "inter_token", "end_to_end")),
        "genai-perf request_rate 2.5 end_to_end",
    ]
    assert imported.records[-1].summaries[0].value == pytest.approx(0.007)


def test_the_tokens_of_triton_servers_are_the_responses_of_genai_perf(tmp_path: Path) -> None:
    changed = document("genai_perf.json")
    changed["service_kind"] = "triton"
    requests = changed["experiments"][0]["requests"]
    for request in requests:
        request["response_outputs"] = [{"text_output": "a"} for _ in request["response_outputs"]]
    found = values(take_changed("genai_perf.json", changed, tmp_path))
    assert found["ttft"] == pytest.approx((0.04 + 0.07 + 0.03) / 3)
    assert found["end_to_end"] == pytest.approx((0.082 + 0.092 + 0.031) / 3)


@pytest.mark.parametrize(
    ("key", "value", "what"),
    [
        ("response_timestamps", [1], "response_timestamps and response_outputs are not of the same responses"),
        ("timestamp", 1.5, "experiments[0].requests[0].timestamp is 1.5, not a time in nanoseconds"),
        ("timestamp", None, "experiments[0].requests[0] has no timestamp"),
    ],
)
def test_a_damaged_file_of_genai_perf_is_refused_with_the_place(
    tmp_path: Path, key: str, value: object, what: str
) -> None:
    changed = document("genai_perf.json")
    changed["experiments"][0]["requests"][0][key] = value
    assert what in fault_of_changed("genai_perf.json", changed, tmp_path).what
