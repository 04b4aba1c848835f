"""llm.generate: sides that must agree do, checks refuse what is wrong, work is counted, mistakes are named."""

from __future__ import annotations

import time
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest
from cpu_pairs import audit, run

from aiperf.protocol.measuring import Check
from aiperf.worker.named_check import named_check
from aiperf.workloads.contract import Context, SkipSide
from aiperf.workloads.decoder.model import PRESETS
from aiperf.workloads.llm import agreement
from aiperf.workloads.llm import workload as llm
from aiperf.workloads.llm.ways import evenly_spread

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


@pytest.mark.long
@pytest.mark.parametrize(("how", "text"), [("ngram", "repeating"), ("draft", "random"), ("self", "random")])
def test_speculation_produces_the_same_tokens_in_fewer_passes_and_says_how_often_it_was_right(how, text):
    shared = {"new_tokens": 32, "acceptance": 0.7, "text": text}
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
    if how != "ngram":
        assert 0.3 < found["accepted_tokens"] / found["proposed_tokens"] < 0.95


def test_fewer_bits_choose_other_tokens_more_often():
    exact, eight, four = (_side(feed="forced", new_tokens=64, kv_bits=bits) for bits in (0, 8, 4))
    before = audit(exact, seed=11)
    shares = [agreement.disagreement(before, audit(side, seed=11)).value for side in (exact, eight, four)]
    assert shares[0] == 0
    assert shares[0] <= shares[1] < shares[2] < 0.5
    floats = exact.values()["kv_bytes"]
    # Two layers of keys and values of 128 floats a token; the block has room for the prompt, the new tokens and a few.
    assert floats == exact.counters()["kv_bytes"]
    assert 0 <= floats - (12 + 64) * 2 * 2 * 128 * 4 < 16 * 2 * 2 * 128 * 4
    assert [side.values()["kv_bytes"] for side in (eight, four)] == [
        pytest.approx(floats * share) for share in (10 / 32, 6 / 32)
    ]


def test_a_side_without_a_cache_reports_no_memory_of_one():
    assert _side(kv="none").values is None


@pytest.mark.long
def test_newest_tokens_kept_as_computed_bring_few_bits_nearer_and_one_scale_a_head_takes_less():
    shared = {"feed": "forced", "new_tokens": 64}
    exact = audit(_side(**shared), seed=11)
    sides = [_side(**shared, kv_bits=4, **kept) for kept in ({}, {"kv_recent": 200}, {"kv_group": 8})]
    shares = [agreement.disagreement(exact, audit(side, seed=11)).value for side in sides]
    assert shares[1] == 0 < shares[0]
    assert shares[2] < shares[0]
    sizes = [side.counters()["kv_bytes"] for side in sides]
    assert sizes[0] < sizes[2] < sizes[1]


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


@pytest.mark.parametrize("constraint", ["remembered", "compiled"])
def test_every_engine_of_a_grammar_produces_the_same_tokens_and_no_grammar_others(constraint):
    shared = {"sequences": 2, "fields": 2}
    walked, other, free = (_side(constraint=how, **shared) for how in ("python", constraint, "none"))
    for seed in (11, 12):
        before = audit(walked, seed=seed)
        outcome = agreement.same_tokens(before, audit(other, seed=seed))
        assert outcome.passed, outcome.detail
        assert outcome.value == 0
        assert not agreement.same_tokens(before, audit(free, seed=seed)).passed
    assert walked.facts["grammar_states"] == other.facts["grammar_states"] > 10


@pytest.mark.long
def test_tokens_leave_early_as_often_as_asked_and_the_fewer_the_more_often_the_choice_stays():
    shared = {"feed": "forced", "new_tokens": 48, "acceptance": 0.6}
    before = audit(_side(**shared), seed=3)
    sides = [_side(depth="exit", exit_share=share, **shared) for share in (0.0, 0.25, 1.0)]
    skipping = _side(depth="skip", **shared)
    shares = []
    for side, asked in zip(sides, (0.0, 0.25, 1.0), strict=True):
        shares.append(agreement.disagreement(before, audit(side, seed=3)).value)
        assert side.counters()["early_exits"] / 48 == pytest.approx(asked, abs=0.03)
    assert shares[0] <= shares[1] < shares[2] < 0.7
    assert shares[0] < 0.05
    assert agreement.disagreement(before, audit(skipping, seed=3)).value == pytest.approx(shares[2], abs=0.15)
    assert sides[2].work.flops == skipping.work.flops < _side(**shared).work.flops


def test_a_window_as_long_as_the_text_changes_nothing_and_a_short_one_keeps_and_reads_less():
    shared = {"feed": "forced", "new_tokens": 24, "prompt_tokens": 40}
    full, wide, narrow = (
        _side(**shared, **kept) for kept in ({}, {"kv": "windowed", "window": 64}, {"kv": "windowed", "window": 8})
    )
    before = audit(full, seed=11)
    assert agreement.disagreement(before, audit(wide, seed=11)).value == 0
    assert agreement.disagreement(before, audit(narrow, seed=11)).value > 0
    assert narrow.counters()["kv_bytes"] < full.counters()["kv_bytes"] / 1.5
    assert narrow.work.bytes < full.work.bytes
    assert narrow.work.items == full.work.items


def test_a_block_has_room_for_the_longest_text_and_pages_only_for_what_is_there():
    block, pages = (_side(room_tokens=512, sequences=2, kv=kv) for kv in ("contiguous", "paged"))
    tokens = PRESETS["tiny"].kv_bytes(4) * 2
    assert block.counters()["kv_bytes"] == 512 * tokens
    run(pages)
    assert pages.counters()["kv_bytes"] == 32 * tokens
    outcome = agreement.same_tokens(audit(block, seed=11), audit(pages, seed=11))
    assert outcome.passed
    assert outcome.value == 0


def test_rounding_is_told_from_logits_that_are_wrong_at_few_positions():
    rng = np.random.default_rng(1)
    logits = rng.normal(size=(1, 12, 400))

    def side(values):
        return {"logits": values, "tokens": values.argmax(axis=-1)}

    rounded, broken = logits + 0.15 * rng.normal(size=logits.shape), logits.copy()
    broken[0, 8:] = rng.normal(size=(4, 400))
    before, after, wrong = side(logits), side(rounded), side(broken)
    assert agreement.disagreement(before, wrong).passed
    assert not agreement.rounded_disagreement(before, wrong).passed
    assert agreement.rounded_disagreement(before, after) == agreement.disagreement(before, after)
    assert agreement.rounded_disagreement(before, after).passed
    assert not agreement.rounded_disagreement(before, {**after, "tokens": after["tokens"] + 1}).passed


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
    assert not agreement.same_tokens(before, after).passed, "a side that saw no tie chose another token"
    for wrong in (-1e-6, 3e-3, np.nan):
        after["margins"][1, 3] = wrong
        assert not agreement.same_tokens(before, after).passed
    after["margins"][1, 3] = 2e-6
    outcome = agreement.same_tokens(before, after)
    assert outcome.passed
    assert outcome.value == pytest.approx(0.2)
    after["margins"][0, 0] *= 1.1
    assert not agreement.same_tokens(before, after).passed
    after["margins"][0, 0] = np.nan
    assert not agreement.same_tokens(before, after).passed


def test_a_tie_of_the_first_token_frees_no_other_text():
    """A session was called invalid for this: the check would have passed with spoilt outputs."""
    rng = np.random.default_rng(1)
    before = {"tokens": rng.integers(100, size=(1, 12)), "margins": rng.uniform(0.1, 1, (1, 12))}
    before["margins"][:, 0] = 1e-6
    rule, known = Check("named", name="same_tokens", bound=1.0), {"same_tokens": agreement.same_tokens}
    found = named_check(
        [lambda: before], [lambda: {name: array.copy() for name, array in before.items()}], rule, known, prove=True
    )
    assert found.passed, found.detail


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
        ({"speculation": "tree", "acceptance": 0.5, "kv_bits": 8}, "tree needs kv_bits 0"),
        ({"acceptance": 0.5, "draft_layers": 2}, "below the 2 layers of tiny"),
        ({"acceptance": 1.0}, "acceptance must be"),
        ({"feed": "forced", "kv": "none"}, "feed forced"),
        ({"decoding": 2}, "phase prefill"),
        ({"prefill_chunk": 4, "kv": "none"}, "needs a cache"),
        ({"prefill_chunk": 4, "kv": "offloaded_static"}, "in pieces"),
        ({"host_fetch": "blocking", "kv": "offloaded_static"}, "host_fetch ahead"),
        ({"prompt_tokens": 1, "kv": "offloaded_static"}, "a prompt of 2 tokens"),
        ({"graph": "per_size"}, "kv static"),
        ({"compile": "layer"}, "compile needs kv static"),
        ({"kernels": "hand_written"}, "hand_written needs kv static"),
        ({"kernels": "hand_written", "kv": "static", "phase": "prefill"}, "hand_written needs kv static"),
        ({"kernels": "hand_written", "kv": "static", "sequences": 2}, "and one sequence"),
        ({"kernels": "hand_written", "kv": "static", "buckets": [4]}, "not sizes or buckets"),
        ({"kernels": "hand_written", "kv": "static", "sizes": [1], "buckets": [2]}, "not sizes or buckets"),
        ({"kernels": "hand_written", "kv": "static", "compile": "layer"}, "compile none and precision same"),
        ({"kernels": "hand_written", "kv": "static", "precision": "fp8"}, "compile none and precision same"),
        ({"kv_bits": 8, "kv_group": 5}, "divide the 32 values"),
        ({"kv_bits": 8, "kv_recent": -1}, "not be negative"),
        ({"kv": "windowed"}, "needs a window"),
        ({"window": 4}, "needs a window"),
        ({"room_tokens": -1}, "room_tokens is -1"),
        ({"speculation": "self"}, "needs an acceptance"),
        ({"text": "repeating"}, "needs an acceptance"),
        ({"depth": "skip"}, "needs phase decode, feed forced"),
        ({"depth": "exit", "feed": "forced", "exit_share": 2}, "exit_share from 0 to 1"),
        ({"depth": "skip", "feed": "forced", "draft_layers": 2}, "below the 2 layers of tiny"),
        ({"constraint": "python", "kv": "static"}, "constraint needs"),
        ({"fields": 0, "constraint": "python"}, "fields is 0"),
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


def test_evenly_spread_layers_begin_with_the_first_and_leave_equal_gaps():
    assert evenly_spread(4, 2) == [0, 2]
    assert evenly_spread(12, 8) == [0, 1, 3, 4, 6, 7, 9, 10]
