"""Cost of a million items and goodput, with worked values, the book's among them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from analysis_maker import SETTINGS, make_case, make_pair, make_run

from aiperf.analysis.cost import cost_per_million, goodput, gpus_used, items_of, paid_seconds
from aiperf.analysis.recompute import conclude
from aiperf.plan.costs import Prices
from aiperf.records import CaseRecord, Sample, Side

PRICES = Prices("p.yaml", "USD", "mine", "2026-01-01", gpu_hour=3.6, host_hour=0.36)


def test_a_million_items_cost_their_hours() -> None:
    # 1000 items in 10 ms are 10 s a million: 2 GPUs at 3.6 and the machine at 0.36 an hour.
    found = cost_per_million(PRICES, items=1000, seconds=0.01, gpus=2, joules=None)
    assert found.total == pytest.approx(10 * (2 * 3.6 + 0.36) / 3600)
    assert found.energy == 0
    assert cost_per_million(PRICES, items=1000, seconds=0.01, gpus=0, joules=None).total == pytest.approx(0.001)


def test_energy_is_paid_by_the_kilowatt_hour_on_top() -> None:
    priced = replace(PRICES, kwh=0.36)
    found = cost_per_million(priced, items=10, seconds=0.01, gpus=0, joules=36.0)
    assert found.energy == pytest.approx(0.36)
    assert found.total == pytest.approx(0.36 + 1000 * 0.36 / 3600)


@pytest.mark.parametrize(
    ("prices", "gpus", "items", "told"),
    [
        (replace(PRICES, gpu_hour=None), 1, 10, "no gpu_hour"),
        (replace(PRICES, host_hour=None), 0, 10, "no host_hour"),
        (replace(PRICES, kwh=0.1), 1, 10, "prices energy (kwh), and the counter stands still"),
        (PRICES, 1, 0, "counts no items"),
    ],
)
def test_what_is_missing_is_never_free(prices, gpus, items, told) -> None:
    found = cost_per_million(
        prices, items=items, seconds=1.0, gpus=gpus, joules=None, no_energy="the counter stands still"
    )
    assert found.total is None
    assert told in found.problem


def test_a_price_of_zero_that_somebody_states_is_a_price() -> None:
    assert cost_per_million(replace(PRICES, gpu_hour=0.0, host_hour=None), items=1, seconds=1, gpus=1, joules=None) == (
        cost_per_million(replace(PRICES, gpu_hour=0.0, host_hour=0.0), items=1, seconds=1, gpus=1, joules=None)
    )


def test_a_gang_is_paid_by_its_ranks_and_a_case_of_the_cpu_for_no_gpu() -> None:
    case = make_case(gpus=1)
    ranks = replace(case, sides=(case.sides[0], Side("after", workload="x.y", ranks=4)))
    assert [gpus_used(CaseRecord(c, "measured"), "after") for c in (case, ranks, make_case())] == [1, 4, 0]
    masked = replace(case, sides=(case.sides[0], replace(case.sides[1], env={"CUDA_VISIBLE_DEVICES": "0, 2,3"})))
    assert [gpus_used(CaseRecord(masked, "measured"), side) for side in ("before", "after")] == [1, 3]


def test_the_wall_clock_is_paid_where_the_device_clock_leads() -> None:
    times = {"before": 2e-3, "after": 1e-3}
    pairs = [make_pair(i, times, device_s=1e-3) for i in range(4)]
    device = CaseRecord(make_case(gpus=1), "measured", results=conclude(make_case(gpus=1), pairs, **SETTINGS))
    assert paid_seconds(device, "before") == pytest.approx(2e-3)
    wall = CaseRecord(make_case(), "measured", results=conclude(make_case(), pairs, **SETTINGS))
    assert paid_seconds(wall, "after") == pytest.approx(1e-3)
    assert paid_seconds(wall, "elsewhere") is None


def test_the_books_hundred_thousand_tokens_in_ten_seconds_are_ten_thousand_a_second() -> None:
    runs = [make_run("before", work={"items": 100_000, "item": "tokens"}), make_run("after")]
    pair = make_pair(0, {"before": 10.0, "after": 1.0}, runs=runs)
    assert items_of([pair], "before") == (100_000, "tokens")
    assert goodput([pair], "before", seconds=10.0).steady == pytest.approx(10_000)
    assert goodput([pair], "after", seconds=1.0) is None


def test_set_up_warm_up_and_audits_are_time_without_work() -> None:
    run = make_run("before", first=0.4, work={"items": 10})  # set-up and warm-up of 0.1 s each
    timed = Sample("before", 0, 0, 100, 1.0)
    audit = Sample("before", 0, -1, 1, 0.4, audit=True)
    pair = replace(make_pair(0, {"before": 1.0, "after": 1.0}, runs=[run]), samples=(timed, audit))
    found = goodput([pair, pair], "before", seconds=0.01)
    assert found.steady == pytest.approx(1000)
    assert found.whole == pytest.approx(10 * 200 / (2 * (0.1 + 0.4 + 0.1 + 1.0 + 0.4)))


def test_without_raw_samples_the_whole_launch_is_not_known() -> None:
    run = make_run("before", work={"items": 10})
    pair = replace(make_pair(0, {"before": 1.0, "after": 1.0}, runs=[run]), samples=())
    assert goodput([pair], "before", seconds=0.01).whole is None
