"""Drift between pairs: found where it is, rarely where it is not, and never more than a sentence."""

from __future__ import annotations

import math
from itertools import permutations

import pytest
from analysis_maker import make_case, make_pair, make_pairs, seeded

from aiperf.analysis import drift
from aiperf.analysis.drift import Drift, drift_note, drifts
from aiperf.analysis.notes import note_sentence

CASE = make_case()


def drift_sentence(found, *, sides):
    note = drift_note(found, sides=sides)
    return note_sentence(note) if note else ""


def pairs_of(before, after, *, void=()):
    return [
        make_pair(i, {"before": 1e-3 * math.exp(b), "after": 1e-3 * math.exp(a)}, void=i in void)
        for i, (b, a) in enumerate(zip(before, after, strict=True))
    ]


def ramp(total: float, count: int) -> list[float]:
    return [total * i / (count - 1) for i in range(count)]


def test_a_ramp_of_both_sides_is_found_with_its_size() -> None:
    found = drifts(CASE, pairs_of(ramp(0.03, 10), ramp(0.03, 10)), least=0.01)
    assert [(d.side, d.pairs) for d in found] == [("before", 10), ("after", 10)]
    assert all(d.change == pytest.approx(0.03) and d.low == pytest.approx(0.03) for d in found)
    assert drift_sentence(found, sides=2).startswith("both sides slowed by 3 % over the case, by the same amount")


def test_a_side_that_drifts_alone_moved_the_ratio() -> None:
    found = drifts(CASE, pairs_of([0.0] * 8, ramp(-0.05, 8)), least=0.01)
    assert [d.side for d in found] == ["after"]
    assert drift_sentence(found, sides=2) == (
        "after sped up by 4.9 % over the case; the sides did not drift alike, so the ratio changed while it was "
        "measured"
    )


def test_two_sides_that_drift_differently_moved_the_ratio() -> None:
    found = drifts(CASE, pairs_of(ramp(0.03, 10), ramp(0.2, 10)), least=0.01)
    told = drift_sentence(found, sides=2)
    assert told.startswith("before slowed by 3 %, after slowed by 22 % over the case; the sides did not drift alike")


def test_what_is_smaller_than_what_matters_is_not_told() -> None:
    pairs = pairs_of(ramp(0.004, 10), ramp(0.004, 10))
    assert drifts(CASE, pairs, least=0.01) == ()
    assert len(drifts(CASE, pairs, least=0.003)) == 2
    assert drift_sentence((), sides=2) == ""


def test_five_pairs_tell_nothing_and_void_pairs_do_not_count() -> None:
    assert drifts(CASE, pairs_of(ramp(0.5, 5), ramp(0.5, 5)), least=0.01) == ()
    assert len(drifts(CASE, pairs_of(ramp(0.5, 6), ramp(0.5, 6)), least=0.01)) == 2
    assert drifts(CASE, pairs_of(ramp(0.5, 6), ramp(0.5, 6), void=(3,)), least=0.01) == ()


def test_one_pair_far_out_does_not_make_a_drift() -> None:
    rng = seeded(3)
    logs = [0.002 * rng.gauss(0, 1) for _ in range(11)] + [0.5]
    assert drifts(CASE, pairs_of(logs, logs), least=0.001) == ()


def test_one_pair_far_out_does_not_change_the_size_of_a_drift() -> None:
    logs = ramp(0.1, 16)
    logs[15] += 3.0
    found = drifts(CASE, pairs_of(logs, ramp(0.1, 16)), least=0.01)
    assert [d.change for d in found] == [pytest.approx(0.1, rel=0.02)] * 2


def test_the_interval_misses_the_true_slope_as_seldom_as_it_says() -> None:
    rng, missed, total = seeded(11), 0, 3000
    for _ in range(total):
        logs = [0.01 * rng.gauss(0, 1) + 0.002 * i for i in range(8)]
        found = drift._drift("before", logs, 0.1)
        missed += not found.low <= 0.014 <= found.high
    # Exact and discrete: 8 pairs offer 2 P(S <= 6) = .0615 and no .1; three standard errors around it.
    exact = 2 * sum(_inversions(8)[: drift._critical(8, 0.1) + 1]) / math.factorial(8)
    assert exact <= 0.1
    assert missed / total == pytest.approx(exact, abs=3 * math.sqrt(exact / total))


def _inversions(count: int) -> list[int]:
    found = [0] * (count * (count - 1) // 2 + 1)
    for order in permutations(range(count)):
        found[sum(order[i] > order[j] for i in range(count) for j in range(i + 1, count))] += 1
    return found


@pytest.mark.parametrize("count", [4, 5, 6, 7])
@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.2])
def test_the_cut_is_that_of_every_order_counted(count, alpha) -> None:
    counts, chance, cut = _inversions(count), 0.0, -1
    while 2 * (chance + counts[cut + 1] / math.factorial(count)) <= alpha:
        cut += 1
        chance += counts[cut] / math.factorial(count)
    assert drift._critical(count, alpha) == cut


def test_a_case_without_drift_is_told_of_one_in_about_two_of_a_hundred() -> None:
    rng, told = seeded(5), 0
    for _ in range(600):
        pairs = pairs_of([0.01 * rng.gauss(0, 1) for _ in range(10)], [0.01 * rng.gauss(0, 1) for _ in range(10)])
        told += bool(drifts(CASE, pairs, least=0.0))
    assert told <= 24


def test_three_sides_that_move_together_are_called_all() -> None:
    found = [Drift(name, 0.03, 0.02, 0.04, 8) for name in ("a", "b", "c")]
    assert drift_sentence(found, sides=3).startswith("all 3 sides slowed by 3 % over the case")
    assert drift_sentence([found[0], Drift("b", 0.05, 0.03, 0.06, 8)], sides=2).startswith(
        "both sides slowed by 3 % to 5.1 %"
    )


def test_log_ratios_without_a_drift_of_their_own_say_nothing() -> None:
    assert drifts(CASE, make_pairs([0.3] * 10), least=0.0) == ()
