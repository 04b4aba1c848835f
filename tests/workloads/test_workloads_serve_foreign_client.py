"""serve.load by another client: what it is given, what its file becomes, what it does wrong."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from loaded_servers import loaded, not_late, play

from aiperf.formats.load_clients import ClientFile, ClientRequest, ClientRun, read_client
from aiperf.workloads.serve.client import Endpoint, Request, Sent
from aiperf.workloads.serve.foreign_client import ClientFault, ForeignClient, write_trace
from aiperf.workloads.serve.metrics import counts, segment_values, series
from aiperf.workloads.serve.server import ServerFault
from aiperf.workloads.serve.trace import Arrival, Segment, read_trace

PROGRAM = Path(__file__).resolve().parents[1] / "programs" / "load_client.py"
NOWHERE = Endpoint("http://127.0.0.1:9", "small")
SEGMENT = Segment((Arrival(0.0, "a b", 3), Arrival(0.5, "c d", 2)), 1.0)


def client(*options: str) -> str:
    given = "--url {url} --model {model} --output {output} --trace {trace}"
    return " ".join([sys.executable, str(PROGRAM), given, *options])


def run(tmp_path: Path, code: str, *words: str, **options: Any) -> tuple[Segment, Sent]:
    """Have a client that is a few lines of Python send a segment; ``{words}`` are its arguments."""
    program = tmp_path / "client.py"
    program.write_text(code, encoding="utf-8")
    command = " ".join([sys.executable, str(program), *(words or ("{output}",))])
    return ForeignClient(command, tmp_path, **options).send(SEGMENT, NOWHERE, timeout=1.0, seed=7)


def copies(document: Any) -> str:
    return f"import sys, json; open(sys.argv[1], 'w').write({json.dumps(document)!r})"


def guidellm(*requests: dict[str, Any], **groups: Any) -> dict[str, Any]:
    return {"benchmarks": [{"requests": {"successful": [*requests], **groups}}]}


def entry(start: float, *, delay: float = 0.0, **other: Any) -> dict[str, Any]:
    return {
        "request_start_time": start, "request_latency": 0.5, "request_dispatch_delay": delay,
        "request_scheduled_latency": 0.5 + delay, "time_to_first_token_ms": 100.0, "inter_token_latency_ms": 20.0,
        "output_tokens": 3, **other,
    }  # fmt: skip


# ---- a real one ------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_each_turn_is_sent_by_the_client_and_its_requests_are_those_of_its_file(tmp_path: Path) -> None:
    with loaded(tmp_path, "--service", "0.05", client=client(), slo={"end_to_end": 5.0}) as workload:
        values = play(workload)
        assert workload.counters is not None
        assert workload.faults is not None
        counters, found = workload.counters(), not_late(dict(workload.faults()))
    assert (counters["requests"], counters["met"], counters["tokens"]) == (12, 12, 48)
    assert 0.05 <= values["end_to_end"] < 5.0
    assert 0 < values["ttft"] < values["end_to_end"]
    assert values["inter_token"] > 0.005
    assert values["goodput"] == pytest.approx(100.0)
    assert workload.facts["client"] == "guidellm 0.8.1"
    assert workload.facts["counted_from"] == "schedule"
    assert workload.facts["requests"] == 12
    assert list(found) in (["foreign_client"], ["foreign_client", "cache_unknown"])
    assert "client_cpu_share" not in counters, "it would hold the client's start"
    (line,) = (tmp_path / "client.log").read_text(encoding="utf-8").splitlines()
    assert line == f"CPUs {workload.facts['client_cpus']}"


@pytest.mark.long
def test_times_from_sending_are_said_to_be_that_and_give_no_queue(tmp_path: Path) -> None:
    with loaded(tmp_path, client=client("--from-sending")) as workload:
        values = play(workload)
        assert workload.faults is not None
        assert workload.counters is not None
        found, counters = workload.faults(), workload.counters()
    assert workload.facts["counted_from"] == "sending"
    assert "counted from sending (without waiting in the client)" in found["foreign_client"]
    assert "queue" not in values
    assert "latest_send_ms" not in counters
    assert values["goodput"] == pytest.approx(100.0)


@pytest.mark.long
def test_audits_are_sent_by_our_own_client_so_that_answers_are_compared(tmp_path: Path) -> None:
    with loaded(tmp_path, client=client(), seed=5) as workload:
        play(workload)
        assert workload.redraw is not None
        workload.redraw(77)
        workload.step()
        text = workload.outputs()["text"]
    with loaded(tmp_path, seed=5) as workload:
        play(workload)
        assert workload.redraw is not None
        workload.redraw(77)
        workload.step()
        assert (workload.outputs()["text"] == text).all()
    assert text.any()


def test_fewer_tokens_than_the_trace_asks_for_are_noticed(tmp_path: Path) -> None:
    with loaded(tmp_path, "--length", "0.5", client=client()) as workload:
        play(workload)
        assert workload.faults is not None
        assert workload.faults()["token_count"].startswith("the server returned 24 tokens for 48 requested")


@pytest.mark.long
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("exit", "the client ended with exit status 1\nthe end of the client's log:\nCPUs "),
        ("no_file", "the client wrote no file at {output}"),
        ("garbage", "the client wrote nothing that is known (output)"),
        ("cut", "the client wrote nothing that is known (output)"),
        ("empty", "the client's file holds no request"),
        ("hang", "the client had not ended after 1.5 s"),
    ],
)
def test_each_fault_of_a_client_has_one_message_and_leaves_no_process(tmp_path: Path, fault: str, said: str) -> None:
    limit = 1.5 if fault == "hang" else 30.0
    with (
        pytest.raises(ClientFault) as raised,
        loaded(tmp_path, client=client("--fault", fault), client_limit=limit) as workload,
    ):
        play(workload)
    assert str(raised.value).startswith(said)
    assert _left() == []


def _left() -> list[str]:
    """Commands of faulty clients, and of what they started, that still run; other tests have clients, too."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended meanwhile
            found.append(path.read_bytes().decode(errors="replace"))
    return [line for line in found if "load_client.py" in line and ("--fault" in line or "left by" in line)]


@pytest.mark.long
def test_a_server_that_dies_under_another_client_is_what_the_failure_names(tmp_path: Path) -> None:
    with (
        pytest.raises(ServerFault, match="the server ended by itself with exit status 3"),
        loaded(tmp_path, "--fault", "die", "--after", "32", client=client()) as workload,
    ):
        play(workload)


@pytest.mark.long
def test_a_request_that_the_client_lost_counts_as_failed(tmp_path: Path) -> None:
    said = "1 of 6 requests failed; the first one: it is not in the client's file"
    with pytest.raises(ServerFault, match=said), loaded(tmp_path, client=client("--fault", "fewer")) as workload:
        play(workload)
    with loaded(tmp_path, client=client("--fault", "fewer"), errors=0.2) as workload:
        values = play(workload)
        assert workload.counters is not None
        counters = workload.counters()
    assert (counters["requests"], counters["met"], counters["errors"]) == (12, 10, 2)
    assert values["goodput"] == pytest.approx(100 * 5 / 6)


def test_more_requests_than_asked_for_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ClientFault, match="holds 3 requests, and it was to send 2"):
        run(tmp_path, copies(guidellm(*map(entry, (1.0, 2.0, 3.0)))), "{output}", "{requests}")


# ---- what it is given ------------------------------------------------------------------------------------------------


def test_a_client_is_given_what_its_command_names(tmp_path: Path) -> None:
    code = "import sys; open(sys.argv[1], 'w').write(repr(sys.argv[2:])); sys.exit(9)"
    words = ("{output}", "{url}", "x={port}", "{model}", "{rate}", "{requests}", "{seed}", "'{\"a\": 1}'")
    with pytest.raises(ClientFault, match="exit status 9"):
        run(tmp_path, code, *words)
    written = (tmp_path / "client" / "output").read_text(encoding="utf-8")
    assert written == repr(["http://127.0.0.1:9", "x=9", "small", "2", "2", "7", '{"a": 1}'])


def test_the_schedule_that_is_written_is_one_that_a_trace_may_be(tmp_path: Path) -> None:
    write_trace(tmp_path / "trace.jsonl", SEGMENT.arrivals)
    assert tuple(read_trace(tmp_path / "trace.jsonl", seed=1)) == SEGMENT.arrivals


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("load --url {url}", "write {output} where"),
        ("load {url} {output} {tracee}", "{tracee} is not known; allowed: "),
    ],
)
def test_a_command_that_cannot_work_is_refused(tmp_path: Path, command: str, said: str) -> None:
    with pytest.raises(ValueError, match=said.replace("{", "\\{")):
        ForeignClient(command, tmp_path)


@pytest.mark.parametrize("params", [{"find": "max_rate", "slo": {"ttft": 1.0}}, {"concurrency": 2}])
def test_what_only_our_own_client_can_do_is_refused(tmp_path: Path, params: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="needs aiperf's own client"), loaded(tmp_path, client=client(), **params):
        pass


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ClientFault, match="the client no-such-client cannot be started: No such file"):
        ForeignClient("no-such-client {output}", tmp_path).send(SEGMENT, NOWHERE, timeout=1.0, seed=1)


# ---- what its file becomes -------------------------------------------------------------------------------------------


def test_times_count_from_the_schedule_where_the_file_has_it(tmp_path: Path) -> None:
    document = guidellm(entry(100.25, delay=0.25), entry(100.5, delay=0.0))
    segment, sent = run(tmp_path, copies(document), "{output}", "{rate}")
    assert [request.scheduled for request in sent.requests] == pytest.approx([0.0, 0.5])
    values = segment_values(segment, sent, {"ttft": 0.2})
    assert values["ttft"] == pytest.approx((0.35 + 0.1) / 2)
    assert values["end_to_end"] == pytest.approx((0.75 + 0.5) / 2)
    assert values["inter_token"] == pytest.approx(0.02)
    assert values["queue"] == pytest.approx(0.125)
    assert values["goodput"] == pytest.approx(1.0), "two requests at two a second, of which one met it"
    assert values["tokens_per_s"] == pytest.approx(6.0)
    assert series([sent])["inter_token"] == [], "single tokens are not known"


def test_a_schedule_of_the_clients_own_lasts_as_long_as_it_took(tmp_path: Path) -> None:
    segment, sent = run(tmp_path, copies(guidellm(entry(100.0), entry(103.5))))
    assert segment.seconds == sent.seconds == pytest.approx(4.0)


def test_failed_requests_count_as_failed_with_the_clients_word(tmp_path: Path) -> None:
    document = guidellm(
        entry(100.0), errored=[{"request_start_time": 1.0, "info": {"error": "status 422\nno field x"}}]
    )
    _, sent = run(tmp_path, copies(document))
    assert [request.ok for request in sent.requests] == [True, False]
    assert sent.requests[1].error == "errored, says guidellm: status 422 no field x"


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (guidellm(entry(1.0, time_to_first_token_ms=None)), "1 of 1 answered requests .* no time to the first token"),
        (guidellm(entry(1.0, request_latency=None)), "no time to the end of the answer"),
        (guidellm(entry(1.0, inter_token_latency_ms=None)), "have no time between tokens"),
        ({"benchmarks": 2 * guidellm(entry(1.0))["benchmarks"]}, "holds 2 runs: have it make one"),
        ({"benchmarks": [{"requests": {"successful": [3], "errored": 4}}]}, "is damaged: benchmarks"),
    ],
)
def test_a_file_without_what_counts_is_refused(tmp_path: Path, document: Any, said: str) -> None:
    with pytest.raises(ClientFault, match=said):
        run(tmp_path, copies(document))


def test_the_file_is_found_by_its_content_in_a_folder(tmp_path: Path) -> None:
    code = (
        f"import sys, pathlib; out = pathlib.Path(sys.argv[1]); text = {json.dumps(guidellm(entry(1.0)))!r}\n"
        "(out / 'other.csv').write_text('a,b'); (out / 'benchmarks.json').write_text(text)\n"
        "if len(sys.argv) > 2: (out / 'again.json').write_text(text)\n"
    )
    assert len(run(tmp_path, code, "{output}/")[1].requests) == 1
    with pytest.raises(ClientFault, match=r"wrote 2 files with requests \(again.json, benchmarks.json\)"):
        run(tmp_path, code, "{output}/", "twice")


def test_single_tokens_of_vllm_are_kept_as_they_came(tmp_path: Path) -> None:
    fixture = Path(__file__).resolve().parents[1] / "fixtures" / "foreign" / "vllm_bench.json"
    found = read_client(fixture.read_bytes())
    assert found is not None
    assert (found.tool, len(found.runs[0].requests), found.runs[0].scheduled) == ("vllm-bench", 4, True)
    _, sent = run(tmp_path, f"import shutil, sys; shutil.copy({str(fixture)!r}, sys.argv[1])")
    assert series([sent])["inter_token"] == pytest.approx([0.01, 0.02, 0.012, 0.014, 0.02, 0.02])
    assert [request.tokens for request in sent.requests if request.ok] == [3, 3, 3]
    assert sent.requests[0].scheduled == pytest.approx(0.0)


def test_what_a_file_does_not_say_is_left_out_of_the_metrics() -> None:
    request = Request(0.0, 0, times=[0.1], end=0.5, planned=False, gap=0.02)
    sent = Sent((request,), 0.0, None)
    assert segment_values(Segment((), 0.0), sent, {}).keys() == {"ttft", "inter_token", "end_to_end"}
    assert counts([(Segment((), 0.0), sent)], {}).keys() == {"requests", "met", "refused", "errors"}


def test_a_run_is_scheduled_only_where_every_answered_request_is() -> None:
    known, unknown, failed = ClientRequest(waited=0.1), ClientRequest(), ClientRequest(error="status 500")
    assert ClientRun((known, failed)).scheduled
    assert not ClientRun((known, unknown)).scheduled
    assert not ClientRun((failed,)).scheduled
    assert read_client(b"<html>") is None
    assert isinstance(read_client(json.dumps(guidellm()).encode()), ClientFile)
