from collections import Counter
from itertools import pairwise

import pytest

from aiperf.plan.order import orders, round_order

PAIR = ("before", "after")
LADDER = ("before", "tiled", "pipelined", "cluster")


@pytest.mark.parametrize("sides", [PAIR, LADDER])
def test_each_two_consecutive_pairs_hold_an_order_and_its_reverse(sides):
    found = orders(sides, count=41, seed=3)
    assert len(found) == 41
    for first, second in zip(found[0:40:2], found[1:40:2], strict=True):
        assert sorted(first) == sorted(sides)
        assert second == first[::-1]


def test_the_same_seed_repeats_and_a_longer_list_begins_with_the_shorter():
    assert orders(PAIR, count=40, seed=5)[:6] == orders(PAIR, count=6, seed=5)
    assert orders(PAIR, count=40, seed=5) != orders(PAIR, count=40, seed=6)


def test_which_order_comes_first_is_a_fair_coin_that_seeds_do_not_share():
    first = Counter(orders(PAIR, count=1, seed=seed)[0][0] for seed in range(2000))
    assert 900 < first["before"] < 1100
    blocks = orders(PAIR, count=4000, seed=0)[::2]
    repeats = sum(a == b for a, b in pairwise(blocks))
    assert 900 < repeats < 1100, "a strict ABBA or ABAB would repeat never or always"


def test_a_ladder_visits_every_permutation():
    seen = {o for seed in range(600) for o in orders(LADDER, count=2, seed=seed)}
    assert len(seen) == 24


def test_rounds_start_with_the_pairs_own_order_and_stay_balanced():
    for order in (PAIR, PAIR[::-1]):
        rounds = [round_order(order, index=i, seed=9) for i in range(60)]
        assert rounds[0] == order
        assert all(b == a[::-1] for a, b in zip(rounds[::2], rounds[1::2], strict=True))
        assert Counter(rounds)[PAIR] == 30
        starts = {r[0] for r in rounds[2::2]}
        assert starts == set(PAIR)


def test_rounds_and_pairs_of_one_seed_toss_different_coins():
    pairs = orders(PAIR, count=400, seed=1)[2::2]
    rounds = [round_order(PAIR, index=i, seed=1) for i in range(2, 400, 2)]
    same = sum(a == b for a, b in zip(pairs, rounds, strict=True))
    assert 60 < same < 140
