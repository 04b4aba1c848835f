import math
from dataclasses import replace
from typing import get_args

import pytest
from analysis_maker import make_case, make_pair, make_pairs, make_run

from aiperf.analysis.metrics import LATENCIES, METRICS
from aiperf.analysis.pairs import (
    ComparisonError,
    has_metric,
    lacks_primary_metric,
    log_ratios,
    reading,
    side_value,
    values,
)
from aiperf.records import Latencies, LatencyMetric, Measure, Pair, PrimaryMetric, ProgramMetric, Sample, Side
from aiperf.scenario.program_metrics import GPU_METRICS, RESERVED_NAMES

CASE = make_case()
MEDIAN = make_case(statistic="median")


def samples(side, *readings, audit=False, **fields):
    return tuple(Sample(side, r, 0, n, t, audit=audit, **fields) for r, (n, t) in enumerate(readings))


def pair_of(*groups, order=("before", "after"), runs=(), index=0):
    return Pair(index, order, 0, tuple(s for g in groups for s in g), tuple(runs))


def value(pair, side, case=CASE, metric="time"):
    return side_value(pair, side, how=reading([pair], case, metric=metric))


def ratios(pairs, case=CASE, metric="time", side="after", against="before"):
    return log_ratios(pairs, case, metric=metric, side=side, against=against)


def test_mean_is_total_time_over_total_iterations():
    pair = pair_of(samples("before", (1, 4.0), (3, 6.0)))
    assert value(pair, "before") == pytest.approx(10.0 / 4)


def test_median_is_over_samples_of_time_per_iteration():
    pair = pair_of(samples("before", (1, 4.0), (3, 6.0), (10, 10.0)))
    assert value(pair, "before", MEDIAN) == pytest.approx(2.0)


@pytest.mark.parametrize("statistic", ["mean", "median"])
def test_what_was_derived_from_a_pair_is_not_said_of_one_with_other_samples(statistic):
    case = replace(CASE, measure=Measure(statistic=statistic))
    pair = pair_of(samples("before", (1, 2.0)), samples("after", (1, 1.0)))
    assert [value(pair, side, case) for side in pair.order] == [2.0, 1.0]
    assert ratios([pair], case)[0] == [pytest.approx(math.log(2))]
    slower = replace(pair, samples=(*samples("before", (1, 2.0)), *samples("after", (1, 4.0))))
    assert [value(slower, side, case) for side in pair.order] == [2.0, 4.0]
    assert ratios([slower], case)[0] == [pytest.approx(-math.log(2))]


def test_audited_samples_never_count():
    pair = pair_of(samples("before", (1, 1.0)), samples("before", (1, 100.0), audit=True))
    assert value(pair, "before") == 1.0


def test_device_clock_is_used_only_when_every_side_was_read_by_it():
    case = make_case(gpus=1)
    full = pair_of(samples("before", (1, 2.0), device_s=1.0), samples("after", (1, 2.0), device_s=0.5))
    assert value(full, "before", case) == 1.0
    assert value(full, "before", make_case(gpus=1, clock="wall")) == 2.0
    assert value(full, "before", CASE) == 2.0, "without a GPU auto means the wall clock"
    half = pair_of(samples("before", (1, 2.0), device_s=1.0) + samples("before", (1, 2.0)), samples("after", (1, 2.0)))
    assert ratios([half], case)[0] == [0.0], "one side by device and the other by wall would be -ln 2"


def test_a_device_clocked_launch_keeps_its_wall_readings_apart():
    case = make_case(gpus=1)
    both = [
        *samples("before", (1, 9.0), device_s=1.0),
        *samples("before", (1, 3.0)),
        *samples("after", (1, 9.0), device_s=1.0),
        *samples("after", (1, 2.0)),
    ]
    pair = pair_of(both)
    assert value(pair, "before", case) == 1.0, "the wall reading must not enter the device time"
    assert value(pair, "before", case, metric="wall") == 3.0, "the held-back sample's wall time holds the hold"


def test_metrics_are_read_from_where_the_table_says():
    group = samples("before", (2, 8.0), (2, 4.0), user_s=3.0, system_s=1.0, peak_bytes=70)
    run = make_run("before", first=0.5, peak=90, gpu=11)
    pair = pair_of(group, runs=[run])
    found = {name: value(pair, "before", metric=name) for name in METRICS}
    assert found == {
        "time": 3.0, "wall": 3.0, "user": 1.5, "system": 0.5,
        "first_iteration": 0.5, "peak_memory": 90, "gpu_memory": 11, "energy": None,
        **dict.fromkeys(LATENCIES),
        **dict.fromkeys(GPU_METRICS),
    }  # fmt: skip
    assert value(pair_of(group), "before", metric="peak_memory") == 70
    assert value(pair_of(group), "before", metric="gpu_memory") is None


def test_log_ratio_is_above_zero_when_after_is_faster_and_position_tells_who_was_first():
    pairs = [make_pair(0, {"before": 2.0, "after": 1.0}), make_pair(1, {"before": 2.0, "after": 1.0})]
    d, o = ratios(pairs)
    assert d == pytest.approx([math.log(2)] * 2)
    assert o == [1, -1]
    d, o = ratios(pairs, side="before", against="after")
    assert d == pytest.approx([-math.log(2)] * 2)
    assert o == [-1, 1]


def test_void_pairs_are_left_out_and_pairs_come_in_pair_order():
    pairs = make_pairs([0.1, 0.2, 0.3])
    pairs[1] = make_pair(1, {"before": 5.0, "after": 1.0}, void=True)
    d, _ = ratios(pairs[::-1])
    assert d == pytest.approx([0.1, 0.3])


def test_median_on_the_wall_clock_pairs_within_the_round_so_that_drift_cancels():
    before = samples("before", (1, 1.1), (1, 2.2), (1, 44.0), (1, 8.8))
    after = samples("after", (1, 1.0), (1, 2.0), (1, 4.0), (1, 8.0))
    assert ratios([pair_of(before, after)], MEDIAN)[0] == pytest.approx([math.log(1.1)])
    exclusive = make_case(statistic="median", exclusive=True)
    assert ratios([pair_of(before, after)], exclusive)[0] == pytest.approx([math.log(5.5 / 3.0)])


def test_a_round_that_one_side_lacks_is_left_out_of_the_round_ratio():
    before = samples("before", (1, 1.1), (1, 9.0))
    after = samples("after", (1, 1.0))
    assert ratios([pair_of(before, after)], MEDIAN)[0] == pytest.approx([math.log(1.1)])


def test_median_on_the_device_clock_is_per_side():
    case = make_case(gpus=1, statistic="median")
    before = tuple(replace(s, device_s=d) for s, d in zip(samples("before", *[(1, 9.0)] * 3), (1, 2, 30), strict=True))
    after = tuple(replace(s, device_s=d) for s, d in zip(samples("after", *[(1, 9.0)] * 3), (10, 4, 3), strict=True))
    assert ratios([pair_of(before, after)], case)[0] == pytest.approx([math.log(2 / 4)])


@pytest.mark.parametrize("case", [CASE, MEDIAN])
def test_a_time_of_zero_is_a_clean_error(case):
    pair = pair_of(samples("before", (1, 1.0)), samples("after", (1, 0.0)))
    with pytest.raises(ComparisonError, match="no ratio can be taken"):
        ratios([pair], case)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1.0])
def test_a_time_that_is_no_time_is_a_clean_error(bad):
    pair = pair_of(samples("before", (1, 1.0)), samples("after", (1, bad)))
    with pytest.raises(ComparisonError, match="after in pair 0"):
        ratios([pair])


def test_a_missing_side_names_pair_and_side():
    pair = pair_of(samples("before", (1, 1.0)), index=7)
    with pytest.raises(ComparisonError, match="pair 7 holds no time per iteration of after"):
        values([pair], "after", how=reading([pair], CASE, metric="time"))
    with pytest.raises(ComparisonError, match="no round"):
        ratios([pair], MEDIAN)


def test_an_unknown_metric_lists_the_known_ones():
    with pytest.raises(ComparisonError, match="peak_memory"):
        reading([], CASE, metric="memory")


# ---- latencies -------------------------------------------------------------------------------------------------------


def told(side, latencies, *, audit=False, series="latency", rank=0):
    """Samples of a side, each of which tells some latencies."""
    parts = [(Latencies(tuple(part), series, rank),) if part else () for part in latencies]
    taken = samples(side, *[(1, 1.0)] * len(latencies), audit=audit)
    return tuple(replace(sample, latencies=part) for sample, part in zip(taken, parts, strict=True))


@pytest.mark.parametrize(
    ("metric", "units", "expected"),
    [("latency_p50", 20, 10), ("latency_p90", 100, 90), ("latency_p99", 1000, 990), ("latency_p999", 10_000, 9990),
     ("latency_p50", 21, 11), ("latency_p90", 101, 91), ("latency_p99", 2000, 1980)],
)  # fmt: skip
def test_a_percentile_is_the_smallest_that_so_many_units_do_not_exceed(metric: str, units: int, expected: int):
    downwards = [float(n) for n in range(units, 0, -1)]
    pair = pair_of(told("before", [downwards[:7], (), downwards[7:]]))
    assert value(pair, "before", metric=metric) == expected


@pytest.mark.parametrize(("metric", "fewest"), [("ttft_p50", 11), ("latency_p90", 64), ("queue_p99", 662)])
def test_a_percentile_of_too_few_units_is_not_told(metric: str, fewest: int):
    series = metric.rsplit("_", 1)[0]
    assert value(pair_of(told("before", [[1.0] * (fewest - 1)], series=series)), "before", metric=metric) is None
    assert value(pair_of(told("before", [[1.0] * fewest], series=series)), "before", metric=metric) == 1.0


def test_latencies_of_audits_of_the_other_side_and_of_another_series_never_count():
    pair = pair_of(
        told("before", [[1.0] * 20], series="ttft"), told("before", [[9.0] * 99], series="ttft", audit=True),
        told("after", [[5.0] * 99], series="ttft"), told("before", [[0.1] * 99], series="inter_token"),
    )  # fmt: skip
    assert value(pair, "before", metric="ttft_p50") == 1.0
    assert value(pair, "before", metric="inter_token_p50") == 0.1
    assert value(pair, "before", metric="latency_p50") is None


def test_a_gang_has_the_percentile_of_its_slowest_rank_and_no_more_units_than_a_rank():
    fast, slow = (told("before", [[1.0 + rank] * 63 + [9.0]], rank=rank) for rank in (0, 1))
    assert value(pair_of(fast, slow), "before", metric="latency_p90") == 2.0
    assert value(pair_of(fast, told("before", [[2.0] * 63], rank=1)), "before", metric="latency_p90") is None


def test_a_tail_that_is_shorter_at_the_same_mean_is_an_improvement_of_the_tail_alone():
    before, after = [1.0] * 95 + [9.0] * 5, [1.4] * 100
    pair = pair_of(told("before", [before * 10]), told("after", [after * 10]))
    assert sum(before) == pytest.approx(sum(after))
    assert ratios([pair], metric="latency_p99")[0] == pytest.approx([math.log(9 / 1.4)])
    assert ratios([pair], metric="latency_p50")[0] == pytest.approx([-math.log(1.4)])
    assert ratios([pair])[0] == [0.0]


def test_a_percentile_is_a_metric_only_where_every_launch_of_both_sides_tells_enough():
    enough = pair_of(told("before", [[1.0] * 64]), told("after", [[1.0] * 64]))
    fewer = replace(enough, index=1, samples=(*told("before", [[1.0] * 63]), *told("after", [[1.0] * 64])))
    held = {"sides": ("before", "after"), "metric": "latency_p90"}
    assert has_metric([enough], CASE, **held)
    assert not has_metric([enough, fewer], CASE, **held)
    assert has_metric(
        [enough, replace(fewer, incidents=make_pair(1, {"before": 1.0}, void=True).incidents)], CASE, **held
    )


def test_what_a_case_can_be_about_is_a_metric() -> None:
    assert set(get_args(PrimaryMetric)) - {"memory"} < set(METRICS)
    assert get_args(LatencyMetric) == tuple(LATENCIES)


def test_a_program_takes_no_name_of_a_metric_that_exists() -> None:
    assert set(RESERVED_NAMES) == {*METRICS, "memory"}


def test_a_programs_own_metric_is_the_mean_over_its_runs_and_its_direction_counts() -> None:
    speed = ProgramMetric("speed", "tokens/s", "higher", pattern="x")
    sides = tuple(Side(name, command=("x",), metrics=(speed,)) for name in ("before", "after"))
    case = replace(make_case(), sides=sides, measure=Measure(metric="speed"))
    runs = [replace(make_run(n), values={"speed": v}) for n, v in (("before", (1.0, 3.0, 3.5)), ("after", (4.0, 6.0)))]
    pair = make_pair(0, {"before": 1.0, "after": 1.0}, runs=runs)
    assert value(pair, "before", case, metric="speed") == 2.5
    assert value(pair, "before", replace(case, measure=Measure(statistic="median")), metric="speed") == 3.0
    assert ratios([pair], case, metric="speed")[0] == pytest.approx([math.log(5.0 / 2.5)])
    assert lacks_primary_metric(pair, case) == ("", "")
    assert lacks_primary_metric(replace(pair, runs=tuple(runs[:1])), case)[0] == "after"
    idle = replace(pair, runs=(runs[0], replace(runs[1], values={"speed": (0.0,)})))
    assert lacks_primary_metric(idle, case) == (
        "after", "speed is the metric of this case, but is 0, which has no ratio"
    )  # fmt: skip
    with pytest.raises(ComparisonError, match='"speed" is not a metric'):
        value(pair, "before", make_case(), metric="speed")


def test_a_pair_that_does_not_tell_what_its_case_is_about_says_which_side_and_what() -> None:
    pair = make_pair(0, {"before": 2e-3, "after": 1e-3}, runs=[make_run("before", peak=5), make_run("after")])
    assert lacks_primary_metric(pair, make_case()) == ("", "")
    assert lacks_primary_metric(pair, make_case(metric="peak_memory")) == (
        "after",
        "peak_memory is the metric of this case, but was not reported; "
        "it is unknown for a program smaller than aiperf",
    )  # fmt: skip
    assert lacks_primary_metric(pair, make_case(metric="ttft_p99")) == (
        "before",
        "ttft_p99 is the metric of this case and needs 662 timed units of work, but the workload reports no "
        "series ttft (latencies)",
    )  # fmt: skip
    few = pair_of(told("before", [[1.0] * 700]), told("after", [[1.0] * 600]))
    side, sentence = lacks_primary_metric(few, make_case(metric="latency_p99"))
    assert side == "after"
    assert sentence.endswith(" timed units of work, but a launch reported 600: 62 are missing")
    void = make_pair(0, {"before": 2e-3, "after": 1e-3}, void=True)
    assert lacks_primary_metric(void, make_case(metric="peak_memory")) == ("", "")
