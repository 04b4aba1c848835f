import math
from dataclasses import replace

import pytest
from analysis_maker import SETTINGS, make_case, make_pair, make_pairs

from aiperf.analysis.compare import compare
from aiperf.analysis.metrics import METRICS
from aiperf.analysis.verdict import Reason, decide, statistical_word
from aiperf.records import CheckResult, Comparison, Limit, Note, Summary

WRONG = CheckResult(False, "after with before, 3 audits, rtol 1e-5", "y[3] is 0.5, not 0.7")
REUSED = Note("audit_time", {"side": "after", "fresh_s": 1.2e-3, "repeated_s": 1e-4})
REPEATED = Note("fresh_inputs", {"side": "after", "fresh_s": 1e-3, "repeated_s": 8e-4})
HIDDEN = Note("hidden_time", {"side": "after", "turn_s": 1e-2, "hidden_s": 2.3e-3})
PENDING = Note("work_in_outputs", {"side": "after", "seconds": 8e-3, "other_s": 1e-4})
FORGOTTEN = Note("memory_forgotten", {"side": "after", "seen_bytes": 96 << 20, "peak_bytes": 32 << 20})
UNUSED = Note("inputs_unused", {"side": "after", "base": "before", "outputs": ["out"]})
HELD = {"side": "after", "own_bytes": 300 * 2**20, "base": "before", "base_bytes": 0}
DOUBTED = Note("doubted", {"code": "memory_elsewhere", **HELD})
OPEN = Note("unverified", {"code": "inputs_undeclared", "sides": ["before", "after"], "reason": ""})
LACKING = Note("units_missing", {"metric": "ttft_p90", "side": "after", "units": 90, "worth": 37, "missing": 65})
BEYOND = Limit("after", "dram", 4.1e12, "B/s", 1.36, surely=1.31)


def build(ratio, low, high, *, pairs=12, metric="time", second=None, ends=(None, None), sd=0.01, needed=40, mde=0.025):
    """A comparison with these figures; the second opinion agrees unless told otherwise."""
    declared = METRICS[metric]
    sides = [Summary(n, v, v, v, 100, 0, 0.0) for n, v in (("before", ratio), ("after", 1.0))]
    return Comparison(
        metric, declared.unit, declared.better, *sides, pairs, ratio, low, high, 0.0158, sd, 0.0, -0.01, 0.01, mde,
        needed, second or ratio, *ends, (),
    )  # fmt: skip


def word(comparison, **given):
    verdict = decide(comparison, threshold=0.02, **given)
    return verdict.word, verdict.reason


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (1.021, 1.05, "improved"),
        (1.02, 1.05, "inconclusive"),
        (0.95, 0.98, "regressed"),
        (0.95, 1 / 1.02, "inconclusive"),
        (0.981, 1.019, "equivalent"),
        (1 / 1.02, 1.01, "inconclusive"),
        (0.99, 1.02, "inconclusive"),
        (1.001, 1.019, "equivalent"),
        (0.9, 1.1, "inconclusive"),
        (1.011, 1.04, "inconclusive"),
        (0.0, math.inf, "inconclusive"),
    ],
)
def test_words_follow_the_interval_against_the_threshold(low, high, expected):
    assert statistical_word(low, high, threshold=0.02) == expected


GOLDEN = [
    (
        build(1.034, 1.0231, 1.0449), {}, "improved", Reason.BEYOND_THRESHOLD,
        "after is faster than before: speedup 1.03×, interval 1.023× … 1.045×, all above 1.020× (12 pairs)",
    ),
    (
        build(0.9, 0.88, 0.92), {}, "regressed", Reason.BEYOND_THRESHOLD,
        "after is slower than before: speedup 0.900×, interval 0.880× … 0.920×, all below 0.980× (12 pairs)",
    ),
    (
        build(2.81, 2.77, 2.84, metric="first_iteration"), {}, "improved", Reason.BEYOND_THRESHOLD,
        "first iteration: after is faster than before: speedup 2.81×, interval 2.77× … 2.84×, "
        "all above 1.02× (12 pairs)",
    ),
    (
        build(1.001, 0.994, 1.008), {}, "equivalent", Reason.WITHIN_THRESHOLD,
        "time per iteration of after is within 2 % of before's: interval 0.994× … 1.01× (12 pairs)",
    ),
    (
        build(1.25, 1.2, 1.3, metric="peak_memory"), {}, "improved", Reason.BEYOND_THRESHOLD,
        "peak host memory of after is lower than before's: change −20.0 %, interval −23.1 … −16.7 %, "
        "beyond the threshold of 2 % (12 pairs)",
    ),
    (
        build(0.2, 0.19, 0.21, metric="gpu_memory"), {}, "regressed", Reason.BEYOND_THRESHOLD,
        "peak GPU memory of after is higher than before's: change 5.00×, interval 4.76× … 5.26×, "
        "beyond the threshold of 2 % (12 pairs)",
    ),
    (
        build(1.025, 1.011, 1.04, needed=56), {}, "inconclusive", Reason.INTERVAL_STRADDLES,
        "likely improved: interval 1.01× … 1.04× excludes 1× but not the 2 % threshold; "
        "12 pairs can detect a difference of 2.5 %; a decision would need about 56 pairs",
    ),
    (
        build(0.975, 0.96, 0.99, needed=None), {}, "inconclusive", Reason.INTERVAL_STRADDLES,
        "likely regressed: interval 0.960× … 0.990× excludes 1× but not the 2 % threshold; "
        "12 pairs can detect a difference of 2.5 %; a decision would need more than 1000 pairs",
    ),
    (
        build(1.01, 0.97, 1.05), {}, "inconclusive", Reason.INTERVAL_STRADDLES,
        "undecided: interval 0.970× … 1.05× includes both 1× and the 2 % threshold; "
        "12 pairs can detect a difference of 2.5 %; a decision would need about 40 pairs",
    ),
    (
        build(1.05, 1.03, 1.07, second=1.01, ends=(0.99, 1.03)), {}, "inconclusive", Reason.UNSTABLE,
        "unstable: the t interval is 1.03× … 1.07×, but the rank-based method gives 1.01×, 0.990× … 1.03×, "
        "against a threshold of 2 % (12 pairs)",
    ),
    (
        build(1.05, 1.03, 1.07), {"unsteady_share": 0.75}, "inconclusive", Reason.UNSTEADY,
        "unsteady: 75 % of one side's launches were still changing when their warm-up ended; interval 1.03× … 1.07× "
        "(12 pairs); a longer warm-up may help",
    ),
    (
        build(1.05, 1.03, 1.07, metric="ttft_p90"), {"cap": LACKING}, "inconclusive", Reason.TOO_FEW_UNITS,
        "ttft_p90 needs 65 more units per launch: the 90 of after are correlated and worth 37 independent ones; "
        "make each launch do more work",
    ),
    (
        build(1.05, 1.03, 1.07, pairs=2), {}, "inconclusive", Reason.TOO_FEW_PAIRS,
        "too few pairs: only 2 pairs counted, but an interval needs at least 3",
    ),
    (
        build(1.05, 1.05, 1.05, sd=0.0), {}, "inconclusive", Reason.NO_SPREAD,
        "the ratio is exactly 1.05× in all 12 pairs: the clock does not resolve this time; "
        "time more iterations per sample",
    ),
    (
        build(1.05, 1.03, 1.07, pairs=6), {"two_groups": True}, "inconclusive", Reason.TWO_GROUPS,
        "the 6 pairs fall into two groups, and an interval from so few pairs is not reliable: 1.03× … 1.07×; "
        "at least 10 pairs are needed",
    ),
    (
        build(1.05, 1.03, 1.07), {"fault": WRONG}, "invalid", Reason.WRONG_OUTPUT,
        "wrong output: after with before, 3 audits, rtol 1e-5: y[3] is 0.5, not 0.7",
    ),
    (
        build(1.05, 1.03, 1.07), {"fault": BEYOND}, "invalid", Reason.BEYOND_LIMIT,
        "impossible: after would run at 131 % of dram (4.10 TB/s, measured here); "
        "either it does less work than it declares or its time is wrong",
    ),
    (
        build(1.05, 1.03, 1.07), {"fault": REUSED}, "invalid", Reason.AUDIT_TIME,
        "after took 1.20 ms on fresh inputs and 100 µs on repeated ones: it reuses earlier results",
    ),
    (
        build(1.05, 1.03, 1.07), {"fault": REPEATED}, "invalid", Reason.FRESH_INPUTS,
        "iterations of after took 1.00 ms on new inputs and 800 µs on inputs seen before: "
        "at least half of its advantage comes from repetition",
    ),
    (
        build(1.05, 1.03, 1.07), {"fault": HIDDEN}, "invalid", Reason.HIDDEN_TIME,
        "a turn of after took 10.0 ms, but its readings leave 2.30 ms unaccounted for: "
        "they are too short, or work continues between them",
    ),
    (
        build(1.05, 1.03, 1.07), {"fault": FORGOTTEN}, "invalid", Reason.MEMORY_FORGOTTEN,
        "after was seen using 96 MiB of memory, but reports a peak of 32 MiB: the peak was reset",
    ),
    (
        build(1.05, 1.03, 1.07), {"fault": UNUSED}, "invalid", Reason.INPUTS_UNUSED,
        "no value of the named inputs, not even an extreme one, changed out of before or after: they are computed from "
        "something else, so no audit checks it; name that with inputs=lambda: {...}, or say why not with "
        'fixed_inputs="..." in a Workload',
    ),
    (
        build(1.05, 1.03, 1.07), {"fault": PENDING}, "invalid", Reason.WORK_IN_OUTPUTS,
        "outputs() of after takes 8.00 ms longer right after a step than when called again "
        "(other sides: 100 µs): it finishes work of the step, which is not timed",
    ),
    (
        build(1.05, 1.03, 1.07), {"fault": DOUBTED}, "invalid", Reason.DOUBTED,
        "after holds 300 MiB outside its own process (other processes, files in memory), before 0 B: not included in "
        "peak memory; let the process itself hold it, compare whole programs, "
        'or say why not with done_outside="..." in a Workload',
    ),
    (
        build(1.05, 1.03, 1.07), {"fault": OPEN}, "invalid", Reason.UNVERIFIED,
        "not verified (strict): the inputs of before and after have no names, so every audit used those of the "
        'rounds; name them with inputs=lambda: {...}, or say why not with fixed_inputs="..." in the Workload',
    ),
    (
        build(1.05, 1.03, 1.07), {"cap": Note("not_launched", {"sides": ["before", "after"]})},
        "inconclusive", Reason.NOT_LAUNCHED,
        "the server of before and after was already running, so the interval leaves out variation between server "
        "starts; let aiperf start the servers (server: COMMAND)",
    ),
    (
        build(1.05, 1.03, 1.07),
        {"cap": Note("counted_apart", {"sides": {"before": "schedule", "after": "sending"}})},
        "inconclusive", Reason.COUNTED_APART,
        "times count from schedule on before and from sending on after; use one client for both sides",
    ),
    *(
        (
            build(1.05, 1.03, 1.07),
            {"fault": CheckResult(False, "the load", f"after: {reason.value}", kind="load", code=reason.value)},
            "invalid", reason, f"after: {reason.value}",
        )
        for reason in (
            Reason.TOKEN_COUNT, Reason.PREFIX_CACHE, Reason.RATE_OFF, Reason.SENT_LATE, Reason.CLIENT_BUSY,
        )
    ),
]  # fmt: skip


@pytest.mark.parametrize(("comparison", "given_", "expected", "reason", "sentence"), GOLDEN)
def test_word_reason_and_sentence_are_exactly_these(comparison, given_, expected, reason, sentence):
    verdict = decide(comparison, threshold=0.02, **given_)
    assert (verdict.word, verdict.reason, verdict.sentence) == (expected, reason, sentence)
    assert verdict.threshold == 0.02


def test_every_reason_code_has_a_golden_sentence():
    assert {row[3] for row in GOLDEN} == set(Reason)


def test_faster_and_slower_are_said_only_of_decided_times():
    for comparison, _, expected, _, sentence in GOLDEN:
        said = "faster" in sentence or "slower" in sentence
        decided = expected in ("improved", "regressed")
        assert said == (decided and METRICS[comparison.metric].is_time)


def test_the_second_opinion_may_be_wide_but_must_not_decide_otherwise():
    improved = build(1.05, 1.03, 1.07)
    assert word(replace(improved, second_low=0.9, second_high=1.3)) == ("improved", "beyond_threshold")
    assert word(replace(improved, second_low=1.03, second_high=1.08)) == ("improved", "beyond_threshold")
    assert word(replace(improved, second_ratio=1.019)) == ("inconclusive", "unstable")
    assert word(replace(improved, second_low=0.99, second_high=1.01)) == ("inconclusive", "unstable")
    equal = build(1.0, 0.99, 1.01)
    assert word(replace(equal, second_ratio=1.03)) == ("inconclusive", "unstable")


def test_a_fault_outranks_statistics():
    few = build(1.05, 1.03, 1.07, pairs=1)
    assert word(few, fault=WRONG) == ("invalid", "wrong_output")
    assert word(few, fault=BEYOND) == ("invalid", "beyond_limit")


def test_half_of_the_launches_unsteady_still_counts_and_more_does_not():
    assert word(build(1.05, 1.03, 1.07), unsteady_share=0.5)[0] == "improved"
    assert word(build(1.05, 1.03, 1.07), unsteady_share=0.51) == ("inconclusive", "unsteady")


def test_memory_that_is_equal_in_every_pair_is_a_fact_not_a_coarse_clock():
    assert word(build(1.25, 1.25, 1.25, metric="peak_memory", sd=0.0)) == ("improved", "beyond_threshold")


def test_provisional_and_expectation_add_clauses_without_changing_the_word():
    verdict = decide(build(1.05, 1.03, 1.07), threshold=0.02, provisional=True, expect="equivalent")
    assert verdict.word == "improved"
    assert verdict.provisional
    assert verdict.sentence.endswith(
        "; the scenario expected equivalent; provisional: a quick look, confirm it at standard precision"
    )
    met = decide(build(1.05, 1.03, 1.07), threshold=0.02, expect="improved")
    assert "expected" not in met.sentence


@pytest.mark.parametrize(
    ("low", "high", "span"),
    [(1.003, 1.04, "1.003× … 1.040×"), (0.48, 1.197, "0.480× … 1.20×"), (0.96, 0.9996, "0.9600× … 0.9996×")],
)
def test_the_interval_of_a_time_is_printed_as_in_the_table_and_no_end_is_rounded_to_1(low, high, span):
    said = decide(build(math.sqrt(low * high), low, high), threshold=0.02).sentence
    assert f"interval {span} " in said
    assert "0 % " not in said


def test_the_interval_of_what_is_no_time_is_a_change_of_the_value():
    said = decide(build(1.0, 0.97, 1.05, metric="peak_memory"), threshold=0.02).sentence
    assert said.startswith("undecided: interval −4.8 … +3.1 % includes both 0 % and the 2 % threshold")


def test_an_unbounded_interval_reads_as_one():
    sentence = decide(build(1.0, 0.0, math.inf, mde=math.inf, needed=None), threshold=0.02).sentence
    assert sentence.startswith("undecided: interval 0× … ∞ includes")
    assert "can detect a difference of ∞; a decision would need more than 1000 pairs" in sentence


def test_times_of_a_programs_own_that_never_differ_have_too_few_digits():
    printed = replace(build(2.0, 2.0, 2.0, sd=0.0), metric="took")
    found = decide(printed, threshold=0.02)
    assert (found.word, found.reason) == ("inconclusive", "no_spread")
    assert found.sentence == (
        "the ratio is exactly 2.00× in all 12 pairs: these times are given with too few digits to show their scatter; "
        "give more"
    )


def test_identical_times_on_both_sides_are_not_called_equivalent():
    pairs = make_pairs([0.0] * 6)
    c = compare(pairs, make_case(), metric="time", side="after", against="before", **SETTINGS)
    assert (c.ratio, c.sd) == (1.0, 0.0)
    assert word(c) == ("inconclusive", "no_spread")


def test_two_pairs_are_too_few_and_three_may_decide():
    def outcome(times):
        pairs = [make_pair(i, {"before": t, "after": 1.0}) for i, t in enumerate(times)]
        return word(compare(pairs, make_case(), metric="time", side="after", against="before", **SETTINGS))

    assert outcome([2.0, 2.001]) == ("inconclusive", "too_few_pairs")
    assert outcome([2.0, 2.001, 2.002]) == ("improved", "beyond_threshold")
