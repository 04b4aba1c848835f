"""Inputs that change without a call of the side: what honest steps make of them, and those that only look busy."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from aiperf.protocol.claims import UnannouncedAnswer
from aiperf.worker import contents
from aiperf.worker.redraw import Redraw
from aiperf.worker.unannounced import unannounced
from aiperf.workloads.contract import Work, Workload


@pytest.fixture
def x():
    return np.random.default_rng(0).standard_normal(4096)


def asked(given, *, seconds=5.0, seed=5):
    return unannounced(given, Redraw(given), seed, given.step, seconds=seconds)


def workload(step, outputs, x, **more):
    return Workload(step, Work(), outputs=outputs, inputs=lambda: {"x": x}, **more)


def test_an_honest_step_changes_its_output_each_time_and_finds_its_inputs_as_they_were(x):
    out, was = np.empty_like(x), x.copy()
    found = asked(workload(lambda: np.tanh(x, out=out), lambda: {"out": out}, x))
    assert (found.steps, found.left, found.still, found.read) == (12, {"out": 0}, {}, ())
    assert len(found.known["out"]) == len(found.new["out"]) == 1024
    assert found.known["out"] != found.new["out"]
    assert x.tolist() == was.tolist()


def test_equal_inputs_and_seeds_give_equal_answers_whatever_the_step_writes_into(x):
    out, made, copy = np.empty_like(x), [x], x.copy()
    one = asked(workload(lambda: np.tanh(x, out=out), lambda: {"out": out}, x))
    other = asked(workload(lambda: made.__setitem__(0, np.tanh(copy)), lambda: {"out": made[0]}, copy))
    assert (one.inputs, one.known, one.new) == (other.inputs, other.known, other.new)
    assert (other.steps, other.left, other.still) == (1, {}, {})
    assert asked(workload(lambda: np.tanh(x, out=out), lambda: {"out": out}, x), seed=6).inputs != one.inputs


def test_two_buffers_in_turn_are_looked_at_once_and_not_in_place(x):
    buffers, turn = (np.empty_like(x), np.empty_like(x)), [0]

    def step():
        turn[0] ^= 1
        np.tanh(x, out=buffers[turn[0]])

    found = asked(workload(step, lambda: {"out": buffers[turn[0]]}, x))
    assert (found.steps, found.left, found.still, found.read) == (1, {}, {}, ())


def only_when(x, sign):
    """A step that works where ``sign`` says so, of the output and of how many steps ago somebody called."""
    out, since = np.empty_like(x), [0]
    out.fill(np.nan)

    def step():
        since[0] += 1
        if sign(out, since[0]):
            np.tanh(x, out=out)

    def look(found):
        since[0] = 0
        return found

    return Workload(step, Work(), outputs=lambda: look({"out": out}), inputs=lambda: look({"x": x}))


@pytest.mark.parametrize("poison", [True, False])
@pytest.mark.parametrize(
    ("sign", "left"),
    [
        pytest.param(lambda out, since: since <= 2, 12, id="after a call"),
        pytest.param(lambda out, since: np.isnan(out[0]), 12, id="on poison"),
        pytest.param(lambda out, since: since <= 4 or since % 4, 3, id="all but one of four"),
    ],
)
def test_a_step_that_works_only_on_signs_leaves_its_output_as_it_was(x, sign, left, poison):
    """Overwritten where it may be, else as the step before made it of other inputs: of inputs that take turns, the step
    after one that was left out finds its answer there, too."""
    found = asked(replace(only_when(x, sign), poison=poison))
    still = left if left == 12 else 2 * left
    assert (found.steps, found.left if poison else found.still) == (12, {"out": left if poison else still})


def test_outputs_show_what_was_left_out_where_a_side_redraws_itself_or_has_state(x):
    polite = only_when(x, lambda out, since: since <= 4 or since % 4)
    for own in (replace(polite, redraw=lambda seed: None), replace(polite, reset=lambda: None)):
        found = asked(own)
        assert (found.inputs, found.steps, found.left, found.still) == ("", 12, {"out": 3}, {})


@pytest.mark.parametrize("make", [np.array, torch.tensor])
@pytest.mark.parametrize("answer", [[True], [7], [2.5], [1.0, 1.0], [True, True], [1, 2, 3], [0.5, 0.25]])
def test_outputs_of_any_kind_are_overwritten_with_others_of_it(make, answer):
    out, honest = make(answer), make(answer)
    works = Workload(lambda: contents.write(out, honest), Work(), outputs=lambda: {"out": out})
    idles = Workload(lambda: None, Work(), outputs=lambda: {"out": out})
    assert (asked(works).left, asked(idles).left) == ({"out": 0}, {"out": 12})


@pytest.mark.parametrize("part", [slice(None), slice(2048, None)])
def test_what_outputs_finishes_is_named(x, part):
    out, due = np.empty_like(x), [False]

    def step():
        np.tanh(x, out=out)
        out[part], due[0] = 0.5, True

    def outputs():
        if due[0]:
            due[0] = False
            out[part] = np.tanh(x[part])
        return {"out": out}

    assert asked(workload(step, outputs, x)).read == ("out",)


def test_whole_numbers_are_held_against_each_other_by_their_digests(x):
    out = np.empty(4, np.int64)
    found = asked(workload(lambda: np.copyto(out, np.argsort(x)[:4]), lambda: {"out": out}, x))
    assert found.known == found.new == {}
    assert len(set(found.digests["out"])) == 2
    same = asked(workload(lambda: out.fill(7), lambda: {"out": out}, x))
    assert (same.left, len(set(same.digests["out"]))) == ({"out": 0}, 1)


def test_a_step_that_is_long_is_made_once_on_new_inputs(x):
    out, count = np.empty_like(x), [0]

    def step():
        count[0] += 1
        np.tanh(x, out=out)

    found = asked(workload(step, lambda: {"out": out}, x), seconds=0.0)
    assert (found.steps, found.left, found.still, count[0]) == (1, {}, {}, 2)
    assert found.known["out"] != found.new["out"]


def test_nothing_is_tried_without_outputs_or_where_they_lie_in_the_inputs(x):
    plain = workload(lambda: None, dict, x)
    assert [asked(each) for each in (plain, replace(plain, outputs=lambda: {"x": x}))] == [UnannouncedAnswer()] * 2
    long = replace(plain, outputs=lambda: {"out": np.empty(3)}, redraw=lambda seed: None)
    assert asked(long, seconds=0.0) == UnannouncedAnswer()


def test_an_honest_answer_is_none_that_was_left_out_though_new_inputs_make_it_the_opposite():
    """Whatever else one bit is overwritten with, it is what the other inputs give."""
    x, out = np.ones(4096), np.empty(1, bool)

    def step():
        out[0] = x.mean() == 1

    assert asked(workload(step, lambda: {"out": out}, x)).left == {}
    part = np.empty(2, bool)
    assert asked(workload(lambda: np.copyto(part, [x.mean() == 1, x.mean() != 1]), lambda: {"out": part}, x)).left == {}


@pytest.mark.parametrize(("size", "dtype", "left"), [(1, float, {}), (16, int, {}), (16, float, {"out": 0})])
def test_few_numbers_of_steps_with_state_and_whole_ones_are_not_overwritten(size, dtype, left):
    """A counter becomes at some step what it was overwritten with."""
    out, count = np.zeros(size, dtype), [0]

    def step():
        count[0] += 1
        out[:] = count[0]

    given = Workload(step, Work(), outputs=lambda: {"out": out}, reset=lambda: None)
    assert asked(given).left == left


def test_large_outputs_are_left_alone(x):
    large = np.empty((16 << 20) + 1, np.int8)
    given = workload(lambda: large.fill(3), lambda: {"out": large}, x)
    assert asked(given) == UnannouncedAnswer()


def test_inputs_are_as_they_were_where_a_step_raises_on_others(x):
    was = x.copy()

    def step():
        if x[0] != was[0]:
            raise ValueError

    assert asked(workload(step, lambda: {"out": np.empty(3)}, x)) == UnannouncedAnswer()
    assert x.tolist() == was.tolist()


def test_what_outputs_makes_of_outputs_that_may_not_be_overwritten_is_its_own_affair(x):
    out, whole = np.empty_like(x), np.empty_like(x)

    def outputs():
        np.copyto(whole, out)
        return {"whole": whole}

    given = workload(lambda: np.tanh(x, out=out), outputs, x, poison=False, kept_outputs="gathered")
    found = asked(given)
    assert (found.steps, found.left, found.still, found.new, found.read) == (12, {}, {}, {}, ())
