"""llm.generate: sides that must agree do, checks refuse what is wrong, work is counted, mistakes are named."""

from __future__ import annotations

import time
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from cpu_pairs import audit, run

from aiperf.workloads.contract import Context, SkipSide
from aiperf.workloads.decoder.model import PRESETS
from aiperf.workloads.llm import agreement
from aiperf.workloads.llm import workload as llm


@pytest.fixture(autouse=True)
def _one_thread():
    """Threads that wait for each other's share of tiny products cost more than the products."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


_SMALL = {"prompt_tokens": 12, "new_tokens": 6}


def _side(**params):
    return llm.generate(Context(seed=3), **{**_SMALL, **params})


@pytest.mark.parametrize(
    "params",
    [
        {"kv": "none"},
        {"kv": "static"},
        {"kv": "paged", "page_tokens": 4},
        {"batch": 1},
        {"batch": 2, "kv": "static"},
        {"phase": "both", "prefill_chunk": 5},
    ],
    ids=str,
)
def test_every_way_to_keep_keys_and_values_produces_the_same_tokens(params):
    before, after = _side(sequences=4), _side(sequences=4, **params)
    for seed in (11, 12):
        outcome = agreement.same_tokens(audit(before, seed=seed), audit(after, seed=seed))
        assert outcome.passed, outcome.detail
        assert outcome.value == 0


@pytest.mark.parametrize("how", ["ngram", "draft"])
def test_speculation_produces_the_same_tokens_in_fewer_passes_and_says_how_often_it_was_right(how):
    shared = {"new_tokens": 32, "acceptance": 0.7, "model": "tiny"}
    before, after = _side(**shared), _side(speculation=how, **shared)
    outcome = agreement.same_tokens(audit(before, seed=11), audit(after, seed=11))
    assert outcome.passed, outcome.detail
    assert before.facts == after.facts
    assert before.facts["acceptance_set"] == pytest.approx(0.7, abs=0.1)
    after.redraw(3)
    run(after)
    found = after.counters()
    assert found["target_passes"] + found["accepted_tokens"] == 32
    assert found["accepted_tokens"] <= found["proposed_tokens"]
    if how == "draft":
        assert 0.3 < found["accepted_tokens"] / found["proposed_tokens"] < 0.95


def test_fewer_bits_choose_other_tokens_more_often():
    exact, eight, four = (_side(feed="forced", new_tokens=64, kv_bits=bits) for bits in (0, 8, 4))
    before = audit(exact, seed=11)
    shares = [agreement.disagreement(before, audit(side, seed=11)).value for side in (exact, eight, four)]
    assert shares[0] == 0
    assert shares[0] <= shares[1] < shares[2] < 0.5
    assert [side.counters()["kv_bytes"] for side in (eight, four)] == [
        pytest.approx(exact.counters()["kv_bytes"] * share) for share in (10 / 32, 6 / 32)
    ]


def test_pieces_of_a_prompt_leave_the_same_keys_and_let_others_decode_between_them(monkeypatch):
    # A clock that goes on by one each time it is read.
    clock = SimpleNamespace(perf_counter=map(float, count()).__next__)
    monkeypatch.setattr("aiperf.workloads.llm.token_times.time", clock)
    shared = {"phase": "prefill", "decoding": 3, "prompt_tokens": 40}
    whole, pieces = _side(**shared), _side(prefill_chunk=10, **shared)
    before, after = audit(whole, seed=11), audit(pieces, seed=11)
    assert set(before) == {"kv_0", "logits", "margins", "tokens"}
    assert all(np.allclose(before[name], after[name], atol=1e-4) for name in before)
    waited = []
    for side in (whole, pieces):
        # An iteration of the audit, in which the prompt's first token comes once and its neighbours' tokens six times.
        told = side.latencies()
        assert {name: len(seconds) for name, seconds in told.items()} == {"ttft": 1, "inter_token": 6}
        assert side.latencies() == {"ttft": [], "inter_token": []}
        waited += told["ttft"]
    assert waited[1] - waited[0] == 3, "neighbours decode once between two of four pieces"
    assert max(told["inter_token"]) < waited[1], "no neighbour waits for the whole prompt"
    assert whole.work.items == pieces.work.items == 40


@pytest.mark.parametrize("kv", ["none", "contiguous", "static", "paged"])
def test_first_tokens_count_from_the_start_of_an_iteration_and_others_from_the_one_before(kv):
    side = _side(phase="both", sequences=4, batch=2, new_tokens=5, kv=kv)
    side.latencies()
    began = time.perf_counter()
    side.step()
    lasted = time.perf_counter() - began
    told = side.latencies()
    assert [len(told[name]) for name in ("ttft", "inter_token")] == [2, 10]
    assert told["ttft"][1] > told["ttft"][0] + sum(told["inter_token"][:5])
    assert 0 < told["ttft"][1] + sum(told["inter_token"][5:]) <= lasted
    decoding = _side(phase="decode", new_tokens=5, feed="forced")
    decoding.step()
    assert {name: len(seconds) for name, seconds in decoding.latencies().items()} == {"ttft": 0, "inter_token": 5}


@pytest.mark.parametrize("kept", ["host", "file"])
def test_a_context_that_is_read_back_is_the_one_that_would_be_computed(kept, tmp_path):
    shared = {"phase": "prefill", "sequences": 2, "batch": 1, "prompt_tokens": 40}
    computed = _side(**shared)
    context = Context(seed=3, scratch=tmp_path)
    fetched = llm.generate(context, **{**_SMALL, **shared, "context_from": kept})
    for seed in (11, 12):
        before, after = audit(computed, seed=seed), audit(fetched, seed=seed)
        assert set(before) == set(after) == {"kv_0", "kv_1", "logits"}
        assert all(np.allclose(before[name], after[name], atol=1e-4) for name in before)
    assert fetched.work.items == computed.work.items
    assert fetched.work.flops < computed.work.flops / 10
    assert len(list(tmp_path.iterdir())) == (2 if kept == "file" else 0)
    for path in tmp_path.iterdir():
        path.write_bytes(path.read_bytes()[:-1])
        with pytest.raises(OSError, match="bytes"):
            fetched.step()


def _outputs():
    rng = np.random.default_rng(1)
    return {"tokens": rng.integers(100, size=(2, 5)), "margins": rng.uniform(0.1, 1, (2, 5))}


def test_tokens_may_differ_only_after_a_tie():
    before, after = _outputs(), _outputs()
    assert agreement.same_tokens(before, after).value == 0
    after["tokens"][1, 3:] += 1
    assert not agreement.same_tokens(before, after).passed
    before["margins"][1, 4] = 1e-6
    assert not agreement.same_tokens(before, after).passed
    before["margins"][1, 3] = 1e-6
    outcome = agreement.same_tokens(before, after)
    assert outcome.passed
    assert outcome.value == pytest.approx(0.2)
    after["margins"][0, 0] *= 1.1
    assert not agreement.same_tokens(before, after).passed
    after["margins"][0, 0] = np.nan
    assert not agreement.same_tokens(before, after).passed


def test_tokens_that_are_not_those_of_the_logits_are_refused():
    side = audit(_side(feed="forced"), seed=11)
    assert agreement.disagreement(side, side).passed
    assert not agreement.disagreement(side, {**side, "tokens": side["tokens"] + 1}).passed
    assert not agreement.disagreement(side, {**side, "logits": side["logits"] * 0}).passed


def test_work_is_weights_once_a_pass_plus_what_is_read_of_keys_and_values():
    shape = PRESETS["tiny"]
    weights = 4 * (shape.layers * shape.layer_parameters + shape.head_parameters)
    seen = sum(range(13, 19))
    together, apart = _side(sequences=4).work, _side(sequences=4, batch=1).work
    assert together.bytes == 6 * weights + 4 * seen * shape.kv_bytes(4)
    assert apart.bytes == 4 * 6 * weights + 4 * seen * shape.kv_bytes(4)
    attention = 4 * shape.layers * shape.width * seen
    assert together.flops == apart.flops == 4 * (6 * 2 * weights / 4 + attention)
    assert together.items == 24
    assert _side(kv_bits=8).work.bytes == 6 * weights + seen * shape.kv_bytes(1.25)
    assert _side(phase="prefill").work.items == 12


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ({"sequences": 0}, "sequences is 0"),
        ({"sequences": 3, "batch": 2}, "batch must divide"),
        ({"kv_bits": 3}, "kv_bits must be"),
        ({"kv_bits": 8, "kv": "paged"}, "kv contiguous"),
        ({"speculation": "draft"}, "needs an acceptance"),
        ({"speculation": "ngram", "sequences": 2}, "one sequence"),
        ({"acceptance": 0.5, "draft_layers": 2}, "below the 2 layers of tiny"),
        ({"acceptance": 1.0}, "acceptance must be"),
        ({"feed": "forced", "kv": "static"}, "feed forced"),
        ({"decoding": 2}, "phase prefill"),
        ({"prefill_chunk": 4, "kv": "none"}, "needs a cache"),
        ({"graph": "per_size"}, "kv static"),
        ({"context_from": "file"}, "context_from needs phase prefill"),
        ({"context_from": "host", "phase": "prefill", "kv": "paged"}, "kv contiguous"),
    ],
)
def test_what_does_not_go_together_is_named(params, named):
    with pytest.raises(ValueError, match=named):
        _side(**params)


def test_graphs_are_skipped_without_a_gpu():
    with pytest.raises(SkipSide, match="need a GPU"):
        _side(kv="static", graph="per_size")
