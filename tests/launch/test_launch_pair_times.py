"""Pairs of real workers whose times are judged: this file has the machine to itself."""

# ruff: noqa: F811 - fixtures of the other file
from __future__ import annotations

from dataclasses import replace

import pytest
from test_launch_pair import (  # noqa: F401 - fixtures
    ALL,
    PRECISION,
    SETTINGS,
    Measured,
    _nothing_left,
    both,
    facts,
    failed,
    guardian,
    judge,
    measured,
    side,
)

from aiperf.records import SideRun

pytestmark = pytest.mark.alone


def test_the_time_inside_the_workers_is_most_of_the_time_of_the_pair_but_not_more(measured: Measured) -> None:
    settings = replace(SETTINGS, precision=replace(PRECISION, side_seconds=0.5, round_seconds=0.12, warmup_seconds=0.3))
    pair = measured(*both(), settings=settings)
    inside = sum(s.wall_s for s in pair.samples) + sum(r.warmup.seconds for r in pair.runs if r.warmup)
    assert inside < pair.worker_seconds < pair.seconds
    assert pair.worker_seconds > 0.5 * pair.seconds


@pytest.mark.parametrize("exclusive", [False, True])
def test_the_time_of_a_pair_is_told_by_phase(measured: Measured, exclusive: bool) -> None:
    settings = replace(SETTINGS, precision=replace(PRECISION, side_seconds=0.5, round_seconds=0.12))
    pair = measured(*both(), settings=settings, exclusive=exclusive)
    phases = ["start", "set-up", "warm-up", "rounds", "audits", "save", "energy", "check", "close"]
    assert sorted(pair.spent) == sorted(phases)
    assert all(seconds > 0 for seconds in pair.spent.values())
    assert 0.9 * pair.seconds < sum(pair.spent.values()) < pair.seconds
    audits = sum(s.wall_s for s in pair.samples if s.audit)
    assert sum(s.wall_s for s in pair.samples) - audits < pair.spent["rounds"]
    assert audits < pair.spent["audits"]


def test_an_unsteady_side_is_recorded_with_what_still_moved(measured: Measured) -> None:
    precision = replace(PRECISION, warmup_window=20, warmup_seconds=0.1)
    pair = measured(side("before"), side("after", "slower_and_slower"), settings=replace(SETTINGS, precision=precision))
    warmup = pair.runs[1].warmup
    assert warmup is not None
    assert not warmup.steady
    assert warmup.reason.startswith("times still rising")
    assert warmup.iterations >= 22


def test_the_skew_of_a_gang_is_told(measured: Measured) -> None:
    def skew(run: SideRun) -> float | None:
        return run.skew

    pair = measured(side("before"), side("after", "uneven", ranks=2), cpus=ALL if len(ALL) > 1 else None)
    assert skew(pair.runs[0]) is None
    assert skew(pair.runs[1]) == pytest.approx(4 / 2.5, rel=0.25)


def test_exclusive_sides_are_audited_alike_even_if_only_one_prepares(measured: Measured) -> None:
    # Time for all single iterations on new inputs: else one side may have more of them.
    settings = replace(SETTINGS, precision=replace(PRECISION, side_seconds=1.0, round_seconds=0.1))
    pair = measured(side("before"), side("after", "prepares"), exclusive=True, settings=settings)
    before, after = facts(pair)
    both = list(zip(before["audits"], after["audits"], strict=True))
    alike, own = ([seeds for seeds in both if (len(set(seeds)) == 1) is same] for same in (True, False))
    assert alike
    # Single iterations on new inputs are on such that no other side meets.
    assert own
    assert len({seed for seeds in own for seed in seeds}) == 2 * len(own)
    assert failed(pair) == []
