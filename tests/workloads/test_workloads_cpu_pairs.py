"""Every CPU pair keeps the contract: equal work, equal results, fresh outputs, inputs left alone."""

from __future__ import annotations

import numpy as np
import pytest
from cpu_pairs import PAIRS, Pair, audit, differences, finish, run, set_up, snapshot

from aiperf.launch.wide import wide_fault
from aiperf.protocol.measuring import Check
from aiperf.worker import arrays
from aiperf.worker.audit import Auditor

_COSTLY = {
    "host.task": {"n": 32},
    "dataset.decode": {"cache": "cold"},
    "llm.generate": {"kv": "paged"},
}
"""Family -> the parameters of its slowest pair; cheaper pairs of the family stay in make test."""


def _marks(pair: Pair) -> list[pytest.MarkDecorator]:
    """Inductor's own compiler takes as long as all the other pairs; of most families one pair is enough."""
    said = {**pair.shared, **pair.after}
    costly = _COSTLY.get(pair.workload, {}).items()
    cold_files = (said.get("layout"), said.get("cache")) == ("shards", "cold")
    return [pytest.mark.long] if "compile" in pair.after or cold_files or (costly and costly <= said.items()) else []


@pytest.fixture(scope="module", params=[pytest.param(pair, marks=_marks(pair)) for pair in PAIRS], ids=str)
def sides(request, tmp_path_factory):
    pair: Pair = request.param
    folder = tmp_path_factory.mktemp("pair")
    before, after = set_up(pair, "before", folder), set_up(pair, "after", folder)
    run(before)
    run(after)
    yield pair, before, after
    finish(before, after)


def test_a_pair_keeps_the_contract_through_two_audits(sides):
    pair, before, after = sides
    assert (before.work.bytes, before.work.flops, before.work.items, before.work.item) == (
        after.work.bytes,
        after.work.flops,
        after.work.items,
        after.work.item,
    ), "both sides must do the same work"
    assert before.work.items > 0
    first = audit(before, seed=11), audit(after, seed=11)
    second = audit(before, seed=12), audit(after, seed=12)
    again = audit(before, seed=11)
    tolerance = {"rtol": pair.rtol, "atol": pair.atol}
    assert first[0], "a workload without outputs cannot be checked"
    assert all(np.isfinite(a).all() for a in first[0].values())
    assert differences(*first, **tolerance) == []
    assert differences(*second, **tolerance) == []
    assert differences(first[0], again, rtol=1e-6, atol=1e-6) == [], "equal seeds must give equal outputs"
    assert differences(first[0], second[0], **tolerance) != [], "other inputs must give other outputs"
    assert differences(first[0], second[1], **tolerance) != [], "a side that reuses old results must be found out"


def test_a_step_writes_every_output_and_no_input(sides):
    pair, before, after = sides
    for workload in (before, after):
        expected = audit(workload, seed=5)
        inputs = {} if workload.inputs is None else {k: arrays.digest(v) for k, v in workload.inputs().items()}
        for array in workload.outputs().values():
            arrays.poison(array)
        if workload.reset is not None:
            workload.reset()
        run(workload)
        assert differences(expected, snapshot(workload), rtol=pair.rtol, atol=pair.atol) == []
        left = {} if workload.inputs is None else {k: arrays.digest(v) for k, v in workload.inputs().items()}
        assert inputs == left


def test_outputs_are_the_arrays_themselves_and_not_copies_made_for_the_reader(sides):
    _, before, after = sides
    for workload in (before, after):
        for array in workload.outputs().values():
            arrays.poison(array)
        first, again = snapshot(workload), snapshot(workload)
        assert first
        assert all(np.isnan(a).all() for a in first.values() if a.dtype.kind == "f")
        assert all(np.array_equal(first[n], again[n], equal_nan=a.dtype.kind == "f") for n, a in first.items())


def test_a_side_that_did_nothing_is_caught(sides):
    pair, before, after = sides
    good = audit(before, seed=5)
    audit(after, seed=5)
    lazy = {name: array.copy() for name, array in snapshot(after).items()}
    for array in lazy.values():
        arrays.poison(array)
    assert differences(good, lazy, rtol=pair.rtol, atol=pair.atol) == sorted(good)


def test_a_side_agrees_with_its_float64_reference_where_it_has_one(sides):
    pair, before, after = sides
    for workload in (before, after):
        found = audit(workload, seed=6)
        if workload.reference is None:
            assert pair.workload not in ("tensor.op", "attention.forward")
            continue
        truth = {k: arrays.to_numpy(v)[0] for k, v in workload.reference().items()}
        assert differences(found, truth, rtol=1e-4, atol=1e-4) == []


def test_large_inputs_accuse_no_honest_pair(sides):
    pair, before, after = sides
    answers = [[Auditor(each, keep_bytes=0).wide(5, lambda each=each: run(each))] for each in (before, after)]
    check = Check("tolerance", rtol=pair.rtol or None, atol=pair.atol or None)
    assert wide_fault(*answers, check, names=("before", "after")) == ""


def test_steps_in_a_row_accuse_no_honest_pair(sides):
    _, before, after = sides
    for each in (before, after):
        found = Auditor(each, keep_bytes=0).in_a_row(lambda each=each: run(each), seconds=5.0)
        assert (found.left_out, found.steps > 0) == (0, each.poison)
