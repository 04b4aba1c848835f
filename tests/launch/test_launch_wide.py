"""Answers to inputs far from the usual ones: what accuses a side, and what accuses nobody."""

from __future__ import annotations

import pytest

from aiperf.launch.wide import unannounced_fault, varied_fault, wide_fault
from aiperf.protocol.claims import AuditedOutput, UnannouncedAnswer, VariedAnswer
from aiperf.protocol.measuring import Check
from aiperf.protocol.messages import WideReply

TOLERANCE = Check("tolerance")
WANT = tuple(float(i) for i in range(1, 1001))


def wide(worst="finite", dtype="float32", *, values=(), moved=0.0, inputs="x"):
    outputs = {"x": AuditedOutput("int64", (), 8), "out": AuditedOutput(dtype, (), 4, worst=worst)}
    return WideReply(outputs=outputs, inputs=inputs, values={"out": values}, moved={"out": moved})


def fault(base, other, check=TOLERANCE):
    return wide_fault(base, other, check, names=("before", "after"))


def test_an_output_that_is_not_finite_accuses_where_that_of_the_same_type_on_the_other_side_is_on_the_same_rank():
    what = "after: out has non-finite values on large inputs, where before's are finite"
    assert fault([wide(), wide()], [wide(), wide("infinite")]) == what
    assert fault([wide()], [wide("nan")]) == what
    assert fault([wide("nan"), wide()], [wide("nan"), wide()]) == ""
    assert fault([wide()], [wide("infinite", "float16")]) == ""
    assert fault([wide()], [WideReply()]) == fault([WideReply()], [wide("nan")]) == ""


@pytest.mark.parametrize("check", [TOLERANCE, Check("bitwise")])
def test_numbers_that_differ_by_more_than_the_tolerance_of_their_type_accuse(check):
    base = wide(values=WANT)
    assert fault([base], [wide(values=WANT)], check) == ""
    assert fault([base], [wide(values=tuple(v * (1 + 5e-5) for v in WANT))], check) == ""
    clipped = wide(values=tuple(min(v, 64.0) for v in WANT))
    assert fault([base], [clipped], check) == (
        "after: out differs from before's on large inputs, in 936 of 1000 elements drawn: 64 against 1000 at worst"
    )
    assert fault([clipped], [base], check) != ""


def test_an_answer_that_its_inputs_hardly_determine_accuses_nobody():
    other = wide(values=tuple(v + 3.0 for v in WANT))
    assert fault([wide(values=WANT)], [other]) != ""
    assert fault([wide(values=WANT, moved=1.0)], [other]) == ""
    assert fault([wide(values=WANT)], [wide(values=other.values["out"], moved=9.0)]) != "", "a side vouches for itself"


@pytest.mark.parametrize(("wrong", "found"), [(10, False), (11, True)])
def test_one_element_in_a_hundred_may_have_fallen_to_another_side(wrong, found):
    other = wide(values=tuple(-v if i < wrong else v for i, v in enumerate(WANT[::-1])))
    assert bool(fault([wide(values=WANT[::-1])], [other])) == found


@pytest.mark.parametrize("other", [{"inputs": "y"}, {"dtype": "float16"}, {"values": ()}, {"values": WANT[:9]}])
def test_answers_to_other_inputs_of_another_type_or_that_are_missing_are_not_compared(other):
    far = {"values": tuple(-v for v in WANT)}
    assert fault([wide(values=WANT)], [wide(**{**far, **other})]) == ""
    assert fault([wide(values=WANT)], [wide(**far)]) != ""


def test_a_check_with_a_looser_tolerance_holds_here_too():
    other = wide(values=tuple(1.05 * v for v in WANT))
    assert fault([wide(values=WANT)], [other]) != ""
    assert fault([wide(values=WANT)], [other], Check("tolerance", rtol=0.1)) == ""
    assert fault([wide(values=WANT)], [other], Check("tolerance", atol=60.0)) == ""


def varied(values=(), digest="d", *, names=("mask",), inputs="x"):
    return WideReply(other=VariedAnswer(names, inputs, {"counts": digest}, {"out": values}))


def apart(base, other, check=TOLERANCE):
    return varied_fault([base], [other], check, names=("before", "after"))


@pytest.mark.parametrize("check", [TOLERANCE, Check("bitwise")])
def test_answers_that_differ_once_inputs_are_varied_which_audits_leave_alone_accuse(check):
    assert apart(varied(WANT), varied(tuple(v * 1.1 for v in WANT)), check) == ""
    assert apart(varied((0.0, 1.0)), varied((-0.0, 1.0)), check) == "", "zeros of either sign are equal"
    halved = tuple(v if i % 2 else 0.0 for i, v in enumerate(WANT))
    assert apart(varied(WANT), varied(halved), check) == (
        "after: out differs from before's when mask, the same in every audit, had other values, in 449 of 1000 "
        "elements drawn: 0 against 999 at worst; if they never have others, say so with "
        'fixed_inputs="..." in the Workload'
    )
    assert "counts differs from before's when mask, the same in every audit, had other values, in its bytes" in apart(
        varied(WANT), varied(WANT, "other"), check
    )


def test_answers_to_inputs_varied_otherwise_or_on_one_side_alone_are_not_compared():
    zeros = (0.0,) * len(WANT)
    for other in (varied(zeros, inputs="y"), varied(zeros, names=("keys",)), varied(zeros, names=()), WideReply()):
        assert apart(varied(WANT), other) == apart(other, varied(WANT)) == ""


def silent(still=0, *, known=WANT, new=WANT[::-1], read=(), inputs="x", digests=None):
    answer = UnannouncedAnswer(
        inputs, 12, {"out": 0}, {"out": still}, {"out": known}, {"out": new}, digests or {}, read
    )
    return WideReply(unannounced=answer)


def unannounced(base, other, check=TOLERANCE):
    return list(unannounced_fault([base], [other], check, names=("before", "after")))


@pytest.mark.parametrize("check", [TOLERANCE, Check("bitwise"), Check("named", name="close", reason="by design")])
def test_who_leaves_an_output_as_it_was_where_the_other_sides_moved_is_named_on_either_side(check):
    what = "12 of 12 unannounced steps left out as it was, although inputs changed"
    assert unannounced(silent(), silent(12), check) == [(1, f"after: {what}")]
    assert unannounced(silent(3), silent(), check) == [(0, f"before: {what.replace('12', '3', 1)}")]
    assert unannounced(silent(), silent(), check) == unannounced(silent(12), silent(12), check) == []


def test_an_output_that_hardly_moves_on_the_other_side_accuses_nobody():
    near = tuple(v * 1.01 for v in WANT)
    assert unannounced(silent(new=near), silent(12, new=near)) == []
    assert unannounced(silent(inputs="y"), silent(12)) == unannounced(silent(inputs=""), silent(12, inputs="")) == []
    assert unannounced(silent(known=(), new=()), silent(12)) == []


def test_of_sides_that_differ_by_design_few_numbers_and_whole_ones_may_stay_as_they_are():
    named, few = Check("named", name="close"), {"known": WANT[:15], "new": WANT[-15:]}
    assert len(unannounced(silent(**few), silent(12, **few))) == 1
    assert unannounced(silent(**few), silent(12, **few), named) == []
    whole = {"known": (), "new": (), "digests": {"out": ("a", "b")}}
    assert unannounced(silent(**whole), silent(12, **whole), named) == []


@pytest.mark.parametrize(("digests", "found"), [(("a", "b"), 1), (("a", "a"), 0)])
def test_of_whole_numbers_any_change_is_one(digests, found):
    other = {"known": (), "new": (), "digests": {"out": digests}}
    assert len(unannounced(silent(**other), silent(12, **{**other, "digests": {"out": ("a", "a")}}))) == found


def test_an_answer_far_from_the_other_sides_is_wrong_unless_sides_differ_by_design():
    other = silent(new=tuple(-v for v in WANT))
    ((place, fault),) = unannounced(silent(), other)
    assert place == 1
    assert fault.startswith("after: out differs from before's on unannounced new inputs, in 1000 of 1000")
    assert unannounced(silent(), other, Check("tolerance", reason="by design")) == []
    assert unannounced(silent(), silent(new=tuple(1.1 * v for v in WANT[::-1]))) == []


def test_an_output_that_is_finished_when_it_is_asked_for_accuses_where_the_other_sides_is_not():
    ((place, fault),) = unannounced(silent(), silent(read=("out",)))
    assert (place, fault) == (1, "after: outputs() changed out: it finishes work of the step")
    assert unannounced(silent(read=("out",)), silent(read=("out",))) == []
    elsewhere = WideReply(unannounced=UnannouncedAnswer("x", 1, known={"out": WANT}, new={"out": WANT[::-1]}))
    assert unannounced(elsewhere, silent(read=("out",))) == []
