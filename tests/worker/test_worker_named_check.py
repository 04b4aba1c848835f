"""A workload's own check: it decides within its bound, and it must refuse outputs that were spoilt on purpose."""

import numpy as np
import pytest

from aiperf.protocol.measuring import Check
from aiperf.worker.named_check import named_check
from aiperf.workloads.contract import Outcome


@pytest.fixture
def base():
    return np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)


def held(before, after, rule, checks, *, prove=True):
    return named_check([lambda: {"out": before.copy()}], [lambda: {"out": after.copy()}], rule, checks, prove=prove)


def worst_difference(limit):
    def check(before, after):
        worst = float(np.abs(before["out"] - after["out"]).max())
        return Outcome(worst < limit, f"worst is {worst:.3f}", worst)

    return {"worst": check}


WORST = Check("named", name="worst")


def test_a_named_check_decides_and_its_value_is_noted(base):
    answer = held(base, base + np.float32(0.5), WORST, worst_difference(1.0))
    assert (answer.passed, answer.max_error) == (True, pytest.approx(0.5))
    answer = held(base, base + 2, WORST, worst_difference(1.0))
    assert (answer.passed, answer.detail) == (False, "audit 0: worst is 2.000")


def test_the_bound_of_a_named_check_holds_beside_its_own_opinion(base):
    near, far = (Check("named", name="worst", bound=bound) for bound in (0.6, 0.4))
    after = base + np.float32(0.5)
    assert held(base, after, near, worst_difference(1.0)).passed
    answer = held(base, after, far, worst_difference(1.0))
    assert answer.detail.startswith("audit 0: worst is 0.5")
    assert answer.detail.endswith(", bound 0.4")
    for value in (None, float("nan")):
        assert not held(base, after, near, {"worst": lambda a, b, value=value: Outcome(True, "", value)}).passed


def test_a_check_that_the_workload_lacks_is_named_with_those_it_has(base):
    answer = held(base, base, Check("named", name="perplexity"), worst_difference(1.0))
    assert answer.detail == 'the workload has no check "perplexity" (it has: worst)'


def test_a_check_that_fails_itself_is_a_failed_check(base):
    answer = held(base, base, WORST, {"worst": lambda a, b: a["none of this name"]})
    assert answer.detail == "audit 0: check worst failed with KeyError: 'none of this name'"


def test_a_named_check_gets_before_first(base):
    seen = []
    checks = {"look": lambda a, b: (seen.append((a["out"][0, 0], b["out"][0, 0])), Outcome(True, ""))[1]}
    held(base * 0 + 1, base * 0 + 2, Check("named", name="look"), checks, prove=False)
    assert seen == [(1.0, 2.0)]


def test_a_check_that_passes_with_every_damage_accepts_anything(base):
    answer = held(base, base, WORST, {"worst": lambda a, b: Outcome(True, "", 0.0)})
    assert (
        answer.detail == "check worst accepts anything: it passes with negated, shuffled, zeroed and random outputs too"
    )
    assert held(base, base, WORST, {"worst": lambda a, b: Outcome(True, "", 0.0)}, prove=False).passed


@pytest.mark.parametrize(
    "sees",
    [
        lambda a, b: np.array_equal(np.abs(a), np.abs(b)),  # not the sign
        lambda a, b: np.isclose(a.sum(), b.sum()),  # not the order
        lambda a, b: bool(b.any()) and a[0, 0] * b[0, 0] >= 0,
        lambda a, b: 1 / bool(b.any()) > 0,  # raises
    ],
)
def test_a_measure_of_quality_need_not_see_every_damage(base, sees):
    checks = {"worst": lambda a, b: Outcome(bool(sees(a["out"], b["out"])), "seen")}
    assert held(base, base, WORST, checks).passed


@pytest.mark.parametrize("dtype", [np.float64, np.int8, np.uint8, np.bool_, np.complex64])
@pytest.mark.parametrize("value", [0, 1])
def test_outputs_of_one_value_are_spoilt_too_whatever_their_type(dtype, value):
    same = {"worst": lambda a, b: Outcome(np.array_equal(a["out"], b["out"]), "differ")}
    out = np.full(50, value, dtype)
    assert held(out, out, WORST, same).passed
