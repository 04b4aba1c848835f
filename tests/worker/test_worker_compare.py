"""The check: which differences between two sides' audited outputs pass, under each rule, and how a failure is told."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from aiperf.protocol.claims import AuditClaims, AuditedOutput, OutputChange, Piece
from aiperf.protocol.measuring import Check
from aiperf.worker import arrays
from aiperf.worker.compare import compare
from aiperf.worker.octets import Handed

BITWISE, CLOSE = Check("bitwise"), Check("tolerance")


def claim_of(array):
    return AuditedOutput(
        arrays.dtype_of(array), tuple(array.shape), array.nbytes, arrays.digest(array), arrays.worst_value(array), True
    )


def octets_of(array):
    return arrays.host_octets(arrays.octets(array))


def shot(*, kept=True, reference=None, pattern=90, **given):
    """One audit as the judge holds it; with ``kept`` everything was handed over whole, else the beginning of it."""
    outputs, reference = {name: claim_of(array) for name, array in given.items()}, reference or {}
    references = {name: replace(claim_of(array), digest="") for name, array in reference.items()}
    begins = {name: octets_of(array)[:16] for name, array in given.items() if not kept}
    return Handed(
        AuditClaims(outputs, references),
        pattern,
        whole={name: octets_of(array) for name, array in given.items() if kept},
        parts={name: (Piece(0, name, "parts", cut.nbytes, (0,), 16), cut) for name, cut in begins.items()},
        references={name: octets_of(array) for name, array in reference.items()},
    )


def held(before, after, rule=CLOSE):
    return compare([after], [before], rule, ("before", "after"))


@pytest.fixture
def base():
    return np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)


def test_equal_outputs_pass_every_rule_and_say_what_was_compared(base):
    assert (
        held(shot(out=base), shot(out=base.copy()), BITWISE).compared == "after with before, bit for bit, whole outputs"
    )
    answer = held(shot(out=base), shot(out=base.copy()))
    assert (answer.passed, answer.detail, answer.max_error) == (True, "", 0.0)
    assert answer.compared == "after with before, tolerance of its dtype, whole outputs"


def test_bitwise_sees_the_last_bit_and_says_where(base):
    other = base.copy()
    other[3, 2] = np.nextafter(other[3, 2], np.float32(9))
    answer = held(shot(out=base), shot(out=other), BITWISE)
    assert not answer.passed
    values = f"{other[3, 2]} against before's {base[3, 2]}"
    assert answer.detail == f"audit 0: out differs in 1 of 32 elements, first at (3, 2): {values}"
    assert (
        held(shot(out=np.array([7])), shot(out=np.array([6])), BITWISE).detail == "audit 0: out is 6 against before's 7"
    )


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
        (torch.float64, torch.float32, 1e-9),
        (torch.float32, torch.float64, 1e-4),
        (torch.float32, torch.float16, 1e-4),
        (torch.float16, torch.float32, 1e-2),
        (torch.bfloat16, torch.float32, 2e-2),
        (torch.float8_e4m3fn, torch.float32, 0.15),
    ],
)
def test_the_dtype_of_the_side_that_all_are_compared_with_sets_the_tolerance(before, after, tolerance):
    """Values that both types hold exactly, so that only the allowed difference counts."""
    ones = torch.full((4,), 1024.0)
    step = {1e-9: 2.0**-14, 1e-4: 2.0, 1e-2: 16.0, 2e-2: 32.0, 0.15: 256.0}[tolerance]
    ones = ones if before != torch.float8_e4m3fn else ones / 8
    step = step if before != torch.float8_e4m3fn else step / 8
    wrong = ones.clone().double()
    wrong[1] += step
    near, far = shot(out=ones.to(after)), shot(out=wrong.to(after))
    if not torch.equal(wrong.to(after).double(), wrong):
        far = shot(out=(wrong * 1.01).to(after))
    base = shot(out=ones.to(before))
    assert held(base, near).passed
    one = held(base, far)
    assert one.max_error == pytest.approx(step / float(ones[0]), rel=0.02, abs=0.02)
    assert one.passed is (one.max_error <= 2 * tolerance)
    assert [(c.name, c.dtypes, c.elements) for c in one.changes] == [
        ("out", tuple(str(d).removeprefix("torch.") for d in (before, after)), (4, 4))
    ]


def test_a_coarser_output_does_not_loosen_the_tolerance_and_is_told_with_its_error(base):
    rough = torch.from_numpy(base).bfloat16()
    answer = held(shot(out=base), shot(out=rough))
    assert not answer.passed
    (change,) = answer.changes
    assert change == OutputChange("out", ("float32", "bfloat16"), (32, 32), answer.max_error)
    assert 1e-4 < answer.max_error < 2e-2
    stated = held(shot(out=base), shot(out=rough), Check("tolerance", rtol=2e-2))
    assert (stated.passed, stated.changes) == (True, (change,))


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
    assert answer.compared == "after with before, relative tolerance 0"


@pytest.mark.parametrize("rule", [BITWISE, CLOSE])
def test_nan_left_over_on_both_sides_fails(base, rule):
    base[7:] = np.nan
    answer = held(shot(out=base), shot(out=base.copy()), rule)
    assert not answer.passed
    assert "NaN" in answer.detail or "non-finite" in answer.detail


@pytest.mark.parametrize("kept", [True, False])
def test_equal_infinities_are_not_close_though_they_are_bit_for_bit_equal(base, kept):
    base[7, 0] = np.inf
    sides = shot(kept=kept, out=base), shot(kept=kept, out=base)
    assert held(*sides).detail == "audit 0: out has non-finite values on both sides (poison counts)"
    assert held(*sides, BITWISE).passed


def test_bitwise_sees_poison_in_arrays_that_were_too_large_to_keep(base):
    base[7:] = np.nan
    assert "NaN" in held(shot(kept=False, out=base), shot(kept=False, out=base), BITWISE).detail


def test_equal_outputs_need_not_be_handed_over(base):
    answer = held(shot(kept=False, out=base, more=base), shot(out=base, more=base))
    assert (answer.passed, answer.max_error) == (True, 0.0)


def test_both_sides_are_held_against_the_reference_of_the_first(base):
    rule = Check("tolerance", rtol=1e-2, atol=0.0, reference=True)
    for theirs, ours in ((1.015, 1.008), (1.008, 1.015)):
        assert held(shot(out=base * theirs), shot(out=base * ours), Check("tolerance", rtol=1e-2, atol=0.0)).passed
        assert not held(shot(out=base * theirs, reference={"out": base}), shot(out=base * ours), rule).passed


def test_a_sides_own_reference_judges_nobody(base):
    rule, bent = Check("tolerance", rtol=1e-3, reference=True), base * np.float32(1.5)
    near = shot(out=base, reference={"out": base.astype(np.float64)})
    assert held(near, shot(out=base, reference={"out": bent}), rule).passed
    answer = held(shot(out=bent, reference={"out": base}), shot(out=bent, reference={"out": bent}), rule)
    assert answer.detail.startswith("audit 0: out differs in 32 of 32 elements")


@pytest.mark.parametrize(("theirs", "ours", "what"), [(1.5, 1.0, "before's out"), (1.0, 1.5, "out"), (1.5, 1.5, "out")])
def test_the_side_that_differs_from_the_reference_is_the_one_that_is_named(theirs, ours, what):
    one = np.ones(2)
    rule = Check("tolerance", rtol=0.4, atol=0.2, reference=True)
    answer = held(shot(out=one * theirs, reference={"out": one * 0.9}), shot(out=one * ours), rule)
    assert answer.detail == (
        f"audit 0: {what} differs in 2 of 2 elements, worst at (0,): 1.5 against the reference's 0.9"
    )


def test_equal_outputs_are_held_against_the_reference_all_the_same(base):
    rule = Check("tolerance", reference=True)
    for truth, passed in ((base, True), (base + 1, False)):
        assert held(shot(out=base, reference={"out": truth}), shot(kept=False, out=base), rule).passed is passed
    answer = held(shot(kept=False, out=base, reference={"out": base}), shot(kept=False, out=base), rule)
    assert answer.detail == "audit 0: out is too large to keep for the comparison with its reference"


def test_nan_on_one_side_fails_whatever_the_tolerance(base):
    other = base.copy()
    other[0, 0] = np.nan
    for a, b in ((base, other), (other, base)):
        answer = held(shot(out=a), shot(out=b), Check("tolerance", rtol=1e9, atol=1e9))
        assert answer.detail == "audit 0: out has 1 non-finite values (poison counts)"


def test_another_shape_or_another_set_of_outputs_fails(base):
    assert held(shot(out=base), shot(out=base[:4])).detail == "audit 0: out has shape (4, 4) against before's (8, 4)"
    answer = held(shot(out=base), shot(out=base, more=base))
    assert answer.detail == "audit 0: before gives ['out'], after gives ['more', 'out']"


@pytest.mark.parametrize("rule", [BITWISE, CLOSE, Check("named", name="near")])
def test_outputs_that_are_not_there_are_not_equal(base, rule):
    assert held(shot(), shot(), rule).detail == "audit 0: there are no outputs to compare"
    empty = shot(out=np.zeros((0, 3)))
    assert held(empty, empty, rule).detail == "audit 0: the outputs have no elements to compare"
    answer = held(shot(out=base, more=base), shot(out=base), rule)
    assert answer.detail == "audit 0: before gives ['more', 'out'], after gives ['out']"


def test_integers_must_be_equal_under_a_tolerance_too():
    a = np.arange(10)
    b = a.copy()
    b[9] = 8
    assert held(shot(out=a), shot(out=a.copy()), Check("tolerance", rtol=1.0, atol=1.0)).passed
    answer = held(shot(out=a), shot(out=b), Check("tolerance", rtol=1.0, atol=1.0))
    assert answer.detail == "audit 0: out differs in 1 of 10 elements, first at (9,): 8 against before's 9"


def test_a_wrong_later_output_or_audit_fails_too(base):
    wrong = base + 1
    answer = held(shot(a=base, b=base), shot(a=base, b=wrong))
    assert answer.detail.startswith("audit 0: b differs")
    good, bad = shot(out=base), shot(out=wrong)
    answer = compare([good, bad], [good, good], CLOSE, ("before", "after"))
    assert answer.detail.startswith("audit 1: out differs")


def test_missing_audits_fail(base):
    one = shot(out=base)
    answer = compare([one], [one, one], CLOSE, ("before", "after"))
    assert (answer.passed, answer.detail) == (False, "before has 2 audited outputs, after has 1")
    assert not compare([], [], CLOSE, ("before", "after")).passed


def test_outputs_too_large_to_keep_are_compared_by_digest(base):
    assert held(shot(kept=False, out=base), shot(out=base)).passed
    answer = held(shot(kept=False, out=base), shot(out=base + 1e-7))
    assert "too large to keep" in answer.detail


def test_without_a_reference_there_is_nothing_to_hold_sides_against(base):
    rule = Check("tolerance", reference=True)
    answer = held(shot(out=base), shot(out=base, reference={"out": base}), rule)
    assert answer.detail == "audit 0: the workload of before gives no reference for out"


def test_complex_and_single_numbers_are_compared(base):
    wave = base.astype(np.complex64) + 1j
    assert held(shot(out=wave), shot(out=wave * np.complex64(1 + 1e-6))).passed
    assert not held(shot(out=wave), shot(out=wave.conj())).passed
    assert held(shot(out=np.array(1.0)), shot(out=np.array(1.0))).passed
    assert "worst at (): 2 against before's 1" in held(shot(out=np.array(1.0)), shot(out=np.array(2.0))).detail


@pytest.mark.parametrize(
    ("wrong", "elements"),
    [
        ("ours", 1_000),
        ("theirs", 1_000),
        ("both", 1_000),
        pytest.param("ours", 5_000_000, marks=pytest.mark.long),
        pytest.param("theirs", 5_000_000, marks=pytest.mark.long),
        ("both", 5_000_000),
    ],
)
def test_a_wrong_side_is_noticed_whichever_it_is_and_whatever_its_size(elements, wrong):
    truth = np.random.default_rng(3).standard_normal(elements)
    theirs = -truth if wrong in ("theirs", "both") else truth
    ours = -truth if wrong in ("ours", "both") else truth.copy()
    rule = Check("tolerance", rtol=1e-3, reference=True)
    assert held(shot(out=theirs, reference={"out": truth}), shot(out=ours), rule).passed is False
    near = truth * (1 + 1e-9)
    assert held(shot(out=near, reference={"out": truth}), shot(out=truth), rule).passed


@pytest.mark.parametrize("shape", [(1,), (), (4, 8), (32,)])
def test_a_reference_of_another_shape_is_no_reference(base, shape):
    truth = {"out": np.resize(base, shape).astype(np.float64)}
    answer = held(shot(out=base, reference=truth), shot(out=base), Check("tolerance", rtol=0.1, reference=True))
    assert (answer.passed, answer.detail) == (False, f"audit 0: out has shape (8, 4), its reference {shape}")


# ---- what a worker says is not believed where it can be seen --------------------------------------------------------


def lying(handed, **claims):
    """The same bytes with other claims about ``out``."""
    said = {"out": replace(handed.claims.outputs["out"], **claims)}
    return replace(handed, claims=replace(handed.claims, outputs=said))


@pytest.mark.parametrize("rule", [BITWISE, CLOSE])
def test_equal_digests_of_unequal_bytes_are_a_failure(base, rule):
    answer = held(lying(shot(out=base), digest="x"), lying(shot(out=base + 1), digest="x"), rule)
    assert not answer.passed


@pytest.mark.parametrize("rule", [BITWISE, CLOSE, Check("named", name="near")])
def test_other_bytes_than_a_side_made_its_digest_of_are_a_failure_even_where_they_are_right(base, rule):
    answer = held(shot(out=base), lying(shot(out=base), digest="x"), rule)
    assert not answer.passed
    if rule is not BITWISE:
        assert answer.detail.startswith("audit 0: after handed over other bytes of out than it had right after")


def test_values_are_looked_at_whatever_their_side_says_of_them(base):
    base[3] = np.nan
    sides = [lying(shot(out=base), worst="finite")] * 2
    assert "NaN" in held(*sides, BITWISE).detail
    assert "non-finite" in held(*sides, CLOSE).detail


def test_bytes_that_do_not_fill_the_type_and_shape_are_refused(base):
    for claims in ({"shape": (8, 5)}, {"dtype": "float64"}, {"nbytes": 4}):
        answer = held(shot(out=base), lying(shot(out=base), **claims))
        assert answer.detail == "audit 0: after handed over out with more or fewer bytes than its type and shape have"


def parts(array, *offsets, length=16, **claims):
    """One audit of which only parts were handed over."""
    handed, whole = shot(kept=False, out=array), octets_of(array)
    cuts = np.concatenate([whole[o : o + length] for o in offsets])
    handed.parts["out"] = (Piece(0, "out", "parts", cuts.nbytes, offsets, length), cuts)
    return lying(handed, **claims) if claims else handed


@pytest.mark.parametrize("rule", [BITWISE, CLOSE])
def test_large_outputs_are_compared_by_digest_and_by_the_parts_that_were_drawn(base, rule):
    wrong = base.copy()
    wrong[7] += 1
    answer = held(parts(base, 0, 112), parts(base, 0, 112), rule)
    assert answer.passed
    assert answer.compared.endswith(", digests of the whole and 3.05e-05 of 0.000122 MiB drawn at random")
    assert (answer.output_bytes, answer.seen_bytes) == (128, 32)
    lie = {"digest": "x"}
    assert held(parts(base, 0, 16, **lie), parts(wrong, 0, 16, **lie), rule).passed, "nothing wrong was drawn"
    answer = held(parts(base, 0, 112, **lie), parts(wrong, 0, 112, **lie), rule)
    assert answer.detail == "audit 0: out differs in parts of it, though both sides made the same digest"
    assert not held(shot(out=base), parts(wrong, 0, 112, digest=arrays.digest(base)), rule).passed, "against the whole"
    base[0, 0] = np.nan
    assert not held(parts(base, 0, worst="finite"), parts(base, 0, worst="finite"), rule).passed


def test_large_outputs_must_in_the_end_be_what_was_shown_of_them_in_part(base):
    near = base + np.float32(1e-6)
    shown = parts(near, 0, 112)
    for whole, passed in ((near, True), (base, False)):
        after = replace(shown, whole={"out": octets_of(whole)})
        answer = held(shot(out=base), after)
        assert answer.passed is passed
    assert answer.detail == "audit 0: after handed over other bytes of out than it had right after the step"


def test_a_side_that_shows_nothing_of_an_output_fails_whatever_it_says(base):
    for rule in (BITWISE, CLOSE, Check("named", name="near")):
        answer = held(shot(out=base), replace(shot(kept=False, out=base), parts={}), rule)
        assert answer.detail == "audit 0: after handed over no data for out"


def test_a_side_that_did_not_hand_over_fails_with_the_reason(base):
    answer = held(shot(out=base), replace(shot(kept=False, out=base), fault="the file has 3 bytes, not 9"))
    assert answer.detail == "audit 0: after: the file has 3 bytes, not 9"


@pytest.mark.parametrize("rule", [BITWISE, CLOSE, Check("named", name="near")])
def test_whole_numbers_that_are_still_poison_in_every_audit_fail(rule):
    def side(*values):
        return [shot(pattern=p, out=np.full(3, v)) for p, v in zip((90, 91), values, strict=True)]

    answer = compare(side(90, 91), side(90, 91), rule, ("before", "after"))
    assert answer.detail == "before leaves out unwritten: it still holds what the audits wrote over it before the step"
    assert compare(side(90, 90), side(90, 90), rule, ("before", "after")).passed, "once it may be by chance"


def test_bytes_of_bfloat16_and_of_8_bit_floats_are_compared_as_numbers():
    x = torch.linspace(-3, 3, 64)
    for dtype in (torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2):
        rough = x.to(dtype)
        assert held(shot(out=rough), shot(out=rough.float())).passed
        answer = held(shot(out=rough), shot(out=(x * 1.5).to(dtype)))
        assert 0.2 < answer.max_error < 0.8
        assert not answer.passed


@pytest.mark.parametrize("rule", [Check("tolerance", rtol=0.01), Check("named", name="near")])
@pytest.mark.parametrize(("off", "loosened"), [(5e-3, 1e-4), (1e-6, None)])
def test_an_output_that_passes_by_no_usual_tolerance_tells_that_one(base, rule, off, loosened):
    other = (base * (1 + off)).astype(base.dtype)
    answers = [held(shot(out=base), shot(out=out), rule) for out in (other, base)]
    assert [(answer.passed, answer.loosened) for answer in answers] == [(True, loosened), (True, None)]
    assert held(shot(out=base), shot(out=other), Check("named", name="near", reason="by design")).loosened is None
