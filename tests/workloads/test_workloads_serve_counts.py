"""What servers count of themselves: by the names at /metrics that vLLM, SGLang and llama.cpp use, and in answers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from loaded_servers import loaded, play

from aiperf.workloads.serve.client import Request, Sent
from aiperf.workloads.serve.metrics import acceptance_length
from aiperf.workloads.serve.server import Server, batch_of, counts_of, latest_acceptance_of
from aiperf.workloads.serve.trace import Segment

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "serve"
SPECULATES = {"drafts": 500.0, "draft_tokens": 2000.0, "accepted_tokens": 750.0}


def exported(engine: str) -> str:
    return (FIXTURES / f"{engine}.prom").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("engine", "counted"),
    [
        ("vllm", {"prefix_hits": 3000.0, "prefix_queries": 12000.0, "preemptions": 7.0, **SPECULATES}),
        (
            "sglang",
            {
                "prefix_hits": 3000.0, "prefix_queries": 12000.0, "preemptions": 5.0, "verifications": 600.0,
                "generated_tokens": 1500.0,
            },
        ),
        ("llama-server", {"drafts": 500.0, "draft_tokens": 1600.0, "accepted_tokens": 900.0}),
    ],
)  # fmt: skip
def test_what_an_engine_counts_is_summed_over_its_labels_and_nothing_of_a_similar_name_is_added(
    engine: str, counted: dict[str, float]
) -> None:
    text = exported(engine)
    assert counts_of(text) == counted
    assert batch_of(text) == (3, 1)
    assert counts_of("") == {}


@pytest.mark.parametrize(("engine", "length"), [("vllm", 2.5), ("sglang", 2.5), ("llama-server", 2.8)])
def test_the_acceptance_length_is_of_what_an_engine_counted_meanwhile(engine: str, length: float) -> None:
    assert acceptance_length(counts_of(exported(engine)), [], 9.0) == pytest.approx(length)


def test_the_length_of_the_latest_steps_counts_where_sglang_does_not_count_its_verifications() -> None:
    text = re.sub(r".*(spec_verify_calls).*\n", "", exported("sglang"))
    latest = latest_acceptance_of(text)
    assert latest == pytest.approx(2.7), "the mean of its ranks"
    assert acceptance_length(counts_of(text), [], latest) == latest
    without = text.replace("} 2.0", "} 0.0").replace("} 3.4", "} 0.0")
    assert latest_acceptance_of(without) is None, "0 is what it exports without speculative decoding"


def test_a_server_that_does_not_speculate_has_no_acceptance_length() -> None:
    def played(*accepted: int | None) -> list[tuple[Segment, Sent]]:
        requests = (
            Request(0.0, 4, times=[0.1], end=0.2, status=200, counted=4, accepted_tokens=count) for count in accepted
        )
        return [(Segment((), 1.0), Sent(tuple(requests), 1.0, 0.0))]

    assert acceptance_length({"drafts": 0.0, "verifications": 0.0}, played(None, None), None) is None
    # Of eight tokens three were drafted, so that the model ran five times: also where one answer had no draft.
    assert acceptance_length({}, played(3, None), None) == pytest.approx(8 / 5)


def test_a_side_reports_what_its_server_counted_in_its_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = exported("vllm")
    text = {"now": before}
    monkeypatch.setattr(Server, "_metrics", lambda _: text["now"])
    with loaded(tmp_path) as workload:
        play(workload)
        text["now"] = before.replace("} 450.0", "} 570.0").replace("} 300.0", "} 400.0").replace("} 3.0", "} 5.0")
        assert workload.counters is not None
        counters = workload.counters()
    # 100 more drafts, also 100 and 120 more accepted tokens.
    assert (counters["drafts"], counters["accepted_tokens"], counters["preemptions"]) == (100, 220, 2)
    assert counters["acceptance_length"] == 3.2


def test_drafted_tokens_in_the_answers_of_llama_cpp_give_the_acceptance_length(tmp_path: Path) -> None:
    with loaded(tmp_path, "--accepted", "3") as workload:
        play(workload)
        assert workload.counters is not None
        assert workload.counters()["acceptance_length"] == 4.0
