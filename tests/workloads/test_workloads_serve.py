"""serve.load against small real servers: what is sent when, what is timed from when, what is refused and why."""

from __future__ import annotations

import json
import os
import re
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from aiperf.workloads.contract import Context, Workload
from aiperf.workloads.serve.client import Endpoint, send
from aiperf.workloads.serve.judge import latency, series
from aiperf.workloads.serve.server import Server, ServerFault
from aiperf.workloads.serve.trace import Arrival, TraceError, known_share, make_segments, read_trace
from aiperf.workloads.serve.workload import load

SERVER = Path(__file__).resolve().parents[1] / "programs" / "openai_server.py"
TRACE = {"arrivals": "constant", "rate": 100.0, "requests": 12, "prompt_tokens": 6, "output_tokens": 4}


def command(*options: str) -> str:
    return " ".join([sys.executable, str(SERVER), "--port", "{port}", *options])


@contextmanager
def running(tmp_path: Path, *options: str) -> Iterator[Server]:
    server = Server.start(command(*options), port=0, log=tmp_path / "log")
    try:
        server.await_ready("/health", 20)
        yield server
    finally:
        server.end()


@contextmanager
def loaded(tmp_path: Path, *options: str, seed: int = 1, **params: Any) -> Iterator[Workload]:
    """A side under load, which is closed; the CPUs of this process stay as they were."""
    given = {"trace": TRACE, "server": command(*options), "segments": 2, "warmup": 2, **params}
    affinity = os.sched_getaffinity(0)
    try:
        workload = load(Context(seed=seed, scratch=tmp_path, shared_scratch=tmp_path), **given)
        try:
            yield workload
        finally:
            assert workload.close is not None
            workload.close()
    finally:
        os.sched_setaffinity(0, affinity)


def play(workload: Workload) -> dict[str, float]:
    """Warm up and play every turn, as a worker does; the mean of the turns' values."""
    for _ in range(2):
        workload.step()
    turns = []
    for _ in range(workload.rounds):
        workload.step()
        assert workload.values is not None
        turns.append(workload.values())
    return {name: fmean(turn[name] for turn in turns) for name in turns[0]}


def test_latency_of_a_server_below_the_rate_grows_with_its_queue(tmp_path: Path) -> None:
    arrivals = [Arrival(0.1 * number, "a b", 2) for number in range(8)]
    with running(tmp_path, "--service", "0.5", "--slots", "1") as server:
        sent = send(arrivals, Endpoint(server.base, "small"), timeout=20)
    found = [latency(request, "end_to_end") or 0.0 for request in sent.requests]
    # 0.5 s of service for each that is before it, less 0.1 s between arrivals: 0.5, 0.9, ... 3.3 s.
    assert 1.9 <= fmean(found) <= 2.0


def test_latency_counts_from_the_schedule_also_for_requests_that_wait_for_a_connection(tmp_path: Path) -> None:
    arrivals = [Arrival(0.02 * number, "a b", 2) for number in range(6)]
    with running(tmp_path, "--service", "0.1", "--slots", "1") as server:
        sent = send(arrivals, Endpoint(server.base, "small"), timeout=20, concurrency=1)
    # 0.1, 0.18, ... 0.5 s; a client that counts from sending would say 0.1 s.
    assert fmean(latency(request, "end_to_end") or 0.0 for request in sent.requests) >= 0.3
    assert min((r.end or 0) - (r.sent or 0) for r in sent.requests) < 0.2


def test_every_token_is_noted_with_its_time_and_the_servers_count(tmp_path: Path) -> None:
    with running(tmp_path, "--service", "0.2") as server:
        sent = send([Arrival(0.0, "one two three", 4)], Endpoint(server.base, "small"), timeout=20)
    (request,) = sent.requests
    assert (request.status, request.error, request.tokens, request.counted) == (200, "", 4, 4)
    assert "".join(request.pieces) == " three two one three"
    assert len(request.times) == 4
    assert 0.04 < (latency(request, "inter_token") or 0) < 0.07
    times = series([sent])
    assert {name: len(found) for name, found in times.items()} == {
        "ttft": 1, "inter_token": 3, "end_to_end": 1, "queue": 1,
    }  # fmt: skip
    assert times["ttft"][0] + sum(times["inter_token"]) <= times["end_to_end"][0]
    assert (request.end or 0) >= request.times[-1] > request.times[0] > (request.sent or 0) >= 0.0


def test_a_trace_is_the_same_for_equal_seeds_and_keeps_its_rate_exactly() -> None:
    spec = {"arrivals": "poisson", "rate": 5.0, "requests": 40, "prompt_tokens": [8, 20], "output_tokens": [2, 6]}
    first, again, other = (make_segments(spec, count=4, seed=seed) for seed in (3, 3, 4))
    assert first == again != other
    assert [len(segment.arrivals) for segment in first] == [10] * 4
    assert sum(segment.seconds for segment in first) == pytest.approx(8.0)
    assert all(segment.arrivals[0].at == 0 for segment in first)
    lengths = [len(arrival.prompt.split()) for segment in first for arrival in segment.arrivals]
    assert set(lengths) <= set(range(8, 21))
    assert len(set(lengths)) > 5
    assert sum(s.seconds for s in make_segments(spec, count=4, seed=3, load=10.0)) == pytest.approx(4.0)


def test_bursts_come_at_once_and_a_shared_prefix_is_shared() -> None:
    spec = {"arrivals": "bursty", "burst": 5, "rate": 10.0, "requests": 10, "prompt_tokens": 400, "shared_prefix": 0.5}
    (segment,) = make_segments(spec, count=1, seed=1)
    assert [arrival.at for arrival in segment.arrivals] == [0.0] * 5 + [0.5] * 5
    prompts = [arrival.prompt for arrival in segment.arrivals]
    assert 0.35 < known_share(prompts) < 0.5
    assert known_share([*prompts, *prompts]) > 0.6


def test_a_trace_file_is_read_and_its_rate_can_be_set(tmp_path: Path) -> None:
    lines = [{"timestamp": 5 + n, "prompt_tokens": 3, "output_tokens": n + 1} for n in range(4)]
    path = tmp_path / "trace.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")
    assert [a.at for a in read_trace(path, seed=1)] == [0, 1, 2, 3]
    (segment,) = make_segments(str(path), count=1, seed=1, load=2.0)
    assert [a.at for a in segment.arrivals] == [0, 0.5, 1, 1.5]
    assert segment.seconds == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "trace.jsonl:2 is not JSON"),
        ("[1]", "trace.jsonl:2 is not an object"),
        ('{"prompt": "a", "output_tokens": 1}', "trace.jsonl:2: timestamp is missing"),
        (
            '{"timestamp": 1, "prompt": "a", "output_tokens": 0}',
            "trace.jsonl:2: output_tokens is 0; write a number of 1",
        ),
        ('{"timestamp": 1, "prompt": 7, "output_tokens": 1}', "trace.jsonl:2: prompt is not text"),
        (
            '{"timestamp": 0, "prompt": "a", "output_tokens": 1}',
            "request 2 has timestamp 0, before that of the one above",
        ),
    ],
)
def test_a_broken_line_of_a_trace_is_named_by_its_number(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text('{"timestamp": 0.5, "prompt": "a", "output_tokens": 1}\n' + line + "\n", encoding="utf-8")
    with pytest.raises(TraceError, match=re.escape(said)):
        read_trace(path, seed=1)


def test_goodput_counts_requests_within_every_objective_by_the_schedules_time(tmp_path: Path) -> None:
    # One slot of 40 ms at 100 requests/s: of each segment's six the first two end within 85 ms of their time.
    with loaded(tmp_path, "--service", "0.04", "--slots", "1", slo={"end_to_end": 0.085}) as workload:
        values = play(workload)
    assert values["goodput"] == pytest.approx(100 * 2 / 6)
    assert 24 / 2 / 0.26 < values["tokens_per_s"] < 24 / 2 / 0.2 * 2
    assert values["ttft"] < values["end_to_end"]
    assert values["queue"] < 0.02


def test_a_real_engine_serves_the_model_that_is_made_on_the_spot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    spec = {"rate": 20.0, "requests": 8, "prompt_tokens": [4, 12], "output_tokens": [3, 6]}
    serve = "transformers serve {model} --device cpu --port {port} --continuous-batching --cb-num-blocks 64"
    with loaded(tmp_path, server=serve, model="tiny-random", trace=spec, ready_limit=90.0) as workload:
        values = play(workload)
        assert workload.counters is not None
        assert workload.faults is not None
        counts, faults = workload.counters(), workload.faults()
        text = workload.outputs()["text"]
    assert (counts["requests"], counts["met"], counts["errors"]) == (8, 8, 0)
    assert 24 <= counts["tokens"] <= 48
    assert "token_count" not in faults
    assert values["ttft"] < values["end_to_end"]
    assert {chr(sign) for sign in text.ravel() if sign} <= set(" abcdefghijklmnopqrstuvwxyz"), "words of the trace"


def test_the_highest_rate_is_found_on_a_server_of_known_capacity(tmp_path: Path) -> None:
    # 10 ms of service in one slot: at up to 100/s nobody waits, above it the k-th waits for k (10 ms - 1 / rate).
    spec = {**TRACE, "rate": 40.0, "requests": 8 * 24, "output_tokens": 1}
    options = ("--service", "0.01", "--slots", "1")
    with loaded(tmp_path, *options, trace=spec, segments=8, slo={"end_to_end": 0.05}, find="max_rate") as workload:
        for _ in range(2 + 8):
            workload.step()
        assert workload.values is not None
        assert workload.counters is not None
        found, counts = workload.values(), workload.counters()
    # 95 % of 24 wait at most 40 ms: about 120/s, and what the client and the connection take less.
    assert list(found) == ["max_rate"]
    assert 70 < found["max_rate"] < 130
    assert counts["tries"] == 8


def test_audits_meet_requests_of_their_own_that_are_equal_on_both_sides(tmp_path: Path) -> None:
    texts = []
    for _ in range(2):
        with loaded(tmp_path, seed=5) as workload:
            play(workload)
            assert workload.redraw is not None
            assert workload.values is not None
            usual = workload.outputs()["text"]
            workload.redraw(77)
            workload.step()
            texts.append(workload.outputs()["text"])
            assert workload.values() == {}, "an audit counts into no metric"
            assert usual.shape != texts[-1].shape or (usual != texts[-1]).any()
            check = workload.checks["disagreement"]
    assert (texts[0] == texts[1]).all()
    other = texts[1].copy()
    other[0, 0] += 1
    assert check({"text": texts[0]}, {"text": texts[1]}).value == 0
    assert 0 < (check({"text": texts[0]}, {"text": other}).value or 0) < 0.2


@pytest.mark.parametrize(
    ("options", "params", "said"),
    [
        (("--fault", "never_ready"), {"ready_limit": 0.5}, "was not ready within 0.5 s (/health: status 503)"),
        (("--exit", "4"), {}, "the server ended by itself with exit status 4"),
        (("--fault", "die", "--after", "8"), {}, "the server ended by itself with exit status 3"),
        (("--fault", "500", "--after", "8"), {}, "of 6 requests failed; the first one: status 500: the engine gave up"),
        (("--fault", "hang", "--after", "8"), {"timeout": 0.5}, "no whole answer within 0.5 s"),
        (("--fault", "garbage", "--after", "8"), {}, "the answer is not a stream of the OpenAI protocol"),
        (("--fault", "close_early", "--after", "8"), {}, "the stream ended after 2 tokens without a finish"),
        (("--model", "large"), {"model": "small"}, "status 404: The model small does not exist."),
    ],
)
def test_each_fault_of_a_server_has_one_message_and_leaves_no_process(
    tmp_path: Path, options: tuple[str, ...], params: dict[str, Any], said: str
) -> None:
    with pytest.raises(ServerFault) as raised, loaded(tmp_path, *options, **params) as workload:
        play(workload)
    first, _, rest = str(raised.value).partition("\n")
    assert said in first
    assert rest.startswith("the end of the server's log:")
    assert _servers() == []


def _servers() -> list[str]:
    """Servers that this process has started and that still run."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = (path / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1]
            if parent == str(os.getpid()) and SERVER.name in (path / "cmdline").read_text(encoding="utf-8"):
                found.append(path.name)
    return found


def test_a_port_that_is_taken_is_named_before_the_server_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ServerFault, match=f"port {port} is taken"), loaded(tmp_path, port=port):
            pass


def test_refusals_miss_their_objectives_and_are_counted(tmp_path: Path) -> None:
    kept = tmp_path / "requests.jsonl"
    with loaded(tmp_path, "--fault", "503", "--after", "12", keep=str(kept)) as workload:
        values = play(workload)
        assert workload.counters is not None
        counts = workload.counters()
    # 4 of the warm-up, 6 of the first segment and 1 of the second are answered.
    assert (counts["requests"], counts["met"], counts["refused"], counts["errors"]) == (12, 7, 5, 0)
    assert values["goodput"] == pytest.approx(100 * 7 / 12)
    lines = [json.loads(line) for line in kept.read_text(encoding="utf-8").splitlines()]
    assert [(line["segment"], line["request"]) for line in lines] == [(s, r) for s in range(2) for r in range(6)]
    assert [line["status"] for line in lines] == [200] * 7 + [503] * 5
    assert [len(line["times"]) for line in lines[:7]] == [4] * 7
    assert all(line["scheduled"] <= line["sent"] + 1e-3 < line["end"] + 1e-3 for line in lines)


@pytest.mark.parametrize(
    ("options", "params", "code", "said"),
    [
        (("--length", "0.5"), {}, "token_count", "24 tokens came for 48 that were asked for"),
        ((), {}, "", ""),
    ],
)
def test_what_makes_a_launch_worthless_has_a_code_and_a_sentence(
    tmp_path: Path, options: tuple[str, ...], params: dict[str, Any], code: str, said: str
) -> None:
    with loaded(tmp_path, *options, **params) as workload:
        play(workload)
        assert workload.faults is not None
        faults = workload.faults()
    assert list(faults) == ([code] if code else [])
    assert said in faults.get(code, "")


def test_a_trace_that_a_running_server_has_met_before_is_refused_unless_its_cache_was_flushed(tmp_path: Path) -> None:
    def again(url: str) -> dict[str, str]:
        spec = {**TRACE, "prompt_tokens": 40, "seed": 9}
        with loaded(tmp_path, server="", url=url, trace=spec) as workload:
            play(workload)
            assert workload.faults is not None
            return dict(workload.faults())

    with running(tmp_path, "--metrics") as server:
        assert again(server.base) == {}
        assert again(server.base) == {}, "it was flushed in between"
        assert server.flush()
    with running(tmp_path, "--metrics", "--no-flush") as server:
        assert again(server.base) == {}
        found = again(server.base)
        assert list(found) == ["prefix_cache"]
        assert found["prefix_cache"].startswith("prefix cache differs: the server had 100 % of the prompts' tokens")
