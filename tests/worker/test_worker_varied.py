"""Inputs that audits leave alone are varied once, as far as no step can come to harm by it, and come back."""

import numpy as np
import pytest
import torch

from aiperf.launch.wide import varied_fault
from aiperf.protocol.claims import VariedAnswer
from aiperf.protocol.measuring import Check
from aiperf.protocol.messages import WideReply
from aiperf.worker.audit import Auditor
from aiperf.workloads.contract import Work, Workload

N = 64
KEYS = np.sort(np.random.default_rng(1).integers(0, 1 << 40, N))
SCATTERED = np.random.default_rng(2).random(N) < 0.4


def audited(auditor):
    def timed(before, after):
        before()
        after()
        return 0.0

    for seed in (5, 6):
        auditor.run(seed, timed, want_reference=False)
    return auditor


def auditor_of(inputs, step=lambda: None, **fields):
    """Of a workload with these inputs, which two audits have seen."""
    out = np.zeros(N)
    given = Workload(step, Work(), outputs=lambda: {"out": out}, inputs=lambda: inputs, **fields)
    return audited(Auditor(given, keep_bytes=0))


def met(array, **fields):
    """What a step meets in an input that audits leave alone, or None. It must be back afterwards."""
    numbers = array if isinstance(array, np.ndarray) else array.numpy()  # which shares its memory
    seen, former = [], numbers.copy()
    auditor = auditor_of({"it": array}, **fields)
    answer = auditor.varied(7, lambda: seen.append(numbers.copy()))
    assert bool(seen) == bool(answer.varied)
    assert (numbers == former).all()
    return seen[0] if seen else None


def test_a_mask_of_one_value_and_lengths_that_are_all_the_same_get_lower_values_too():
    mask, lengths = met(np.ones(N, bool)), met(np.full(N, 32))
    assert 0.2 < mask.mean() < 0.8
    assert (lengths.min() >= 1) & (lengths.max() <= 32) & (len(set(lengths)) > 4)
    tensor = met(torch.full((N,), 32, dtype=torch.int32))
    assert (tensor == met(np.full(N, 32, np.int32))).all(), "equal seeds, equal inputs on every side"


@pytest.mark.parametrize("array", [KEYS, SCATTERED, np.arange(N)], ids=["sorted keys", "a scattered mask", "an order"])
def test_what_has_an_order_without_need_comes_in_another_one(array):
    found = met(array.copy())
    assert (found != array).any()
    assert sorted(found) == sorted(array)


@pytest.mark.parametrize(
    "array",
    [
        pytest.param(np.arange(0, N + 1, 4), id="offsets"),
        pytest.param(np.arange(1, N + 1), id="ends of rows"),
        pytest.param(np.tri(8, dtype=bool).ravel(), id="a triangle"),
        pytest.param(np.zeros(N, bool), id="nothing masked"),
        pytest.param(np.zeros(N, np.int64), id="zeros"),
        pytest.param(np.ones(N, np.int64), id="ones, of which there is no lower length"),
        pytest.param(np.full(4, 8), id="too few to be data"),
        pytest.param(KEYS.view().reshape(8, 8), id="a table"),
    ],
)
def test_what_may_say_how_something_is_built_stays_as_it_is(array):
    assert met(np.array(array)) is None


def test_nothing_is_varied_where_a_workload_says_why_or_redraws_something_itself():
    assert met(np.ones(N, bool), fixed_inputs="the mask is the model's") is None
    x, mask = np.ones(N), np.ones(N, bool)
    auditor = auditor_of({"x": x, "mask": mask}, redraw=lambda seed: x.fill(seed))
    assert auditor.varied(7, lambda: None) == VariedAnswer()


def test_a_redraw_that_redraws_nothing_is_taken_for_none():
    x, seen = np.random.default_rng(0).standard_normal(N), []
    former = x.copy()
    auditor = auditor_of({"x": x}, redraw=lambda seed: None)
    assert auditor.coverage.fixed == ("x",)
    assert auditor.varied(7, lambda: seen.append(x.copy())).varied == ("x",)
    assert (seen[0] != former).all()
    assert (x == former).all()
    assert auditor.coverage.fixed == ()


def test_a_step_that_refuses_such_inputs_gives_no_answer_and_finds_its_own_again():
    lengths = np.full(N, 32)
    auditor = auditor_of({"lengths": lengths})

    def refuses():
        raise ValueError("all must be as long")

    assert auditor.varied(7, refuses) == VariedAnswer()
    assert (lengths == 32).all()
    assert auditor.coverage.fixed == ("lengths",), "it was not put to the test"


def test_the_answer_holds_numbers_of_real_outputs_and_digests_of_others():
    keys = KEYS.copy()
    real, whole = np.zeros(N), np.zeros(N, np.int64)

    def step():
        real[:] = whole[:] = keys

    outputs = {"real": real, "whole": whole}
    given = Workload(step, Work(), outputs=lambda: outputs, inputs=lambda: {"keys": keys})
    auditor = audited(Auditor(given, keep_bytes=0))
    answer = auditor.varied(7, step)
    assert (set(answer.values), set(answer.digests), answer.varied) == ({"real"}, {"whole"}, ("keys",))
    assert sorted(answer.values["real"]) == sorted(map(float, KEYS))


def checker(x, judge, **fields):
    """A workload that says whether all numbers are good, which audits have seen."""
    fine = np.ones(1, bool)

    def step():
        fine[0] = judge(x)

    given = Workload(step, Work(), outputs=lambda: {"fine": fine}, inputs=lambda: {"x": x}, **fields)
    auditor = Auditor(given, keep_bytes=1 << 20)

    def timed(before, after):
        before()
        step()
        after()
        return 0.0

    for seed in (5, 6):
        auditor.run(seed, timed, want_reference=False)
    return auditor, step


def numbers(kind="float32"):
    return np.random.default_rng(3).standard_normal(N).astype(kind)


def within(x):
    return bool((abs(x) < 1000).all())


@pytest.mark.parametrize("kind", ["float64", "float32", "float16"])
def test_where_no_audit_moved_an_output_inputs_get_values_beyond_every_bound_and_come_back(kind):
    x = numbers(kind)
    auditor, step = checker(x, within)
    assert auditor.coverage.unmoved == ("fine",)
    answer = auditor.varied(7, step)
    assert (answer.varied, answer.extreme) == (("x",), True)
    assert abs(x).max() < 8
    assert auditor.coverage.unmoved == (), "it does depend on its inputs"
    met = []
    auditor.varied(7, lambda: met.append(x.copy()))
    assert met == [], "once the output has moved nothing is left to ask"


def answers(*judges, **fields):
    return [
        WideReply(other=auditor.varied(7, step)) for auditor, step in (checker(numbers(), j, **fields) for j in judges)
    ]


def accused(*judges, check=None, **fields):
    base, other = answers(*judges, **fields)
    return varied_fault([base], [other], check or Check("bitwise"), names=("before", "after"))


def test_a_checker_that_checks_nothing_is_told_from_one_that_does_by_extreme_values():
    what = (
        "fine differs from before's when x had extreme values (in the audits this output never changed), in its bytes"
    )
    assert accused(within, lambda x: True).startswith(f"after: {what}; ")
    assert accused(lambda x: True, within).startswith(f"after: {what}; ")


def test_extreme_values_accuse_no_checkers_that_agree():
    assert accused(within, lambda x: bool(x.min() > -1000 and x.max() < 1000)) == ""
    finite = accused(lambda x: bool(np.isfinite(x).all()), lambda x: bool(np.isfinite(np.square(x).sum())))
    assert finite == "", "squares of extreme values are finite"
    assert accused(within, lambda x: True, fixed_inputs="all of them are good") == ""


def test_an_output_that_nothing_moves_stays_one_that_no_audit_has_shown_to_be_computed():
    auditor, step = checker(numbers(), lambda x: True)
    assert auditor.varied(7, step).extreme
    assert auditor.coverage.unmoved == ("fine",)


def test_different_numbers_of_an_output_that_extreme_values_do_not_move_are_counted():
    def counted(out, source, x):
        def step():
            np.copyto(out, source)

        def timed(before, after):
            before()
            step()
            after()
            return 0.0

        given = Workload(step, Work(), outputs=lambda: {"out": out}, inputs=lambda: {"x": x})
        auditor = Auditor(given, keep_bytes=1 << 20)
        for seed in (5, 6):
            auditor.run(seed, timed, want_reference=False)
        assert auditor.coverage.unmoved_values == 0
        auditor.varied(7, step)
        return auditor.coverage.unmoved_values

    x = numbers("float64")
    assert counted(np.empty(N), np.arange(N) % 20.0, x) == 20
    assert counted(np.empty(N), x, x) == 0, "it moved"
    assert counted(np.empty(N, bool), np.arange(N) % 2 == 0, x) == 0, "flags are no real numbers"


def test_where_an_output_moves_with_its_inputs_no_extreme_values_are_drawn():
    auditor, step = checker(numbers(), lambda x: x[0] > 0)
    moved = {s.claims.outputs["fine"].digest for s in auditor.snapshots}
    assert len(moved) == 2, "one of the two audits drew a first number above zero"
    assert auditor.varied(7, step) == VariedAnswer()
