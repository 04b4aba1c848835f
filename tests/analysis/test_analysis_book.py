"""What a measurement says of the book's claim, by the rules that ANSWERS declares."""

from __future__ import annotations

import pytest

from aiperf.analysis.book import (
    ANSWERS,
    Measured,
    answer_rows,
    case_answer,
    counts,
    missing,
    unknown_rows,
    unmeasured,
)
from aiperf.plan.book import BookRow, Claim
from aiperf.plan.cited import Cited
from aiperf.scenario.citations import Citation

TWO = Claim(2.0, 2.0, "illustrative")


def row(name: str = "ch07/a", *, claim: Claim | None = TWO, **changes) -> BookRow:
    texts = dict.fromkeys(("section", "before", "after", "mechanism", "correctness"), "x")
    return BookRow(**{**texts, "id": name, "weight": "core", "lane": "cpu", "claim": claim, **changes})


def found(low: float, high: float, word: str = "improved", *, scenario: str = "s", **changes) -> Measured:
    given = {"scenario": scenario, "case": scenario, "side": "after", "verdict": word, "ratio": (low * high) ** 0.5}
    given |= {"metric": "time", "unit": "s", "against": "before"}
    return Measured(**{**given, "low": low, "high": high, "host": "this one", **changes})


@pytest.mark.parametrize(
    ("low", "high", "word", "answer"),
    [
        (1.9, 2.1, "improved", "reproduced"),
        (1.5, 1.61, "improved", "reproduced"),
        (1.5, 1.59, "improved", "weaker"),
        (2.49, 2.9, "improved", "reproduced"),
        (2.51, 2.9, "improved", "stronger"),
        (0.99, 1.01, "equivalent", "not reproduced"),
        (0.5, 0.6, "regressed", "not reproduced"),
        (0.9, 1.5, "inconclusive", "not reproduced"),
        (0.9, 1.7, "inconclusive", "inconclusive"),
        (1.9, 2.1, "invalid", "inconclusive"),
    ],
)
def test_a_claimed_number_is_held_against_the_interval(low, high, word, answer) -> None:
    assert case_answer(TWO, found(low, high, word)) == answer


def test_a_range_is_met_anywhere_between_its_ends() -> None:
    claim = Claim(2.0, 3.0, "published")
    assert case_answer(claim, found(2.4, 2.6)) == "reproduced"
    assert case_answer(claim, found(3.6, 3.7)) == "reproduced"
    assert case_answer(claim, found(3.76, 3.9)) == "stronger"


def test_a_small_claimed_gain_is_not_met_by_no_gain() -> None:
    claim = Claim(1.05, 1.1, "illustrative")
    assert case_answer(claim, found(0.99, 1.01, "equivalent")) == "not reproduced"
    assert case_answer(claim, found(1.04, 1.06)) == "reproduced"


def test_a_claim_of_no_gain_is_met_by_equivalence() -> None:
    assert case_answer(Claim(1.0, 1.0, "illustrative"), found(0.99, 1.01, "equivalent")) == "reproduced"
    assert case_answer(Claim(1.0, 1.0, "illustrative"), found(1.4, 1.5)) == "stronger"


def test_without_a_number_the_expected_verdict_decides() -> None:
    assert case_answer(None, found(1.1, 1.2)) == "reproduced"
    assert case_answer(None, found(0.99, 1.01, "equivalent")) == "not reproduced"
    assert case_answer(None, found(0.99, 1.01, "equivalent", expect="equivalent")) == "reproduced"
    assert case_answer(None, found(0.9, 1.1, "inconclusive")) == "inconclusive"


@pytest.mark.parametrize(
    ("changes", "ratio"),
    [
        ({"lane": "gpu1"}, 2.0),
        ({"needs": {"gpus": 1}}, 2.0),
        ({"lane": "cpu"}, 0.8),
        ({"needs": {"libs": ["torch"]}}, 0.8),
    ],
)
def test_a_row_that_needs_a_gpu_is_answered_by_a_record_with_one_however_new_that_of_a_cpu_is(changes, ratio) -> None:
    older, newer = found(1.9, 2.1, gpu=True, newest=False), found(0.7, 0.9, "regressed")
    (answered,) = answer_rows([row(**changes)], [Cited("s", ("ch07/a",))], [newer, older])
    assert answered.cases == 1
    assert answered.best is not None
    assert answered.best.ratio == pytest.approx(ratio, abs=0.01)


def test_without_a_record_of_a_gpu_a_row_that_needs_one_is_answered_by_that_of_a_cpu() -> None:
    (answered,) = answer_rows([row(lane="gpu1")], [Cited("s", ("ch07/a",))], [found(1.9, 2.1)])
    assert answered.answer == "reproduced"


CONTROL = found(0.99, 1.01, "equivalent")


def expecting(*verdicts: str, points: tuple[str, ...] = ("",)) -> Cited:
    return Cited("s", ("ch07/a",), named={"ch07/a": Citation("ch07/a", cases=points, expect=verdicts)})


@pytest.mark.parametrize(
    ("measured", "answer", "cases"),
    [([CONTROL], "not measured yet", 0), ([CONTROL, found(1.9, 2.1, scenario="gain")], "reproduced", 1)],
)
def test_a_negative_control_says_nothing_of_a_claimed_gain_beside_a_scenario_that_expects_it(
    measured, answer, cases
) -> None:
    citing = [expecting("equivalent"), Cited("gain", ("ch07/a",))]
    (answered,) = answer_rows([row()], citing, measured)
    assert (answered.answer, answered.cases) == (answer, cases)


def test_a_control_does_not_answer_for_a_side_that_was_not_measured() -> None:
    gain = Cited("gain", ("ch07/a",), named={"ch07/a": Citation("ch07/a", ("wanted",), "")})
    other = found(1.9, 2.1, scenario="gain", side="other")
    (answered,) = answer_rows([row()], [expecting("equivalent"), gain], [CONTROL, other])
    assert (answered.answer, answered.cases) == ("not measured yet", 0)


@pytest.mark.parametrize(
    ("low", "high", "word", "answer"),
    [(0.99, 1.01, "equivalent", "not reproduced"), (1.9, 2.1, "improved", "reproduced")],
)
def test_where_every_scenario_of_a_row_expects_no_gain_what_they_measured_answers_it(low, high, word, answer) -> None:
    (answered,) = answer_rows([row()], [expecting("equivalent")], [found(low, high, word)])
    assert (answered.answer, answered.cases) == (answer, 1)


GAIN, NONE, LOSS = (
    found(1.9, 2.1, case="s[n=1]"),
    found(0.99, 1.01, "equivalent", case="s[n=2]"),
    found(0.5, 0.6, "regressed", case="s[n=3]"),
)


@pytest.mark.parametrize("claim", [TWO, None])
@pytest.mark.parametrize(
    ("verdicts", "measured", "answer", "why"),
    [
        (("improved", "equivalent", "regressed"), (NONE, LOSS, GAIN), "reproduced", ""),
        (("", "equivalent", "regressed"), (NONE, LOSS, GAIN), "reproduced", ""),
        (("improved", "regressed", "equivalent"), (NONE, LOSS, GAIN), "partly", "s[n=2]: not reproduced. s[n=3]: not"),
        (("improved", "equivalent", "regressed"), (NONE, LOSS), "partly", "No record of s[n=1]."),
        (("improved", "equivalent", "regressed"), (NONE, GAIN), "partly", "No record of s[n=3]."),
        (("improved", "improved", "regressed"), (NONE, LOSS, GAIN), "partly", "s[n=2]: not reproduced."),
    ],
)
def test_a_crossover_is_reproduced_when_every_named_case_has_the_verdict_that_is_expected_of_it(
    claim, verdicts, measured, answer, why
) -> None:
    (answered,) = answer_rows([row(claim=claim)], [expecting(*verdicts, points=("n=1", "n=2", "n=3"))], measured)
    assert answered.answer == answer
    assert answered.why.startswith(why)
    assert (answered.best.case == GAIN.case) is (GAIN in measured)


@pytest.mark.parametrize("measured", [(found(1.1, 1.2, case="s[n=1]"), NONE), (GAIN, found(1.9, 2.1, case="s[n=2]"))])
def test_a_crossover_needs_the_claimed_number_where_a_gain_is_expected_and_none_elsewhere(measured) -> None:
    (answered,) = answer_rows([row()], [expecting("improved", "equivalent", points=("n=1", "n=2"))], measured)
    assert (answered.answer, answered.agreeing) == ("partly", 1)


def test_where_no_gain_is_expected_every_named_side_must_show_none() -> None:
    cited = Cited("s", ("ch07/a",), named={"ch07/a": Citation("ch07/a", ("one", "two"), expect=("regressed",))})
    sides = [found(0.5, 0.6, "regressed", side="one"), found(1.9, 2.1, side="two")]
    (answered,) = answer_rows([row(claim=None)], [cited], sides)
    assert (answered.answer, answered.best.side) == ("not reproduced", "two")


def test_what_the_file_expects_now_counts_and_not_what_the_record_expected() -> None:
    old = found(0.99, 1.01, "equivalent", expect="improved")
    (answered,) = answer_rows([row(claim=None)], [expecting("equivalent")], [old])
    assert (answered.answer, answered.best.expect) == ("reproduced", "equivalent")
    older = found(0.99, 1.01, "equivalent", expect="equivalent")
    (answered,) = answer_rows([row(claim=None)], [Cited("s", ("ch07/a",))], [older])
    assert answered.answer == "not reproduced"


@pytest.mark.parametrize("changes", [{"first": False}, {"primary": False}])
def test_of_another_comparison_than_the_scenarios_own_nothing_is_expected(changes) -> None:
    cited = Citation("ch07/a", ("after",), "before", expect=("equivalent",))
    other = found(0.99, 1.01, "equivalent", **changes)
    (answered,) = answer_rows([row(claim=None)], [Cited("s", ("ch07/a",), named={"ch07/a": cited})], [other])
    assert answered.answer == "not reproduced"


def naming(*points: str, scenario: str = "s", **stated: str) -> Cited:
    return Cited(scenario, ("ch07/a",), named={"ch07/a": Citation("ch07/a", cases=points or ("",), **stated)})


CASES = [
    found(1.0, 1.1, "equivalent", case="s[n=1]"),
    found(1.9, 2.0, case="s[n=2]"),
    found(2.6, 2.7, case="s[n=3]"),
    found(1.2, 1.3, case="s[n=4]"),
]


@pytest.mark.parametrize(
    ("points", "answer", "agreeing", "missing"),
    [
        (("n=1",), "not reproduced", 1, ()),
        (("n=2",), "reproduced", 1, ()),
        (("n=2", "n=3"), "reproduced", 1, ()),
        (("n=1", "n=2"), "partly", 1, ()),
        (("n=1", "n=4"), "not reproduced", 1, ()),
        (("n=2", "n=5"), "partly", 1, ("s[n=5]",)),
        (("n=1", "n=5"), "not reproduced", 1, ("s[n=5]",)),
        (("n=5", "n=6"), "not measured yet", 0, ("s[n=5]", "s[n=6]")),
    ],
)
def test_a_row_is_judged_by_the_named_cases_together_and_by_no_other(points, answer, agreeing, missing) -> None:
    (answered,) = answer_rows([row()], [naming(*points)], CASES)
    assert (answered.answer, answered.agreeing, answered.missing) == (answer, agreeing, missing)
    assert answered.cases == len(points) - len(missing)


def test_a_partial_answer_says_which_case_has_no_record_and_which_says_otherwise() -> None:
    (answered,) = answer_rows([row()], [naming("n=1", "n=2", "n=5", differs="no decode")], CASES)
    assert answered.answer == "partly"
    assert answered.why == "No record of s[n=5]. s[n=1]: not reproduced."
    assert answered.differs == ("no decode",)
    assert answered.best == CASES[1]


def test_every_scenario_that_cites_a_row_must_answer_it() -> None:
    other = found(1.9, 2.1, scenario="t")
    citing = [naming("n=2", differs="no decode"), Cited("t", ("ch07/a",))]
    (answered,) = answer_rows([row()], citing, [*CASES, other])
    assert (answered.answer, answered.agreeing, answered.differs) == ("reproduced", 2, ("s: no decode",))
    (answered,) = answer_rows([row()], citing, CASES)
    assert (answered.answer, answered.missing) == ("partly", ("t",))


@pytest.mark.parametrize(
    ("low", "high", "word", "answer"),
    [
        (1.9, 2.1, "improved", "partly"),
        (2.6, 2.7, "improved", "partly"),
        (1.2, 1.3, "improved", "weaker"),
        (0.9, 1.7, "inconclusive", "inconclusive"),
        (0.99, 1.01, "equivalent", "not reproduced"),
    ],
)
def test_a_row_of_which_something_was_not_measured_is_reproduced_only_partly(low, high, word, answer) -> None:
    (answered,) = answer_rows([row()], [naming(lacks="batch 128", differs="a small model")], [found(low, high, word)])
    assert (answered.answer, answered.why) == (answer, "Lacks: batch 128.")
    assert (answered.lacks, answered.differs, answered.agreeing) == (("batch 128",), ("a small model",), 1)


def test_what_a_row_lacks_is_said_beside_the_cases_that_are_missing_and_before_anything_was_measured() -> None:
    (answered,) = answer_rows([row()], [naming("n=1", "n=2", "n=5", lacks="batch 128")], CASES)
    assert answered.why == "No record of s[n=5]. s[n=1]: not reproduced. Lacks: batch 128."
    (answered,) = answer_rows([row(note="The ratio is of one batch.")], [naming(lacks="batch 128")], [])
    assert (answered.answer, answered.lacks) == ("not measured yet", ("batch 128",))
    assert answered.why == "Lacks: batch 128. The ratio is of one batch."


@pytest.mark.parametrize("whole", [naming(scenario="t"), Cited("t", ("ch07/a",))])
def test_a_citation_that_lacks_nothing_answers_the_whole_row_when_its_cases_do(whole) -> None:
    citing, lacking, other = [naming(lacks="batch 128"), whole], found(1.9, 2.1), found(1.9, 2.1, scenario="t")
    (answered,) = answer_rows([row()], citing, [lacking, other])
    assert (answered.answer, answered.why, answered.lacks) == ("reproduced", "", ())
    (answered,) = answer_rows([row()], citing, [lacking])
    assert (answered.answer, answered.why) == ("partly", "No record of t.")
    worse = found(0.5, 0.6, "regressed", scenario="t")
    (answered,) = answer_rows([row()], citing, [lacking, worse])
    assert (answered.answer, answered.why) == ("partly", "t: not reproduced.")


def test_if_every_citation_lacks_something_each_is_named_with_what_it_lacks_unless_all_lack_the_same() -> None:
    citing = [naming(lacks="batch 128"), naming(scenario="t", lacks="batch 1")]
    (answered,) = answer_rows([row()], citing, [found(1.9, 2.1), found(1.9, 2.1, scenario="t")])
    assert (answered.answer, answered.why) == ("partly", "Lacks: s: batch 128; t: batch 1.")
    citing = [naming(lacks="batch 128"), naming(scenario="t", lacks="batch 128")]
    (answered,) = answer_rows([row()], citing, [found(1.9, 2.1), found(1.9, 2.1, scenario="t")])
    assert (answered.answer, answered.why) == ("partly", "Lacks: batch 128.")


def test_a_control_that_lacks_nothing_does_not_answer_what_the_gain_lacks() -> None:
    control = Citation("ch07/a", expect=("equivalent",))
    citing = [Cited("c", ("ch07/a",), named={"ch07/a": control}), naming(lacks="batch 128")]
    (answered,) = answer_rows([row()], citing, [found(0.99, 1.01, "equivalent", scenario="c"), found(1.9, 2.1)])
    assert (answered.answer, answered.lacks) == ("partly", ("s: batch 128",))


def test_without_a_named_case_only_the_case_without_axes_answers() -> None:
    (answered,) = answer_rows([row()], [Cited("s", ("ch07/a",))], CASES)
    assert answered.answer == "not measured yet"


def ladder(sides: tuple[str, ...] = (), against: str = "") -> Cited:
    named = {"ch07/a": Citation("ch07/a", sides, against)} if sides else {}
    return Cited("s", ("ch07/a",), named=named)


def step(side: str, low: float, high: float, word: str = "improved", **changes) -> Measured:
    return found(low, high, word, **{"side": side, "last": side == "four", "case": "s", **changes})


STEPS = (
    step("one", 1.9, 2.1),
    step("two", 0.8, 0.9, "regressed"),
    step("four", 1.2, 1.3),
    step("two", 2.4, 2.45, against="one", first=False),
    step("four", 9.0, 9.1, against="two", first=False),
)


@pytest.mark.parametrize(
    ("cited", "answer", "side"),
    [
        (ladder(("two",)), "not reproduced", "two"),
        (ladder(("one",)), "reproduced", "one"),
        (ladder(("two", "four")), "weaker", "four"),
        (ladder(("two",), against="one"), "reproduced", "two"),
        (ladder(("four",), against="two"), "stronger", "four"),
        (ladder(), "weaker", "four"),
    ],
)
def test_a_ladder_answers_by_the_side_that_the_citation_names_and_no_other(cited, answer, side) -> None:
    (answered,) = answer_rows([row()], [cited], STEPS)
    assert answered.best is not None
    assert (answered.answer, answered.best.side, answered.cases) == (answer, side, 1)


def test_a_side_that_was_not_measured_leaves_its_row_without_an_answer() -> None:
    (answered,) = answer_rows([row()], [ladder(("eight",))], STEPS)
    assert (answered.answer, answered.best) == ("not measured yet", None)


def test_of_sides_with_one_answer_the_fastest_is_shown() -> None:
    steps = (step("one", 1.2, 1.3), step("two", 1.4, 1.5), step("four", 1.1, 1.2))
    (answered,) = answer_rows([row()], [ladder(("one", "two", "four"))], steps)
    assert answered.best is not None
    assert (answered.answer, answered.best.side) == ("weaker", "two")


def test_several_sides_of_one_case_are_one_case_that_agrees() -> None:
    (answered,) = answer_rows([row(claim=None)], [ladder(("one", "four"))], STEPS)
    assert (answered.answer, answered.agreeing, answered.cases) == ("reproduced", 1, 1)


@pytest.mark.parametrize(
    ("measured", "why"),
    [
        (found(0.5, 0.6, "regressed"), "Costs time by design: it buys memory."),
        (found(0.5, 0.6, "regressed", expect="regressed"), "Costs time by design: it buys memory."),
        (found(2.0, 2.1), "Not judged by time: it buys memory."),
    ],
)
def test_a_row_that_gains_no_time_is_neither_reproduced_nor_refuted_by_time(measured, why) -> None:
    cited = expecting(measured.expect)
    (answered,) = answer_rows([row(claim=None, not_time="it buys memory")], [cited], [measured])
    assert (answered.answer, answered.why) == ("no claim of speed", why)
    assert answered.best == measured


def test_a_cost_that_the_scenario_expects_is_said_to_be_one() -> None:
    (answered,) = answer_rows([row(claim=None)], [expecting("regressed")], [found(0.5, 0.6, "regressed")])
    assert (answered.answer, answered.why) == ("reproduced", "Costs time, as the scenario expects.")


def test_a_row_is_missing_if_it_is_wanted_and_no_scenario_cites_it() -> None:
    rows = [row("ch07/a"), row("ch07/cited"), row("ch16/b", weight="marginal")]
    answered = answer_rows(rows, [Cited("s", ("ch07/cited",))], [])
    assert [a.row.id for a in missing(answered)] == ["ch07/a"]


def test_an_inconclusive_result_refutes_only_a_claim_above_its_whole_interval_and_the_legend_says_so() -> None:
    for high, answer in ((1.59, "not reproduced"), (1.61, "inconclusive")):
        claimed = row(claim=Claim(2.0, 2.0, "illustrative"))
        (answered,) = answer_rows([claimed], [Cited("s", ("ch07/a",))], [found(0.97, high, "inconclusive")])
        assert answered.answer == answer
    assert "inconclusive, but the whole interval is below 0.8 times the claim" in ANSWERS["not reproduced"]
    assert "whatever is measured" not in ANSWERS["impossible as printed"]


def test_what_is_impossible_stays_so_and_shows_what_was_measured() -> None:
    (answered,) = answer_rows([row(impossible="2 > 1")], [Cited("s", ("ch07/a",))], [found(1.9, 2.1)])
    assert (answered.answer, answered.why) == ("impossible as printed", "By the book's own numbers: 2 > 1")
    assert answered.best is not None
    (bare,) = answer_rows([row(impossible="2 > 1")], [], [])
    assert bare.answer == "impossible as printed"


def test_why_a_row_was_not_measured() -> None:
    rows = [row("ch07/none"), row("ch07/never", not_runnable="no switch"), row("ch07/unmet"), row("ch07/soon")]
    cited = [
        Cited("u", ("ch07/unmet",), problem="u needs 1 GPU, but this host has 0"),
        Cited("v", ("ch07/soon", "ch07/unknown")),
    ]
    answered = answer_rows(rows, cited, [])
    assert [(a.answer, a.why) for a in answered] == [
        ("no scenario yet", ""),
        ("not runnable here", "no switch"),
        ("not runnable here", "u needs 1 GPU, but this host has 0"),
        ("not measured yet", ""),
    ]
    assert [a.row.id for a in missing(answered)] == ["ch07/none"]
    assert unknown_rows(rows, cited) == (("v", "ch07/unknown"),)
    assert {word: n for word, n in counts(answered).items() if n} == {
        "not runnable here": 2,
        "not measured yet": 1,
        "no scenario yet": 1,
    }


def test_a_host_that_cannot_run_it_still_shows_a_reference_record() -> None:
    cited = [Cited("s", ("ch07/a",), problem="needs 1 GPU")]
    (answered,) = answer_rows([row()], cited, [found(1.9, 2.1, here=False, host="H200")])
    assert answered.answer == "reproduced"


def test_a_record_of_an_older_scenario_file_says_so() -> None:
    cited = [Cited("s", ("ch07/a",), hashes=("new", "with prose"))]
    (answered,) = answer_rows([row()], cited, [found(1.9, 2.1, scenario_hash="old")])
    assert "before its scenario file was changed" in answered.why
    for scenario_hash in ("new", "with prose"):
        (fresh,) = answer_rows([row()], cited, [found(1.9, 2.1, scenario_hash=scenario_hash)])
        assert fresh.why == ""


def test_every_answer_has_a_meaning() -> None:
    assert set(counts([])) == set(ANSWERS)
    assert all(ANSWERS.values())


def test_unmeasured_are_wanted_rows_with_a_scenario_that_no_record_answers() -> None:
    names = ("wanted", "useful", "measured", "impossible", "bare")
    rows = [
        row("ch07/wanted"),
        row("ch07/useful", weight="marginal"),
        row("ch07/measured"),
        row("ch07/impossible", impossible="three parts of four are more than one"),
        row("ch07/bare"),
    ]
    citing = [Cited(name, (f"ch07/{name}",)) for name in names if name != "bare"]
    answered = answer_rows(rows, citing, [found(1.9, 2.1, scenario="measured")])
    assert [a.row.id for a in unmeasured(answered)] == ["ch07/wanted"]


def test_a_row_that_gains_memory_is_answered_by_a_case_about_memory_and_not_by_its_time() -> None:
    gains = [row(claim=None, not_time="it buys memory", gains="memory")]
    both = [found(0.5, 0.6, "regressed", expect="regressed"), found(1.9, 2.1, metric="peak_memory")]
    dearer = found(0.8, 0.9, "regressed", metric="peak_memory", expect="regressed")
    assert answer_rows(gains, [Cited("s", ("ch07/a",))], [dearer])[0].answer == "not reproduced"
    (answered,) = answer_rows(gains, [Cited("s", ("ch07/a",))], both)
    assert (answered.answer, answered.best) == ("reproduced", both[1])
    none = found(0.99, 1.01, "equivalent", metric="gpu_memory")
    (answered,) = answer_rows(gains, [Cited("s", ("ch07/a",))], [both[0], none])
    assert (answered.answer, answered.best) == ("not reproduced", none)
    (answered,) = answer_rows(gains, [Cited("s", ("ch07/a",))], both[:1])
    assert answered.answer == "no claim of speed"


def test_a_row_that_gains_memory_is_answered_by_the_bytes_that_a_case_judges_before_the_process_s_peak() -> None:
    gains = [row(claim=None, not_time="it buys memory", gains="memory")]
    peak = found(0.99, 1.01, "equivalent", metric="peak_memory", unit="B", primary=False)
    own = found(1.9, 2.1, metric="state_bytes", unit="B")
    time = found(1.9, 2.1)
    (answered,) = answer_rows(gains, [Cited("s", ("ch07/a",))], [peak, own])
    assert (answered.answer, answered.best, answered.why) == (
        "reproduced", own, "Judged by state_bytes: it buys memory.",
    )  # fmt: skip
    (answered,) = answer_rows(gains, [Cited("s", ("ch07/a",))], [peak, time])
    assert (answered.answer, answered.best) == ("not reproduced", peak)
    less = found(1.9, 2.1, metric="peak_memory", unit="B", primary=False)
    same = found(0.99, 1.01, "equivalent", metric="state_bytes", unit="B")
    (answered,) = answer_rows(gains, [Cited("s", ("ch07/a",))], [less, same])
    assert (answered.answer, answered.best) == ("not reproduced", same)


def test_memory_says_nothing_of_a_row_that_gains_something_else() -> None:
    both = [found(0.5, 0.6, "regressed"), found(1.9, 2.1, metric="peak_memory")]
    (answered,) = answer_rows([row(claim=None, not_time="it buys even reads")], [Cited("s", ("ch07/a",))], both)
    assert (answered.answer, answered.best) == ("no claim of speed", both[0])


def test_a_row_without_a_claim_of_speed_is_answered_by_what_the_scenario_judges() -> None:
    slower = found(0.5, 0.6, "regressed", primary=False)
    for metric, unit in (("output_error", ""), ("kv_bytes", "B"), ("peak_memory", "B"), ("exchange_share", "")):
        own = found(1.7, 1.9, metric=metric, unit=unit)
        (answered,) = answer_rows([row(claim=None)], [Cited("s", ("ch07/a",))], [slower, own])
        assert (answered.answer, answered.best) == ("reproduced", own)
        assert answered.why == f"Judged by {'memory' if metric == 'peak_memory' else metric}."
        worse = found(0.5, 0.6, "regressed", metric=metric, unit=unit)
        faster = found(1.7, 1.9, primary=False)
        assert answer_rows([row(claim=None)], [Cited("s", ("ch07/a",))], [worse, faster])[0].answer == "not reproduced"


def test_a_claim_of_speed_is_answered_by_a_rate_that_the_scenario_judges_and_not_by_an_error() -> None:
    time = found(0.99, 1.01, "equivalent", primary=False)
    rate, error = found(1.9, 2.1, metric="goodput", unit="1/s"), found(1.9, 2.1, metric="output_error", unit="")
    for own, answer, best in ((rate, "reproduced", rate), (error, "not reproduced", time)):
        (answered,) = answer_rows([row()], [Cited("s", ("ch07/a",))], [time, own])
        assert (answered.answer, answered.best) == (answer, best)


def test_a_claim_of_speed_is_answered_by_the_time_of_a_case_about_memory() -> None:
    both = [found(3.0, 3.1, metric="peak_memory"), found(0.99, 1.01, "equivalent")]
    (answered,) = answer_rows([row()], [Cited("s", ("ch07/a",))], both)
    assert (answered.answer, answered.best) == ("not reproduced", both[1])
