"""Seeds of the inputs of single iterations: new ones and known ones, of each probe and of each side."""

from __future__ import annotations

import pytest

from aiperf.launch.probes import fresh_seeds, own_seeds


def test_single_iterations_have_new_inputs_in_random_order_and_known_ones_as_often() -> None:
    [(known, *seeds)] = fresh_seeds("a")
    assert (len(seeds), seeds.count(known), len(set(seeds))) == (24, 12, 13)
    assert sorted(seeds) != seeds
    assert set(*fresh_seeds("a")).isdisjoint(*fresh_seeds("b"))


def test_no_probe_of_a_pair_meets_the_inputs_of_another() -> None:
    probes = fresh_seeds("a", probes=8)
    assert [len(probe) for probe in probes] == [25] * 8
    assert len({seed for probe in probes for seed in probe}) == 8 * 13


@pytest.mark.parametrize(("pair", "probes", "found"), [(5, 1, 1), (6, 1, 0), (6, 8, 8)])
def test_later_pairs_are_probed_for_a_reason_alone(pair: int, probes: int, found: int) -> None:
    assert len(fresh_seeds("a", pair=pair, probes=probes)) == found


def test_no_side_meets_the_new_inputs_of_another_and_all_meet_those_that_are_known() -> None:
    [seeds] = fresh_seeds("secret")
    before, after = own_seeds(seeds, "before"), own_seeds(seeds, "after")
    known = [place for place, seed in enumerate(seeds) if seed == seeds[0]]
    for own in (before, after):
        assert [place for place, seed in enumerate(own) if seed == seeds[0]] == known
        assert len(set(own)) == len(set(seeds))
    assert set(before) & set(after) == {seeds[0]}
