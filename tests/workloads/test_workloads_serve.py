"""serve.load against small real servers: what is sent when, what is timed from when, what is refused and why."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from loaded_servers import SERVER, loaded, not_late, play, running
from patience import PATIENCE_S

from aiperf.workloads.serve.client import Endpoint, Request, Sent, send
from aiperf.workloads.serve.metrics import latency, series, slowest
from aiperf.workloads.serve.server import Server, ServerFault, ServerNotReady
from aiperf.workloads.serve.trace import Arrival, Segment, TraceError, known_share, make_segments, read_trace


def test_every_token_is_noted_with_its_time_and_the_servers_count(tmp_path: Path) -> None:
    with running(tmp_path, "--service", "0.2") as server:
        sent = send([Arrival(0.0, "one two three", 4)], Endpoint(server.base, "small"), timeout=PATIENCE_S)
    (request,) = sent.requests
    assert (request.status, request.error, request.tokens, request.counted) == (200, "", 4, 4)
    assert "".join(request.pieces) == " three two one three"
    assert len(request.times) == 4
    assert (latency(request, "inter_token") or 0) > 0
    times = series([sent])
    assert {name: len(found) for name, found in times.items()} == {
        "ttft": 1, "inter_token": 3, "end_to_end": 1, "queue": 1,
    }  # fmt: skip
    assert times["ttft"][0] + sum(times["inter_token"]) <= times["end_to_end"][0]
    assert (request.end or 0) >= request.times[-1] > request.times[0] > (request.sent or 0) >= 0.0


class ClosesKept:
    """A server that keeps a connection after each answer, and closes it as soon as the next request goes out on it."""

    def __init__(self, *, answers: int = 2) -> None:
        self.connections, self._answers = 0, answers
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.base = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        event = b'data: {"choices": [{"delta": {"content": "a"}, "finish_reason": "stop"}]}\n\n'
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n" % len(event)
        while True:
            peer, _ = self._socket.accept()
            self.connections += 1
            with peer:
                if peer.recv(1 << 16) and self.connections <= self._answers:
                    peer.sendall(head + event)
                    peer.recv(1)


@pytest.mark.parametrize(("answers", "errors"), [(2, ["", ""]), (1, ["", "the connection broke: Server disconnected"])])
def test_a_request_on_a_kept_connection_that_the_server_closes_goes_out_once_more(
    answers: int, errors: list[str]
) -> None:
    server = ClosesKept(answers=answers)
    arrivals = [Arrival(0.0, "a", 1), Arrival(0.3, "a", 1)]
    sent = send(arrivals, Endpoint(server.base, "small"), timeout=PATIENCE_S)
    assert [request.error for request in sent.requests] == errors
    assert server.connections == 2


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


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_real_engine_serves_the_model_that_is_made_on_the_spot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    spec = {"rate": 20.0, "requests": 8, "prompt_tokens": [4, 12], "output_tokens": [3, 6]}
    serve = "transformers serve {model} --device cpu --port {port} --continuous-batching --cb-num-blocks 64"
    with loaded(tmp_path, server=serve, model="tiny-random", trace=spec, ready_limit=200.0) as workload:
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


@pytest.mark.long
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


def test_only_a_server_that_may_still_become_ready_counts_as_not_ready(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        with pytest.raises(ServerFault, match=r"/no-such-path: status 404") as refused:
            server.await_ready("/no-such-path", 0.3)
        never = Server.start(f"{sys.executable} -c 'import time; time.sleep(60)'", port=9, log=tmp_path / "never")
        try:
            with pytest.raises(ServerNotReady, match=r"within 0.2 s"):
                never.await_ready("/health", 0.2)
        finally:
            never.end()
        with pytest.raises(ServerFault, match=r"within 0.2 s") as elsewhere:
            Server("http://127.0.0.1:9").await_ready("/health", 0.2)
    assert not isinstance(refused.value, ServerNotReady)
    assert not isinstance(elsewhere.value, ServerNotReady), "aiperf did not start it"


@pytest.mark.parametrize(
    ("options", "params", "said"),
    [
        (("--fault", "never_ready"), {"ready_limit": 2.0}, "was not ready within 2 s (/health: "),
        (("--exit", "4"), {}, "the server ended by itself with exit status 4"),
        pytest.param(
            ("--fault", "die", "--after", "16"),
            {},
            "the server ended by itself with exit status 3",
            marks=pytest.mark.long,
        ),
        pytest.param(
            ("--fault", "500", "--after", "16"),
            {},
            "of 6 requests failed; the first one: status 500: the engine gave up",
            marks=pytest.mark.long,
        ),
        (("--fault", "hang", "--after", "16"), {"timeout": 0.5}, "no whole answer within 0.5 s"),
        (("--fault", "garbage", "--after", "16"), {}, "the answer is not a stream of the OpenAI protocol"),
        (("--fault", "reports", "--after", "16"), {}, "the first one: the server reports the engine gave up"),
        (
            ("--fault", "unescaped", "--after", "16"),
            {},
            '{"error": "out of cache blocks"}',
        ),
        pytest.param(
            ("--fault", "close_early", "--after", "16"),
            {},
            "the stream ended after 2 tokens without a finish",
            marks=pytest.mark.long,
        ),
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


@pytest.mark.parametrize(
    ("params", "least"),
    [
        ({"warmup": 5}, 6),
        ({"warmup": 3, "concurrency": 4}, 4),
        pytest.param({"warmup": 5, "concurrency": 9}, 6, marks=pytest.mark.long),
    ],
)
def test_a_warm_up_of_fewer_requests_than_can_be_under_way_is_refused_before_the_server_starts(
    tmp_path: Path, params: dict[str, int], least: int
) -> None:
    said = f"warmup is {params['warmup']}, and up to {least} requests can be under way at once: write warmup: {least}"
    with pytest.raises(ValueError, match=said), loaded(tmp_path, **params):
        pass
    assert not (tmp_path / "server.log").exists()
    fails = ("--metrics", "--fault", "500", "--after", str(least + 1))
    with loaded(tmp_path, *fails, **{**params, "warmup": least}) as workload:
        workload.step()
        with pytest.raises(ServerFault, match=f"{least} of {least} requests failed"):
            workload.step()


def test_a_port_that_is_taken_is_named_before_the_server_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ServerFault, match=f"port {port} is taken"), loaded(tmp_path, port=port):
            pass


@pytest.mark.parametrize(
    ("command", "cwd", "said"),
    [
        ("no-such-server --port {port}", "", "there is no program no-such-server: install it, or write its path"),
        ("env true {port}", "/no/such/folder", "env cannot be started: there is no folder /no/such/folder"),
        ("/etc/passwd {port}", "", "/etc/passwd cannot be started: Permission denied"),
    ],
)
def test_a_command_that_cannot_be_started_says_what_is_missing(
    tmp_path: Path, command: str, cwd: str, said: str
) -> None:
    with pytest.raises(ServerFault, match=said):
        Server.start(command, port=0, log=tmp_path / "log", cwd=cwd)


def test_a_server_is_on_its_cpus_from_its_first_instruction_and_the_client_on_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound = []
    start = subprocess.Popen

    def started(*args: Any, **options: Any) -> Any:
        bound.append(sorted(os.sched_getaffinity(0)))
        return start(*args, **options)

    monkeypatch.setattr(subprocess, "Popen", started)
    every = os.sched_getaffinity(0)
    with loaded(tmp_path) as workload:
        assert os.sched_getaffinity(0) == set(workload.facts["client_cpus"])
    assert bound == [workload.facts["server_cpus"]]
    assert set(bound[0]) == every - set(workload.facts["client_cpus"])
    one = min(every)
    os.sched_setaffinity(0, {one})
    try:
        with pytest.raises(ValueError, match="the client has no CPU of its own"), loaded(tmp_path):
            pass
    finally:
        os.sched_setaffinity(0, every)


def test_a_model_that_is_not_given_is_the_first_one_that_the_server_lists(tmp_path: Path) -> None:
    with running(tmp_path, "--model", "org/a-b") as server:
        assert server.first_model() == "org/a-b"


@pytest.mark.parametrize("text", ["", "[]", '{"data": []}', '{"data": [{"name": "a"}]}', '{"data": [{"id": 7}]}'])
def test_a_server_that_lists_no_model_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("aiperf.workloads.serve.server.fetch", lambda *_, **__: (200, text))
    with pytest.raises(ServerFault, match="names no model at /v1/models: write model: NAME"):
        Server("http://127.0.0.1:1").first_model()


def test_the_slowest_request_is_kept_with_what_was_under_way_meanwhile() -> None:
    def request(scheduled: float, sent: float, times: list[float], end: float) -> Request:
        return Request(scheduled, len(times), sent=sent, times=times, end=end, status=200)

    early, worst, late = (
        request(0.0, 0.0, [0.3, 0.5], 0.6),
        request(0.2, 0.25, [1.0, 1.1], 1.2),
        request(1.5, 1.5, [1.6], 1.7),
    )
    failed = Request(0.1, 2, sent=0.1, end=9.0, error="status 500: x")
    sent = Sent((early, worst, late), 1.7, 0.1)
    segment = Segment((), 1.0)
    found = slowest([(segment, Sent((late, failed), 1.7, 0.1)), (segment, sent)])
    assert (found["segment"], found["request"], found["sent"], found["end"]) == (1, 1, 0.05, 1.0)
    assert found["tokens"] == [0.8, 0.9]
    # From its time on: early waits; both; early has its first token; early ends; its own token; its end.
    assert found["under_way"] == [(0.0, 1, 0), (0.05, 2, 0), (0.1, 1, 1), (0.4, 1, 0), (0.8, 0, 1), (1.0, 0, 0)]
    assert slowest([(segment, Sent((failed,), 9.0, 0.1))]) == {}
    looks = ((0.0, 1, 0), (0.15, 1, 1), (0.25, 2, 0), (1.2, 1, 0), (1.3, 0, 0))
    found = slowest([(segment, replace(sent, batch=looks))])
    assert found["batch"] == [(0.0, 1, 1), (0.05, 2, 0), (1.0, 1, 0)], "from the last look before its time to its end"
    many = request(0.0, 0.0, [0.01 * n for n in range(1, 500)], 5.0)
    tokens = slowest([(segment, Sent((many,), 5.0, 0.1))])["tokens"]
    assert (len(tokens), tokens[0], tokens[-1]) == (40, 0.01, 4.99)


@pytest.mark.long
def test_what_a_server_exports_of_its_batch_and_queue_is_kept(tmp_path: Path) -> None:
    arrivals = [Arrival(0.0, "a b", 2)] * 5
    with running(tmp_path, "--metrics", "--service", "0.4", "--slots", "2") as server:
        assert server.batch() is not None
        sent = send(arrivals, Endpoint(server.base, "small"), timeout=PATIENCE_S, watch=True)
        assert send(arrivals, Endpoint(server.base, "small"), timeout=PATIENCE_S).batch == ()
    assert [request.error for request in sent.requests] == [""] * 5
    # Two at a time, 0.4 s each: looks in between see the batch full and the queue shrink.
    assert {running for _, running, _ in sent.batch} <= {0, 1, 2}
    assert (2, 3) in [look[1:] for look in sent.batch]
    queues = [waiting for _, _, waiting in sent.batch if waiting]
    assert queues == sorted(queues, reverse=True)
    with running(tmp_path) as server:
        assert server.batch() is None


def test_refusals_miss_their_objectives_and_are_counted(tmp_path: Path) -> None:
    kept = tmp_path / "requests.jsonl"
    with loaded(tmp_path, "--metrics", "--fault", "503", "--after", "20", keep=str(kept)) as workload:
        values = play(workload)
        assert workload.counters is not None
        counts = workload.counters()
    # 12 of the warm-up, 6 of the first segment and 1 of the second are answered.
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
        (("--length", "0.5"), {}, "token_count", "the server returned 24 tokens for 48 requested"),
        ((), {}, "", ""),
    ],
)
def test_what_makes_a_launch_worthless_has_a_code_and_a_sentence(
    tmp_path: Path, options: tuple[str, ...], params: dict[str, Any], code: str, said: str
) -> None:
    with loaded(tmp_path, "--metrics", *options, **params) as workload:
        play(workload)
        assert workload.faults is not None
        faults = not_late(workload.faults())
    assert list(faults) == ([code] if code else [])
    assert said in faults.get(code, "")


def test_a_servers_port_is_none_that_the_kernel_may_give_to_a_connection_meanwhile(tmp_path: Path) -> None:
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    servers = [Server.start("sleep 60; : {port}", port=0, log=tmp_path / f"{n}.log") for n in range(3)]
    ports = [int(server.base.rsplit(":", 1)[1].split("/")[0]) for server in servers]
    for server in servers:
        server.end()
    assert len(set(ports)) == 3
    assert all(20_000 <= port < first for port in ports)
