"""The plan of a survey: disjoint pairs, as many partners for every node, and a cost that grows with the logarithm."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from aiperf.plan.survey import (
    LAUNCHES,
    PLAN_SECONDS,
    launch_of,
    partners,
    repeats,
    survey_cost,
    survey_plan,
    survey_rounds,
)


@pytest.mark.parametrize("nodes", [2, 3, 4, 5, 8, 9, 16, 64])
def test_no_node_is_in_two_pairs_of_a_round_and_all_meet_as_many_partners(nodes):
    rounds = survey_rounds(nodes, seed=1)
    assert all(len({node for pair in each for node in pair}) == 2 * len(each) for each in rounds)
    met = Counter(pair for each in rounds for pair in each)
    assert set(met.values()) == {repeats(nodes)}
    by_node = Counter(node for pair in met for node in pair)
    assert len(by_node) == nodes
    assert max(by_node.values()) - min(by_node.values()) <= nodes % 2
    assert min(by_node.values()) >= min(nodes - 1, partners(nodes))


def test_a_pair_is_met_again_only_after_every_other_round_of_the_pass():
    rounds = survey_rounds(8, seed=3)
    each = len(rounds) // repeats(8)
    assert all(len(set(rounds[n * each : (n + 1) * each])) == each for n in range(repeats(8)))


def test_the_order_is_drawn_from_the_seed():
    assert survey_rounds(8, seed=1) == survey_rounds(8, seed=1) != survey_rounds(8, seed=2)


def test_each_doubling_of_a_fleet_adds_as_many_rounds_and_64_nodes_have_fewer_than_90():
    rounds = [len(survey_rounds(n, seed=0)) for n in (16, 32, 64, 128)]
    assert rounds[2] < 90
    assert len({b - a for a, b in pairwise(rounds)}) == 1


def test_with_its_batches_a_survey_of_64_nodes_has_96_rounds_and_each_doubling_adds_twelve():
    rounds = [len(survey_plan(n, seed=0)) for n in (16, 32, 64, 128, 256)]
    assert rounds[2] == 96
    assert {b - a for a, b in pairwise(rounds)} == {12}


@pytest.mark.parametrize("nodes", [2, 3, 4, 5, 9, 64])
def test_after_each_pass_over_the_pairs_come_disjoint_batches_of_every_power_of_two_and_all_nodes(nodes):
    plan = survey_plan(nodes, seed=1)
    batches = [each for each in plan if len(each[0]) > 2]
    assert [each for each in plan if len(each[0]) == 2] == list(survey_rounds(nodes, seed=1))
    sizes = [len(each[0]) for each in batches[: len(batches) // LAUNCHES]]
    assert sizes == {2: [], 3: [3], 4: [4], 5: [4, 5], 9: [4, 8, 9], 64: [4, 8, 16, 32, 64]}[nodes]
    assert [len(each[0]) for each in batches] == LAUNCHES * sizes
    for each in batches:
        members = [node for batch in each for node in batch]
        assert len(set(members)) == len(members) == nodes // len(each[0]) * len(each[0])
    assert nodes == 2 or plan[-1] == (tuple(range(nodes)),)


def test_batches_have_other_members_in_every_pass():
    batches = [each for each in survey_plan(64, seed=1) if len(each[0]) == 4]
    assert len(set(batches)) == LAUNCHES


@pytest.mark.parametrize("nodes", [2, 8, 64])
def test_a_survey_of_more_parts_begins_with_the_rounds_of_one_of_fewer(nodes):
    usual, more = survey_plan(nodes, seed=1), survey_plan(nodes, seed=1, parts=2 * LAUNCHES)
    assert more[: len(usual)] == usual
    assert len(more) == 2 * len(usual)
    assert {launch_of(number, len(more), 2 * LAUNCHES) for number in range(len(more))} == set(range(2 * LAUNCHES))
    assert [launch_of(number, len(usual)) for number in range(len(usual))] == [
        launch_of(number, len(more), 2 * LAUNCHES) for number in range(len(usual))
    ]
    assert survey_cost(nodes, {}, parts=2 * LAUNCHES).parts == 2 * LAUNCHES


def test_what_a_survey_takes_is_parts_batches_that_join_and_rounds():
    # Four nodes: in each part three rounds of two pairs, and one of all nodes.
    cost = survey_cost(4, {"start": 1000.0, "joining": 1.0, "pairs": 0.01, "batches": 0.0001})
    assert (cost.nodes, cost.rounds, cost.parts) == (4, 4 * LAUNCHES, LAUNCHES)
    assert cost.seconds == pytest.approx(LAUNCHES * (1000 + 3 + 1 + 3 * 0.01 + 0.0001))
    assert survey_cost(4, dict.fromkeys(PLAN_SECONDS - {"joining"}, 1.0)).seconds is None


def test_a_survey_of_two_nodes_has_no_larger_batches_and_each_counts_as_a_round_of_pairs():
    known = {"start": 1000.0, "joining": 1.0, "pairs": 0.01}
    assert survey_cost(4, known).seconds == pytest.approx(LAUNCHES * (1000 + 3 + 1 + 4 * 0.01))


def test_what_a_survey_takes_grows_by_the_same_time_with_each_doubling():
    seconds = {"start": 20.0, "joining": 0.2, "pairs": 3.0, "batches": 1.0}
    took = [survey_cost(nodes, seconds).seconds for nodes in (16, 32, 64, 128, 256)]
    assert len({round(b - a, 6) for a, b in pairwise(took)}) == 1


def test_64_nodes_take_under_15_minutes_by_plan():
    # Seconds of nodes with eight GPUs, three readings of a tenth of a second each.
    cost = survey_cost(64, {"start": 30.0, "joining": 0.2, "pairs": 4.0, "batches": 1.0})
    assert cost.seconds < 15 * 60
