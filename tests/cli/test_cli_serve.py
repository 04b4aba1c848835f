"""serve.load as a user runs it: two servers on one schedule, from the file to the verdict."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_user import User, processes_with
from nursery import LOADS

SERVER = Path(__file__).resolve().parents[1] / "programs" / "openai_server.py"
LOAD = f"""\
title: A slow server against a quick one
workload: serve.load
params:
  trace: {{arrivals: poisson, rate: 40, requests: 16, prompt_tokens: [4, 8], output_tokens: [2, 4]}}
  slo: {{ttft: 100ms, end_to_end: 300ms}}
  segments: 2
before: {{server: "{sys.executable} {SERVER} --port {{port}} --service 0.03 BEFORE"}}
after: {{server: "{sys.executable} {SERVER} --port {{port}} --service 0.015 AFTER"}}
needs: {{cpus: 2}}
measure: {{metric: METRIC}}
"""
CLIENT = (
    f"{sys.executable} {SERVER.parent / 'load_client.py'} --url {{url}} --model {{model}} --output {{output}} "
    "--trace {trace}"
)
LATE = {"rate_off", "sent_late", "client_busy"}


@pytest.fixture(autouse=True)
def _workers_have_loaded_their_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LOADS, "aiohttp")


def written(user: User, name: str, before: str = "", after: str = "", metric: str = "end_to_end") -> str:
    text = LOAD.replace("BEFORE", before).replace("AFTER", after).replace("METRIC", metric)
    user.write(f"{name}.yaml", text)
    return f"./{name}.yaml"


def kept_late(record: dict[str, Any]) -> bool:
    """Whether a busy host kept the client from its schedule in pair after pair: then nothing else can be judged."""
    return any(result["verdict"]["reason"] in LATE for result in record["results"])


@pytest.mark.long
def test_two_servers_are_loaded_side_by_side_and_all_that_they_are_judged_by_is_compared(marked: User) -> None:
    done = marked.runs(written(marked, "pair"))
    record = marked.record("pair")
    late = kept_late(record)
    assert done.code == (5 if late else 0), done.out + done.err
    runs = record["pairs"][0]["runs"]
    assert [run["counters"]["requests"] for run in runs] == [16, 16]
    assert [len(run["values"]["ttft"]) for run in runs] == [2, 2]
    assert all(set(run["facts"]["client_cpus"]).isdisjoint(run["facts"]["server_cpus"]) for run in runs)
    assert processes_with(marked.env["TEST_MARK"]) == []
    found = {result["comparison"]["metric"]: result for result in record["results"]}
    if late:
        return
    assert {"end_to_end", "goodput", "ttft", "inter_token", "queue", "tokens_per_s"} <= found.keys()
    assert "inter_token_p50" in found
    assert "end_to_end_p99" not in found, "16 requests say nothing of it"
    assert "peak_memory" not in found, "it would be the client's"
    ratio = found["end_to_end"]["comparison"]
    # 30 and 15 ms of service, and what the client and the connection take.
    assert ratio["before"]["value"] > 0.03
    assert ratio["after"]["value"] > 0.015
    assert found["goodput"]["comparison"]["better"] == "higher"


@pytest.mark.parametrize(
    ("after", "reason", "said"),
    [
        ("--says !", "wrong_output", "after with before"),
        pytest.param("--length 0.5", "token_count", "the server returned", marks=pytest.mark.long),
    ],
)
def test_what_makes_the_numbers_worthless_makes_the_verdict_invalid(
    user: User, after: str, reason: str, said: str
) -> None:
    done = user.runs(written(user, "odd", after=after))
    record = user.record("odd")
    late = kept_late(record)
    assert done.code == 5
    failed = [check for pair in record["pairs"] for check in pair["checks"] if not check["passed"]]
    found = {check["code"] or "wrong_output": f"{check['compared']} {check['detail']}" for check in failed}
    assert said in found[reason]
    verdict = record["results"][0]["verdict"]
    assert verdict["word"] == "invalid"
    assert late or verdict["reason"] == reason


@pytest.mark.long
def test_a_client_that_cannot_keep_its_schedule_makes_the_verdict_invalid_after_three_pairs(user: User) -> None:
    path = written(user, "rushed", before="--slots 1200", after="--slots 1200")
    text = (user.folder / "rushed.yaml").read_text(encoding="utf-8")
    user.write("rushed.yaml", text.replace("rate: 40, requests: 16", "rate: 900000, requests: 1000"))
    done = user.runs(path)
    assert done.code == 5, done.out + done.err
    record = user.record("rushed")
    assert (record["status"], record["stop"], len(record["pairs"])) == ("measured", "verdict", 3)
    assert {(r["verdict"]["word"], r["verdict"]["reason"] in LATE) for r in record["results"]} == {("invalid", True)}
    assert all({check["code"] for check in pair["checks"] if not check["passed"]} & LATE for pair in record["pairs"])
    said = " ".join(done.out.split())
    assert re.search(r"requests were sent (at \S+/s instead of \S+/s|more than 20 ms late)", said)


@pytest.mark.long
def test_a_server_that_dies_fails_its_case_with_the_end_of_its_log(marked: User) -> None:
    done = marked.runs(written(marked, "dies", after="--fault die --after 9"))
    assert done.code == 5
    assert done.plain
    failure = marked.record("dies")["failure"]
    assert (failure["side"], failure["phase"], failure["kind"]) == ("after", "warm-up", "ended")
    assert failure["message"] == "the server ended by itself with exit status 3"
    assert failure["stderr_tail"].rstrip().endswith("out of cache blocks")
    assert processes_with(marked.env["TEST_MARK"]) == []


@pytest.mark.long
def test_servers_that_have_no_room_beside_each_other_run_one_after_the_other_unless_that_is_ruled_out(
    marked: User,
) -> None:
    device = f"--device {marked.folder / 'device'}"
    done = marked.runs(written(marked, "narrow", before=device, after=device))
    record = marked.record("narrow")
    assert done.code == (5 if kept_late(record) else 0), done.out + done.err
    assert (record["status"], record["case"]["measure"]["exclusive"], record["failures"]) == ("measured", True, [])
    sides = [sample["side"] for sample in record["pairs"][0]["samples"] if not sample["audit"]]
    assert sides == sorted(sides, key=record["pairs"][0]["order"].index), "each had all its turns by itself"
    said = " ".join(done.out.split())
    ended = r"side by side, \w+ failed in set-up \(the server ended by itself [^)]*: out of memory on the device[^)]*\)"
    assert re.search(f"{ended}; aiperf then launched the sides one after the other", said)
    ruled_out = marked.runs(written(marked, "firm", device, device, metric="end_to_end, exclusive: false"))
    assert ruled_out.code == 5
    failure = marked.record("firm")["failure"]
    assert (failure["phase"], failure["kind"]) == ("set-up", "ended")
    assert failure["stderr_tail"].rstrip().endswith("out of memory on the device")
    assert processes_with(marked.env["TEST_MARK"]) == []


@pytest.mark.long
def test_a_server_that_waits_for_the_memory_of_the_other_one_is_tried_once_alone(marked: User) -> None:
    device = f"--patient --device {marked.folder / 'device'}"
    path = written(marked, "waits", before=device, after=device)
    text = (marked.folder / "waits.yaml").read_text(encoding="utf-8")
    marked.write("waits.yaml", text.replace("  segments: 2", "  segments: 2\n  ready_limit: 8s"))
    done = marked.runs(path)
    record = marked.record("waits")
    assert done.code == (5 if kept_late(record) else 0), done.out + done.err
    assert (record["status"], record["case"]["measure"]["exclusive"], record["failures"]) == ("measured", True, [])
    said = " ".join(done.out.split())
    waited = (
        r"side by side, \w+ failed in set-up \(the server was not ready within 8 s .*: out of memory on the device\)"
    )
    assert re.search(f"{waited}; aiperf then launched the sides one after the other", said)
    assert processes_with(marked.env["TEST_MARK"]) == []


def with_client(user: User, name: str, *, before: str = "", after: str = "") -> str:
    path = written(user, name)
    text = (user.folder / f"{name}.yaml").read_text(encoding="utf-8")
    for side, options in (("before", before), ("after", after)):
        text = text.replace(f"{side}: {{server:", f'{side}: {{client: "{CLIENT} {options}", server:')
    user.write(f"{name}.yaml", text)
    return path


@pytest.mark.long
def test_another_client_loads_both_servers_and_every_pair_says_whose_the_times_are(marked: User) -> None:
    done = marked.runs(with_client(marked, "foreign"))
    record = marked.record("foreign")
    late = kept_late(record)
    assert done.code == (5 if late else 0), done.out + done.err
    run = record["pairs"][0]["runs"][0]
    assert (run["counters"]["requests"], run["facts"]["client"], run["facts"]["counted_from"]) == (
        16, "guidellm 0.8.1", "schedule",
    )  # fmt: skip
    noted = {incident["kind"]: incident for incident in record["pairs"][0]["incidents"]}
    assert not noted["foreign_client"]["voids"]
    assert "guidellm 0.8.1, counted from schedule" in noted["foreign_client"]["detail"]
    assert record["pairs"][0]["checks"][0]["passed"], "the servers' answers were compared"
    assert processes_with(marked.env["TEST_MARK"]) == []
    if not late:
        shown = " ".join(marked.types("show", "latest", "foreign").out.split())
        assert "client guidellm 0.8.1" in shown
        assert "counted_from schedule" in shown


@pytest.mark.long
def test_sides_whose_times_count_from_different_moments_have_no_verdict_but_on_the_time_between_tokens(
    user: User,
) -> None:
    user.runs(with_client(user, "apart", after="--from-sending"))
    record = user.record("apart")
    found = [(r["verdict"]["word"], r["verdict"]["reason"], r["primary"]) for r in record["results"]]
    if kept_late(record):
        return
    assert [each for each in found if each[2]] == [("inconclusive", "counted_apart", True)]
    # Of a percentile a launch may have too few requests besides, which is said first.
    between = {r["verdict"]["reason"] for r in record["results"] if r["comparison"]["metric"].startswith("inter_token")}
    assert "counted_apart" not in between
    others = [r["verdict"] for r in record["results"] if not r["comparison"]["metric"].startswith("inter_token")]
    assert {(v["word"], v["reason"]) for v in others} <= {
        ("inconclusive", "counted_apart"), ("inconclusive", "too_few_units"),
    }  # fmt: skip


@pytest.mark.long
def test_a_client_that_fails_fails_its_case_with_the_end_of_its_log(marked: User) -> None:
    done = marked.runs(with_client(marked, "breaks", after="--fault exit"))
    assert done.code == 5
    assert done.plain
    failure = marked.record("breaks")["failure"]
    assert (failure["side"], failure["kind"]) == ("after", "error")
    assert failure["message"].endswith("the client ended with exit status 1")
    assert failure["stderr_tail"].rstrip().endswith("no such backend")
    assert processes_with(marked.env["TEST_MARK"]) == []


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("segments: 2", 'client: "load {url}"', "params.client has no {output}. Write it where"),
        ("segments: 2", 'client: "load {output}"', "params.client has no {url}. Write {url}, or {port}"),
        ("segments: 2", 'client: "load {url} {output} {rat}"', "params.client: {rat} is not known. Allowed: {url},"),
        (
            "segments: 2",
            'client: "load {url} {output}"\n  find: max_rate',
            "params.find needs aiperf's own client, and before has another one. Leave client out.",
        ),
        (
            "segments: 2",
            'client: "load {url} {output}"\n  concurrency: 4',
            "params.concurrency needs aiperf's own client, and before has another one. Write it in the client's",
        ),
        ("rate: 40", "ratee: 40", 'params.trace: "ratee" is not a key; allowed: arrivals, rate,'),
        ("poisson", "uniform", 'params.trace: arrivals: "uniform" is not allowed; allowed: poisson, constant, bursty'),
        ("100ms", "100", "params.slo: ttft: "),
        ("metric: end_to_end", "metric: goodputt", 'measure.metric: "goodputt" is not allowed'),
        ("rate: 40, ", "", "params.trace has no rate"),
        ("requests: 16", "requests: 0", "params.trace.requests: 0 is not above 0"),
        ("before: {server:", "before: {cwd:", "before has no server"),
        ("needs: {cpus: 2}", "needs: {cpus: 1}", "needs.cpus is 1. Write needs: {cpus: 2}, or more."),
        ("needs: {cpus: 2}\n", "", "The client of a load needs a CPU of its own, and needs.cpus is missing."),
        (
            "segments: 2",
            "model: tiny-random",
            "before.server has no {model}, and the model is tiny-random. Write {model}",
        ),
        ("metric: end_to_end", "metric: max_rate", "max_rate is not searched"),
        ("segments: 2", "segment: 2", 'params.segment: serve.load has no parameter "segment"'),
    ],
)
def test_a_mistake_in_the_file_is_said_with_its_place(here, user: User, old: str, new: str, said: str) -> None:
    written(user, "wrong")
    text = (user.folder / "wrong.yaml").read_text(encoding="utf-8")
    user.write("wrong.yaml", text.replace(old, new))
    done = here("run", "./wrong.yaml")
    assert done.code == 2
    assert said in " ".join(done.err.split())
    assert "wrong.yaml:" in done.err


@pytest.mark.parametrize("cache", ["cold", "hot", "warm"])
def test_the_caches_that_measure_means_are_refused_with_the_way_to_those_of_a_server(
    here, user: User, cache: str
) -> None:
    name = written(user, "cached", metric=f"end_to_end, cache: {cache}")
    done = here("run", name)
    assert done.code == 2
    assert " ".join(done.err.split()) == (
        "cached.yaml:10:38: measure.cache means the caches of CPU and GPU, which serve.load leaves to the servers. For "
        "a server's prefix cache, write cache: cold or cache: warm under params."
    )
