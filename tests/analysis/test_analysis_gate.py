"""The gate's judgement: one session, its confirmation, Holm over all rows, the exit code."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
from analysis_maker import ALPHA, LOOKS, draw_pairs, make_case, make_pair, make_run, seeded

from aiperf.analysis.estimates import holm, ratio_estimate
from aiperf.analysis.gate import GateRow
from aiperf.analysis.gate_base import Baseline, BaselineEntry, BaselineSession, session_of, stored_noise, stored_ratio
from aiperf.analysis.gate_judge import GateReference, judge_case, missing_metrics, refuse_case
from aiperf.analysis.gate_settle import flagged, gate_exit, gate_sentence, settle
from aiperf.analysis.metrics import METRICS
from aiperf.analysis.recompute import conclude
from aiperf.analysis.stopping import Stop, next_step
from aiperf.errors import Exit
from aiperf.plan.gates import GATED_METRICS, MetricRule
from aiperf.records import CaseRecord, CheckResult, Failure, Note

TIME = (MetricRule("time"),)
BOTH = (MetricRule("time"), MetricRule("peak_memory", 0.10))
REBUILD = GateReference()


def recorded(pairs, *, case=None, **changes):
    """The record of a case with these pairs, as a run concludes it."""
    case = case or make_case()
    results = conclude(case, pairs, alpha=ALPHA, delta=0.02, width=0.01)
    given = {"status": "measured", "results": results, "pairs": tuple(pairs), "threshold": 0.02, "alpha": ALPHA}
    return CaseRecord(case, **(given | {"width": 0.01, "seconds": 12.0, "stop": "verdict"} | changes))


def steady(ratio, *, count=12, spread=0.002, memory=None):
    """Pairs of before against after at a ratio, scattering evenly in both orders."""
    found = []
    for i in range(count):
        d = math.log(ratio) + spread * (1 if i // 2 % 2 else -1)
        runs = [make_run("before", peak=10**6), make_run("after", peak=memory)] if memory else ()
        found.append(make_pair(i, {"before": 1e-3 * math.exp(d), "after": 1e-3}, runs=runs))
    return found


def judged(ratio, rules=TIME, **how):
    return judge_case(recorded(steady(ratio, **how)), rules, against=REBUILD)


def sat(rng, *, mu, sd, tau):
    """A whole session of METHOD's model through the stopping rule, with its own session effect."""
    case, effect = make_case(), rng.gauss(0, tau)
    pairs = draw_pairs(rng, mu=mu + effect, sd=sd, seed=rng.randrange(10**6))
    done = LOOKS[0]
    while True:
        results = conclude(case, pairs[:done], alpha=ALPHA, delta=0.02, width=0.01)
        step = next_step(
            results, looks=LOOKS, pairs_done=done, elapsed=float(done), budget=1e6, mean_pair_seconds=1.0, width=0.01
        )
        if isinstance(step, Stop):
            return recorded(pairs[:done])
        done = step.to_pairs


def gated(rng, *, count, rows=1, **model):
    """How often a row was flagged in a first session, and how often the gate failed, of ``count`` gates."""
    flags = failures = 0
    for _ in range(count):
        first = [
            replace(row, case=f"c{i}")
            for i in range(rows)
            for row in judge_case(sat(rng, **model), TIME, against=REBUILD)
        ]
        suspects = flagged(first)
        again = [replace(judge_case(sat(rng, **model), TIME, against=REBUILD)[0], case=row.case) for row in suspects]
        flags += bool(suspects)
        failures += gate_exit(settle(first, again), on_inconclusive="warn") is Exit.REGRESSION
    return flags, failures


# ---- one session -----------------------------------------------------------------------------------------------------


def test_what_may_be_gated_is_what_is_measured():
    assert set(GATED_METRICS) == set(METRICS)


@pytest.mark.parametrize(
    ("ratio", "status"),
    [(1.0, "passed"), (1.05, "passed"), (0.95, "regressed"), (1 / 1.02, "inconclusive"), (1.02, "passed")],
)
def test_a_row_is_judged_by_the_side_of_its_bound_on_which_the_interval_lies(ratio, status):
    (row,) = judged(ratio)
    assert row.status == status
    assert row.metric == "time"
    assert row.ratio == pytest.approx(ratio)
    assert (row.pairs, row.threshold, row.seconds) == (12, 0.02, 12.0)
    assert row.confirmed is None


def test_an_interval_that_is_only_open_upwards_passes_though_the_run_is_undecided():
    record = recorded(steady(1.02))
    assert record.results[0].verdict.word == "inconclusive"
    (row,) = judge_case(record, TIME, against=REBUILD)
    assert row.status == "passed"
    assert "no worse than the threshold of 2 % allows" in row.sentence


def test_a_regression_is_told_with_its_interval_and_an_open_row_with_the_pairs_that_would_decide():
    (worse,) = judged(0.95)
    assert "head is slower than base: speedup 0.950×" in worse.sentence
    (open_,) = judged(1 / 1.02 + 0.001, spread=0.01)
    assert open_.pairs_needed is not None
    assert open_.pairs_needed > 12
    assert f"about {open_.pairs_needed} would decide it" in open_.sentence
    (noisy,) = judged(1 / 1.02 + 0.001, spread=0.5)
    assert noisy.pairs_needed is None
    assert noisy.sentence.endswith("after 12 pairs; more than 1000 would be needed to decide it")


def test_the_pairs_needed_are_those_for_the_distance_to_the_bound_alone():
    """Far above the bound a few pairs decide, wherever the upper threshold lies."""
    near, far = judged(1 / 1.015, spread=0.04)[0], judged(1.02, spread=0.08)[0]
    assert near.status == far.status == "inconclusive"
    assert near.pairs_needed is None or near.pairs_needed > far.pairs_needed


def test_calibrated_noise_between_sessions_raises_the_bound_of_times_and_of_nothing_else():
    record = recorded(steady(0.95, memory=1_000_000))
    time, memory = judge_case(record, BOTH, against=REBUILD, tau=0.08)
    assert time.threshold == pytest.approx(math.expm1(0.16))
    assert time.status == "passed"
    assert memory.threshold == 0.10


def test_faster_with_twice_the_memory_is_a_loss_unless_it_was_declared():
    record = recorded(steady(1.20, memory=2_000_000))
    time, memory = judge_case(record, BOTH, against=REBUILD)
    assert (time.status, memory.status) == ("passed", "regressed")
    assert memory.sentence.startswith("peak host memory of head is higher than base's")
    declared = (MetricRule("time"), MetricRule("peak_memory", 0.10, {"s": 1.5}))
    _, allowed = judge_case(record, declared, against=REBUILD)
    assert allowed.status == "passed"
    assert "within the declared loss of 150 %" in allowed.sentence
    elsewhere = (MetricRule("time"), MetricRule("peak_memory", 0.10, {"other": 1.5}))
    assert judge_case(record, elsewhere, against=REBUILD)[1].status == "regressed"


def test_a_loss_beyond_the_declared_one_is_a_regression():
    rule = MetricRule("peak_memory", 0.10, {"*": 0.5})
    (row,) = judge_case(recorded(steady(1.2, memory=2_000_000)), (rule,), against=REBUILD)
    assert row.status == "regressed"
    assert "a loss of 50 % is declared" in row.sentence


def test_memory_that_never_scatters_is_judged_all_the_same():
    (row,) = judge_case(recorded(steady(1.0, memory=1_000_004)), BOTH[1:], against=REBUILD)
    assert (row.status, row.p) == ("passed", 1.0)
    (worse,) = judge_case(recorded(steady(1.0, memory=1_200_000)), BOTH[1:], against=REBUILD)
    assert (worse.status, worse.p) == ("regressed", 0.0)
    assert worse.low == pytest.approx(worse.high)


def test_a_time_that_its_clock_does_not_resolve_is_no_evidence():
    (row,) = judge_case(recorded(steady(0.8, spread=0.0)), TIME, against=REBUILD)
    assert (row.status, row.p) == ("inconclusive", None)
    assert "does not resolve" in row.sentence


def test_a_second_opinion_beyond_the_bound_leaves_it_open():
    record = recorded(steady(0.95))
    result = record.results[0]
    record = replace(record, results=(replace(result, comparison=replace(result.comparison, second_ratio=1.0)),))
    (row,) = judge_case(record, TIME, against=REBUILD)
    assert row.status == "inconclusive"
    assert row.sentence.startswith("unstable")


def test_pairs_in_two_groups_leave_it_open_even_where_the_run_saw_a_straddling_interval():
    logs = [0.03, 0.031, 0.0005, 0.0, 0.0305, 0.0302, 0.0001, 0.0003]
    pairs = [make_pair(i, {"before": 1e-3 * math.exp(x), "after": 1e-3}) for i, x in enumerate(logs)]
    record = recorded(pairs)
    assert record.results[0].verdict.reason == "interval_straddles"
    (row,) = judge_case(record, TIME, against=REBUILD)
    assert row.status == "inconclusive"
    assert "two groups" in row.sentence


@pytest.mark.parametrize(
    ("record", "status", "told"),
    [
        (
            recorded(steady(1.2), stop="unfit", notes=(Note("voided", {"voids": 5, "pairs": 9}),)),
            "unfit",
            "5 of 9 pairs",
        ),
        (CaseRecord(make_case(), "skipped", skip_reason="needs 1 GPU", skip_fix="find one"), "skipped", "find one"),
        (
            CaseRecord(make_case(), "failed", stop="failure", failure=Failure("after", "set-up", "error", "no model.")),
            "failed",
            "after, set-up: no model",
        ),
        (CaseRecord(make_case(), "interrupted", stop="interrupted"), "inconclusive", "interrupted"),
    ],
)
def test_a_case_without_results_has_one_row_that_says_why(record, status, told):
    (row,) = judge_case(record, BOTH, against=REBUILD)
    assert row.status == status
    assert told in row.sentence
    assert row.p is None


def test_wrong_output_makes_every_metric_invalid():
    bad = (CheckResult(False, "after with before", "out differs"),)
    pairs = [replace(p, checks=bad) for p in steady(1.3, memory=1_000_000)]
    rows = judge_case(recorded(pairs), BOTH, against=REBUILD)
    assert [row.status for row in rows] == ["invalid", "invalid"]


def test_a_gated_metric_that_a_case_lacks_is_named():
    assert missing_metrics(recorded(steady(1.0)), BOTH) == ("peak_memory",)
    assert missing_metrics(recorded(steady(1.0, memory=10**6)), BOTH) == ()


def test_a_case_without_any_gated_metric_is_open_and_no_silent_pass():
    (row,) = judge_case(recorded(steady(1.0)), (MetricRule("gpu_memory"),), against=REBUILD)
    assert row.status == "inconclusive"
    assert "none of the gated metrics" in row.sentence


# ---- against a baseline ----------------------------------------------------------------------------------------------


def stored(ratios, *, value=1e-3, se=0.001, values=(), hash_=""):
    sessions = tuple(
        BaselineSession(f"r{i}", "", "standard", 8, ratio, se, 6.0, values[i] if values else value)
        for i, ratio in enumerate(ratios)
    )
    return Baseline(
        "h", {"cpu": "x"}, entries=(BaselineEntry("s", "s", hash_, "after", "time", "s", "lower", sessions),)
    )


def test_a_speedup_is_held_against_the_stored_one():
    against = GateReference("ratio", stored([2.0]))
    (row,) = judge_case(recorded(steady(1.8)), TIME, against=against)
    assert row.status == "regressed"
    assert row.ratio == pytest.approx(0.9)
    assert (row.before, row.after) == (pytest.approx(2.0), pytest.approx(1.8))
    assert judge_case(recorded(steady(2.0)), TIME, against=against)[0].status == "passed"


def test_a_changed_speedup_is_said_with_both_speedups_and_not_as_a_slower_head():
    fell, rose, same = (
        judge_case(recorded(steady(ratio)), TIME, against=GateReference("ratio", stored([2.0])))[0].sentence
        for ratio in (1.8, 2.2, 2.0)
    )
    assert fell.startswith("the speedup fell from 2.00× to 1.80×, 0.900× of what it was: interval 0.")
    assert rose.startswith("the speedup rose from 2.00× to 2.20×, 1.10× of what it was: interval 1.")
    assert same.startswith("the speedup is within 2 % of the baseline's: interval ")
    assert "slower" not in fell


def test_noise_between_sessions_widens_the_interval_of_a_ratio():
    narrow, wide = (
        judge_case(recorded(steady(1.8)), TIME, against=GateReference("ratio", stored([2.0])), tau=tau)[0]
        for tau in (0, 0.03)
    )
    assert wide.high / wide.low > narrow.high / narrow.low
    assert (narrow.status, wide.status) == ("regressed", "inconclusive")


def test_the_baselines_own_sessions_show_their_noise():
    entry = stored([2.0, 2.2, 1.8]).entries[0]
    assert stored_noise(entry) == pytest.approx(0.1, rel=0.1)
    assert stored_noise(stored([2.0]).entries[0]) == 0
    pooled = stored_ratio(entry)
    assert pooled.log == pytest.approx(math.log(2.0 * 2.2 * 1.8) / 3)
    assert pooled.se == pytest.approx(0.001 / math.sqrt(3))
    assert pooled.df == pytest.approx(18)
    against = GateReference("ratio", stored([2.0, 2.2, 1.8]))
    assert judge_case(recorded(steady(1.8)), TIME, against=against)[0].status == "inconclusive"


def test_a_session_is_kept_as_its_ratio_error_and_value():
    result = recorded(steady(1.5)).results[0]
    kept = session_of(result, run="r", when="t", precision="standard")
    found = ratio_estimate(result.comparison)
    assert (math.log(kept.ratio), kept.se, kept.df) == pytest.approx((found.log, found.se, found.df))
    assert kept.value == pytest.approx(1e-3)


def test_an_absolute_value_needs_five_sessions_and_is_held_against_their_spread():
    values = [1e-3 * (1 + 0.002 * i) for i in range(-2, 3)]
    four = GateReference("absolute", stored([1.0] * 4, values=values))
    (row,) = judge_case(recorded(steady(1.0)), TIME, against=four)
    assert (row.status, row.ratio, row.p) == ("no_baseline", None, None)
    assert "4 of the 5 sessions" in row.sentence
    assert "1 more session is missing" in row.sentence
    five = GateReference("absolute", stored([1.0] * 5, values=values))
    (fine,) = judge_case(recorded(steady(1.0)), TIME, against=five)
    assert (fine.status, fine.before, fine.after) == (
        "passed",
        pytest.approx(1e-3, rel=1e-5),
        pytest.approx(1e-3),
    )
    slower = [replace(p, samples=tuple(replace(s, wall_s=1.1 * s.wall_s) for s in p.samples)) for p in steady(1.0)]
    assert judge_case(recorded(slower), TIME, against=five)[0].status == "regressed"


@pytest.mark.parametrize("level", ["ratio", "absolute"])
def test_a_changed_scenario_or_a_missing_entry_never_yields_a_number(level):
    changed = GateReference(level, stored([1.0] * 5, hash_="abc"))
    record = recorded(steady(0.5))
    (row,) = judge_case(record, TIME, against=changed)
    assert (row.status, row.ratio, row.before) == ("not_comparable", None, None)
    assert refuse_case(record.case, TIME, against=changed).status == "not_comparable"
    (row,) = judge_case(record, TIME, against=GateReference(level, Baseline("h", {})))
    assert (row.status, row.ratio) == ("no_baseline", None)
    assert refuse_case(record.case, TIME, against=GateReference(level, Baseline("h", {}))).status == "no_baseline"
    assert refuse_case(record.case, TIME, against=GateReference(level, stored([1.0] * 5))) is None
    assert refuse_case(record.case, TIME, against=REBUILD) is None


# ---- confirmation and Holm -------------------------------------------------------------------------------------------


def row(status="passed", *, case="a", metric="time", p=None, **changes):
    numbers = {} if status in ("skipped", "failed", "no_baseline") else {"ratio": 0.9, "low": 0.88, "high": 0.92}
    given = {"case": case, "scenario": case, "metric": metric, "unit": "s", "sentence": f"{case} {status}"}
    return GateRow(status=status, p=p, alpha=ALPHA, **(given | numbers | changes))


def test_what_nobody_measured_again_never_fails():
    (found,) = settle([row("regressed", p=1e-9)], [])
    assert (found.status, found.confirmed) == ("inconclusive", False)
    assert "not confirmed" in found.sentence


def test_two_sessions_that_agree_fail_with_the_p_of_both():
    (found,) = settle([row("regressed", p=1e-3)], [row("regressed", p=1e-2, ratio=0.91, seconds=4.0)])
    q = 1e-5
    assert (found.status, found.confirmed, found.ratio) == ("regressed", True, 0.91)
    assert found.p == pytest.approx(q * (1 - math.log(q)))


@pytest.mark.parametrize("status", ["passed", "inconclusive", "invalid", "unfit", "failed"])
def test_otherwise_the_fresh_session_stands(status):
    (found,) = settle([row("regressed", p=1e-6)], [row(status)])
    assert (found.status, found.confirmed) == (status, False)
    assert "a regressed" in found.sentence
    assert f"a {status}" in found.sentence


def test_a_failure_between_two_commits_says_at_which_one():
    failure = Failure("head", "set-up", "error", "no model.")
    (found,) = judge_case(CaseRecord(make_case(), "failed", stop="failure", failure=failure), TIME, against=REBUILD)
    assert found.sentence == "head, set-up: no model"


def test_a_fresh_session_that_failed_counts_for_every_flagged_metric_and_a_skipped_one_leaves_it_open():
    first = [row("passed", p=0.5), row("regressed", metric="peak_memory", p=1e-9)]
    time, memory = settle(first, [row("failed")])
    assert (time.status, memory.status, memory.metric) == ("passed", "failed", "peak_memory")
    assert settle(first, [row("skipped")])[1].status == "inconclusive"


def test_a_fresh_session_changes_only_flagged_rows():
    first = [row("passed", p=0.5), row("regressed", metric="peak_memory", p=1e-9)]
    again = [row("regressed", p=1e-9), row("regressed", metric="peak_memory", p=1e-9)]
    assert [found.status for found in settle(first, again)] == ["passed", "regressed"]


def test_p_values_are_adjusted_over_every_row_that_was_tested():
    rows = [row("passed", case=c, p=p) for c, p in zip("abc", (0.01, 0.04, 0.03), strict=True)]
    found = settle([*rows, row("skipped", case="d")], [])
    assert [r.p for r in found] == [*holm([0.01, 0.04, 0.03]), None]


def test_a_confirmed_row_that_so_many_rows_would_show_by_chance_is_left_open():
    first, again = row("regressed", p=5e-3), row("regressed", p=5e-3)
    many = [row("passed", case=f"c{i}", p=0.5) for i in range(100)]
    assert settle([first], [again])[0].status == "regressed"
    (found, *_) = settle([first, *many], [again])
    assert found.status == "inconclusive"
    assert "corrected for 101 gated rows" in found.sentence


# ---- exit codes ------------------------------------------------------------------------------------------------------

CODES = {
    "passed": 0, "inconclusive": 3, "not_comparable": 4, "unfit": 6, "regressed": 1, "invalid": 5, "failed": 5,
}  # fmt: skip
ORDER = (2, 5, 1, 6, 4, 3, 0)


@pytest.mark.parametrize(("one", "other"), list(itertools.product(CODES, repeat=2)))
def test_of_two_standings_the_one_that_comes_first_decides(one, other):
    code = gate_exit([row(one), row(other)], on_inconclusive="fail")
    assert int(code) == min((CODES[one], CODES[other]), key=ORDER.index)


@pytest.mark.parametrize(("doubt", "code"), [("pass", 0), ("warn", 0), ("fail", 3)])
def test_doubt_does_what_was_asked(doubt, code):
    rows = [row("inconclusive"), row("passed")]
    assert int(gate_exit(rows, on_inconclusive=doubt)) == code
    sentence = gate_sentence(rows, gate_exit(rows, on_inconclusive=doubt), on_inconclusive=doubt)
    assert ("with a warning" in sentence) == (doubt == "warn")
    assert f"exit code {code}: " in sentence


def test_everything_skipped_is_77_and_something_skipped_is_not():
    assert gate_exit([row("skipped"), row("skipped")], on_inconclusive="fail") is Exit.SKIPPED
    assert gate_exit([row("skipped"), row("passed")], on_inconclusive="fail") is Exit.OK


def test_an_interrupt_and_a_full_disk_come_first():
    assert gate_exit([row("regressed")], on_inconclusive="warn", interrupted=True) is Exit.INTERRUPTED
    assert gate_exit([row("invalid")], on_inconclusive="warn", unsaved=True) is Exit.USAGE


def test_of_an_interrupted_gate_only_rows_that_were_judged_are_counted():
    (early,) = judge_case(recorded(steady(1.0)[:1], stop="interrupted"), TIME, against=REBUILD)
    assert "too few pairs" in early.sentence
    (done,) = judged(1.0)
    flagged_once = row("inconclusive", confirmed=False)
    wrong = [replace(p, checks=(CheckResult(False, "after with before", "out differs"),)) for p in steady(1.0)]
    (invalid,) = judge_case(recorded(wrong), TIME, against=REBUILD)
    unseen = [row(status) for status in ("no_baseline", "skipped", "failed", "inconclusive")]
    for rows, count in (
        ([early], "0 rows"),
        ([early, done, *unseen], "1 row"),
        ([invalid, done, flagged_once], "3 rows"),
    ):
        said = gate_sentence(rows, Exit.INTERRUPTED, on_inconclusive="warn")
        assert said == f"interrupted with {count} judged · exit code 130: interrupted"


def test_what_is_new_at_head_is_no_failure_and_lets_the_others_decide():
    new = row("no_baseline", case="n")
    assert gate_exit([new, row("passed")], on_inconclusive="warn", level="rebuild") is Exit.OK
    assert gate_exit([new], on_inconclusive="warn", level="rebuild") is Exit.OK
    assert gate_exit([new], on_inconclusive="warn", level="ratio") is Exit.NO_BASELINE
    assert gate_exit([new, row("passed")], on_inconclusive="warn", level="ratio") is Exit.NO_BASELINE


def test_the_sentence_names_the_first_row_and_what_the_exit_code_means():
    rows = [row("passed"), row("regressed", case="b", metric="peak_memory"), row("regressed", case="c")]
    said = gate_sentence(rows, Exit.REGRESSION, on_inconclusive="warn")
    assert said == "regressed: peak_memory of b, and 1 more · exit code 1: confirmed regression"


# ---- by simulation ---------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_equal_code_never_fails_though_sessions_differ():
    """tau = 0.6 %, as METHOD 9 simulates it."""
    _, failures = gated(seeded(1), count=150, mu=0.0, sd=0.015, tau=0.006)
    assert failures == 0


@pytest.mark.long
def test_where_one_session_raises_false_alarms_the_fresh_one_takes_them_back():
    flags, failures = gated(seeded(2), count=120, mu=0.0, sd=0.008, tau=0.02)
    assert flags >= 10
    assert failures <= flags / 4


def test_five_per_cent_more_work_is_found():
    _, failures = gated(seeded(3), count=60, mu=-math.log(1.05), sd=0.012, tau=0.003)
    assert failures >= 57


@pytest.mark.long
def test_a_loss_at_the_threshold_itself_rarely_fails():
    _, failures = gated(seeded(4), count=100, mu=-math.log(1.02), sd=0.01, tau=0.0)
    assert failures <= 3
