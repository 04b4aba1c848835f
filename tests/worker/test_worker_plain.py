"""Plain functions as workloads: how they are called, what an audit sees of them, and what to write instead."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import plain_functions
import pytest

from aiperf.protocol.messages import WorkloadCall
from aiperf.worker import arrays
from aiperf.worker.audit import Auditor
from aiperf.worker.load import NotAWorkload, make
from aiperf.worker.values import NotComparable
from aiperf.workloads.contract import Context

FILE = Path(__file__).with_name("plain_functions.py")


def made(function, setup="", *, seed=1, arguments="", setup_params=None, **params):
    name = f"{FILE}:{function}" if ":" not in function else function
    call = WorkloadCall(
        name, params, True, f"{FILE}:{setup}" if setup else "", setup_params or {}, arguments=str(arguments)
    )
    return make(call, Context(seed=seed))


def result(workload):
    workload.step()
    return {name: np.asarray(array).tolist() for name, array in workload.outputs().items()}


def audited(workload, *seeds):
    """An auditor after an audit with each of the seeds, of a workload that has run once."""
    workload.step()
    auditor = Auditor(workload, keep_bytes=1 << 20)

    def timed(before, after):
        before()
        workload.step()
        after()
        return 0.0

    for seed in seeds or (5,):
        auditor.run(seed, timed, want_reference=False)
    return auditor


def test_each_call_is_a_step_and_what_it_returns_the_output():
    assert result(made("scaled", xs=[1, 2], scale=0.5)) == {"result[]": [0.5, 1.0]}
    assert result(made("none_needed")) == {"result": [7]}
    assert result(made("Parser.parse", text="a b")) == {"result[] (lengths)": [1, 1], "result[]": [97, 98]}
    assert result(made("json:loads", s="[1, 2]")) == {"result[]": [1, 2]}


def test_a_set_up_makes_the_arguments_from_the_seed():
    one, same, other = (result(made("scaled", "numbers", seed=s)) for s in (1, 1, 2))
    assert one == same != other
    assert result(made("scaled", "numbers", setup_params={"count": 2}))["result[]"] == one["result[]"][:2]
    assert result(made("scaled", "by_name"))["result[]"] == [2 * x for x in one["result[]"]]
    assert result(made("scaled", "in_order"))["result[]"] == [3 * x for x in one["result[]"]]
    assert result(made("none_needed", "nothing")) == {"result": [7]}


def test_a_set_up_without_a_seed_draws_the_same_from_a_seeded_library():
    one, same, other = (result(made("scaled", "from_the_library", seed=s)) for s in (1, 1, 2))
    assert one == same != other


def test_positional_arguments_are_given_by_their_names():
    assert result(made("doubled", x=3, times=3)) == {"result[]": [3, 3, 3]}


def test_pickled_arguments_go_to_the_function_or_to_its_set_up(tmp_path):
    (tmp_path / "a").write_bytes(pickle.dumps((([1.0, 2.0],), {"scale": 2.0})))
    assert result(made("scaled", arguments=tmp_path / "a")) == {"result[]": [2.0, 4.0]}
    (tmp_path / "b").write_bytes(pickle.dumps(((), {"count": 3})))
    (tmp_path / "c").write_bytes(pickle.dumps(((3,), {})))
    for arguments in ("b", "c"):
        assert len(result(made("scaled", "numbers", arguments=tmp_path / arguments))["result[]"]) == 3


def test_a_value_by_name_goes_to_the_set_up_and_to_the_function_however_it_was_given(tmp_path):
    (tmp_path / "a").write_bytes(pickle.dumps(((), {"n": 3})))
    for function, setup, comes in (
        ("counted", "first", [3, 3]),
        ("counted", "with_count", [3, 4]),  # what the set-up makes counts
        ("several", "by_n", [2, 3]),
        ("scaled", "by_n", None),
    ):
        both = {"n": 3} if function != "scaled" else {}
        from_yaml = made(function, setup, setup_params={"n": 3}, **both)
        from_python = made(function, setup, arguments=tmp_path / "a")
        assert result(from_python) == result(from_yaml)
        assert comes is None or result(from_python) == {"result[]": comes}


def test_an_audit_redraws_what_the_set_up_makes():
    auditor = audited(made("scaled", "numbers"), 5, 5, 6)
    assert auditor.faults == []
    marks = [snapshot.claims.outputs["result[]"].digest for snapshot in auditor.snapshots]
    assert marks[0] == marks[1] != marks[2]


def test_an_audit_redraws_pickled_arrays_in_place(tmp_path):
    (tmp_path / "a").write_bytes(pickle.dumps(((np.arange(4.0),), {})))
    snapshots = audited(made("scaled", arguments=tmp_path / "a"), 5, 6).snapshots
    assert len({str([output.digest for output in snapshot.claims.outputs.values()]) for snapshot in snapshots}) == 2


def test_a_text_is_an_argument_that_no_audit_overwrites(tmp_path):
    (tmp_path / "a").write_bytes(pickle.dumps((("b a",), {})))
    for workload in (made("Parser.parse", arguments=tmp_path / "a"), made("Parser.parse", text="b a")):
        auditor = audited(workload, 5, 6)
        assert (auditor.faults, auditor.coverage.fixed) == ([], ("arguments",))


def test_arguments_are_redrawn_where_any_part_of_them_is():
    several = {"by name, one the same": "by_name", "in order, one the same": "in_order", "one": "numbers"}
    assert {name: audited(made("scaled", s), 5, 6).coverage.fixed for name, s in several.items()} == dict.fromkeys(
        several, ()
    )
    assert audited(made("scaled", "fixed"), 5, 6).coverage.fixed == ("arguments",)


def test_a_step_that_changes_its_arguments_is_a_fault():
    assert audited(made("in_place", "numbers"), 6).faults == [
        "the step changed its inputs, which the next call will see: let it work on a copy"
    ]


def test_a_cached_array_shows_its_poison(monkeypatch):
    monkeypatch.setattr(plain_functions, "_KEPT", plain_functions._KEPT)
    snapshots = audited(made("cached", "from_the_library"), 5).snapshots
    assert snapshots[0].claims.outputs["result"].worst == "nan"


def test_a_view_of_an_argument_is_not_overwritten():
    snapshots = audited(made("reversed_view", "from_the_library"), 5).snapshots
    assert snapshots[0].claims.outputs["result"].worst == "finite"


def test_what_computes_when_it_is_read_is_a_fault_and_what_is_no_data_an_error():
    auditor = audited(made("lazy", "numbers"))
    assert "may not have been computed when the step ended: result is a generator" in auditor.faults[0]
    with pytest.raises(NotComparable, match=r"check: \{kind: none"):
        audited(made("no_data", "numbers"))


def test_facts_say_what_was_returned_and_where_the_inputs_came_from(tmp_path):
    workload = made("scaled", "numbers")
    audited(workload, 5, 5)
    assert workload.facts == {"inputs": "made anew by numbers in audits", "returns": "list of 4 float"}
    assert made("none_needed").facts["inputs"] == "not redrawn: no setup"
    fixed = made("scaled", "fixed")
    audited(fixed)
    assert fixed.facts["inputs"] == "made by fixed, the same for every seed"


REFUSED = {
    "no arguments": (
        ("scaled",),
        r"scaled\(xs, scale=1.0\) cannot be called: .*'xs'\. Write setup: \./file\.py:function",
    ),
    "a seed by another name": (
        ("scaled", "misnamed"),
        r"misnamed cannot be called: .* Write def misnamed\(seed, \.\.\.\):",
    ),
    "a parameter without a value": (
        ("scaled", "sized"),
        r"sized cannot be called: .*'n'\. Give n under params:, or in Python by params=",
    ),
    "too many in order": (
        ("none_needed", "in_order"),
        r"in_order gave 2 in order: a tuple holds .* Write return \(value,\)",
    ),
    "unknown names": (("none_needed", "by_name"), r"by_name gave xs, scale by name: "),
    "a set-up that makes a workload": (("scaled", "a_workload"), "a_workload returned a Workload, not arguments"),
    "a table": (("TABLE",), r"TABLE is list, not a function\. Write def TABLE\(\.\.\.\):"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_call_that_cannot_be_made_ends_with_the_line_to_write(case):
    given, says = REFUSED[case]
    with pytest.raises(NotAWorkload, match=says):
        made(*given)


def test_a_function_that_makes_a_workload_unannounced_is_told_how_to_say_so():
    workload = made("misread", first=1)
    workload.step()
    with pytest.raises(NotAWorkload, match=r"Write def misread\(context: Context, \.\.\.\) -> Workload:"):
        workload.outputs()


def test_a_name_that_neither_the_function_nor_its_set_up_takes_is_named(tmp_path):
    (tmp_path / "a").write_bytes(pickle.dumps(((), {"m": 3})))
    with pytest.raises(NotAWorkload, match="Neither it nor numbers takes m: name what params= gives in one of them"):
        made("scaled", "numbers", arguments=tmp_path / "a")


def test_arguments_that_a_fresh_process_cannot_read_are_told(tmp_path):
    (tmp_path / "a").write_bytes(b"cnowhere_to_be_found\nThing\n.")
    with pytest.raises(NotAWorkload, match=r"cannot be read in a fresh process: .*Write setup="):
        made("scaled", arguments=tmp_path / "a")


def test_only_arrays_of_their_own_are_overwritten():
    workload = made("reversed_view", "from_the_library")
    workload.step()
    before = {name: arrays.digest(array) for name, array in workload.inputs().items()}
    workload.reset()
    assert {name: arrays.digest(array) for name, array in workload.inputs().items()} == before
