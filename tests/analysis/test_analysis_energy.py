"""Energy readings: the rules of METHOD 11, joules per iteration, and energy as a metric of the pairs."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from analysis_maker import SETTINGS, make_case, make_pair, make_run

from aiperf.analysis.energy import fault, first_fault, gross_joules, mean_over, net_joules, watts
from aiperf.analysis.recompute import conclude
from aiperf.records import EnergyReading

GOOD = EnergyReading(
    "NVML, GPU 0", windows=4, updates=52, seconds=5.2, joules=5.2 * 400, iterations=2000, run_seconds=8.0,
    idle_watts=100.0, limit_watts=700.0,
)  # fmt: skip


def at(watts_: float, **more) -> EnergyReading:
    return replace(GOOD, joules=GOOD.seconds * watts_, **more)


def test_joules_of_an_iteration_are_the_mean_power_times_its_time_in_the_same_run() -> None:
    assert fault(GOOD) == ""
    assert watts(GOOD) == pytest.approx(400)
    assert gross_joules(GOOD) == pytest.approx(400 * 8.0 / 2000)
    assert net_joules(GOOD) == pytest.approx(300 * 8.0 / 2000)


@pytest.mark.parametrize(
    ("reading", "told"),
    [
        (None, "not measured"),
        (replace(GOOD, problem="GPU 0 is cut into MIG slices"), "MIG"),
        (replace(GOOD, seconds=4.99), "4.99 s in total are too short"),
        (replace(GOOD, windows=1), "too short"),
        (replace(GOOD, updates=49), "49 times"),
        (replace(GOOD, iterations=0), "no iteration"),
        (replace(GOOD, joules=0.0), "no energy"),
        (at(736), "above the power limit of 700 W"),
        (at(89), "below the 100.0 W at rest"),
        (replace(GOOD, idle_watts=None), "at rest is unknown"),
        (replace(GOOD, idle_cpus=1.5), "1.5 CPUs busy"),
    ],
)
def test_a_reading_that_breaks_a_rule_is_not_reported_and_says_which(reading, told) -> None:
    assert told in fault(reading)
    assert watts(reading) is gross_joules(reading) is net_joules(reading) is None


@pytest.mark.parametrize("reading", [at(734), at(91), replace(GOOD, seconds=5.0), replace(GOOD, updates=50),
                                     at(9000, limit_watts=None), replace(GOOD, idle_cpus=0.2)])  # fmt: skip
def test_a_reading_just_within_the_rules_is_reported(reading) -> None:
    assert fault(reading) == ""


NOISE = (0.010, 0.008, -0.010, -0.006, 0.004, -0.006)


def energetic(index: int, before: float, after: float, **more):
    """A pair whose sides draw these watts; their times are equal but for noise."""
    times = {"before": 1e-3, "after": 1e-3 * math.exp(NOISE[index % 6] / 10)}
    pair = make_pair(index, times, runs=[make_run("before"), make_run("after")], **more)
    return replace(pair, energy={"before": at(before), "after": at(after)})


def of_energy(pairs, case=None):
    results = conclude(case or make_case(), pairs, **SETTINGS)
    return next((r for r in results if r.comparison.metric == "energy"), None)


def test_energy_is_compared_over_pairs_like_a_time_and_never_leads() -> None:
    pairs = [energetic(i, 400 * math.exp(NOISE[i]), 320) for i in range(6)]
    found = of_energy(pairs)
    assert found.comparison.ratio == pytest.approx(1.25)
    assert found.comparison.low < 1.24 < 1.26 < found.comparison.high
    assert (found.comparison.unit, found.comparison.better, found.primary) == ("J", "lower", False)
    assert found.verdict.word == "improved"
    assert "faster" not in found.verdict.sentence
    assert found.comparison.before.value == pytest.approx(400 * 8.0 / 2000)


def test_more_energy_is_a_regression_of_energy_while_time_is_equivalent() -> None:
    pairs = [energetic(i, 320, 400 * math.exp(NOISE[i])) for i in range(6)]
    assert of_energy(pairs).verdict.word == "regressed"
    assert conclude(make_case(), pairs, **SETTINGS)[0].verdict.word == "equivalent"


def test_one_pair_without_a_reading_leaves_energy_out_of_the_results() -> None:
    pairs = [energetic(i, 400, 320) for i in range(6)]
    spoilt = [*pairs[:5], replace(pairs[5], energy={"before": at(400), "after": replace(GOOD, updates=3)})]
    assert of_energy(spoilt) is None
    assert "3 times" in first_fault(spoilt, "after")
    assert first_fault(spoilt, "before") == ""
    assert first_fault([], "before") == "no pair counts"


def test_a_void_pair_without_a_reading_does_not_take_energy_away() -> None:
    pairs = [energetic(i, 400, 320) for i in range(6)]
    lost = replace(make_pair(6, {"before": 1e-3, "after": 1e-3}, void=True), energy={})
    assert of_energy([*pairs, lost]).comparison.pairs == 6


def test_means_over_pairs_are_geometric_unless_one_is_below_zero_and_none_when_one_lacks() -> None:
    pairs = [energetic(0, 180, 95), energetic(1, 720, 105)]
    assert mean_over(pairs, "before", watts) == pytest.approx(360)
    assert mean_over(pairs, "after", net_joules) == pytest.approx(0, abs=1e-12)
    assert mean_over([*pairs, make_pair(2, {"before": 1.0, "after": 1.0})], "before", watts) is None
