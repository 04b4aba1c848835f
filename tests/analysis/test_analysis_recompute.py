import math
import re
from dataclasses import replace

import pytest
from analysis_maker import SETTINGS, make_case, make_pair, make_pairs, make_run

from aiperf.analysis.pairs import ComparisonError
from aiperf.analysis.recompute import case_limits, comparisons, conclude, failed_check, recompute, unsteady_share
from aiperf.records import CaseRecord, CheckResult, Latencies, Sample

D = [0.051, 0.043, 0.060, 0.048, 0.055, 0.039, 0.050]
PEAKS = {"dram": (1e12, "B/s"), "launch": (250e3, "launches/s")}


def runs(**by_side):
    return [make_run(side, **given) for side, given in by_side.items()]


def ladder_pairs(times, **kwargs):
    return [
        make_pair(i, {n: t * (1 + 1e-3 * ((i * k) % 3)) for k, (n, t) in enumerate(times.items(), 1)}, **kwargs)
        for i in range(6)
    ]


def test_a_pair_gives_one_headline_and_every_other_metric_that_all_pairs_hold():
    given = runs(before={"first": 0.2, "peak": 200}, after={"first": 0.1, "peak": 100})
    found = conclude(make_case(), make_pairs(D, runs=given, user_s=0.01), **SETTINGS)
    assert [(r.comparison.metric, r.primary) for r in found] == [
        ("time", True), ("user", False), ("first_iteration", False), ("peak_memory", False),
    ]  # fmt: skip
    assert found[0].verdict.word == "improved"
    assert (found[0].side, found[0].against) == ("after", "before")


def test_a_metric_that_is_zero_or_missing_in_one_pair_is_left_out_and_the_headline_is_an_error():
    pairs = make_pairs(D, user_s=0.01)
    pairs[2] = make_pair(2, {"before": 1.0, "after": 1.0}, user_s=0.0)
    assert [r.comparison.metric for r in conclude(make_case(), pairs, **SETTINGS)] == ["time"]
    pairs[2] = make_pair(2, {"before": 1.0, "after": 0.0})
    with pytest.raises(ComparisonError, match="after in pair 2"):
        conclude(make_case(), pairs, **SETTINGS)


def test_wall_time_informs_beside_a_device_headline():
    walls = make_pairs(D[:6])
    held = [Sample(side, 0, 9, 1, 5.0, 0.001) for side in ("before", "after")]
    pairs = [replace(pair, samples=(*pair.samples, *held)) for pair in walls]
    found = conclude(make_case(gpus=1), pairs, **SETTINGS)
    assert [r.comparison.metric for r in found] == ["time", "wall"]
    assert found[0].comparison.ratio == pytest.approx(1.0)
    assert found[1].comparison.ratio == pytest.approx(math.exp(sum(D[:6]) / 6))


def test_sides_that_share_a_process_have_no_memory_of_their_own():
    given = runs(before={"peak": 200, "gpu": 5}, after={"peak": 100, "gpu": 5})
    shared = conclude(make_case(isolation="in_process"), make_pairs(D, runs=given), **SETTINGS)
    assert "peak_memory" not in {r.comparison.metric for r in shared}
    assert "gpu_memory" not in {r.comparison.metric for r in shared}


def test_each_ladder_step_is_held_against_before_and_against_the_previous_one():
    case = make_case("before", "tiled", "cluster")
    assert comparisons(case) == (("tiled", "before"), ("cluster", "before"), ("cluster", "tiled"))
    assert comparisons(replace(case, alternatives=True)) == (("tiled", "before"), ("cluster", "before"))
    found = conclude(case, ladder_pairs({"before": 4.0, "tiled": 2.0, "cluster": 1.0}), **SETTINGS)
    assert [r.comparison.ratio for r in found] == pytest.approx([2.0, 4.0, 2.0], rel=0.01)
    assert all(r.primary and r.verdict.word == "improved" for r in found)


def test_a_failed_check_makes_the_comparisons_of_its_side_invalid():
    case = make_case("before", "tiled", "cluster")
    wrong = CheckResult(False, "tiled with before, bitwise", "y differs", sides=("tiled",))
    pairs = ladder_pairs(
        {"before": 4.0, "tiled": 2.0, "cluster": 1.0}, checks=[CheckResult(True, "cluster", sides=("cluster",)), wrong]
    )
    words = {(r.side, r.against): r.verdict.reason for r in conclude(case, pairs, **SETTINGS)}
    assert words == {
        ("tiled", "before"): "wrong_output",
        ("cluster", "before"): "beyond_threshold",
        ("cluster", "tiled"): "wrong_output",
    }
    nameless = [replace(p, checks=(CheckResult(False, "all outputs"),)) for p in pairs]
    assert failed_check(nameless, sides=("cluster", "before")).compared == "all outputs"


def test_a_side_named_like_the_first_word_of_a_check_hides_no_failure_of_another_side():
    case = make_case("before", "tiled", "work")
    wrong = CheckResult(False, "work per step", "tiled does 1 item a step", kind="work", sides=("tiled",))
    pairs = ladder_pairs({"before": 4.0, "tiled": 2.0, "work": 1.0}, checks=[wrong])
    words = {(r.side, r.against): r.verdict.reason for r in conclude(case, pairs, **SETTINGS)}
    assert words == {
        ("tiled", "before"): "wrong_output",
        ("work", "before"): "beyond_threshold",
        ("work", "tiled"): "wrong_output",
    }


def test_the_worse_side_says_how_unsteady_a_case_is_and_only_steady_metrics_mind():
    given = runs(before={"peak": 200}, after={"steady": False, "peak": 100})
    pairs = make_pairs(D, runs=given)
    assert unsteady_share(pairs, sides=("before", "after")) == 1.0
    assert unsteady_share(pairs, sides=("before",)) == 0.0
    words = {r.comparison.metric: r.verdict.reason for r in conclude(make_case(), pairs, **SETTINGS)}
    assert words["time"] == "unsteady"
    assert words["peak_memory"] == "beyond_threshold"


def test_a_side_beyond_a_measured_peak_is_invalid_and_each_side_gets_its_binding_limit():
    given = runs(before={"work": {"peaks": {"dram": 0.5e9}}}, after={"work": {"peaks": {"dram": 1.1e9}}})
    pairs = make_pairs(D, runs=given)
    assert conclude(make_case(), pairs, peaks=PEAKS, **SETTINGS)[0].verdict.reason == "beyond_limit"
    assert conclude(make_case(), pairs, **SETTINGS)[0].verdict.word == "improved"
    found = case_limits(make_case(), pairs, peaks=PEAKS)
    assert [(x.side, x.peak_name) for x in found] == [("before", "dram"), ("after", "dram")]
    assert found[1].share == pytest.approx(1.1)


def test_a_cold_device_sample_shorter_than_a_launch_is_impossible_and_a_batch_may_be():
    pairs = make_pairs(D, runs=runs(before={}, after={}), device_s=1e-5)
    cold = conclude(make_case(gpus=1, cache="cold"), pairs, peaks=PEAKS, **SETTINGS)[0]
    assert cold.verdict.reason == "beyond_limit", "10 us in 10 iterations against a floor of 4 us"
    assert conclude(make_case(gpus=1), pairs, peaks=PEAKS, **SETTINGS)[0].verdict.reason != "beyond_limit"


def test_noise_between_sessions_raises_the_threshold_of_the_verdict():
    assert conclude(make_case(), make_pairs(D), **SETTINGS)[0].verdict.word == "improved"
    noisy = conclude(make_case(), make_pairs(D), tau=0.0245, **SETTINGS)[0].verdict
    assert (noisy.word, noisy.threshold) == ("inconclusive", pytest.approx(math.expm1(0.049)))


@pytest.mark.parametrize("over", [1.0, 3.0])
def test_a_record_recomputed_from_its_pairs_gives_the_same_results(over):
    given = runs(before={"peak": 200}, after={"peak": 150, "work": {"peaks": {"dram": over * 0.9e9}}})
    pairs, case = make_pairs(D, runs=given, user_s=0.01), make_case(expect="equivalent")
    found = conclude(case, pairs, tau=0.012, provisional=True, peaks=PEAKS, **SETTINGS)
    record = CaseRecord(
        case, "measured", results=found, limits=case_limits(case, pairs, peaks=PEAKS),
        threshold=found[0].verdict.threshold, alpha=SETTINGS["alpha"],
    )  # fmt: skip
    assert recompute(record, pairs, width=SETTINGS["width"]) == found
    assert recompute(record, pairs[:6], width=SETTINGS["width"]) != found


def about_memory(*, before: int, after: int, expect: str = "improved"):
    given = runs(before={"peak": before}, after={"peak": after})
    return conclude(make_case(metric="peak_memory", expect=expect), make_pairs([-d for d in D], runs=given), **SETTINGS)


def test_a_case_about_memory_is_judged_by_it_and_tells_its_time_beside():
    memory, time, *others = about_memory(before=400, after=300)
    assert (memory.comparison.metric, memory.primary, memory.verdict.word) == ("peak_memory", True, "improved")
    assert (time.comparison.metric, time.primary, time.verdict.word) == ("time", False, "regressed")
    assert "time" not in [r.comparison.metric for r in others]


def test_what_a_scenario_expects_is_expected_of_its_headline_only():
    memory, time = about_memory(before=300, after=400)[:2]
    assert memory.verdict.word == time.verdict.word == "regressed"
    assert "the scenario expected improved" in memory.verdict.sentence
    assert "expected" not in time.verdict.sentence


def test_a_percentile_can_be_the_headline():
    pairs = make_pairs([-d for d in D])
    slow = {"before": 2e-3, "after": 1e-3}
    pairs = [
        replace(p, samples=tuple(replace(s, latencies=(Latencies((slow[s.side],) * 100, "ttft"),)) for s in p.samples))
        for p in pairs
    ]
    found = conclude(make_case(metric="ttft_p90"), pairs, **SETTINGS)
    assert [(r.comparison.metric, r.primary) for r in found[:2]] == [("ttft_p90", True), ("time", False)]
    assert found[0].comparison.ratio == pytest.approx(2.0)


def test_correlated_latencies_that_are_worth_too_few_give_no_verdict_and_say_how_many_are_missing():
    def told(seconds, *, waves):
        slow = [number // 25 % 2 if waves else number * 7919 % 11 < 3 for number in range(100)]
        return (Latencies(tuple(seconds * (3 if each else 1) for each in slow)),)

    def verdict(*, waves):
        pairs = [
            replace(p, samples=tuple(replace(s, latencies=told(s.wall_s, waves=waves)) for s in p.samples))
            for p in make_pairs(D)
        ]
        return conclude(make_case(metric="latency_p50"), pairs, **SETTINGS)[0].verdict

    assert verdict(waves=False).word == "improved"
    refused = verdict(waves=True)
    assert (refused.word, refused.reason) == ("inconclusive", "too_few_units")
    assert re.search(r"latency_p50 needs \d+ more units per launch: the 100 of after are correlated", refused.sentence)
