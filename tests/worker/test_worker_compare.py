"""The check: which differences between two sides' audited outputs pass, under each rule, and how a failure is told."""

import numpy as np
import pytest
import torch

from aiperf.protocol.messages import Check
from aiperf.worker import arrays
from aiperf.worker.audit import Snapshot
from aiperf.worker.compare import compare
from aiperf.workloads.contract import Outcome

BITWISE, CLOSE = Check("bitwise"), Check("tolerance")


def shot(*, kept=True, reference=None, **given):
    snapshot = Snapshot(reference=reference or {})
    for name, array in given.items():
        snapshot.digests[name] = arrays.digest(array)
        snapshot.dtypes[name] = str(array.dtype).removeprefix("torch.")
        snapshot.values[name] = arrays.worst_value(array)
        if kept:
            snapshot.arrays[name] = arrays.to_numpy(array)[0]
    return snapshot


def held(before, after, rule=CLOSE, checks=None):
    return compare([after], [before], rule, checks or {}, ("before", "after"))


@pytest.fixture
def base():
    return np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)


def test_equal_outputs_pass_every_rule_and_say_what_was_compared(base):
    assert held(shot(out=base), shot(out=base.copy()), BITWISE).compared == "after with before, bit for bit"
    answer = held(shot(out=base), shot(out=base.copy()))
    assert (answer.passed, answer.detail, answer.max_error) == (True, "", 0.0)
    assert answer.compared == "after with before, tolerance of the coarser dtype"


def test_the_rule_none_compares_nothing(base):
    assert held(shot(out=base), shot(out=base + 1), Check("none")).passed


def test_bitwise_sees_the_last_bit_and_says_where(base):
    other = base.copy()
    other[3, 2] = np.nextafter(other[3, 2], np.float32(9))
    answer = held(shot(out=base), shot(out=other), BITWISE)
    assert not answer.passed
    assert answer.detail == "audit 0: out differs in 1 of 32 elements, first at (3, 2)"


def test_bitwise_sees_the_sign_of_a_zero_and_another_dtype():
    zeros = np.zeros(3)
    assert "the sign of a zero" in held(shot(out=zeros), shot(out=-zeros), BITWISE).detail
    other = held(shot(out=zeros), shot(out=zeros.astype(np.float32)), BITWISE)
    assert other.detail == "audit 0: out is float32(3,) against before's float64(3,)"


def test_bitwise_needs_no_kept_arrays(base):
    assert held(shot(kept=False, out=base), shot(kept=False, out=base), BITWISE).passed
    answer = held(shot(kept=False, out=base), shot(kept=False, out=base + 1), BITWISE)
    assert (answer.passed, answer.detail) == (False, "audit 0: out differs")


@pytest.mark.parametrize(
    ("before", "after", "tolerance"),
    [
        (torch.float64, torch.float64, 1e-9),
        (torch.float64, torch.float32, 1e-4),
        (torch.float32, torch.float16, 1e-2),
        (torch.bfloat16, torch.float32, 2e-2),
        (torch.float16, torch.bfloat16, 2e-2),
        (torch.float32, torch.float8_e4m3fn, 0.15),
    ],
)
def test_the_coarser_dtype_sets_the_tolerance_whichever_side_has_it(before, after, tolerance):
    def at(factor):
        ones = torch.ones(4, dtype=torch.float64)
        a, b = shot(out=ones), shot(out=ones * (1 + factor))
        a.dtypes["out"], b.dtypes["out"] = (str(d).removeprefix("torch.") for d in (before, after))
        return held(a, b), held(b, a)

    assert [answer.passed for answer in at(1.8 * tolerance)] == [True, True]
    assert [answer.passed for answer in at(3.0 * tolerance)] == [False, False]


def test_whole_numbers_of_two_widths_are_close_when_they_are_equal():
    narrow = np.arange(6, dtype=np.int32)
    assert held(shot(out=narrow), shot(out=narrow.astype(np.int64))).passed
    assert "differs in 1 of 6" in held(shot(out=narrow), shot(out=narrow + (narrow == 3))).detail


def test_stated_tolerances_replace_the_default_and_the_error_is_told(base):
    other = base.copy()
    other[1, 1] += 0.01
    rule = Check("tolerance", rtol=0.0, atol=0.02)
    assert held(shot(out=base), shot(out=other), rule).passed
    answer = held(shot(out=base), shot(out=other), Check("tolerance", rtol=0.0, atol=0.005))
    values = f"{other[1, 1]:.9g} against before's {base[1, 1]:.9g}"
    assert answer.detail == f"audit 0: out differs in 1 of 32 elements, worst at (1, 1): {values}"
    assert answer.max_error == pytest.approx(0.01 / max(abs(base[1, 1]), np.sqrt((base**2).mean())), rel=1e-3)
    assert answer.compared.endswith("relative tolerance 0")


@pytest.mark.parametrize("rule", [BITWISE, CLOSE])
def test_nan_left_over_on_both_sides_fails(base, rule):
    base[7:] = np.nan
    answer = held(shot(out=base), shot(out=base.copy()), rule)
    assert not answer.passed
    assert "NaN" in answer.detail or "not finite" in answer.detail


@pytest.mark.parametrize("kept", [True, False])
def test_equal_infinities_are_not_close_though_they_are_bit_for_bit_equal(base, kept):
    base[7, 0] = np.inf
    sides = shot(kept=kept, out=base), shot(kept=kept, out=base)
    assert held(*sides).detail == "audit 0: out holds values that are not finite on both sides (poison counts)"
    assert held(*sides, BITWISE).passed


def test_bitwise_sees_poison_in_arrays_that_were_too_large_to_keep(base):
    base[7:] = np.nan
    assert "NaN" in held(shot(kept=False, out=base), shot(kept=False, out=base), BITWISE).detail


def test_equal_outputs_need_not_be_handed_over(base):
    answer = held(shot(kept=False, out=base, more=base), shot(out=base, more=base))
    assert (answer.passed, answer.max_error) == (True, 0.0)


def test_both_sides_are_held_against_the_reference(base):
    rule = Check("tolerance", rtol=1e-2, atol=0.0, reference=True)
    for theirs, ours in ((1.015, 1.008), (1.008, 1.015)):
        assert held(shot(out=base * theirs), shot(out=base * ours), Check("tolerance", rtol=1e-2, atol=0.0)).passed
        assert not held(shot(out=base * theirs), shot(out=base * ours, reference={"out": base}), rule).passed


@pytest.mark.parametrize(("theirs", "ours", "what"), [(1.5, 1.0, "before's out"), (1.0, 1.5, "out"), (1.5, 1.5, "out")])
def test_the_side_that_differs_from_the_reference_is_the_one_that_is_named(theirs, ours, what):
    one = np.ones(2)
    rule = Check("tolerance", rtol=0.4, atol=0.2, reference=True)
    answer = held(shot(out=one * theirs), shot(out=one * ours, reference={"out": one * 0.9}), rule)
    assert answer.detail == (
        f"audit 0: {what} differs in 2 of 2 elements, worst at (0,): 1.5 against the reference's 0.9"
    )


def test_equal_outputs_are_held_against_the_reference_all_the_same(base):
    rule = Check("tolerance", reference=True)
    for truth, passed in ((base, True), (base + 1, False)):
        assert held(shot(kept=False, out=base), shot(out=base, reference={"out": truth}), rule).passed is passed
    answer = held(shot(kept=False, out=base), shot(kept=False, out=base, reference={"out": base}), rule)
    assert answer.detail == "audit 0: out is too large to keep for the comparison with its reference"


def test_nan_on_one_side_fails_whatever_the_tolerance(base):
    other = base.copy()
    other[0, 0] = np.nan
    for a, b in ((base, other), (other, base)):
        answer = held(shot(out=a), shot(out=b), Check("tolerance", rtol=1e9, atol=1e9))
        assert answer.detail == "audit 0: out holds 1 values that are not finite (poison counts)"


def test_another_shape_or_another_set_of_outputs_fails(base):
    assert held(shot(out=base), shot(out=base[:4])).detail == "audit 0: out has shape (4, 4) against before's (8, 4)"
    answer = held(shot(out=base), shot(out=base, more=base))
    assert answer.detail == "audit 0: before gives ['out'], after gives ['more', 'out']"
    assert held(shot(), shot()).detail == "audit 0: there are no outputs to compare"


def test_integers_must_be_equal_under_a_tolerance_too():
    a = np.arange(10)
    b = a.copy()
    b[9] = 8
    assert held(shot(out=a), shot(out=a.copy()), Check("tolerance", rtol=1.0, atol=1.0)).passed
    answer = held(shot(out=a), shot(out=b), Check("tolerance", rtol=1.0, atol=1.0))
    assert answer.detail == "audit 0: out differs in 1 of 10 elements, first at (9,)"


def test_a_wrong_later_output_or_audit_fails_too(base):
    wrong = base + 1
    answer = held(shot(a=base, b=base), shot(a=base, b=wrong))
    assert answer.detail.startswith("audit 0: b differs")
    good, bad = shot(out=base), shot(out=wrong)
    answer = compare([good, bad], [good, good], CLOSE, {}, ("before", "after"))
    assert answer.detail.startswith("audit 1: out differs")


def test_missing_audits_fail(base):
    one = shot(out=base)
    answer = compare([one], [one, one], CLOSE, {}, ("before", "after"))
    assert (answer.passed, answer.detail) == (False, "before has 2 audited outputs, after has 1")
    assert not compare([], [], CLOSE, {}, ("before", "after")).passed


def test_outputs_too_large_to_keep_are_compared_by_digest(base):
    assert held(shot(kept=False, out=base), shot(out=base)).passed
    answer = held(shot(kept=False, out=base), shot(out=base + 1e-7))
    assert "too large to keep" in answer.detail


def test_with_a_reference_both_sides_must_be_near_the_truth(base):
    rule = Check("tolerance", rtol=1e-3, reference=True)
    truth = {"out": base.astype(np.float64)}
    same = base * np.float32(1.1)
    assert held(shot(out=base), shot(out=base, reference=truth), rule).passed
    assert "differs in" in held(shot(out=same), shot(out=same, reference=truth), rule).detail
    assert held(shot(out=base), shot(out=base), rule).detail == "audit 0: the workload gives no reference for out"


def worst_difference(limit):
    def check(before, after):
        worst = float(np.abs(before["out"] - after["out"]).max())
        return Outcome(worst < limit, f"worst is {worst:.3f}", worst)

    return {"worst": check}


def test_a_named_check_decides_and_its_value_is_told(base):
    answer = held(shot(out=base), shot(out=base + np.float32(0.5)), Check("named", name="worst"), worst_difference(1.0))
    assert (answer.passed, answer.max_error) == (True, pytest.approx(0.5))
    assert answer.compared == "after with before, check worst"
    answer = held(shot(out=base), shot(out=base + 2), Check("named", name="worst"), worst_difference(1.0))
    assert (answer.passed, answer.detail) == (False, "audit 0: worst is 2.000")


def test_the_bound_of_a_named_check_holds_beside_its_own_opinion(base):
    near, far = (Check("named", name="worst", bound=bound) for bound in (0.6, 0.4))
    after = shot(out=base + np.float32(0.5))
    assert held(shot(out=base), after, near, worst_difference(1.0)).passed
    answer = held(shot(out=base), after, far, worst_difference(1.0))
    assert answer.detail.startswith("audit 0: worst is 0.5")
    assert answer.detail.endswith(", bound 0.4")
    for value in (None, float("nan")):
        blind = {"worst": lambda a, b, value=value: Outcome(True, "", value)}
        assert not held(shot(out=base), after, near, blind).passed


def test_a_check_that_the_workload_lacks_is_named_with_those_it_has(base):
    answer = held(shot(out=base), shot(out=base), Check("named", name="perplexity"), worst_difference(1.0))
    assert answer.detail == 'audit 0: the workload has no check "perplexity" (it has: worst)'


def test_a_named_check_gets_before_first(base):
    seen = []
    checks = {"look": lambda a, b: (seen.append((a["out"][0, 0], b["out"][0, 0])), Outcome(True, ""))[1]}
    held(shot(out=base * 0 + 1), shot(out=base * 0 + 2), Check("named", name="look"), checks)
    assert seen == [(1.0, 2.0)]


def test_complex_and_single_numbers_are_compared(base):
    wave = base.astype(np.complex64) + 1j
    assert held(shot(out=wave), shot(out=wave * np.complex64(1 + 1e-6))).passed
    assert not held(shot(out=wave), shot(out=wave.conj())).passed
    assert held(shot(out=np.array(1.0)), shot(out=np.array(1.0))).passed
    assert "worst at (): 2 against before's 1" in held(shot(out=np.array(1.0)), shot(out=np.array(2.0))).detail


@pytest.mark.parametrize("elements", [1_000, 5_000_000])
@pytest.mark.parametrize("wrong", ["ours", "theirs", "both"])
def test_a_wrong_side_is_noticed_whichever_it_is_and_whatever_its_size(elements, wrong):
    truth = np.random.default_rng(3).standard_normal(elements)
    theirs = -truth if wrong in ("theirs", "both") else truth
    ours = -truth if wrong in ("ours", "both") else truth.copy()
    rule = Check("tolerance", rtol=1e-3, reference=True)
    assert held(shot(out=theirs), shot(out=ours, reference={"out": truth}), rule).passed is False
    near = truth * (1 + 1e-9)
    assert held(shot(out=near), shot(out=truth, reference={"out": truth}), rule).passed


@pytest.mark.parametrize("shape", [(1,), (), (4, 8), (32,)])
def test_a_reference_of_another_shape_is_no_reference(base, shape):
    truth = {"out": np.resize(base, shape).astype(np.float64)}
    answer = held(shot(out=base), shot(out=base, reference=truth), Check("tolerance", rtol=0.1, reference=True))
    assert (answer.passed, answer.detail) == (False, f"audit 0: out has shape (8, 4), its reference {shape}")
