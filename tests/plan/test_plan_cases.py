"""From a scenario and its axes to cases."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aiperf.errors import UserError
from aiperf.paths import scenario_folder
from aiperf.plan.cases import expand
from aiperf.scenario.load import load_scenarios


def ids(cases):
    return [c.id for c in cases]


def test_a_scenario_without_axes_is_one_case_of_its_name(scenario):
    (case,) = expand(scenario(), on_gpu=False)
    assert (case.id, case.axes, case.file_stem) == ("x", {}, "x")
    assert [s.name for s in case.sides] == ["before", "after"]


def test_axes_are_multiplied_in_the_order_of_the_file(scenario):
    cases = expand(scenario("axes: {n: [1, 2], wait: [2ms, 1s]}\n"), on_gpu=False)
    assert ids(cases) == ["x[n=1,wait=2ms]", "x[n=1,wait=1s]", "x[n=2,wait=2ms]", "x[n=2,wait=1s]"]
    assert cases[0].axes == {"n": 1, "wait": "2ms"}


def test_sides_receive_typed_values_from_params_axes_and_their_own_keys(scenario):
    (case,) = expand(scenario("axes: {wait: [2ms]}\n", after="{pinned: true, n: 3}"), on_gpu=False)
    assert case.sides[0].params == {"size": 1024**2, "wait": 0.002, "pinned": False}
    assert case.sides[1].params == {"size": 1024**2, "wait": 0.002, "pinned": True, "n": 3}
    assert case.sides[0].workload.endswith("/bench.py:copy")


def test_a_file_named_relative_to_the_scenario_lies_beside_it(scenario, tmp_path):
    (tmp_path / "bench.py").write_text("def copy(ctx, *, source: str, entry: str = ''): ...\n")
    made = scenario(params="{source: ./my.cu, entry: my.cu}", before="{}", after="{source: ../other.cu}")
    (case,) = expand(made, on_gpu=False)
    assert case.sides[0].params == {"source": str(tmp_path / "my.cu"), "entry": "my.cu"}
    assert case.sides[1].params["source"] == str(tmp_path.parent / "other.cu")


def test_mappings_are_merged_entry_by_entry_and_swept_by_entry(scenario):
    made = scenario(
        "axes: {defines.K: [1, 2]}\n",
        params="{size: 1, defines: {A: 1, B: 1}}",
        after="{pinned: true, defines: {B: 9}}",
    )
    first, second = expand(made, on_gpu=False)
    assert second.id == "x[defines.K=2]"
    assert first.sides[0].params["defines"] == {"A": 1, "B": 1, "K": 1}
    assert second.sides[1].params["defines"] == {"A": 1, "B": 9, "K": 2}


def test_the_gpu_block_replaces_shared_values_and_axes_on_a_gpu_only(scenario):
    made = scenario("axes: {n: [1, 2]}\ngpu: {size: 1GiB, n: [7], ranks: 4, env: {A: 1}}\n")
    assert ids(expand(made, on_gpu=False)) == ["x[n=1]", "x[n=2]"]
    (case,) = expand(made, on_gpu=True)
    assert case.id == "x[n=7]"
    assert [s.params["size"] for s in case.sides] == [1024**3, 1024**3]
    assert [(s.ranks, s.env) for s in case.sides] == [(4, {"A": "1"})] * 2


def test_a_side_keeps_its_own_value_against_the_gpu_block(scenario):
    made = scenario("gpu: {n: 5}\n", after="{pinned: true, n: 3}")
    assert [s.params.get("n") for s in expand(made, on_gpu=True)[0].sides] == [5, 3]


def test_a_case_about_memory_is_about_that_of_the_device_it_runs_on(scenario):
    made = scenario("gpu: {}\nmeasure: {metric: memory}\n")
    found = [expand(made, on_gpu=on_gpu)[0].measure.metric for on_gpu in (False, True)]
    assert found == ["peak_memory", "gpu_memory"]
    assert expand(scenario("gpu: {}\n"), on_gpu=True)[0].measure.metric == "time"


def test_a_case_on_a_gpu_needs_one_and_reads_the_device_clock(scenario):
    made = scenario("gpu: {size: 1GiB}\n")
    on, off = expand(made, on_gpu=True)[0], expand(made, on_gpu=False)[0]
    assert (on.needs.gpus, on.measure.clock) == (1, "device")
    assert (off.needs.gpus, off.measure.clock) == (0, "wall")


def test_each_rank_of_a_gang_on_gpus_needs_a_gpu(scenario):
    assert expand(scenario("needs: {gpus: 1}\naxes: {ranks: [4]}\n"), on_gpu=True)[0].needs.gpus == 4


@pytest.mark.parametrize(("stated", "on_gpu", "resolved"), [("wall", True, "wall"), ("device", False, "wall")])
def test_a_stated_clock_is_kept_where_the_device_has_one(scenario, stated, on_gpu, resolved):
    made = scenario(f"gpu: {{}}\nmeasure: {{clock: {stated}}}\n")
    assert expand(made, on_gpu=on_gpu)[0].measure.clock == resolved


def test_ranks_env_ref_and_interpreter_are_side_keys_that_params_share(scenario, tmp_path):
    made = scenario(
        "axes: {env.OMP: [1, 02]}\n",
        params="{size: 1, ranks: 2, ref: main, venv: ./v, env: {A: a, B: b}}",
        after="{pinned: true, ranks: 3, ref: head, python: python9, env: {B: c}}",
    )
    case = expand(made, on_gpu=False)[1]
    before, after = case.sides
    assert (before.ranks, before.ref, before.python) == (2, "main", str(tmp_path / "v/bin/python"))
    assert (after.ranks, after.ref, after.python) == (3, "head", "python9")
    assert before.env == {"A": "a", "B": "b", "OMP": "02"}
    assert after.env == {"A": "a", "B": "c", "OMP": "02"}
    assert "ranks" not in before.params


def test_axes_may_be_side_keys(scenario):
    cases = expand(scenario("axes: {ranks: [1, 2], ref: [v1]}\n"), on_gpu=False)
    assert ids(cases) == ["x[ranks=1,ref=v1]", "x[ranks=2,ref=v1]"]
    assert [(c.sides[0].ranks, c.sides[1].ref) for c in cases] == [(1, "v1"), (2, "v1")]


def test_a_ladder_becomes_one_case_of_many_sides(scenario):
    (case,) = expand(scenario("ladder: {a: {pinned: true}, b: {pinned: true, n: 2}}\n", after=""), on_gpu=False)
    assert [s.name for s in case.sides] == ["before", "a", "b"]
    assert case.sides[2].params == {"size": 1024**2, "pinned": True, "n": 2}


def test_commands_have_words_and_no_parameters(scenario):
    made = scenario(workload="", params="", before="{command: sleep 1}", after="{command: [ls], env: {A: 1}}")
    (case,) = expand(made, on_gpu=False)
    assert case.is_command
    assert [(s.command, s.params, s.workload) for s in case.sides] == [(("sleep", "1"), {}, ""), (("ls",), {}, "")]
    assert case.measure.clock == "wall"
    # What ./old or data/in.txt names lies beside the file, as with every other path of it.
    assert {side.folder for side in case.sides} == {str(made.path.parent.resolve())}
    (other,) = expand(scenario(), on_gpu=False)
    assert {side.folder for side in other.sides} == {""}


def test_values_that_no_file_name_should_hold_are_replaced_in_the_id(scenario):
    cases = expand(scenario("axes: {ref: ['a/b', 'x,y]', '" + "l" * 90 + "']}\n"), on_gpu=False)
    assert ids(cases)[:2] == ["x[ref=a_b]", "x[ref=x_y_]"]
    assert len(cases[2].id) < 50
    assert cases[0].sides[0].ref == "a/b"


def test_only_keeps_the_named_points(scenario):
    made = scenario("axes: {n: [1, 2], wait: [2ms, 1s]}\n")
    assert ids(expand(made, on_gpu=False, only={"n": "2"})) == ["x[n=2,wait=2ms]", "x[n=2,wait=1s]"]


@pytest.mark.parametrize(
    ("only", "says"),
    [({"m": "1"}, "x has no axis m."), ({"n": "3"}, "x has no case with n=3; allowed: 1, 2.")],
)
def test_only_refuses_what_the_scenario_does_not_have(scenario, only, says):
    with pytest.raises(UserError) as caught:
        expand(scenario("axes: {n: [1, 2]}\n"), on_gpu=False, only=only)
    assert caught.value.faults[0].what == says


def test_a_case_carries_what_its_scenario_says(scenario):
    made = scenario("tags: [a]\nbook: [ch03/r]\nmoves: {c: up}\nexpect: improved\ncheck: bitwise\n")
    (case,) = expand(made, on_gpu=False)
    assert (case.tags, case.book, case.moves, case.expect) == (("a",), ("ch03/r",), {"c": "up"}, "improved")
    assert (case.check.kind, case.scenario_hash, case.path) == ("bitwise", made.hash, str(made.path))


def test_ranks_are_spread_evenly_over_nodes_and_one_on_each_where_none_are_named(scenario):
    (case,) = expand(scenario(params="{size: 1, nodes: 2, ranks: 8}", after="{nodes: 1}"), on_gpu=True)
    assert [(side.nodes, side.ranks) for side in case.sides] == [(2, 8), (1, 8)]
    assert (case.nodes, case.needs.gpus) == (2, 8)
    (case,) = expand(scenario(params="{size: 1, nodes: 4}"), on_gpu=False)
    assert [(side.nodes, side.ranks) for side in case.sides] == [(4, 4)] * 2
    with pytest.raises(UserError, match="before cannot spread ranks: 3 evenly over nodes: 2"):
        expand(scenario(params="{size: 1, nodes: 2, ranks: 3}"), on_gpu=False)


def test_nodes_of_a_function_that_takes_them_are_its_own(scenario, tmp_path):
    (tmp_path / "graphs.py").write_text("def make(context, nodes: int = 1): ...\n")
    written = scenario(workload="./graphs.py:make", params="{nodes: 7}", before="{}", after="{nodes: 9}")
    (case,) = expand(written, on_gpu=False)
    assert [(side.params["nodes"], side.nodes, side.ranks) for side in case.sides] == [(7, 1, 1), (9, 1, 1)]


@pytest.mark.long
def test_no_scenario_on_gpus_of_one_host_asks_for_nodes():
    for folder in ("gpu", "gpu2"):
        for loaded in load_scenarios(sorted((scenario_folder() / folder).glob("*.yaml"))):
            assert {case.nodes for case in expand(loaded, on_gpu=True)} == {1}, loaded.name


def test_the_values_of_axes_are_told_as_the_file_has_them(scenario):
    (case,) = expand(scenario("axes: {n: [1], wait: [2ms]}\n"), on_gpu=False)
    assert case.label == "n=1 2ms"
    (case,) = expand(scenario("axes: {pinned: [true]}\n", before="{n: 1}", after="{n: 2}"), on_gpu=False)
    assert case.label == "pinned=true"
    assert replace(case, axes={"jobs": ["fill", "fill", 3]}).label == "jobs=fillxfillx3"
