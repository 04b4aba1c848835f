"""serve.load by the clock: latencies, goodput and the highest rate of servers whose speed is known."""

from __future__ import annotations

import contextlib
import sys
import time
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest
from loaded_servers import SERVER, TRACE, faults, loaded, play, running

from aiperf.workloads.serve.client import Endpoint, Request, send
from aiperf.workloads.serve.metrics import latency, missed
from aiperf.workloads.serve.search import RateSearch
from aiperf.workloads.serve.server import Server
from aiperf.workloads.serve.trace import Arrival

pytestmark = pytest.mark.alone


def test_latency_of_a_server_below_the_rate_grows_with_its_queue(tmp_path: Path) -> None:
    arrivals = [Arrival(0.025 * number, "a b", 2) for number in range(8)]
    with running(tmp_path, "--service", "0.125", "--slots", "1") as server:
        sent = send(arrivals, Endpoint(server.base, "small"), timeout=20)
    found = [latency(request, "end_to_end") or 0.0 for request in sent.requests]
    # 0.125 s of service for each that is before it, less 0.025 s between arrivals: 0.125, 0.225, ... 0.825 s.
    assert 0.475 <= fmean(found) <= 0.525


def test_latency_counts_from_the_schedule_also_for_requests_that_wait_for_a_connection(tmp_path: Path) -> None:
    arrivals = [Arrival(0.02 * number, "a b", 2) for number in range(6)]
    with running(tmp_path, "--service", "0.1", "--slots", "1") as server:
        sent = send(arrivals, Endpoint(server.base, "small"), timeout=20, concurrency=1)
    # 0.1, 0.18, ... 0.5 s; a client that counts from sending would say 0.1 s.
    assert fmean(latency(request, "end_to_end") or 0.0 for request in sent.requests) >= 0.3
    assert min((r.end or 0) - (r.sent or 0) for r in sent.requests) < 0.2


def test_goodput_counts_requests_within_every_objective_by_the_schedules_time(tmp_path: Path) -> None:
    # One slot of 40 ms at 100 requests/s: of each segment's six the first two end within 85 ms of their time.
    # It says what is in its cache, or twelve requests more would ask for that by their time.
    with loaded(tmp_path, "--metrics", "--service", "0.04", "--slots", "1", slo={"end_to_end": 0.085}) as workload:
        values = play(workload)
    assert values["goodput"] == pytest.approx(100 * 2 / 6)
    assert 24 / 2 / 0.26 < values["tokens_per_s"] < 24 / 2 / 0.2 * 2
    assert values["ttft"] < values["end_to_end"]
    assert values["queue"] < 0.02


def test_the_highest_rate_is_found_on_a_server_of_known_capacity(tmp_path: Path) -> None:
    # 10 ms of service in one slot: at up to 100/s nobody waits, above it the k-th waits for k (10 ms - 1 / rate).
    spec = {**TRACE, "rate": 40.0, "requests": 8 * 24, "output_tokens": 1}
    options = ("--metrics", "--service", "0.01", "--slots", "1")
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


def test_a_try_far_beyond_a_servers_capacity_is_given_up_and_counts_only_what_was_decided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 40 ms of service at 200/s: the 60 requests of a try would take 2.4 s, and all but the first four miss 150 ms.
    spec = {**TRACE, "rate": 200.0, "requests": 60, "output_tokens": 1}
    options = ("--metrics", "--service", "0.04", "--slots", "1", "--abort")
    tries: list[tuple[float, int, int]] = []
    monkeypatch.setattr(RateSearch, "estimate", lambda search: tries.extend(search.tries))
    with loaded(tmp_path, *options, trace=spec, segments=1, slo={"ttft": 0.15}, find="max_rate") as workload:
        for _ in range(2):
            workload.step()
        began = time.perf_counter()
        workload.step()
        took = time.perf_counter() - began
        assert workload.values is not None
        assert workload.counters is not None
        assert workload.faults is not None
        workload.values()
        counts, found = workload.counters(), workload.faults()
    assert took < 1.5
    assert 1 <= counts["met"] <= 5
    assert tries == [(200.0, counts["met"], tries[0][2])]
    assert 33 < tries[0][2] < 60
    assert counts["dropped"] > 20
    assert counts["errors"] == 0
    assert "rate_off" not in found


def test_the_next_try_begins_once_the_server_runs_nothing_of_one_that_was_given_up(tmp_path: Path) -> None:
    # This one works off what was dropped: 30 requests of 20 ms in one slot.
    spec = {**TRACE, "rate": 400.0, "requests": 30, "output_tokens": 1}
    options = ("--metrics", "--service", "0.02", "--slots", "1")
    with loaded(tmp_path, *options, trace=spec, segments=1, slo={"ttft": 0.05}, find="max_rate") as workload:
        for _ in range(2):
            workload.step()
        began = time.perf_counter()
        workload.step()
        assert time.perf_counter() - began > 0.55


def test_a_request_has_missed_an_objective_once_its_time_is_over_whatever_it_still_gets() -> None:
    slow = Request(scheduled=1.0, asked_tokens=4, sent=1.0)
    assert not missed(slow, {"ttft": 0.5}, 1.4)
    assert missed(slow, {"ttft": 0.5}, 1.6)
    assert missed(slow, {"end_to_end": 0.5}, 1.6)
    assert not missed(slow, {"inter_token": 0.5}, 9.0)
    slow.times.append(1.4)
    assert not missed(slow, {"ttft": 0.5}, 9.0)
    assert missed(slow, {"ttft": 0.3}, 1.45)


# Three processes load torch. By a clock of its own the engine is in test_bench_engine_server.py.
@pytest.mark.long
def test_the_engines_server_answers_the_same_with_its_delays_and_is_slower_by_them(tmp_path: Path) -> None:
    delays, requests = ["--decode-delay 3", "--first-delay 6"], 6
    words = ["time", "year", "people", "way", "day", "man", "thing", "woman"]
    arrivals = [Arrival(0.2 * number, " ".join(words[number:] * 40), 24) for number in range(requests)]
    at_once = [replace(arrival, at=0.0) for arrival in arrivals]
    found, servers = [], []
    with contextlib.ExitStack() as ends:
        for given in ("", *delays):
            command = f"{sys.executable} {SERVER.with_name('engine_server.py')} --port {{port}} --preset tiny {given}"
            servers.append(Server.start(command, port=0, log=tmp_path / f"log{len(servers)}"))
            ends.callback(servers[-1].end)
        for server in servers:
            server.await_ready("/health", 60.0)
            send(at_once, Endpoint(server.base, "engine"), timeout=20)
        for server in servers:
            sent = send(arrivals, Endpoint(server.base, "engine"), timeout=20)
            # The shortest, which a neighbour disturbed least.
            times = (min(latency(r, name) or 0.0 for r in sent.requests) for name in ("inter_token", "ttft"))
            found.append((*times, [request.pieces for request in sent.requests]))
            told = [(request.error, request.counted, len(request.times)) for request in sent.requests]
            assert told == [("", 24, 24)] * requests
    (gap, first, text), *others = found
    assert [same for _, _, same in others] == [text] * len(delays)
    assert len({tuple(pieces) for pieces in text}) > 1, "answers depend on their prompts"
    # A step of decoding takes four times as long, a prompt's pass seven times; the rest is on its way.
    assert others[0][0] > 1.5 * gap
    assert others[1][1] > 1.5 * first


def test_a_server_that_says_nothing_is_probed_by_the_time_to_its_first_token(tmp_path: Path) -> None:
    with running(tmp_path, "--prefill", "0.001", "--service", "0.001") as server:
        first, facts = faults(tmp_path, server.base)
        assert first == {}
        assert facts["cache_probe"] == "cold"
        found, facts = faults(tmp_path, server.base)
    assert list(found) == ["prefix_cache"]
    assert found["prefix_cache"].startswith(
        "prefix cache differs: the server knew the trace before (to the first token"
    )
    assert facts["cache_probe"] == "known"
