"""serve.cluster: the same tokens whatever the roles and the route, each request once; what is counted, refused and
said when an engine fails."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from gang_of_two import run_gang

from aiperf.workloads.cluster import side as sides
from aiperf.workloads.contract import Context
from aiperf.workloads.decoder.model import PRESETS
from aiperf.workloads.engine.answers import same_answers
from aiperf.workloads.engine.demands import draw_demands, unique_tokens
from aiperf.workloads.engine.pages import BrokenBooks
from aiperf.workloads.serve.workload import cluster, engine

_SMALL = {"requests": 8, "prompt_tokens": [6, 40], "new_tokens": [1, 9], "max_batch": 3, "page_tokens": 4}
_TALK = {**_SMALL, "lengths": "conversations", "sessions": 3, "prefix_cache": True, "kv_pool": 6.0}
_SIDES = {
    "mixed": _SMALL,
    "arriving": {**_SMALL, "rate": 400.0, "route": "least_requests"},
    "split": {**_SMALL, "roles": "1p1d"},
    "split_small_pool": {**_SMALL, "roles": "1p1d", "kv_pool": 0.1, "prompt_tokens": [6, 9], "new_tokens": [24, 40]},
    "changing": {
        **_SMALL,
        "requests": 60,
        "roles": "1p1d",
        "roles_change": True,
        "lengths": "shifting",
        "new_tokens": [3, 9],
    },
    "local": {**_SMALL, "roles": "1p1d", "prefill_at": "decode_worker"},
    "talk": _TALK,
    "talk_prefix": {**_TALK, "route": "prefix"},
    "talk_pooled": {**_TALK, "prefix_pool": "shared"},
    "race": {
        **_SMALL,
        "route": "race",
        "rate": 200.0,
        "requests": 24,
        "new_tokens": [9, 20],
        "stall_rate": 20.0,
        "stall": 0.03,
    },
    "talk_split": {**_TALK, "roles": "1p1d"},
    "split_blocking": {**_SMALL, "roles": "1p1d", "kv_receive": "blocking"},
    "talk_composite": {**_TALK, "route": "composite"},
    "pulled": {**_SMALL, "dispatch": "queue"},
    "pulled_split": {**_SMALL, "dispatch": "queue", "roles": "1p1d", "rate": 400.0},
    "split_recomputed": {**_SMALL, "roles": "1p1d", "first_token": "recomputed"},
    "moving": {**_SMALL, "lengths": "tails", "requests": 16, "new_tokens": [2, 80], "rebalance": "predicted"},
    "tails": {**_SMALL, "lengths": "tails", "route": "predicted", "rate": 400.0},
    "six": {**_SMALL, "requests": 6, "lengths": "six", "new_tokens": [1, 1]},
    "six_balanced": {**_SMALL, "requests": 6, "lengths": "six", "new_tokens": [1, 1], "route": "length_balanced"},
}
_NAMES = ("tokens", "margins", "answered")


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """found[rank][side name] -> outputs and counts."""
    asked = [{"workload": "serve.cluster", **side} for side in _SIDES.values()]
    both = run_gang(asked, tmp_path_factory.mktemp("gang"))
    return [dict(zip(_SIDES, sides, strict=True)) for sides in both]


def _by_one_worker(params):
    """What a cluster of one gives, which is an engine of its own."""
    alone = {
        "roles": "mixed",
        "prefill_at": "prefill_worker",
        "kv_receive": "overlapped",
        "first_token": "sent",
        "roles_change": False,
        "rate": 0.0,
        "kv_pool": 6.0,
        "prefix_pool": "own",
        "route": "round_robin",
        "stall_rate": 0.0,
        "dispatch": "direct",
        "rebalance": "none",
    }
    workload = cluster(Context(seed=3), **{**params, **alone})
    workload.redraw(9)
    workload.step()
    answers = {name: array.numpy().copy() for name, array in workload.outputs().items()}
    workload.close()
    return answers


@pytest.mark.parametrize("side", _SIDES)
def test_every_rank_has_the_answers_that_one_worker_gives(found, side):
    expected = _by_one_worker(_SIDES[side])
    assert (expected["answered"] == 1).all()
    for rank in (0, 1):
        outcome = same_answers(expected, {name: found[rank][side][name] for name in _NAMES})
        assert outcome.passed, outcome.detail
        assert outcome.value == 0


def test_one_worker_gives_what_the_engine_gives():
    workload = engine(Context(seed=3), **_SMALL)
    workload.redraw(9)
    workload.step()
    answers = {name: array.numpy() for name, array in workload.outputs().items()}
    outcome = same_answers(answers, _by_one_worker(_SMALL))
    assert outcome.passed, outcome.detail


def test_prompts_are_handed_over_once_each_with_all_their_keys_and_values(found):
    assert found[0]["split_blocking"]["count.handed_bytes"] == found[0]["split"]["count.handed_bytes"]
    side, shape = found[0]["split"], PRESETS["tiny"]
    demands = drawn(**_SMALL)
    handed = [demand for demand in demands if demand.new_tokens > 1]
    assert 0 < len(handed) < len(demands), "an answer of one token is whole where its prompt is computed"
    assert side["count.handed_requests"] == len(handed)
    assert side["count.handed_bytes"] == sum(demand.prompt_tokens for demand in handed) * shape.kv_bytes(4)
    for name in ("mixed", "local", "talk_prefix"):
        assert found[0][name]["count.handed_requests"] == 0
    assert found[0]["local"]["count.load_spread"] == 2, "one worker did all of it"


def test_a_small_pool_computes_again_what_was_handed_over(found):
    side, demands = found[0]["split_small_pool"], drawn(**_SIDES["split_small_pool"])
    assert side["count.preemptions"] > 0
    assert side["count.handed_requests"] == len(demands)
    assert side["count.computed_tokens"] > sum(one.prompt_tokens + one.new_tokens - 1 for one in demands)


def test_turns_find_their_beginning_only_where_it_is(found):
    apart, together = found[0]["talk"], found[0]["talk_prefix"]
    demands = drawn(**_TALK)
    # Each turn finds the whole pages of the turn before, and no more.
    before, hits = {}, 0
    for demand in demands:
        hits += before.get(demand.text, 0) // 4 * 4
        before[demand.text] = demand.prompt_tokens
    assert together["count.prefix_hit_tokens"] == hits
    assert apart["count.prefix_hit_tokens"] < hits
    assert together["count.computed_tokens"] < apart["count.computed_tokens"]
    assert apart["count.pool_hit_tokens"] == together["count.pool_hit_tokens"] == 0


def test_with_a_pool_of_all_workers_a_turn_finds_its_beginning_wherever_it_was_computed(found):
    apart, pooled, together = (found[0][name] for name in ("talk", "talk_pooled", "talk_prefix"))
    assert 0 < pooled["count.pool_hit_tokens"] < pooled["count.prefix_hit_tokens"]
    assert apart["count.prefix_hit_tokens"] < pooled["count.prefix_hit_tokens"] <= together["count.prefix_hit_tokens"]
    assert pooled["count.computed_tokens"] < apart["count.computed_tokens"]


def test_of_two_that_race_one_answers_each_request_and_the_other_stops(found):
    side, demands = found[0]["race"], drawn(**_SIDES["race"])
    assert 0 < side["count.cancelled_requests"] <= len(demands)
    least = sum(one.prompt_tokens + one.new_tokens - 1 for one in demands)
    assert least < side["count.computed_tokens"] < 2 * least
    assert all(found[0][name]["count.cancelled_requests"] == 0 for name in _SIDES if name != "race")


def test_of_workers_that_ask_every_prompt_was_asked_for(found):
    pulled = {name: found[0][name]["count.pulled_requests"] for name in _SIDES}
    assert {name: count for name, count in pulled.items() if count} == {"pulled": 8, "pulled_split": 8}
    assert found[0]["pulled_split"]["count.handed_bytes"] == found[0]["split"]["count.handed_bytes"]


def test_long_answers_move_and_are_not_computed_twice(found):
    side, demands = found[0]["moving"], drawn(**_SIDES["moving"])
    assert 0 < side["count.moved_requests"] <= 4
    assert side["count.handed_requests"] <= side["count.moved_requests"]
    assert all(found[0][name]["count.moved_requests"] == 0 for name in _SIDES if name != "moving")
    assert side["count.computed_tokens"] == sum(one.prompt_tokens + one.new_tokens - 1 for one in demands)


def test_a_worker_that_has_all_of_the_load_is_seen_in_its_variance(found):
    for rank in (0, 1):
        assert found[rank]["local"]["value.load_variance"] >= 1, "each worker is as far from the mean as that is from 0"
        assert found[rank]["mixed"]["value.load_variance"] == found[0]["mixed"]["value.load_variance"] > 0


def test_a_first_token_that_is_not_taken_over_costs_a_token_more(found):
    sent, again = (found[0][name] for name in ("split", "split_recomputed"))
    assert again["count.handed_requests"] == sent["count.handed_requests"] > 0
    assert again["count.computed_tokens"] == sent["count.computed_tokens"] + sent["count.handed_requests"]


def test_balancing_by_length_gives_each_worker_a_long_prompt(found):
    assert found[0]["six"]["count.load_spread"] == pytest.approx(2 * (40 + 40 + 6) / (2 * 40 + 4 * 6))
    assert found[0]["six_balanced"]["count.load_spread"] == 1


def test_all_ranks_state_the_same_work_and_counts(found):
    for side in _SIDES:
        counts = [{k: v for k, v in found[rank][side].items() if k.startswith("count.")} for rank in (0, 1)]
        assert counts[0] == counts[1]


# ---- requests ----------------------------------------------------------------------------------------------------


def drawn(seed=3, **params):
    """The schedule that a side has."""
    asked = {
        "lengths": "spread",
        "arrivals": "poisson",
        "rate": 0.0,
        "urgent": 0.0,
        "standard": 0.0,
        "repeats": 1,
        **params,
    }
    return draw_demands(SimpleNamespace(**asked), seed)


def test_conversations_grow_turn_by_turn_and_each_turn_begins_with_the_one_before():
    workload = cluster(Context(seed=3), **{**_TALK, "requests": 9})
    prompts = workload.inputs()["prompts"].tolist()
    workload.close()
    demands = drawn(**{**_TALK, "requests": 9})
    for turn in range(3):
        assert sorted(demand.text for demand in demands[3 * turn : 3 * turn + 3]) == [0, 1, 2]
    assert [demand.prompt_tokens for demand in demands] == [6] * 3 + [23] * 3 + [40] * 3
    for demand in demands[:6]:
        later = next(d for d in demands[demand.number + 1 :] if d.text == demand.text)
        assert prompts[later.number][: demand.prompt_tokens] == prompts[demand.number][: demand.prompt_tokens]
    assert len({tuple(prompts[demand.number][:6]) for demand in demands}) == 3
    assert unique_tokens(demands, 0) == 3 * 40


def test_a_shifting_mix_turns_from_long_prompts_to_long_answers():
    demands = drawn(**{**_SMALL, "lengths": "shifting"})
    assert [(d.prompt_tokens, d.new_tokens) for d in demands] == [(40, 1)] * 4 + [(6, 9)] * 4


def test_opposed_requests_have_a_long_prompt_or_a_long_answer():
    demands = drawn(**{**_SMALL, "lengths": "opposed"})
    short, long = (6, 9), (40, 1)
    assert [(d.prompt_tokens, d.new_tokens) for d in demands] == [short, long, short, short] * 2


def test_a_quarter_of_the_answers_has_a_long_tail_in_a_drawn_order():
    assert sorted(one.new_tokens for one in drawn(**_SIDES["tails"])) == [1, 1, 1, 1, 1, 1, 9, 9]
    orders = {tuple(one.new_tokens for one in drawn(seed, **_SIDES["tails"])) for seed in range(8)}
    assert len(orders) > 1


def test_a_worker_that_helped_is_not_lost_to_its_own_role(found):
    assert 0 < found[0]["changing"]["count.handed_requests"] < _SIDES["changing"]["requests"]


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ({"prefill_at": "conditional"}, "needs roles such as 1p1d"),
        ({"roles_change": True}, "needs roles such as 1p1d"),
        ({"lengths": "conversations", "sessions": 9}, "sessions must be 1 or more, and no more than requests"),
        ({"kv_receive": "blocking"}, "needs roles such as 1p1d, which stay"),
        ({"prefix_pool": "shared"}, "needs prefix_cache"),
        ({"route": "race"}, "needs roles: mixed and ranks: 2 or more"),
        ({"stall_rate": 1.0}, "stall_rate needs a rate"),
        ({"roles": "1p1d", "kv_receive": "blocking", "roles_change": True}, "which stay"),
        ({"dispatch": "queue", "route": "prefix"}, "dispatch queue leaves no choice to route"),
        ({"first_token": "recomputed"}, "nothing is handed over"),
        ({"rebalance": "predicted"}, "rebalance needs roles: mixed, ranks: 2 or more"),
        ({"roles": "1p1d"}, "not those of 1 ranks"),
        ({"requests": 0}, "requests is 0"),
    ],
)
def test_what_does_not_go_together_is_named(params, named):
    with pytest.raises(ValueError, match=named):
        cluster(Context(seed=3), **{**_SMALL, **params})


def test_an_engine_that_fails_lets_nobody_wait(monkeypatch):
    made = []
    monkeypatch.setattr(sides.ClusterSide, "_gathered", lambda self: made.append(self) or self.engine.finished * 2)
    workload = cluster(Context(seed=3), **_SMALL)
    with pytest.raises(BrokenBooks, match="8 requests came in, and 16 answers went out"):
        workload.step()
    made[0].engine.batching = SimpleNamespace(turn=lambda engine: engine.pool.drop(0))
    with pytest.raises(BrokenBooks, match="page 0 was given back twice"):
        workload.step()
    workload.close()


def test_times_of_all_workers_come_from_the_first_rank():
    workload = cluster(Context(seed=3), **{**_SMALL, "rate": 300.0})
    workload.step()
    series, means = workload.latencies(), workload.values()
    workload.close()
    assert len(series["ttft"]) == 8
    assert means["ttft"] == pytest.approx(np.mean(series["ttft"]))
    assert min(series["ttft"]) > 0
