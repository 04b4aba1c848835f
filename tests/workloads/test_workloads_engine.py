"""serve.engine: every policy gives the same tokens, each request comes out once, no page has two writers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from cpu_pairs import audit

from aiperf.workloads.contract import Context
from aiperf.workloads.decoder import caches, generate
from aiperf.workloads.engine import side as sides
from aiperf.workloads.engine.answers import limit_held, same_answers
from aiperf.workloads.engine.demands import Demand
from aiperf.workloads.engine.orders.fifo import fifo
from aiperf.workloads.engine.orders.length_buckets import LengthBuckets
from aiperf.workloads.engine.orders.short_lane import ShortLane
from aiperf.workloads.engine.orders.urgent_first import urgent_first
from aiperf.workloads.engine.pages import BrokenBooks
from aiperf.workloads.engine.running import Running
from aiperf.workloads.serve.workload import engine as make_engine

_SMALL = {"requests": 7, "prompt_tokens": [3, 30], "new_tokens": [1, 9], "max_batch": 3, "page_tokens": 4}


@pytest.fixture
def built(monkeypatch):
    """A workload and the side behind it."""
    made = []

    class Kept(sides.EngineSide):
        def __init__(self, asked):
            super().__init__(asked)
            made.append(self)

    monkeypatch.setattr(sides, "EngineSide", Kept)

    def build(**params):
        workload = make_engine(Context(seed=3), **{**_SMALL, **params})
        return workload, made[-1]

    return build


_ALONE: dict[tuple[int, ...], list[int]] = {}
"""Prompt, and how many tokens were asked for -> the answer: all sides have the same weights, and most these prompts."""


def alone(side: sides.EngineSide) -> list[list[int]]:
    """Every answer as the decoder gives it without an engine."""
    found = []
    for demand, prompt in zip(side.demands, side._prompts.tolist(), strict=True):
        asked = (*prompt[: demand.prompt_tokens], demand.new_tokens)
        if asked not in _ALONE:
            _ALONE[asked] = answer(side, *asked)
        found.append(_ALONE[asked])
    return found


@torch.inference_mode()
def answer(side: sides.EngineSide, *asked: int) -> list[int]:
    """The answer to one prompt, the last number being how many tokens are asked for."""
    *prompt, new_tokens = asked
    room = caches.Room(side.shape.layers, 1, side.shape.kv_heads, side.shape.head_dim, 64)
    cache = caches.Contiguous(room)
    first = generate.choose(generate.prefill(side.engine.model, torch.tensor([prompt]), cache))[0]
    tokens, _ = generate.greedy(side.engine.model, first, cache, count=new_tokens)
    return [int(first), *tokens[0].tolist()][:new_tokens]


POLICIES = [
    {"batching": "none"},
    {"batching": "static"},
    {"batching": "dynamic", "order": "length_buckets", "bucket_tokens": 8},
    pytest.param({"batching": "static", "kv_pool": 0.5}, marks=pytest.mark.long),
    {"batching": "continuous"},
    {"prefill_chunk": 5},
    pytest.param({"kv_pool": 0.3, "prefill_chunk": 7, "max_batch": 5}, marks=pytest.mark.long),
    pytest.param({"prefix_cache": True, "prefill_chunk": 5}, marks=pytest.mark.long),
    {"prefix_cache": True, "kv_pool": 0.3, "max_batch": 5},
    {"order": "short_lane", "bucket_tokens": 8},
    {"order": "urgent_first", "urgent": 0.3, "rate": 400.0, "arrivals": "bursty"},
    {"order": "reserved", "urgent": 0.3, "standard": 0.3, "max_batch": 3},
    {"batching": "adaptive", "rate": 400.0, "arrivals": "waves"},
    {"batching": "by_load", "rate": 400.0},
    {"batching": "batched_prompts", "prefill_batch": 3},
    pytest.param(
        {"batching": "batched_prompts", "prefill_batch": 2, "prefix_cache": True, "kv_pool": 0.3, "max_batch": 5},
        marks=pytest.mark.long,
    ),
    {"batching": "merged_prompts", "prefill_batch": 3, "prefix_cache": True, "repeats": 7, "rate": 900.0},
    {"batching": "merged_prompts", "prefill_batch": 2, "prefix_cache": True, "kv_pool": 0.3, "max_batch": 5},
    {"batching": "within_slo", "prefill_batch": 3, "rate": 400.0, "ttft_slo": 0.02},
    pytest.param(
        {"batching": "within_slo", "prefill_batch": 2, "prefix_cache": True, "kv_pool": 0.3, "max_batch": 5},
        marks=pytest.mark.long,
    ),
    {"batching": "decode_first", "decode_budget": 0.001},
    pytest.param({"batching": "decode_first", "kv_pool": 0.3, "prefix_cache": True}, marks=pytest.mark.long),
]


@pytest.mark.parametrize("params", POLICIES, ids=str)
@pytest.mark.parametrize("shared", [0, pytest.param(2, marks=pytest.mark.long)])
def test_every_policy_gives_each_request_the_tokens_that_it_has_alone(built, params, shared):
    workload, side = built(shared_tokens=shared, **params)
    for seed in (11, 12):
        found = audit(workload, seed=seed)
        for number, answer in enumerate(alone(side)):
            row = found["tokens"][number]
            assert row[: len(answer)].tolist() == answer
            assert set(row[len(answer) :]) <= {-1}
        assert found["answered"].tolist() == [1] * 7
    assert workload.work.items == sum(demand.new_tokens for demand in side.demands)


def test_a_small_pool_preempts_and_computes_again_what_it_lost(built):
    shared = {"new_tokens": [12, 20], "prompt_tokens": [3, 8], "max_batch": 5}
    (ample, _), (small, side) = built(**shared), built(kv_pool=0.4, **shared)
    before, after = audit(ample, seed=11), audit(small, seed=11)
    assert same_answers(before, after).passed
    assert ample.counters()["preemptions"] == 0
    assert small.counters()["preemptions"] > 0
    assert small.counters()["computed_tokens"] > ample.counters()["computed_tokens"]
    assert side.engine.pool.free == side.engine.pool.count
    assert ample.facts["pool_pages"] > small.facts["pool_pages"]


def test_the_same_room_holds_more_requests_in_small_pages_than_in_a_region_for_the_longest(built):
    shared = {"new_tokens": [2, 20], "prompt_tokens": [3, 8], "max_batch": 7, "pool_tokens": 64}
    (regions, _), (pages, _) = built(page_tokens=32, **shared), built(page_tokens=4, **shared)
    before, after = audit(regions, seed=11), audit(pages, seed=11)
    assert same_answers(before, after).passed
    assert (regions.facts["pool_pages"], pages.facts["pool_pages"]) == (2, 16)
    assert regions.counters()["preemptions"] == 0
    assert pages.counters()["forward_passes"] < 0.8 * regions.counters()["forward_passes"]


def test_the_prefix_cache_finds_the_whole_pages_that_all_prompts_share_and_nothing_else(built):
    shared = {"prompt_tokens": [15, 20], "shared_tokens": 14, "prefix_cache": True}
    workload, side = built(**shared)
    for _ in range(2):  # it is empty at the start of each iteration
        audit(workload, seed=11)
        assert workload.counters()["prefix_hit_tokens"] == 6 * 12
    assert side.engine.pool.free == side.engine.pool.count - len(side.engine.prefix.pages)
    other, _ = built(**{**shared, "shared_tokens": 0})
    audit(other, seed=11)
    assert other.counters()["prefix_hit_tokens"] == 0
    computed = workload.counters()["computed_tokens"], other.counters()["computed_tokens"]
    assert computed[0] == computed[1] - 6 * 12


@pytest.mark.parametrize(("chunk", "passes"), [(0, 0), (8, 4)])
def test_others_get_tokens_between_the_pieces_of_a_prompt(built, chunk, passes):
    workload, side = built(lengths="two", prompt_tokens=[3, 40], new_tokens=[12, 12], prefill_chunk=chunk, requests=3)
    audit(workload, seed=11)
    first, long, _ = sorted(side.engine.finished, key=lambda one: one.demand.number)
    assert long.demand.prompt_tokens == 40
    assert sum(long.started < at < long.times[0] for at in first.times) == passes


def test_batches_of_whole_requests_compute_for_answers_that_are_whole(built):
    static, side = built(batching="static", requests=3)
    audit(static, seed=11)
    prompts, new = ([getattr(d, name) for d in side.demands] for name in ("prompt_tokens", "new_tokens"))
    computed = 3 * (max(prompts) + max(new) - 1)
    assert static.counters()["computed_tokens"] == computed
    assert static.counters()["wasted_tokens"] == computed - sum(prompts) - sum(new) + 3
    assert static.counters()["forward_passes"] == max(new)


def test_a_static_batch_waits_until_it_is_full_and_a_dynamic_one_for_its_delay(built):
    shared = {"requests": 4, "max_batch": 4, "rate": 100.0}
    for batching, delay in (("static", 0.0), ("dynamic", 0.004)):
        workload, side = built(batching=batching, delay=delay, **shared)
        audit(workload, seed=11)
        answers = sorted(side.engine.finished, key=lambda one: one.demand.number)
        last = answers[-1].demand.at
        assert last > 0
        if batching == "static":
            assert min(one.started for one in answers) >= last
        else:
            assert answers[0].started >= 0.004
        assert all(one.started >= one.demand.at for one in answers)


def waiting(*requests: tuple[int, bool]) -> list[Running]:
    return [Running(Demand(n, 0.0, prompt, 1, first), []) for n, (prompt, first) in enumerate(requests)]


def numbers(found: list[Running]) -> list[int]:
    return [one.demand.number for one in found]


def test_orders_choose_from_the_queue_as_they_say():
    queue = waiting((50, False), (5, False), (60, True), (6, True))
    assert numbers(fifo(queue, 2)) == [0, 1]
    assert numbers(urgent_first(queue, 3)) == [2, 3, 0]
    assert numbers(LengthBuckets(32)(queue, 9)) == [0, 2]
    assert numbers(ShortLane(8)(queue, 9)) == [1, 3]
    assert numbers(ShortLane(8)(queue[:1], 9)) == [0]


def test_a_long_prompt_waits_for_eight_short_ones_at_most():
    lane = ShortLane(8)
    queue = waiting((50, False), *[(5, False)] * 20)
    taken = []
    for _ in range(12):
        (one,) = lane(queue, 1)
        queue.remove(one)
        taken.append(one.demand.number)
    assert taken.index(0) == 8


def test_requests_that_cannot_be_in_time_are_rejected_and_urgent_ones_never(built):
    workload, side = built(admission="in_time", ttft_slo=0.0, urgent=0.3)
    found = audit(workload, seed=11)
    urgent = [demand.urgent for demand in side.demands]
    assert sum(urgent) == 2
    assert found["answered"].tolist() == [int(first) for first in urgent]
    assert workload.counters()["rejected_requests"] == 5
    everyone, _ = built(urgent=0.3)
    outcome = same_answers(audit(everyone, seed=11), found)
    assert outcome.passed
    assert outcome.value == pytest.approx(5 / 7)
    assert everyone.work.items == workload.work.items


def test_times_count_from_the_arrival_and_means_are_those_of_the_series(built):
    workload, side = built(rate=300.0, ttft_slo=60.0, inter_token_slo=60.0)
    workload.latencies(), workload.values()
    workload.step()
    series, means = workload.latencies(), workload.values()
    new = [demand.new_tokens for demand in side.demands]
    assert {name: len(found) for name, found in series.items()} == {
        "ttft": 7, "inter_token": sum(new) - 7, "end_to_end": 7, "queue": 7,
    }  # fmt: skip
    assert all(means[name] == pytest.approx(np.mean(found)) for name, found in series.items())
    gaps = [np.diff(one.times).max() for one in side.engine.finished if len(one.times) > 1]
    assert means["longest_gap"] == pytest.approx(np.mean(gaps))
    paces = sorted(np.diff(one.times).mean() for one in side.engine.finished if len(one.times) > 1)
    assert means["tpot_p90"] == pytest.approx(paces[-1]), "of fewer than ten answers none may be above it"
    assert 0 <= means["queue"] < means["ttft"] <= means["end_to_end"]
    assert sum(series["end_to_end"]) == pytest.approx(sum(series["ttft"]) + sum(series["inter_token"]))
    assert means["goodput"] == pytest.approx(7 / (7 / 300.0))
    late, _ = built(rate=300.0, ttft_slo=0.0)
    late.step()
    assert late.values()["goodput"] == 0
    assert workload.latencies()["ttft"] == []
    assert workload.values() == {}


def test_the_limit_that_is_held_leaves_out_no_more_than_it_may():
    assert limit_held([0.4, 0.1, 0.3, 0.2], 0.5) == 0.2
    assert limit_held([float(number) for number in range(1, 21)], 0.9) == 18
    assert limit_held([3.0], 0.9) == 3


class Breaks:
    """Continuous batching that does something wrong once, before its first turn with two requests running."""

    def __init__(self, good, wrong):
        self._good, self._wrong = good, wrong

    def turn(self, engine):
        self._good.turn(engine)
        if self._wrong is not None and len(engine.running) > 1:
            self._wrong(engine)
            self._wrong = None


def one_page_for_two(engine):
    first, second = engine.running[:2]
    engine.pool.drop(second.pages[0])
    second.pages[0] = first.pages[0]
    engine.check_pages()


def shared_without_a_prefix(engine):
    first, second = engine.running[:2]
    engine.pool.share(first.pages[0])
    second.pages.append(first.pages[0])
    engine.check_pages()


def free_and_held(engine):
    engine.pool._free.append(engine.running[0].pages[0])
    engine.pool.take()


def pages_lost(engine):
    engine.running[0].pages.pop()


def given_back_twice(engine):
    page = engine.running[0].pages[0]
    engine.pool.drop(page)
    engine.pool.drop(page)


def request_lost(engine):
    engine.preempt(engine.running[0])
    engine.waiting.pop(0)


def answered_twice(engine):
    one = engine.running[0]
    engine.finished.append(replace(one, pages=[]))


def answer_cut(engine):
    engine.release(engine.running[:1])


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (one_page_for_two, "all of them may write it"),
        (shared_without_a_prefix, "all of them may write it"),
        (free_and_held, "was handed out while 1 hold it"),
        (pages_lost, "holders"),
        (given_back_twice, "given back twice"),
        (request_lost, "7 requests came in, and 6"),
        (answered_twice, "7 requests came in, and 8"),
        (answer_cut, r"has \d of \d tokens"),
    ],
)
def test_the_books_notice_a_broken_policy(built, wrong, said):
    workload, side = built(new_tokens=[8, 9])
    side.engine.batching = Breaks(side.engine.batching, wrong)
    with pytest.raises(BrokenBooks, match=said):
        workload.step()
    side.engine.batching = Breaks(side.engine.batching._good, None)
    workload.step()


def test_the_check_of_answers_refuses_lost_repeated_and_other_ones(built):
    base = audit(built()[0], seed=11)
    assert same_answers(base, base).passed
    assert same_answers(base, base).value == 0

    def changed(name, at, value):
        other = {key: array.copy() for key, array in base.items()}
        other[name][at] = value
        return other

    assert not same_answers(base, changed("answered", 2, 2)).passed
    assert not same_answers(base, changed("answered", 2, 0)).passed
    assert not same_answers(base, changed("tokens", 2, -1)).passed
    assert not same_answers(base, changed("tokens", (2, 0), base["tokens"][2, 0] + 1)).passed
    assert not same_answers(base, changed("margins", (2, 0), np.nan)).passed
    nothing = {**base, "tokens": np.full_like(base["tokens"], -1), "answered": np.zeros_like(base["answered"])}
    assert not same_answers(base, nothing).passed


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ({"requests": 0}, "requests is 0"),
        ({"prompt_tokens": [9, 3]}, r"prompt_tokens is \[9, 3\]"),
        ({"new_tokens": [0, 3]}, "new_tokens is"),
        ({"shared_tokens": 3}, "shared_tokens must be"),
        ({"kv_pool": 0.0}, "kv_pool above 0"),
        ({"pool_tokens": 8}, "room for the longest prompt"),
        ({"batching": "static", "prefill_chunk": 4}, "need batching continuous"),
        ({"batching": "none", "prefix_cache": True}, "need batching continuous"),
        ({"batching": "decode_first", "prefill_chunk": 4}, "has pieces of its own"),
        ({"batching": "decode_first", "decode_budget": 0.0}, "decode_budget must be above 0"),
        ({"repeats": 2, "rate": 9.0}, "repeats must divide requests"),
        ({"repeats": 7}, "needs a rate"),
        ({"coalesce": 0.005}, "needs a rate"),
        ({"urgent": 0.6, "standard": 0.6}, "shares of one whole"),
    ],
)
def test_what_does_not_go_together_is_named(params, named):
    with pytest.raises(ValueError, match=named):
        make_engine(Context(seed=3), **{**_SMALL, **params})
