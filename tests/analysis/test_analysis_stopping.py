import math

import pytest
from analysis_maker import LOOKS
from hypothesis import given
from hypothesis import strategies as st

from aiperf.analysis.stopping import Continue, Stop, half_width, next_look, next_step
from aiperf.records import Comparison, Note, Result, Summary, Verdict
from aiperf.settings import Precision


def result(word="inconclusive", *, half=0.05, needed=30, primary=True):
    """A result whose interval has this half-width on the log scale."""
    side = Summary("x", 1.0, 1.0, 1.0, 1, 0, 0.0)
    ends = (math.exp(-half), math.exp(half))
    c = Comparison(
        "time", "s", "lower", side, side, 6, 1.0, *ends, 0.0158, 0.01, 0.0, 0.0, 0.0, 0.02, needed, 1.0, None, None, ()
    )
    return Result("after", "before", c, Verdict(word, "x", "x"), primary)


def step(*results, done=6, elapsed=60.0, budget=300.0, cost=10.0, looks=LOOKS, max_pairs=None, suspected=False):
    within = Precision(looks=tuple(looks)).looks_within(max_pairs)
    return next_step(
        results, looks=within, pairs_done=done, elapsed=elapsed, budget=budget,
        mean_pair_seconds=cost, width=0.01, suspected=suspected,
    )  # fmt: skip


def test_an_open_verdict_within_the_budget_goes_to_the_next_look():
    assert step(result()) == Continue(10)
    assert step(result(), done=10) == Continue(16)
    assert step(done=0, elapsed=0, cost=0) == Continue(6)


def test_a_decision_on_every_headline_ends_the_case():
    assert step(result("improved"), result("equivalent")).rule == "verdict"
    assert step(result("improved"), result()) == Continue(10)
    assert step(result("improved"), result(primary=False)).rule == "verdict"
    assert step(result("invalid")).rule == "verdict"


def test_before_the_first_look_no_verdict_counts():
    assert step(result("improved"), done=5) == Continue(6)
    assert step(result("improved"), done=4, max_pairs=4).rule == "verdict"


def test_an_interval_as_narrow_as_asked_ends_an_undecided_case():
    found = step(result(half=0.0099))
    assert (found.rule, found.pairs_needed) == ("precision", 30)
    assert step(result(half=0.0101)) == Continue(10)
    assert step(result("improved", half=9), result(half=0.0099)).rule == "precision"


def test_a_look_that_does_not_fit_spends_what_is_left_on_a_smaller_one_then_says_what_it_would_take():
    assert step(result(needed=56), elapsed=261.0, cost=10.0) == Continue(8)
    found = step(result(needed=56), done=8, elapsed=281.0, cost=10.0)
    assert (found.rule, found.pairs_needed) == ("budget", 56)
    values = {"pairs": 10, "seconds": 20.0, "left": 19.0, "budget": 300.0, "needed": 56}
    assert found.note == Note("budget_spent", values)
    assert step(result(), elapsed=260.0, cost=10.0) == Continue(10)
    assert step(result(), elapsed=281.0, cost=10.0).rule == "budget", "one pair more is no look"
    assert step(done=0, elapsed=301.0, cost=0.0).rule == "budget"


def test_the_last_look_ends_the_case_and_max_pairs_brings_it_forward():
    assert step(result(needed=None), done=40) == Stop("max_pairs", Note("most_pairs", {"pairs": 40, "needed": None}))
    assert step(result(), done=10, max_pairs=12) == Continue(12)
    assert step(result(), done=12, max_pairs=12).rule == "max_pairs"
    within = {most: Precision(looks=(6, 10)).looks_within(most) for most in (4, 8, 99, None)}
    assert within == {4: (4,), 8: (6, 8), 99: (6, 10), None: (6, 10)}
    assert (next_look((6, 10), pairs_done=6), next_look((6, 10), pairs_done=10)) == (10, None)


def test_a_verdict_for_a_side_that_is_suspected_is_not_the_end_while_a_look_is_left():
    for word in ("improved", "regressed"):
        assert step(result(word), suspected=True) == Continue(10)
        assert step(result(word), done=40, suspected=True).rule == "verdict"
        assert step(result(word), max_pairs=6, suspected=True).rule == "verdict"
        assert step(result(word), elapsed=299.0, suspected=True).rule == "verdict"
    for word in ("equivalent", "invalid"):
        assert step(result(word), suspected=True).rule == "verdict"
    assert step(result("improved", half=0.001), suspected=True) == Continue(10), "however narrow its interval"


def test_pairs_needed_is_the_most_of_all_open_results_and_unknown_if_one_is():
    assert step(result(needed=20), result(needed=50), done=40).pairs_needed == 50
    assert step(result(needed=20), result(needed=None), done=40).pairs_needed is None


def test_an_unbounded_interval_is_not_narrow():
    wide = result()
    object.__setattr__(wide.comparison, "low", 0.0)
    assert half_width(wide) == math.inf


@given(
    st.floats(0.1, 100), st.floats(0, 2000), st.floats(0, 500),
    st.lists(st.integers(3, 200), min_size=1, max_size=6, unique=True).map(sorted), st.integers(1, 200) | st.none(),
)  # fmt: skip
def test_no_plan_ever_exceeds_the_budget_or_the_most_pairs(cost, budget, setup, looks, max_pairs):
    elapsed, done = setup, 0
    for _ in range(len(looks) + 1):
        planned = step(
            *([result()] if done else []), done=done, elapsed=elapsed, budget=budget, cost=cost, looks=looks,
            max_pairs=max_pairs,
        )  # fmt: skip
        if isinstance(planned, Stop):
            assert planned.rule in ("budget", "max_pairs")
            break
        assert done < planned.to_pairs <= min(looks[-1], max_pairs or looks[-1])
        elapsed += (planned.to_pairs - done) * cost
        done = planned.to_pairs
        assert elapsed <= budget * (1 + 1e-9)
    else:
        pytest.fail("the plan did not end")
