"""llm.generate as one GPU runs it, in small on the CPU: batches of several sizes and their graphs, keys and values on
the host, decoding within a prefill, weights in fp8."""

from __future__ import annotations

import weakref
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from cpu_pairs import audit

from aiperf.workloads.contract import Context
from aiperf.workloads.decoder import caches, generate, offload, precision
from aiperf.workloads.decoder.model import draw
from aiperf.workloads.llm import agreement, requantised
from aiperf.workloads.llm import workload as llm

_SMALL = {"prompt_tokens": 12, "new_tokens": 6}


def _side(context: Context | None = None, **params):
    return llm.generate(context or Context(seed=3), **{**_SMALL, **params})


class Capturing(Context):
    """A CPU that says it is a GPU, where a graph is its step."""

    on_gpu = True


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Instead of CUDA graphs: warm-up, then the step itself. How many were captured."""
    made: list[int] = []

    def replay_of(step):
        for _ in range(3):
            step()
        made.append(1)
        return step

    monkeypatch.setattr(generate, "replay_of", replay_of)
    return made


def _product(codes, other, *, scale_a, scale_b, out_dtype):
    """What torch._scaled_mm computes, which on a CPU takes fifty times as long."""
    return ((codes.float() @ other.float()) * (scale_a * scale_b)).to(out_dtype)


@pytest.fixture
def quick_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "_scaled_mm", _product)


@pytest.mark.parametrize("fetch", ["blocking", "ahead"])
@pytest.mark.parametrize("model", ["tiny", "odd"])
def test_keys_and_values_on_the_host_are_the_same_to_the_bit(fetch, model, monkeypatch):
    # An odd number of layers: the last and the first of the next pass lie in different blocks.
    monkeypatch.setitem(llm.PRESETS, "odd", llm.PRESETS["tiny"].__class__(3, 64, 4, 2, 96, 512))
    resident = _side(model=model, sequences=2)
    hosted = _side(model=model, sequences=2, kv="offloaded", host_fetch=fetch)
    for seed in (11, 12):
        before, after = audit(resident, seed=seed), audit(hosted, seed=seed)
        assert all(np.array_equal(before[name], after[name]) for name in before)
        hosted.step()
        assert np.array_equal(before["margins"], hosted.outputs()["margins"])
    layers = llm.PRESETS[model].layers
    blocks = 2 if fetch == "ahead" else 1
    assert hosted.counters()["kv_bytes"] == resident.counters()["kv_bytes"] * blocks / layers


@pytest.mark.parametrize("fetch", ["blocking", "ahead"])
@pytest.mark.parametrize("phase", ["prefill", "both"])
def test_weights_on_the_host_are_the_same_to_the_bit(fetch, phase, monkeypatch):
    monkeypatch.setitem(llm.PRESETS, "odd", llm.PRESETS["tiny"].__class__(3, 64, 4, 2, 96, 512))
    resident = _side(model="odd", sequences=2, phase=phase)
    hosted = _side(model="odd", sequences=2, phase=phase, weights="host", host_fetch=fetch)
    for seed in (11, 12):
        before, after = audit(resident, seed=seed), audit(hosted, seed=seed)
        assert all(np.array_equal(before[name], after[name]) for name in before)


def test_a_context_that_is_sent_arrives_and_in_fp8_nearly():
    shared = {"phase": "prefill", "sequences": 2, "prompt_tokens": 40}
    ways = ("prefill", "wire", "resharded", "wire_fp8")
    computed, sent, resharded, rounded = (_side(**shared, context_from=how) for how in ways)
    for seed in (11, 12):
        before = audit(computed, seed=seed)
        exact, ordered, near = (
            agreement.same_when_rounded(before, audit(side, seed=seed)).value for side in (sent, resharded, rounded)
        )
        # One by one: the largest of two passes over what is no number.
        assert exact < 1e-5
        assert ordered < 1e-5
        assert 0.01 < near < 0.08
    once = rounded.outputs()["kv_0"].clone()
    rounded.step()
    assert torch.equal(once, rounded.outputs()["kv_0"]), "what is sent is not rounded again"


def test_of_a_large_cache_the_last_layer_is_shown(monkeypatch):
    shared = {"phase": "prefill", "model": "small"}
    whole = audit(_side(**shared), seed=11)["kv_0"]
    monkeypatch.setattr("aiperf.workloads.llm.sides._SHOWN", whole.nbytes - 1)
    assert np.array_equal(audit(_side(**shared), seed=11)["kv_0"], whole[:, -1:])


def test_layers_on_the_host_take_the_room_of_one_or_two_and_end():
    model = draw(llm.PRESETS["small"], seed=1, max_tokens=4)
    for ahead in (False, True):
        hosted = offload.HostLayers(iter(model.layers), len(model.layers), ahead=ahead)
        assert len(list(hosted)) == 4
        for _ in range(2):
            for index, layer in enumerate(model.layers):
                found = vars(hosted[index])
                assert all(torch.equal(found[name], weight) for name, weight in vars(layer).items())
        one = sum(weight.nbytes for weight in vars(model.layers[0]).values())
        assert hosted._blocks.nbytes == one * (1 + ahead)


def test_layers_are_drawn_one_by_one_on_their_way_to_the_host():
    drawn, most = [], []

    def keep(layers):
        def seen():
            for layer in layers:
                drawn.append(weakref.ref(layer))
                most.append(sum(one() is not None for one in drawn))
                yield layer
                del layer

        return offload.HostLayers(seen(), 4, ahead=True)

    draw(llm.PRESETS["small"], seed=1, max_tokens=4, keep=keep)
    assert len(most) == 4
    assert max(most) <= 2


def test_a_layer_that_is_fetched_ahead_comes_from_the_host(monkeypatch):
    hosted = _side(kv="offloaded")
    hosted.step()
    before = hosted.outputs()["margins"].clone()
    fetch = offload.Blocks.fetch

    def forgetful(self, layer, source):
        source.zero_()
        fetch(self, layer, source)

    monkeypatch.setattr(offload.Blocks, "fetch", forgetful)
    hosted.step()
    assert not torch.equal(before, hosted.outputs()["margins"])


def test_batches_of_several_sizes_decode_as_alone_padded_and_captured_or_not(captures):
    shared = {"sizes": [1, 3, 2], "kv": "static"}
    eager, padded = _side(**shared), _side(**shared, buckets=[2, 4])
    per_size = _side(Capturing(seed=3), **shared, buckets=[2, 4], graph="per_size")
    assert len(captures) == 3
    lazy = _side(Capturing(seed=3), **shared, graph="lazy")
    assert len(captures) == 3, "a lazy side captures when a batch comes"
    alone = _side(sequences=6, kv="contiguous")
    for seed in (11, 12):
        before = audit(alone, seed=seed)
        for side in (eager, padded, per_size, lazy):
            outcome = agreement.same_tokens(before, audit(side, seed=seed))
            assert outcome.passed, outcome.detail
            assert outcome.value == 0
    captures.clear()
    lazy.step()
    assert len(captures) == 3, "each iteration anew"
    captures.clear()
    per_size.step()
    assert captures == []
    assert eager.work.items == 6 * 6
    assert len(eager.latencies()["inter_token"]) > 0
    assert padded.counters()["kv_bytes"] == eager.counters()["kv_bytes"] * (2 + 4 + 2) / 6


@pytest.mark.long
@pytest.mark.usefixtures("backend")
def test_a_given_text_goes_through_steps_of_a_graph_too(captures):
    shared = {"feed": "forced", "sequences": 3}
    before = audit(_side(**shared), seed=11)
    for own in ({}, {"buckets": [8]}, {"graph": "per_size"}, {"graph": "per_size", "compile": "layer"}):
        after = audit(_side(Capturing(seed=3), **shared, kv="static", **own), seed=11)
        outcome = agreement.same_when_rounded(before, after)
        assert outcome.passed, outcome.detail
        assert outcome.value < 1e-5
    assert len(captures) == 2


@pytest.mark.parametrize("rounds", [3, 6])
def test_sequences_that_decode_in_the_pass_of_a_prompts_piece_get_the_tokens_of_their_own(rounds):
    shared = {"phase": "prefill", "decoding": 3, "prompt_tokens": 40, "new_tokens": rounds}
    own, within = (_side(**shared, prefill_chunk=10, decoding_in=how) for how in ("own_pass", "same_pass"))
    for seed in (11, 12):
        before, after = audit(own, seed=seed), audit(within, seed=seed)
        outcome = agreement.same_when_rounded(before, after)
        assert outcome.passed, outcome.detail
        assert outcome.value < 1e-5
        assert np.array_equal(before["tokens"], after["tokens"])
        assert np.allclose(before["margins"], after["margins"], atol=1e-4)
    within.latencies()
    within.step()
    assert {name: len(seconds) for name, seconds in within.latencies().items()} == {"ttft": 1, "inter_token": rounds}


@pytest.mark.long
@pytest.mark.usefixtures("quick_products")
def test_more_layers_in_fp8_lie_further_from_the_exact_model_and_read_fewer_bytes():
    shared = {"model": "small", "feed": "forced", "new_tokens": 24}
    exact, inner, all_of_them = (_side(**shared, precision=how) for how in ("same", "fp8_inner", "fp8"))
    before = audit(exact, seed=11)
    found = [agreement.same_when_rounded(before, audit(side, seed=11)).value for side in (inner, all_of_them)]
    assert 0.01 < found[0] < found[1] < 0.2
    assert exact.work.bytes > inner.work.bytes > all_of_them.work.bytes
    assert exact.work.flops == all_of_them.work.flops


def test_a_product_in_fp8_is_that_of_the_rounded_numbers(monkeypatch):
    torch.manual_seed(1)
    x, weight = torch.randn(2, 3, 32), torch.randn(48, 32)
    rounded = precision.Rounded(weight)
    restored = rounded.codes.float() * rounded.scale
    assert float((restored - weight).norm() / weight.norm()) < 0.04
    taken = (x * 16).to(torch.float8_e4m3fn).float() / 16
    assert torch.allclose(precision.linear(x, rounded), taken @ restored.T, rtol=1e-4, atol=1e-4)
    assert precision.linear(1e4 * x, rounded).isfinite().all(), "what is too large is clipped"
    computed = precision.linear(x, rounded)
    monkeypatch.setattr(torch, "_scaled_mm", _product)
    assert torch.allclose(precision.linear(x, rounded), computed, rtol=1e-5, atol=1e-6)
    assert torch.equal(precision.linear(x, weight), x @ weight.T)


def _decoded(margins: list[float], **how: float) -> tuple[list[int], precision.Switched]:
    """Which model each token went through whose margin is given, and what switched them."""
    given, used = iter(margins), []

    def model(number: int) -> SimpleNamespace:
        def forward(tokens, cache):
            used.append(number)
            return torch.tensor([[[next(given), 0.0, -9.0]]])

        return SimpleNamespace(forward=forward)

    switched = precision.Switched(model(0), model(1), **how)
    for _ in margins:
        switched.forward(torch.zeros(1, 1), caches.Nothing())
    return used, switched


def test_decoding_switches_by_the_smoothed_margin_every_eight_tokens_and_back_below_the_lower_bound():
    margins = [4.0] * 8 + [2.0] * 16 + [0.0] * 16
    used, switched = _decoded(margins, enter=3.0, leave=1.0, every=8, newest=0.2)
    assert used == [0] * 8 + [1] * 24 + [0] * 8, "two stays above the lower bound, nothing does not"
    assert (switched.low_steps, switched.switches) == (24, 2)
    assert precision.smoothed(torch.tensor([4.0, 4.0, 2.0])).tolist() == pytest.approx([4.0, 4.0, 3.6])


@pytest.mark.usefixtures("quick_products")
@pytest.mark.parametrize("kv", [pytest.param("contiguous", marks=pytest.mark.long), "static"])
def test_a_switched_side_decodes_some_tokens_in_fp8_and_says_how_many(kv):
    shared = {"model": "small", "feed": "forced", "new_tokens": 32}
    exact, switched, low = (_side(**shared, kv=kv, precision=how) for how in ("same", "switched", "fp8"))
    before, after, rounded = (audit(side, seed=3) for side in (exact, switched, low))
    steps = switched.counters()["fp8_steps"]
    assert 0 < steps < 32
    assert switched.facts["enter_margin"] == 2 * switched.facts["leave_margin"] > 0
    same = [np.array_equal(before["logits"][:, i], after["logits"][:, i]) for i in range(8)]
    assert all(same), "the first tokens are exact"
    assert agreement.same_when_rounded(before, after).value < agreement.same_when_rounded(before, rounded).value
    switched.step()
    assert switched.counters()["fp8_steps"] == steps, "each iteration starts anew"


@pytest.mark.long
@pytest.mark.usefixtures("quick_products")
@pytest.mark.parametrize(("share", "steps"), [(1.0, [31, 24]), (0.0, [0, 0])])
def test_a_margin_that_is_read_at_every_token_is_heeded_from_the_second_on(share, steps):
    shared = {"model": "small", "feed": "forced", "new_tokens": 32, "precision": "switched", "exit_share": share}
    often, rarely = (_side(**shared, decide_every=every) for every in (1, 8))
    found = [audit(side, seed=3) for side in (often, rarely)]
    assert [side.counters()["fp8_steps"] for side in (often, rarely)] == steps
    apart = agreement.same_when_rounded(*found)
    assert (apart.passed and apart.value < 1e-3) == (share == 0)


def test_no_token_switches_where_none_is_to_not_even_the_clearest_by_rounding():
    shared = {"model": "small", "feed": "forced", "new_tokens": 32, "precision": "switched"}
    none, one = (_side(**shared, exit_share=share).facts["enter_margin"] for share in (0.0, 0.001))
    assert none > 50 * one, "another text's margins stay below, too"


def _states(margins: list[float], **how: float) -> tuple[list[int], int]:
    """Which model each token went through, and how often that changed."""
    used, switched = _decoded(margins, every=1, **how)
    return used, switched.switches


_SINGLE = {"enter": 2.0, "leave": 2.0, "newest": 1.0}
_SMOOTHED = {"enter": 2.0, "leave": 1.0, "newest": 0.2}


@pytest.mark.parametrize("how", [_SINGLE, _SMOOTHED], ids=["single", "smoothed"])
def test_a_margin_that_only_rises_ends_in_few_bits_and_one_that_only_falls_as_computed(how):
    rising = torch.linspace(0.0, 4.0, 40).tolist() + [4.0] * 20
    used, switches = _states(rising, **how)
    assert (used[0], used[-1], switches) == (0, 1, 1)
    used, switches = _states(sorted(rising, reverse=True), **how)
    assert (used[1], used[-1], switches) == (1, 0, 2)


def test_a_single_threshold_follows_every_margin_and_a_smoothed_one_does_not():
    scattered = [4.0, 0.5] * 20
    assert _states(scattered, **_SINGLE)[0] == [0] + [1, 0] * 19 + [1]
    assert _states(scattered, **_SMOOTHED)[0] == [0] + [1] * 39


@torch.inference_mode()
def test_keys_and_values_that_change_to_few_bits_are_those_that_were_always_in_them():
    room = caches.Room(2, 1, 2, 32, 16)
    changing = requantised.RequantisedKv(room, bits=8, group=32)
    rounded, exact = caches.Quantised(room, bits=8), caches.Contiguous(room)
    source = torch.Generator().manual_seed(1)

    def extend(count: int) -> list[list[torch.Tensor]]:
        parts = [torch.randn(2, 1, 2, count, 32, generator=source) for _ in range(2)]
        found = [[torch.stack(each.extend(i, *parts[i])) for i in range(2)] for each in (changing, rounded, exact)]
        for each in (changing, rounded, exact):
            each.advance(count)
        return found

    now, _, floats = extend(9)
    assert all(map(torch.equal, now, floats))
    as_computed = changing.nbytes
    changing.change(True)
    assert changing.nbytes == rounded.nbytes < as_computed, "the floats are gone"
    now, few, floats = extend(1)
    assert all(map(torch.equal, now, few))
    assert not any(map(torch.equal, now, floats))
    changing.change(False)
    now, few, floats = extend(1)
    assert all(torch.equal(a[..., :-1, :], b[..., :-1, :]) for a, b in zip(now, few, strict=True))
    assert all(torch.equal(a[..., -1, :], b[..., -1, :]) for a, b in zip(now, floats, strict=True))
    assert changing.length == 11
    changing.change(True)
    changing.truncate(0)
    assert changing.nbytes == as_computed, "an emptied cache begins with floats"


@pytest.mark.long
def test_a_smoothed_margin_switches_keys_and_values_less_often_than_a_single_threshold():
    shared = {"model": "small", "feed": "forced", "phase": "both", "new_tokens": 32}
    few = {"kv_bits": 8, "precision": "switched_kv", "decide_every": 1}
    exact, single, smoothed = (_side(**shared, **p) for p in ({}, {**few, "switching": "single"}, few))
    before, after, calm = (audit(side, seed=3) for side in (exact, single, smoothed))
    assert single.counters()["switches"] > 3 * smoothed.counters()["switches"] > 0
    assert 0 < single.counters()["few_bits_steps"] < 32
    for found in (after, calm):
        assert 0 < agreement.same_when_rounded(before, found).value < 0.02
        assert np.array_equal(before["logits"][:, 0], found["logits"][:, 0]), "the first token is exact"
    assert np.array_equal(audit(single, seed=3)["logits"], after["logits"]), "each iteration starts anew"


def test_a_comparison_of_rounded_sides_refuses_other_tokens_and_other_numbers():
    side = _side(phase="prefill", decoding=2, prompt_tokens=20, prefill_chunk=5)
    before = audit(side, seed=11)
    assert agreement.same_when_rounded(before, before).value == 0
    for name in ("logits", "kv_0"):
        broken = {**before, name: before[name] * np.float32(1.1)}
        assert agreement.same_when_rounded(before, broken).value == pytest.approx(0.1, rel=1e-3)
    assert not agreement.same_when_rounded(before, {**before, "logits": before["logits"] * np.nan}).passed
    assert not agreement.same_when_rounded(before, {k: v for k, v in before.items() if k != "kv_0"}).passed
    clear = {**before, "margins": before["margins"] + 1}
    assert not agreement.same_when_rounded(clear, {**clear, "tokens": clear["tokens"] + 1}).passed
    forced = audit(_side(feed="forced"), seed=11)
    assert not agreement.same_when_rounded(forced, {**forced, "tokens": forced["tokens"] ^ 1}).passed


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"sizes": [2], "sequences": 2, "kv": "static"}, "without sequences"),
        ({"sizes": [2]}, "need phase decode and kv static"),
        ({"buckets": [2], "kv": "paged"}, "need phase decode and kv static"),
        ({"decoding_in": "same_pass", "phase": "prefill"}, "needs decoding"),
        ({"precision": "fp8"}, "needs feed forced"),
        ({"weights": "host", "kv": "static"}, "no static kv"),
        ({"precision": "switched", "feed": "forced", "sequences": 2}, "one sequence"),
        ({"decide_every": 0}, "decide_every is 0"),
        ({"switching": "single", "feed": "forced"}, "needs precision switched"),
        ({"precision": "switched_kv", "feed": "forced", "phase": "both"}, "needs phase both, and kv_bits"),
        ({"precision": "switched_kv", "feed": "forced", "kv_bits": 8}, "needs phase both, and kv_bits"),
    ],
    ids=str,
)
def test_what_does_not_go_together_is_refused(params, words):
    with pytest.raises(ValueError, match=words):
        _side(**params)
