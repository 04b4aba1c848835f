"""The story of a case holds every figure that carries its verdict, and none that does not exist."""

from __future__ import annotations

import re
from dataclasses import asdict, replace

import pytest
from factory_of_records import (
    make_case,
    make_comparison,
    make_pair,
    make_result,
    make_run,
    measured,
    sample_records,
    voided,
)

from aiperf.records import (
    CaseRecord,
    CheckResult,
    Failure,
    HostFinding,
    Incident,
    Limit,
    Result,
    Side,
    SideRun,
    Warmup,
    text_notes,
)
from aiperf.report.explain import case_blocks, explain_case, reproduce_command
from aiperf.report.reasons import result_sentences
from aiperf.settings import Limits, Settings


def told(record: CaseRecord, *, width: int = 100) -> str:
    return explain_case(make_run(), record, width=width)


def flat(record: CaseRecord) -> str:
    return " ".join(told(record).split())


def straddling(low: float, high: float, *, needed: int | None = None) -> Result:
    return make_result(make_comparison(1.0, 0.98, interval=(low, high), pairs_needed=needed), "inconclusive")


def undecided_for(reason: str) -> Result:
    """Inconclusive for a reason other than the interval, whose own count of pairs therefore does not matter."""
    needed = None if reason in ("two_groups", "unstable") else 55
    result = straddling(0.998, 1.04, needed=needed)
    return replace(result, verdict=replace(result.verdict, reason=reason))


def test_the_sides_and_their_differing_keys_are_named() -> None:
    case = make_case(
        sides=(
            Side("before", workload="transfer.copy", params={"size": 2**20, "pinned": False}),
            Side("after", workload="transfer.copy", params={"size": 2**20, "pinned": True}, env={"A": "1"}, ranks=2),
        ),
        axes={"size": "1MiB"},
    )
    text = flat(measured(case))
    assert "Every side runs transfer.copy with size 1MiB." in text
    assert "They differ in pinned (before: false, after: true)." in text
    assert "They differ in env A (before: –, after: 1)." in text
    assert "They differ in ranks (before: 1, after: 2)." in text


def test_equal_sides_are_called_a_negative_control() -> None:
    sides = tuple(Side(name, workload="gemm.gemm", params={"n": 8}) for name in ("before", "after"))
    assert "They do not differ: this is a negative control." in flat(measured(make_case(sides=sides)))


def test_where_the_time_of_a_pair_went_is_told_without_what_is_too_short() -> None:
    spent = ({"set-up": 0.2, "rounds": 2.0, "save": 0.01}, {"set-up": 0.4, "rounds": 2.0, "save": 0.01})
    pairs = tuple(make_pair(i, spent=s, seconds=4.0) for i, s in enumerate(spent))
    assert "The median pair took 4.00 s: set-up 300 ms, rounds 2.00 s." in flat(
        replace(measured(make_case()), pairs=pairs)
    )
    untold = replace(measured(make_case()), pairs=(make_pair(0),))
    assert "A pair took" not in flat(untold)


def test_commands_are_shown_as_they_were_started_and_reproduced_by_the_call_of_the_run() -> None:
    sides = (Side("before", command=("python", "-c", "a b")), Side("after", command=("python", "b.py")))
    text = flat(measured(make_case("ab", sides=sides, path="")))
    assert "before runs python -c 'a b'. after runs python b.py." in text
    assert "Each side is a whole program, timed from start to exit; mean over its starts." in text
    assert "alternating rounds" not in text
    assert "The run: aiperf run memory" in text
    assert "The case:" not in text


def test_the_case_is_measured_again_with_all_that_changed_how_it_was() -> None:
    record = measured(make_case("mine", path="mine.yaml"))
    given = Settings(seed=3, budget=90.0, pin="0-1", peaks=False, limits=Limits(*(30.0,) * 7), energy_seconds=5.0)
    run = replace(make_run(), argv=("a", "run", "--precision=fast.yaml"), seed=3, settings=asdict(given))
    options = "--budget 90s --pin 0-1 --no-peaks --timeout 30s --columns energy"
    assert reproduce_command(run, record) == f"aiperf run mine.yaml --precision fast.yaml --seed 3 {options}"
    plain = replace(run, argv=("a", "run"), settings=asdict(Settings()))
    assert reproduce_command(plain, record) == "aiperf run mine.yaml --precision standard --seed 3"


def test_a_gated_case_is_gated_again_with_the_whole_budget_and_not_what_a_session_had_of_it() -> None:
    sides = (Side("before", workload="w", ref="main"), Side("after", workload="w", ref="working-tree"))
    record = measured(make_case("mine", path="mine.yaml", sides=sides), strict=True)
    given = asdict(Settings(seed=3, budget=60.0))
    run = replace(make_run(), command="gate", argv=("a", "gate", "--budget", "90s"), seed=3, settings=given)
    again = "aiperf gate mine.yaml --against main --precision standard --seed 3 --budget 90s"
    assert reproduce_command(run, record) == again


def test_pairs_order_and_stop_are_told() -> None:
    record = measured(make_case(), harness_seconds=1.2)
    record = replace(record, pairs=(*record.pairs, voided(6)))
    text = flat(record)
    assert "6 pairs; 1 more were voided. after went first in 3, before went first in 3." in text
    assert "21 s, including 1 s of aiperf overhead. It ended because every verdict was reached." in text
    assert "thermal on after: hot: 91 C; the pair was voided." in text


def test_unsteady_sides_are_told() -> None:
    run = SideRun("after", (1,), Warmup(9, 1.0, 0.1, False, "still compiling"), 0.1, 0)
    record = measured(make_case(), pairs=(make_pair(0, runs=(run,)), make_pair(1)))
    assert "after was not steady after its warm-up in 1 of 2 pairs." in flat(record)


def test_checks_of_more_and_fewer_audits_are_one_sentence() -> None:
    two, one = (CheckResult(True, "after with before, bitwise", audits=count) for count in (2, 1))
    pairs = tuple(make_pair(index, checks=(check,)) for index, check in enumerate((two, two, one)))
    text = flat(replace(measured(make_case()), pairs=pairs))
    assert "after with before, bitwise, 5 audits: passed in 3 of 3 pairs." in text


def test_what_the_check_compared_and_found_is_told() -> None:
    good = CheckResult(True, "after with before", max_error=1e-6, audits=3)
    bad = CheckResult(False, "after with before", audits=3, detail="y[3]: 1.0 against 2.0", max_error=0.5)
    record = measured(make_case(), pairs=(make_pair(0, checks=(good,)), make_pair(1, checks=(bad,))))
    text = flat(record)
    assert "after with before, 6 audits: passed in 1 of 2 pairs, largest error 0.5." in text
    assert "Not passed: y[3]: 1.0 against 2.0" in text


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (
            make_result(make_comparison(2.0, 1.0, interval=(1.9, 2.1))),
            "It is not inconclusive, because even the lower end, 1.9, is above 1.02.",
        ),
        (
            make_result(make_comparison(1.0, 2.0, interval=(0.48, 0.52)), "regressed"),
            "It is not inconclusive, because even the upper end, 0.52, is below 0.9804.",
        ),
        (
            make_result(make_comparison(1.0, 1.0, interval=(0.99, 1.01)), "equivalent"),
            "It is equivalent, not inconclusive: both ends, 0.99 and 1.01, are within the threshold.",
        ),
        (
            straddling(0.998, 1.04, needed=55),
            "It is not improved, because the lower end, 0.998, is not above 1.02, and not equivalent, because the "
            "upper end, 1.04, is beyond the threshold. About 55 pairs would decide it",
        ),
        (
            straddling(0.96, 1.01),
            "It is not regressed, because the upper end, 1.01, is not below 0.9804, and not equivalent, because the "
            "lower end, 0.96, is beyond the threshold. Deciding it would take more than 1000 pairs at this noise. With",
        ),
        (
            straddling(0.65, 1.54),
            "it supports no verdict. Deciding it would take more than 1000 pairs at this noise. With 6 pairs, a",
        ),
        (
            straddling(1.004, 1.036),
            "More pairs are unlikely to decide it: the difference is too close to the threshold. With 6 pairs, a",
        ),
        (
            undecided_for("two_groups"),
            "From 10 pairs on, an interval is reliable even if they fall into two groups. With 6 pairs, a",
        ),
        (
            undecided_for("unstable"),
            "How many pairs would decide it is unknown: the t interval and the rank-based method must agree. With",
        ),
        (undecided_for("too_few_units"), "More pairs cannot fix this: each launch must do more work. Rank-based"),
        (undecided_for("unsteady"), "More pairs cannot fix this: the sides must become steady before they are"),
        (undecided_for("no_spread"), "More pairs cannot fix this: the times must be resolved more finely. Rank-based"),
        (undecided_for("not_launched"), "More pairs cannot fix this: aiperf must start the servers. Rank-based"),
        (undecided_for("counted_apart"), "More pairs cannot fix this: both sides must be measured by one client."),
        (straddling(0.9, 1.1), "The interval extends beyond the threshold on both sides, so it supports no verdict."),
        (
            make_result(make_comparison(2.0, 1.0, interval=(1.9, 2.1)), "invalid"),
            "More pairs cannot fix this: the side itself must change.",
        ),
        (
            make_result(make_comparison(2.0, 1.0, interval=(1.9, 2.1)), "invalid", verdict={"reason": "unverified"}),
            "More pairs cannot fix this: change the side or state the reason, as the verdict says.",
        ),
    ],
)
def test_the_verdict_is_told_apart_from_its_neighbour(result: Result, said: str) -> None:
    assert said in " ".join(result_sentences(result))


def test_diagnostics_stand_under_the_verdict() -> None:
    comparison = make_comparison(2.0, 1.0, interval=(1.9, 2.1), second_low=1.8, second_high=2.2)
    text = " ".join(result_sentences(make_result(comparison)))
    assert "98.4 % interval 1.90 … 2.10 from 6 pairs." in text
    assert "Rank-based estimate: 2.00× (signed-rank interval 1.80 … 2.20)." in text
    assert "Position effect +0.10 % (−0.40 … +0.60 %): not detectable with this many pairs." in text
    assert "3 of 360 samples of before are outliers (0.4 % of its time); kept." in text
    assert "samples of after" not in text
    ordered = replace(comparison, position_low=0.0005)
    assert "the order matters here" in " ".join(result_sentences(make_result(ordered)))


def test_an_informing_metric_is_told_in_two_lines() -> None:
    memory = make_comparison(2.0**30, 2.0**29, interval=(1.9, 2.1), metric="peak_memory", unit="B")
    lines = result_sentences(make_result(memory, primary=False))
    assert len(lines) == 2
    assert "before 1 GiB and after 512 MiB" in lines[1]


def test_a_roof_that_seems_passed_is_told_with_what_may_lie_in_a_cache_yet() -> None:
    text = flat(measured(make_case(), limits=(Limit("after", "dram", 4e12, "B/s", 1.02, surely=0.935),)))
    assert (
        "after reached 102 % of the peak dram (93.5 % not counting data that may still be in a cache); the peak" in text
    )
    below = flat(measured(make_case(), limits=(Limit("after", "dram", 4e12, "B/s", 0.97, surely=0.9),)))
    assert "after reached 97 % of the peak dram; the peak measured on this host is 4.00 TB/s." in below


def test_limits_failures_notes_and_findings_are_told() -> None:
    record = measured(
        make_case(book=("ch03/pageable",)),
        limits=(Limit("after", "h2d", 55e9, "B/s", 0.97),),
        failures=(Failure("after", "measure", "hang", "no answer in 300 s", rank=1),),
        notes=text_notes(("slicing was off",)),
    )
    record = replace(record, pairs=(make_pair(0, incidents=(Incident("clock", "before", "1.2 GHz"),) * 2),))
    text = flat(record)
    assert "after reached 97 % of the peak h2d; the peak measured on this host is 55.0 GB/s." in text
    assert "clock on before (2 times): 1.2 GHz." in text
    assert "An earlier launch failed: after, measure (rank 1): no answer in 300 s" in text
    assert "Note: slicing was off" in text
    assert "Finding, warn: Persistence mode: off." in text
    assert "ch03/pageable is not in the book's catalogue." in text


BUSY = HostFinding("x", "unfit", "Work of others", "CPU 0-1 97 % busy", bias="other work takes CPU time")


def test_a_judged_case_tells_only_the_findings_that_touch_it() -> None:
    run = make_run(settings={"host_check": "warn"})
    result = make_result(make_comparison(1.0, 0.5, interval=(1.95, 2.05)))
    record = measured(make_case(), result, findings=(BUSY,), pairs=(make_pair(0),))
    text = " ".join(explain_case(run, record).split())
    assert "Finding, unfit: Work of others: CPU 0-1 97 % busy; other work takes CPU time." in text
    assert "Persistence mode" not in text
    told = "Findings do not change the verdict (improved): what differed from pair to pair "
    assert f"{told}is in the interval (1.95 … 2.05) already; what favoured one side in every pair would not" in text
    assert "With --host-check strict, a case that the host is unfit for is not measured." in text
    warned = " ".join(explain_case(run, replace(record, findings=(replace(BUSY, level="warn"),))).split())
    assert told in warned
    assert "--host-check strict" not in warned
    calm = " ".join(explain_case(run, replace(record, findings=())).split())
    assert "No host finding affects this case." in calm
    assert told not in calm
    assert "Persistence mode" not in calm
    unjudged = " ".join(explain_case(make_run(settings={"host_check": "off"}), record).split())
    assert "Finding, warn: Persistence mode: off." in unjudged


def test_a_position_effect_that_no_float_holds_is_told_in_words() -> None:
    found = make_comparison(1.0, 0.98, interval=(0.9, 1.1))
    wild = replace(found, position=0.1, position_low=-900.0, position_high=900.0)
    assert "Position effect: too few pairs to estimate it." in result_sentences(make_result(wild, "inconclusive"))


def test_the_command_that_measures_the_case_again_is_given() -> None:
    record = measured(make_case(axes={"size": "1MiB", "n": 2}, path=""), seed=3, precision="rigorous")
    said = "aiperf run pageable-vs-pinned-copy --precision rigorous --seed 11 --only size=1MiB --only n=2"
    # The run's seed, from which a case draws its own; the case's would give another one.
    assert said in " ".join(explain_case(make_run(seed=11), record, width=100).split())
    own = measured(make_case("mine", path="/home/me/mine.yaml"))
    assert "aiperf run /home/me/mine.yaml --precision" in flat(own)


def test_two_commits_differ_in_their_ref_and_not_in_where_they_are_checked_out() -> None:
    def side(name: str, ref: str) -> Side:
        root = f"/tmp/trees/{name}"
        env = {"PYTHONPATH": f"{root}:/opt", "AIPERF_COMMIT": ref, "MODE": "fast"}
        return Side(name, workload=f"{root}/mine.py:f", setup=f"{root}/mine.py:make", ref=ref, env=env)

    text = flat(measured(make_case("mine", sides=(side("before", "4" * 40), side("after", "working-tree")))))
    assert "Every side runs mine.py:f with setup mine.py:make, env MODE fast." in text
    assert re.findall(r"They differ in [^)]*\)", text) == [
        "They differ in ref (before: 444444444444, after: the working tree)"
    ]


def test_that_a_case_was_interrupted_is_said_once_before_its_results() -> None:
    record = replace(measured(make_case()), pairs=(make_pair(0),), status="interrupted", stop="interrupted")
    assert flat(record).count("interrupted") == 1


def test_a_skip_and_a_failure_are_told_with_their_reason() -> None:
    *_, skipped, failed = sample_records()
    assert "Skipped: GPUDirect Storage is not active" in flat(skipped)
    assert "To run it: aiperf show" in flat(skipped)
    assert "Failed: before, set-up: CUDA out of memory" in flat(failed)
    assert "stderr: Traceback ..." in flat(failed)
    assert "has its stderr" not in flat(failed)
    assert "How it was measured" not in told(failed)


@pytest.mark.parametrize("width", [60, 100])
def test_the_story_keeps_to_the_width_and_has_no_control_character(width: int) -> None:
    for record in sample_records():
        text = told(record, width=width)
        assert max(map(len, text.splitlines())) <= width
        assert not re.search(r"[\x00-\x09\x0b-\x1f]", text)


@pytest.mark.parametrize(
    ("peak_name", "bound", "is_told"),
    [
        ("cpu_gemm_fp32", (0,), True),
        ("cpu_gemm_fp32", (0, 1), False),
        ("disk_read", (0,), False),
        ("cpu_stream", (), False),
    ],
)
def test_a_limit_of_all_cpus_is_told_to_sides_that_had_fewer(
    peak_name: str, bound: tuple[int, ...], is_told: bool
) -> None:
    found = measured(make_case(), limits=(Limit("after", peak_name, 1e9, "B/s", 0.5),))
    found = replace(found, pairs=tuple(replace(p, cpus=bound) for p in found.pairs))
    text = " ".join(explain_case(make_run(host={"cpus": [0, 1]}), found).split())
    assert ("This peak is for all 2 CPUs of the host; the sides were bound to 1." in text) == is_told


@pytest.mark.parametrize(("title", "heading"), [("mine", "mine[n=4]"), ("Sums of rows", "mine[n=4]: Sums of rows")])
def test_a_scenario_without_a_title_of_its_own_is_named_once(title: str, heading: str) -> None:
    record = replace(sample_records()[0], case=make_case("mine", axes={"n": 4}, title=title))
    assert case_blocks(make_run(), record)[0].heading == heading
