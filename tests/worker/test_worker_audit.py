"""Audits: honest steps pass, and each way of not computing in the step becomes a fault."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from worker_made import values_of

from aiperf.protocol.messages import WideReply
from aiperf.protocol.reported import Coverage
from aiperf.worker import arrays
from aiperf.worker.audit import Auditor, rehearse
from aiperf.workloads.contract import Work, Workload


def workload(step, outputs, x=None, **fields):
    inputs = None if x is None else lambda: {"x": x}
    return Workload(step, Work(), outputs=outputs, inputs=inputs, **fields)


def tanh_of(x, out, **fields):
    return workload(lambda: np.tanh(x, out=out), lambda: {"out": out}, x, **fields)


def timed_by(step, *, times=1, stray=0.0):
    def timed(before, after):
        before()
        for _ in range(times):
            step()
        after()
        return stray

    return timed


def audited(given, *, seeds=(5,), keep=1 << 30, reference=False, **timing):
    auditor = Auditor(given, keep_bytes=keep)
    for seed in seeds:
        auditor.run(seed, timed_by(given.step, **timing), want_reference=reference)
    return auditor


@pytest.fixture
def x():
    return np.random.default_rng(0).standard_normal(100)


def test_an_honest_step_leaves_a_snapshot_and_no_fault(x):
    out = np.empty_like(x)
    auditor = audited(tanh_of(x, out), seeds=(5, 6))
    assert auditor.faults == []
    first, second = (values_of(s)["out"] for s in auditor.snapshots)
    assert np.array_equal(second, np.tanh(x))
    assert not np.isnan(first).any()
    assert (first != second).all()
    claim = auditor.snapshots[0].claims.outputs["out"]
    assert (claim.dtype, claim.shape, claim.nbytes, claim.worst, claim.kept) == ("float64", (100,), 800, "finite", True)


def test_the_inputs_of_an_audit_depend_on_its_seed_only(x):
    once = audited(tanh_of(x, np.empty_like(x)), seeds=(5, 6))
    other = np.random.default_rng(0).standard_normal(100)
    again = audited(tanh_of(other, np.empty_like(x)), seeds=(5, 6))
    assert [s.claims for s in once.snapshots] == [s.claims for s in again.snapshots]


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_a_step_that_changes_its_inputs_is_caught(x, library):
    x, out = (x, np.empty_like(x)) if library == "numpy" else (torch.from_numpy(x), torch.empty(100))

    def step():
        out[:] = x
        x[7] += 1e-9

    assert audited(workload(step, lambda: {"out": out}, x)).faults == [
        "the step changed its inputs, which the next call will see: let it work on a copy"
    ]


@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.bool_, np.complex64])
def test_outputs_computed_on_reading_are_caught_whatever_their_dtype(x, dtype):
    out = np.zeros(100, dtype)

    def outputs():
        out[:] = (x * 100).clip(0).astype(dtype)
        return {"out": out}

    auditor = audited(workload(lambda: None, outputs, x))
    assert auditor.faults == ["outputs() changed without a step: it computes, or copies, when it is read"]


def test_outputs_that_are_new_copies_at_each_reading_are_caught(x):
    out = np.empty_like(x)
    auditor = audited(workload(lambda: np.tanh(x, out=out), lambda: {"out": out.copy()}, x))
    assert [fault.partition(":")[0] for fault in auditor.faults] == ["outputs() changed without a step"]


def test_an_input_that_is_passed_through_as_an_output_is_not_poisoned(x):
    out = np.empty_like(x)
    auditor = audited(workload(lambda: np.tanh(x, out=out), lambda: {"out": out, "x": x}, x))
    assert auditor.faults == []
    assert np.array_equal(values_of(auditor.snapshots[0])["out"], np.tanh(x))


def test_what_computes_when_read_is_no_output(x):
    class Lazy:
        shape, dtype = x.shape, x.dtype

        def __array__(self, dtype=None, copy=None):
            return np.tanh(x)

    auditor = audited(workload(lambda: None, lambda: {"out": Lazy()}, x))
    assert len(auditor.faults) == 1
    assert auditor.faults[0].startswith("an output may not have been computed when the step ended")
    assert "Lazy is not a torch.Tensor" in auditor.faults[0]
    assert auditor.snapshots == []


def test_an_output_that_turns_lazy_in_the_step_is_caught(x):
    class Sub(torch.Tensor):
        pass

    made = {"out": torch.empty(3)}

    def step():
        made["out"] = torch.zeros(3).as_subclass(Sub)

    auditor = audited(workload(step, lambda: made, x))
    assert "Sub is not a torch.Tensor" in auditor.faults[0]


def test_a_step_that_writes_half_of_its_output_leaves_poison_in_the_snapshot(x):
    out = np.empty_like(x)
    auditor = audited(workload(lambda: np.tanh(x[:50], out=out[:50]), lambda: {"out": out}, x))
    assert np.isnan(values_of(auditor.snapshots[0])["out"]).tolist() == [False] * 50 + [True] * 50


def test_outputs_that_are_state_are_left_alone(x):
    total = np.zeros(1)

    def step():
        total[0] += 1

    auditor = audited(workload(step, lambda: {"total": total}, x, poison=False), seeds=(1, 2))
    assert auditor.faults == []
    assert [float(values_of(s)["total"][0]) for s in auditor.snapshots] == [1.0, 2.0]


def test_reset_is_called_before_each_audit(x):
    total = np.zeros(1)
    calls = []

    def step():
        total[0] += 1

    def reset():
        calls.append(float(total[0]))
        total[0] = 0

    given = workload(step, lambda: {"total": total}, x, poison=False, reset=reset)
    auditor = audited(given, seeds=(1, 2), times=2)
    assert calls == [0.0, 2.0]
    assert [float(values_of(s)["total"][0]) for s in auditor.snapshots] == [2.0, 2.0]


def test_a_workload_with_its_own_redraw_draws_its_inputs_itself():
    x, seeds = np.array([1, 2, 3]), []

    def redraw(seed):
        seeds.append(seed)
        x[:] = seed

    auditor = audited(tanh_of(x, np.empty(3), redraw=redraw), seeds=(7, 9))
    assert seeds == [7, 9]
    assert values_of(auditor.snapshots[1])["out"].tolist() == np.tanh([9.0] * 3).tolist()


def test_integers_and_masks_of_infinities_stay_what_they_are(x):
    mask, index, out = np.where(x > 0, 0.0, -np.inf), np.arange(100), np.empty_like(x)
    kept = mask.copy()

    def step():
        np.copyto(out, np.exp(x + mask)[index])

    given = Workload(
        step, Work(), outputs=lambda: {"out": out}, inputs=lambda: {"x": x, "mask": mask, "index": index}
    )  # fmt: skip
    former = x.copy()
    with np.errstate(invalid="ignore"):
        auditor = audited(given)
    assert np.array_equal(mask, kept)
    assert index.tolist() == list(range(100))
    assert (x != former).all()
    assert np.isfinite(values_of(auditor.snapshots[0])["out"]).all()


def test_device_work_after_the_timed_stream_in_every_audit_is_a_fault(x):
    auditor = audited(tanh_of(x, np.empty_like(x)), seeds=(5, 6), stray=2e-3)
    assert auditor.faults == ["the device kept working for 2000 us after the timed stream had finished"]


def test_a_host_that_was_once_late_to_look_accuses_nobody(x):
    given = tanh_of(x, np.empty_like(x))
    auditor = audited(given, seeds=(5,), stray=2e-3)
    auditor.run(6, timed_by(given.step, stray=0.0), want_reference=False)
    assert auditor.faults == []
    assert audited(given, seeds=(5,), stray=2e-3).faults == []


def test_of_outputs_beyond_the_memory_to_spare_the_smallest_are_kept(x):
    small, big = np.empty(10), np.empty_like(x)

    def step():
        np.tanh(x, out=big)
        np.copyto(small, x[:10])

    given = workload(step, lambda: {"big": big, "small": small}, x)
    (snapshot,) = audited(given, keep=100 + small.nbytes).snapshots
    assert list(snapshot.kept) == ["small"]
    assert [(name, claim.kept) for name, claim in snapshot.claims.outputs.items()] == [("big", False), ("small", True)]
    assert snapshot.claims.outputs["big"].digest == arrays.digest(big)
    assert np.array_equal(snapshot.held["big"].view(np.float64), big)


def test_what_is_held_to_be_asked_for_in_parts_goes_with_the_next_audit_and_is_not_held_for_nobody(x):
    given = tanh_of(x, np.empty_like(x))
    first, second = audited(given, seeds=(5, 6), keep=1).snapshots
    assert (list(first.held), list(second.held)) == ([], ["out"])
    assert audited(given, keep=0).snapshots[0].held == {}


def test_outputs_are_named_by_text_as_they_come_back_from_another_worker(x):
    given = workload(lambda: None, lambda: {0: np.ones(3)}, poison=False, reference=lambda: {0: np.ones(3)})
    (snapshot,) = audited(given, reference=True).snapshots
    for named in (snapshot.kept, snapshot.claims.outputs, snapshot.references, snapshot.claims.references):
        assert list(named) == ["0"]


def test_the_reference_is_asked_for_only_where_it_is_wanted(x):
    given = tanh_of(x, np.empty_like(x), reference=lambda: {"out": np.tanh(x)})
    assert audited(given).snapshots[0].references == {}
    (snapshot,) = audited(given, reference=True).snapshots
    assert np.array_equal(snapshot.references["out"].view(np.float64), np.tanh(x))
    assert snapshot.claims.references["out"].shape == (100,)


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.bool_])
def test_what_nobody_writes_differs_between_sides_and_between_audits(dtype):
    outs = np.zeros(3, dtype), np.zeros(3, dtype)
    found = []
    for out, pattern in zip(outs, (80, 81), strict=True):
        auditor = Auditor(workload(lambda: None, lambda out=out: {"out": out}), keep_bytes=99, pattern=pattern)
        for seed in (1, 2):
            auditor.run(seed, timed_by(lambda: None), want_reference=False)
        found.append([int(values_of(s)["out"][0]) for s in auditor.snapshots])
        assert [s.pattern for s in auditor.snapshots] == [pattern, pattern ^ 1]
    assert found == ([[1, 0], [0, 1]] if dtype is np.bool_ else [[80, 81], [81, 80]])


class Launched(TorchDispatchMode):
    """What torch is asked to do, by operation and type."""

    def __init__(self):
        super().__init__()
        self.seen = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        of = {str(arg.dtype) for arg in args if isinstance(arg, torch.Tensor)}
        self.seen.add((str(function), *sorted(of)))
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.int32])
@pytest.mark.parametrize("size", [10, 1 << 19])
def test_a_rehearsal_launches_all_that_an_audit_does_and_touches_nothing_of_the_workload(monkeypatch, dtype, size):
    monkeypatch.setattr(arrays, "_on_gpu", lambda tensor: "cpu")
    drawn = torch.randn(size, generator=torch.Generator().manual_seed(1)).mul_(8)
    x, out = drawn.to(dtype), torch.zeros(size, dtype=dtype)
    done = []
    given = workload(lambda: (done.append("step"), out.copy_(x)), lambda: {"out": out}, x, reset=lambda: done.append(0))
    before = x.clone()
    with Launched() as rehearsal:
        rehearse(given)
    assert done == []
    assert torch.equal(x.view(torch.uint8), before.view(torch.uint8))
    assert not out.any() if dtype != torch.float8_e4m3fn else not out.float().any()
    assert rehearsal.seen
    with Launched() as audit:
        auditor = audited(given)
    assert auditor.faults == []
    steps = {name for name in audit.seen - rehearsal.seen if not name[0].startswith("aten.copy_")}
    assert steps == set()


def test_a_rehearsal_of_outputs_that_cannot_be_audited_leaves_the_fault_to_the_audit(x):
    lazy = workload(lambda: None, lambda: {"out": [1, 2]}, x)
    rehearse(lazy)
    assert audited(lazy).faults


@pytest.fixture
def poisoned(monkeypatch):
    """Sizes of the arrays that are poisoned."""
    sizes, real = [], arrays.poison
    monkeypatch.setattr(arrays, "poison", lambda array, pattern: (sizes.append(array.size), real(array, pattern)))
    return sizes


def test_a_rehearsal_poisons_only_what_audits_would_and_redraws_nothing_that_draws_itself(x, poisoned):
    seen = []
    out = np.zeros(3)
    rehearse(workload(lambda: None, lambda: {"out": out}, x, poison=False, redraw=seen.append))
    assert (seen, poisoned) == ([], [])
    rehearse(workload(lambda: None, lambda: {"out": out, "x": x}, x))
    assert set(poisoned) == {3}
    assert not out.any()


def test_a_rehearsal_takes_the_beginning_of_the_longest_array_and_copies_none_that_is_scattered(poisoned):
    long = np.zeros(3 << 18, np.float32)
    outputs = {"scattered": np.zeros((9, 1 << 18), np.float64).T, "long": long, "empty": np.zeros(0, np.float32)}
    outputs |= {"short": np.zeros(7, np.float32), "more": np.zeros(1 << 18, np.float32)}
    rehearse(workload(lambda: None, lambda: outputs))
    assert set(poisoned) == {7, 1 << 18}


def test_what_goes_wrong_in_a_rehearsal_is_for_the_audits_to_say(x):
    class Odd(RuntimeError):
        pass

    def outputs():
        raise Odd

    rehearse(workload(lambda: None, outputs, x))
    with pytest.raises(Odd):
        audited(workload(lambda: None, outputs, x))


def covered(given, seeds=(5, 6)):
    return audited(given, seeds=seeds).coverage


def test_coverage_names_the_inputs_that_every_audit_met_as_they_were(x):
    mask, out = np.ones(100, dtype=np.int64), np.empty_like(x)
    given = Workload(
        lambda: np.multiply(x, mask, out=out),
        Work(),
        outputs=lambda: {"out": out},
        inputs=lambda: {"x": x, "mask": mask},
    )
    assert covered(given).fixed == ("mask",)
    assert covered(given, seeds=(5,)).fixed is None
    assert covered(given).inputs == "declared"


def test_a_redraw_that_ignores_its_seed_leaves_its_inputs_fixed(x):
    out = np.empty_like(x)
    assert covered(tanh_of(x, out, redraw=lambda seed: x.fill(0.5))).fixed == ("x",)
    assert covered(tanh_of(x, out, redraw=lambda seed: x.fill(seed))).fixed == ()


def test_inputs_without_names_count_as_redrawn_only_where_the_outputs_moved(x):
    out = np.empty_like(x)
    step, outputs = lambda: np.tanh(x, out=out), lambda: {"out": out}
    assert covered(workload(step, outputs)).inputs == "undeclared"
    counting = workload(lambda: np.add(out, 1, out=out), outputs, poison=False)
    assert covered(counting).inputs == "undeclared", "outputs moved, but nothing redrew an input"
    assert covered(workload(step, outputs, redraw=lambda seed: None)).inputs == "undeclared"
    assert covered(workload(step, outputs, redraw=lambda seed: x.fill(seed))).inputs == "redrawn"


def test_coverage_carries_the_reason_of_the_workload_and_what_it_leaves_unchecked(x):
    out = np.empty_like(x)
    assert covered(tanh_of(x, out)) == Coverage(fixed=(), unnamed=0)
    told = {"fixed_inputs": "reads a file", "kept_outputs": "state", "latency_source": "clock"}
    other = covered(tanh_of(x, out, poison=False, latencies=lambda: [], **told))
    assert other == Coverage(fixed=(), unnamed=0, poisoned=False, latencies=True, **told)


@pytest.mark.parametrize("kind", ["float64", "float32", "float16"])
def test_a_wide_draw_shows_a_softmax_without_its_maximum_and_goes_again(kind):
    x = np.random.default_rng(0).standard_normal((64, 64)).astype(kind)
    out = np.empty_like(x)

    def softmax(*, shift):
        with np.errstate(over="ignore", invalid="ignore"):
            np.exp(x - (x.max(axis=1, keepdims=True) if shift else x.dtype.type(0)), out=out)
            np.divide(out, out.sum(axis=1, keepdims=True), out=out)

    found = {}
    for shift in (True, False):
        given = workload(lambda shift=shift: softmax(shift=shift), lambda: {"out": out}, x)
        found[shift] = Auditor(given, keep_bytes=0).wide(5, given.step).outputs["out"]
        assert abs(x).max() < 8
    assert (found[True].worst, found[False].worst) == ("finite", "nan")
    assert found[True].dtype == kind


def test_there_is_no_wide_draw_where_a_workload_redraws_or_its_step_refuses_such_inputs(x):
    out = np.empty_like(x)
    own = tanh_of(x, out, redraw=lambda seed: None)
    assert Auditor(own, keep_bytes=0).wide(5, own.step) == WideReply()

    def refuses():
        if abs(x).max() > 10:
            raise ValueError("out of the domain")

    given = workload(refuses, lambda: {"out": out}, x)
    assert Auditor(given, keep_bytes=0).wide(5, given.step) == WideReply()
    assert abs(x).max() < 8


@pytest.mark.parametrize(("every", "left"), [(10, 1), (3, 4), (100, 0)])
def test_steps_in_a_row_show_one_that_is_left_out_by_its_number(x, every, left):
    out, count = np.empty_like(x), [every // 2]

    def step():
        count[0] += 1
        if count[0] % every:
            np.tanh(x, out=out)

    found = Auditor(workload(step, lambda: {"out": out}, x), keep_bytes=0).in_a_row(step, seconds=5.0)
    assert (found.steps, found.left_out) == (12, left)


@pytest.mark.parametrize("view", [False, True])
def test_steps_in_a_row_show_work_that_outputs_does(x, view):
    """Once a step, so that two calls of outputs() without a step between them give the same."""
    out, due = np.empty_like(x), [False]

    def step():
        due[0] = True

    def outputs():
        if due[0]:
            due[0] = False
            np.tanh(x, out=out)
        return {"out": out[:] if view else out}

    found = Auditor(workload(step, outputs, x), keep_bytes=0).in_a_row(step, seconds=5.0)
    assert (found.steps, found.left_out) == (12, 12)


def test_steps_in_a_row_accuse_no_honest_step(x):
    """Neither one that returns a new array, nor one whose answer is what is written over bools, nor a state."""
    made = [np.tanh(x)]
    new = workload(lambda: made.__setitem__(0, np.tanh(x)), lambda: {"out": made[0]}, x)
    true = np.empty(x.shape, bool)
    mask = workload(lambda: np.greater(x, -1e9, out=true), lambda: {"true": true}, x)
    state = replace(workload(lambda: np.add(x, 1, out=x), lambda: {"x": x}, None), poison=False, kept_outputs="a state")
    came = [Auditor(each, keep_bytes=0).in_a_row(each.step, seconds=5.0) for each in (new, mask, state)]
    assert [(found.steps, found.left_out) for found in came] == [(12, 0), (12, 0), (0, 0)]
    assert Auditor(new, keep_bytes=0).in_a_row(new.step, seconds=0.0).steps == 0


@pytest.mark.parametrize("kind", ["float64", "float32", "float16"])
def test_a_wide_draw_hands_over_equal_elements_of_equal_answers_and_how_much_its_inputs_determine_them(kind):
    first = np.random.default_rng(0).standard_normal((64, 64)).astype(kind)
    x, out = first.copy(), np.empty_like(first)

    def answer(step):
        x[...] = first
        given = workload(lambda: step(out), lambda: {"out": out}, x)
        return Auditor(given, keep_bytes=0).wide(5, given.step)

    copies, clips = answer(lambda out: np.copyto(out, x)), answer(lambda out: np.clip(x, -4, 4, out=out))
    assert copies.inputs == clips.inputs != ""
    assert len(copies.values["out"]) == len(clips.values["out"]) == 1024
    assert max(map(abs, clips.values["out"])) == 4 < max(map(abs, copies.values["out"]))
    assert all(abs(c) == 4 or c == v for c, v in zip(clips.values["out"], copies.values["out"], strict=True))
    share = {"float64": 1e-9, "float32": 1e-4, "float16": 1e-2}[kind]
    assert 0 < copies.moved["out"] <= 1.5 * share * max(map(abs, copies.values["out"]))
    leaps = answer(lambda out: np.copyto(out, np.sin(1e12 * x.astype(float))))
    assert leaps.moved["out"] > 0.5
    assert abs(x).max() < 8


def test_coverage_names_outputs_that_came_out_the_same_whatever_the_inputs_if_none_changed(x):
    out, fine, none = np.empty_like(x), np.empty(1, bool), np.empty(0)

    def step():
        np.tanh(x, out=out)
        fine[0] = True

    alone = workload(step, lambda: {"fine": fine, "none": none}, x)
    assert covered(alone).unmoved == ("fine",)
    assert covered(alone, seeds=(5,)).unmoved == ()
    assert covered(workload(step, lambda: {"out": out, "fine": fine}, x)).unmoved == ()
    mask = np.array([True, False])
    assert covered(workload(step, lambda: {"fine": fine}, mask)).unmoved == ()


def test_outputs_of_keys_that_were_varied_are_not_the_same_whatever_the_inputs():
    keys = np.random.default_rng(0).permutation(np.unique(np.random.default_rng(1).integers(0, 1 << 40, 500)))
    out = np.empty_like(keys)
    given = workload(lambda: np.copyto(out, np.sort(keys)), lambda: {"out": out}, keys)
    auditor = audited(given, seeds=(5, 6))
    assert auditor.coverage.unmoved == ("out",)
    assert auditor.varied(5, given.step).varied == ("x",)
    assert auditor.coverage.unmoved == ()


def scaled_by(weights, x, **fields):
    """A step that uses ``weights`` and a buffer of its own, and names neither."""
    out, buffer = np.empty_like(x), np.empty_like(x)

    def step():
        np.multiply(x, weights, out=buffer)
        np.tanh(buffer, out=out)

    return workload(step, lambda: {"out": out}, x, **fields)


def test_coverage_counts_the_arrays_that_a_step_uses_without_naming_them_and_no_buffers(x):
    weights = np.ones(x.shape, np.float32)
    told = covered(scaled_by(weights, x))
    assert (told.unnamed, told.largest_unnamed) == (1, "float32 [100]")
    assert covered(tanh_of(x, np.empty_like(x))).unnamed == 0
    order, fine = np.arange(45), np.ones(40, int)
    given = scaled_by(weights, x)
    more = replace(given, step=lambda: (given.step(), order.sum(), fine.fill(1)))
    assert (covered(more).unnamed, covered(more).largest_unnamed) == (3, "float32 [100]")
    # Neither an input that no audit redraws, nor an output that is always the same.
    assert covered(replace(more, inputs=lambda: {"x": x, "order": order})).unnamed == 2
    assert covered(replace(more, outputs=lambda: {**given.outputs(), "fine": fine})).unnamed == 2
    named = replace(given, inputs=lambda: {"x": x, "weights": weights})
    assert (covered(named).unnamed, covered(named).largest_unnamed) == (0, "")


def test_weights_that_a_redraw_changes_without_naming_them_are_not_counted(x):
    weights = np.ones_like(x)

    def redraw(seed):
        weights[:], x[:] = np.random.default_rng(seed).standard_normal((2, len(x)))

    assert covered(scaled_by(weights, x, redraw=redraw)).unnamed == 0
    same = lambda seed: np.copyto(x, seed)  # noqa: E731
    assert covered(scaled_by(weights, x, redraw=same)).unnamed == 1


def test_nothing_is_said_of_unnamed_arrays_without_audits_with_different_named_inputs(x):
    weights = np.ones_like(x)
    assert covered(scaled_by(weights, x), seeds=(5,)).unnamed is None
    assert covered(scaled_by(weights, x, redraw=lambda seed: None)).unnamed is None
    names_none = audited(replace(scaled_by(weights, x), inputs=None), seeds=(5, 6))
    assert (names_none.coverage.unnamed, names_none._unnamed.looks) == (None, 0)
    auditor = Auditor(given := scaled_by(weights, x), keep_bytes=0, looks=0)
    for seed in (5, 6):
        auditor.run(seed, timed_by(given.step), want_reference=False)
    assert auditor.coverage.unnamed is None


def test_outputs_are_asked_for_no_more_often_for_unnamed_arrays_and_last_right_after_the_step(x):
    asked = []
    out = np.empty_like(x)
    given = workload(lambda: np.tanh(x, out=out), lambda: asked.append(out.copy()) or {"out": out}, x)
    audited(given)
    assert np.array_equal(asked[-1], np.tanh(x))
    calls = len(asked)
    Auditor(given, keep_bytes=1 << 30, looks=0).run(5, timed_by(given.step), want_reference=False)
    assert len(asked) == 2 * calls
