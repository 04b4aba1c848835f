"""cascade.answer: who answers which request, that each answer is that model's own, its cost, what the check notices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from cpu_pairs import audit

from aiperf.workloads.cascade.models import LARGE, SMALL
from aiperf.workloads.cascade.workload import answer
from aiperf.workloads.contract import Context, Workload
from aiperf.workloads.decoder.model import PRESETS

SHAPES: dict[str, Any] = {"requests": 10, "prompt_tokens": [6, 20], "new_tokens": 3}
Arrays = dict[str, np.ndarray[Any, Any]]


def side(route: str, share: float = 0.6, *, seed: int = 3, **more: Any) -> Workload:
    return answer(Context(seed=seed), route=route, small_share=share, **{**SHAPES, **more})


def outputs(workload: Workload, *, seed: int | None = None) -> Arrays:
    if seed is not None:
        return {name: np.array(array) for name, array in audit(workload, seed=seed).items()}
    workload.step()
    return {name: array.numpy().copy() for name, array in workload.outputs().items()}


@pytest.mark.parametrize(
    "share", [pytest.param(0.0, marks=pytest.mark.long), 0.3, pytest.param(0.6, marks=pytest.mark.long), 1.0]
)
def test_about_the_share_that_was_asked_for_is_answered_by_the_small_model(share: float) -> None:
    before, after = side("large", share), side("cascade", share)
    found = (outputs(before), outputs(after))
    assert (found[0]["model"] == LARGE).all()
    count = (found[1]["model"] == SMALL).sum()
    assert after.facts["threshold"] == {0.0: np.inf, 1.0: 0.0}.get(share, after.facts["threshold"])
    assert count == {0.0: 0, 1.0: SHAPES["requests"]}.get(share, count)
    assert after.counters is not None
    assert after.counters() == {"large_answers": 10.0 - count, "small_answers": count}
    outcome = after.checks["routed"](*found)
    assert outcome.passed, outcome.detail
    large = found[1]["model"] == LARGE
    assert np.array_equal(found[0]["tokens"][large], found[1]["tokens"][large])
    assert share == 0.0 or not np.array_equal(found[0]["tokens"], found[1]["tokens"])


@pytest.mark.parametrize("share", [pytest.param(0.3, marks=pytest.mark.long), 0.6])
def test_over_other_prompts_that_share_is_kept_nearly(share: float) -> None:
    after = side("cascade", share, new_tokens=1)
    of_small = [float((outputs(after, seed=seed)["model"] == SMALL).mean()) for seed in range(12)]
    # 120 answers by a threshold from 80: three standard errors of both together are 0.21.
    assert sum(of_small) / len(of_small) == pytest.approx(share, abs=0.21)


def test_the_least_sure_answers_are_those_that_the_large_model_gives() -> None:
    sure = outputs(side("cascade", 1.0))["margins"].mean(axis=1)
    asked_again = outputs(side("cascade", 0.6))["model"] == LARGE
    assert sure[asked_again].max() < sure[~asked_again].min()


def test_the_cost_is_what_the_tags_and_the_shapes_say() -> None:
    workload = side("cascade", 0.5)
    found = outputs(workload)

    def flops(name: str, prompt: int) -> float:
        shape = PRESETS[name]
        return 2.0 * (shape.layers * shape.layer_parameters * (prompt + 2) + 3 * shape.head_parameters)

    lengths = (found["text"] >= 0).sum(axis=1)
    assert (lengths.min(), lengths.max()) == (6, 20)
    whole = sum(flops("small", n) for n in lengths)
    again = sum(flops("small", n) for n, model in zip(lengths, found["model"], strict=True) if model == LARGE)
    cost = (sum(flops("tiny", n) for n in lengths) + again) / whole
    assert workload.values is not None
    assert workload.values() == {"cost": pytest.approx(cost)}
    assert workload.values() == {}
    assert 7 < 1 / (cost - again / whole) < 9, "an eighth"


@pytest.mark.long
def test_every_request_is_timed_and_other_prompts_meet_the_same_threshold() -> None:
    before, after = side("large"), side("cascade")
    found = outputs(before, seed=8), outputs(after, seed=8)
    assert after.latencies is not None
    assert [len(times) for times in after.latencies().values()] == [10]
    assert after.latencies() == {"end_to_end": []}
    assert not np.array_equal(found[0]["text"], outputs(side("large"))["text"])
    assert after.checks["routed"](*found).passed
    assert after.facts["threshold"] == before.facts["threshold"]


def test_one_token_an_answer_needs_no_decoding() -> None:
    before, after = side("large", new_tokens=1), side("cascade", new_tokens=1)
    assert after.checks["routed"](outputs(before), outputs(after)).passed


def broken(found: Arrays, **changed: Any) -> Arrays:
    return {**found, **changed}


@pytest.mark.long
def test_the_check_notices_who_answered_and_what() -> None:
    before, after = side("large"), side("cascade")
    whole, own = outputs(before), outputs(after)
    small, other = own["model"] == SMALL, outputs(side("large", seed=4))
    cheats = {
        "another prompt": broken(own, text=other["text"]),
        "all by the small model": outputs(side("cascade", 1.0)),
        "all by the large model": whole,
        "tags alone": broken(whole, model=own["model"]),
        "one tag": broken(own, model=np.where(np.arange(10) == np.flatnonzero(~small)[0], SMALL, own["model"])),
        "no model": broken(own, model=np.where(small, 2, own["model"])),
        "a token of the small one's": broken(own, tokens=np.where(small[:, None], own["tokens"] ^ 1, own["tokens"])),
        "a token of the large one's": broken(own, tokens=np.where(small[:, None], own["tokens"], own["tokens"] ^ 1)),
        "no margin": broken(own, margins=np.full_like(own["margins"], np.nan)),
    }
    check = after.checks["routed"]
    assert check(whole, own).passed
    assert {name: check(whole, found).passed for name, found in cheats.items()} == dict.fromkeys(cheats, False)
    assert not check(own, own).passed, "before is the large model alone"
    unseen = broken(whole, tokens=np.where(small[:, None], whole["tokens"] ^ 1, whole["tokens"]))
    assert not check(unseen, own).passed, "after does not show these answers"


def test_faults_are_told_and_the_process_keeps_its_threads() -> None:
    for wrong in ({"requests": 0}, {"share": 1.5}, {"prompt_tokens": [9, 3]}, {"large": "small", "small": "base"}):
        with pytest.raises(ValueError, match=r"must be|write|not smaller"):
            side("large", **wrong)
    threads = torch.get_num_threads()
    workload = side("large")
    assert workload.close is not None
    workload.close()
    assert torch.get_num_threads() == threads
