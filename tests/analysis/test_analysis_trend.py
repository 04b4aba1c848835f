"""Change points against an oracle and by simulation; series that never mix hosts or questions."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from analysis_maker import SETTINGS, make_case, make_pairs

from aiperf.analysis.gate import Difference
from aiperf.analysis.recompute import conclude
from aiperf.analysis.trend import (
    FEWEST_POINTS,
    SHORTEST,
    all_series,
    change_points,
    latest_hosts,
    metrics_of,
    noise,
    partition,
)
from aiperf.records import CaseRecord, Measure, RunRecord, Summary, Verdict

JITTER = [0.003, -0.002, 0.001, -0.004, 0.002, 0.004, -0.003, -0.001]


def cost(values, breaks):
    """Sum of squares about the levels between the breaks."""
    edges = [0, *breaks, len(values)]
    return sum(float(np.var(values[a:b])) * (b - a) for a, b in itertools.pairwise(edges))


def series_with_steps(rng, count):
    """Noise about one to four levels."""
    values = rng.normal(size=count)
    for place in rng.integers(2, count - 2, size=rng.integers(0, 4)):
        values[place:] += rng.normal(0, 3)
    return values


@pytest.mark.parametrize("penalty", [2.0, 6.0, 15.0])
def test_the_partition_is_the_best_of_every_number_of_changes_that_ruptures_finds(penalty):
    import ruptures  # which loads much of scipy: not in every process that collects this file

    rng = np.random.default_rng(int(penalty))
    for count in rng.integers(12, 40, size=10):
        values = series_with_steps(rng, count)
        dynp = ruptures.Dynp(model="l2", min_size=SHORTEST, jump=1).fit(values)
        found = [dynp.predict(n_bkps=k)[:-1] if k else [] for k in range(count // SHORTEST)]
        best = min(found, key=lambda breaks: cost(values, breaks) + penalty * len(breaks))
        assert list(partition(list(values), [1.0] * count, penalty=penalty)) == best


@pytest.mark.long
def test_the_partition_is_never_worse_than_the_pruned_search_of_ruptures():
    import ruptures

    rng = np.random.default_rng(8)
    same = 0
    for _ in range(30):
        values = series_with_steps(rng, 80)
        pelt = ruptures.Pelt(model="l2", min_size=SHORTEST, jump=1).fit(values).predict(pen=8.0)[:-1]
        own = list(partition(list(values), [1.0] * 80, penalty=8.0))
        assert cost(values, own) + 8 * len(own) <= cost(values, pelt) + 8 * len(pelt) + 1e-9
        same += own == pelt
    assert same >= 28


def test_a_weight_counts_like_as_many_points():
    values, sds = [0.0, 0.1, 0.0, 2.0, 2.1, 2.0], [1.0, 1.0, 0.5, 0.5, 1.0, 1.0]
    repeated = [0.0, 0.1] + [0.0] * 4 + [2.0] * 4 + [2.1, 2.0]
    for penalty in (1.0, 3.0, 9.0, 20.0):
        places = partition(repeated, [1.0] * 12, penalty=penalty)
        assert partition(values, sds, penalty=penalty) == tuple({6: 3}[p] for p in places)


def alarms(count, *, series=600, step=0.0, seed=0):
    """(share of series with any change point, share with one within a place of the middle)."""
    rng = np.random.default_rng(seed + count)
    any_, right = 0, 0
    for _ in range(series):
        values = 0.01 * rng.normal(size=count)
        values[count // 2 :] += 0.01 * step
        found = change_points(list(values), [None] * count)
        any_ += bool(found)
        right += any(abs(s.index - count // 2) <= 1 for s in found)
    return any_ / series, right / series


@pytest.mark.parametrize("count", [8, 12, *(pytest.param(count, marks=pytest.mark.long) for count in (30, 60))])
def test_flat_noise_raises_a_false_alarm_in_at_most_five_of_a_hundred_series(count):
    assert alarms(count)[0] <= 0.05


def test_two_hundred_flat_series_of_thirty_runs_raise_few_alarms_and_heavy_tails_not_many_more():
    rng = np.random.default_rng(21)
    normal = sum(bool(change_points(list(rng.normal(size=30)), [None] * 30)) for _ in range(200))
    heavy = sum(bool(change_points(list(rng.standard_t(4, size=30)), [None] * 30)) for _ in range(200))
    assert normal <= 10
    assert heavy <= 20


def test_a_step_of_three_standard_deviations_in_thirty_runs_is_found_where_it_is():
    assert alarms(30, step=3.0, series=300)[1] >= 0.93


def test_the_interval_of_a_step_covers_it():
    rng = np.random.default_rng(4)
    covered = found = 0
    for _ in range(300):
        values = 0.01 * rng.normal(size=30)
        values[18:] += 0.04
        step = next((s for s in change_points(list(values), [None] * 30) if s.index == 18), None)
        found += step is not None
        covered += step is not None and step.low <= math.exp(0.04) <= step.high
    assert found > 270
    assert covered / found > 0.92


def test_one_odd_run_is_no_change_of_level():
    values = [x + (0.03 if i == 9 else 0) for i, x in enumerate(JITTER * 2)]
    assert change_points(values, [None] * 16) == ()


def test_a_step_is_no_noise_and_equal_values_have_the_least():
    step = [x + (5.0 if i >= 8 else 0) for i, x in enumerate(JITTER * 2)]
    assert noise(step, [None] * 16)[0] == pytest.approx(noise(JITTER * 2, [None] * 16)[0], rel=0.3)
    assert noise([1.0] * 10, [None] * 10) == [1e-6] * 10
    assert change_points([1.0] * 10, [None] * 10) == ()
    assert [s.index for s in change_points([1.0] * 5 + [2.0] * 5, [None] * 10)] == [5]


def test_the_noise_estimate_is_about_right():
    rng = np.random.default_rng(6)
    found = [noise(list(rng.normal(size=60)), [None] * 60)[0] ** 2 for _ in range(300)]
    assert np.mean(found) == pytest.approx(1.0, abs=0.1)


def test_a_point_is_never_taken_for_surer_than_its_own_error():
    calm = [x / 100 for x in JITTER * 2]
    sds = noise(calm, [0.02] * 15 + [0.5])
    assert min(sds) >= 0.02
    assert sds[-1] >= 0.5
    wild = [0.0] * 14 + [0.4, 0.4]
    assert change_points([a + b for a, b in zip(calm, wild, strict=True)], [0.001] * 14 + [0.5] * 2) == ()
    assert change_points([a + b for a, b in zip(calm, wild, strict=True)], [0.001] * 16) != ()


def test_too_few_runs_are_not_searched():
    values = [0.0, 0.001] * 10 + [1.0, 1.001] * 10
    assert change_points(values[16 : 16 + FEWEST_POINTS - 1], [None] * (FEWEST_POINTS - 1)) == ()
    assert [s.index for s in change_points(values[16 : 16 + FEWEST_POINTS], [None] * FEWEST_POINTS)] == [4]


def made(number, *, ratio=0.2, host="h", after=1e-3, word="", **changes):
    """One run with one case whose log-ratio and after value are given."""
    pairs = make_pairs([ratio + x for x in JITTER], base=after)
    result = conclude(make_case(), pairs, **SETTINGS)[0]
    if word:
        result = replace(result, verdict=Verdict(word, "wrong_output", "wrong", threshold=0.02))
    record = CaseRecord(replace(make_case(), **changes), "measured", (result,), host_id=host)
    run = RunRecord(
        f"r{number}", (), f"2026-11-{number:02d}T00:00:00+00:00", host_id=host, host={"hostname": f"{host}1"}
    )
    return run, record


def test_hosts_are_never_mixed():
    entries = [made(i, host="slow" if i % 2 else "fast", ratio=0.5 if i % 2 else 0.1) for i in range(1, 21)]
    found = all_series(entries)
    assert [(s.host, len(s.points), s.ratio_steps) for s in found] == [("slow", 10, ()), ("fast", 10, ())]
    assert [s.host for s in latest_hosts(found)] == ["fast"]


def test_runs_whose_second_node_is_of_another_class_have_a_series_of_their_own():
    entries = []
    for number in range(1, 5):
        run, record = made(number)
        node = {"node": f"m{number}", "host_id": "slow" if number % 2 else "fast"}
        sides = tuple(replace(side, ranks=2, nodes=2) for side in record.case.sides)
        run = replace(run, nodes=(node,))
        entries += [(run, record), (run, replace(record, case=replace(record.case, id="over", sides=sides)))]
    found = {(s.case, s.host): s.hostnames for s in all_series(entries)}
    assert found == {
        (make_case().id, "h"): ("h1",),
        ("over", "h+slow"): ("h1", "m1", "m3"),
        ("over", "h+fast"): ("h1", "m2", "m4"),
    }


def test_a_host_without_an_id_is_told_by_its_name_and_one_without_a_name_is_alone():
    entries = [made(i, host="") for i in range(1, 4)]
    entries = [
        (replace(run, host={"hostname": name} if name else {}), record)
        for (run, record), name in zip(entries, ["a", "", ""], strict=True)
    ]
    assert [s.host for s in all_series(entries)] == ["a", "r2", "r3"]


def test_a_step_of_the_speedup_and_of_the_value_stands_at_the_run_where_it_begins():
    entries = [
        made(
            i, ratio=(0.2 if i < 12 else 0.1) + JITTER[i % 8], after=(1e-3 if i < 12 else 1.1e-3) * (1 + JITTER[i % 8])
        )
        for i in range(1, 21)
    ]
    series = all_series(entries)[0]
    for steps, size in ((series.ratio_steps, math.exp(-0.1)), (series.value_steps, 1.1)):
        (step,) = steps
        assert series.points[step.index].run.run == "r12"
        assert step.low < size < step.high
        assert step.ratio == pytest.approx(size, rel=0.005)


def test_the_trend_begins_anew_where_the_question_changes():
    entries = [
        made(i, ratio=(0.2 if i < 12 else 0.1) + JITTER[i % 8], scenario_hash="1" if i < 12 else "2")
        for i in range(1, 21)
    ]
    series = all_series(entries)[0]
    assert series.ratio_steps == ()
    assert [(i, p.breaks) for i, p in enumerate(series.points) if p.breaks] == [
        (11, (Difference("scenario_hash", "1", "2"),))
    ]


def test_runs_without_a_number_are_points_that_no_step_counts():
    entries = [made(i, ratio=(0.2 if i < 12 else 0.1) + JITTER[i % 8]) for i in range(1, 21)]
    entries[3] = (entries[3][0], replace(entries[3][1], status="skipped", results=()))
    entries[5] = made(6, ratio=3.0, word="invalid")
    entries[7] = (entries[7][0], replace(entries[7][1], status="interrupted"))
    series = all_series(entries)[0]
    assert [p.counts for p in series.points[:8]] == [True, True, True, False, True, False, True, False]
    assert [s.index for s in series.ratio_steps] == [11]


def test_an_interval_without_ends_gives_no_point_of_the_speedup():
    run, record = made(1)
    open_ = replace(record.results[0], comparison=replace(record.results[0].comparison, low=0.0, high=math.nan))
    point = all_series([(run, replace(record, results=(open_,)))])[0].points[0]
    assert (point.log_ratio, point.counts) == (None, True)
    assert point.log_value == pytest.approx(math.log(1e-3))


def test_what_changed_since_the_run_before_is_told_and_stops_nothing():
    (one, record), (two, _) = made(1), made(2)
    two = replace(
        two, software={"scipy": "1.15"}, host={"hostname": "h2", "fingerprint": {"record_only": {"hostname": "h2"}}}
    )
    series = all_series([(replace(one, software={"scipy": "1.14"}), record), (two, record)])[0]
    assert series.points[0].changed == ()
    assert [d.name for d in series.points[1].changed] == ["hostname", "software.scipy"]
    assert series.hostnames == ("h1", "h2")


def test_a_ladder_has_a_series_for_each_comparison_and_an_imported_record_one_for_its_side():
    pairs = [
        replace(
            p,
            samples=(*p.samples, *(replace(s, side="more") for s in p.samples if s.side == "after")),
            order=(*p.order, "more"),
        )
        for p in make_pairs(JITTER)
    ]
    case = make_case("before", "after", "more")
    record = CaseRecord(case, "measured", conclude(case, pairs, **SETTINGS))
    keys = [(s.side, s.against) for s in all_series([(made(1)[0], record)])]
    assert keys == [("after", "before"), ("more", "before"), ("more", "after")]
    lone = CaseRecord(make_case(), "imported", summaries=(Summary("after", 2.0, 1.9, 2.1, 9, 0, 0.0),))
    series = all_series([(made(1)[0], lone)])[0]
    assert (series.side, series.against, series.points[0].log_value) == ("after", "", math.log(2))


def test_a_metric_that_nobody_holds_leaves_a_series_without_a_side():
    entries = [made(1)]
    assert metrics_of(entries) == ("time",)
    series = all_series(entries, metric="peak_memory")[0]
    assert (series.side, series.points[0].value) == ("", None)
    assert all_series([]) == ()


def test_without_a_metric_the_trend_is_of_what_the_case_is_about():
    entries = [made(i, measure=Measure(metric="peak_memory")) for i in range(1, 4)]
    (own,), (time,) = all_series(entries), all_series(entries, metric="time")
    assert (own.metric, own.side) == ("peak_memory", "")
    assert (time.metric, time.side) == ("time", "after")


_RECORDED = Path(__file__).parents[2] / "results/reference/figures/history-of-ten.jsonl"
"""Nine series of ten runs of one commit, twenty minutes on one machine that had other work at times."""


@pytest.mark.parametrize("line", _RECORDED.read_text(encoding="utf-8").splitlines())
def test_ten_recorded_runs_in_which_nothing_changed_have_no_change_point_and_a_change_put_into_them_is_found(line):
    points = json.loads(line)["points"]
    values = [math.log(point["ratio"]) for point in points]
    errors = [(math.log(point["high"]) - math.log(point["low"])) / 4 for point in points]
    assert change_points(values, errors) == ()
    moved = [value + 8 * max(noise(values, errors)) * (at >= 5) for at, value in enumerate(values)]
    assert [step.index for step in change_points(moved, errors)] == [5]
