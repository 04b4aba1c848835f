"""``aiperf new``: files that load, run and check out as they are."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
from editors_check import validate

from aiperf.errors import UserError
from aiperf.plan.cases import expand
from aiperf.scenario.document import read_document
from aiperf.scenario.expectations import Expectation
from aiperf.scenario.find import list_scenarios
from aiperf.scenario.load import load_scenario
from aiperf.scenario.scaffold import copy_shipped, scaffold
from aiperf.workloads.contract import Context


def test_the_scaffold_loads_and_both_sides_do_equal_checked_work(tmp_path):
    yaml_path, code_path = scaffold("my-pair", tmp_path / "new", full=True)
    scenario = load_scenario(yaml_path)
    spec = importlib.util.spec_from_file_location("scaffolded", code_path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    before, after = (module.row_norms(Context(seed=3), **s.params) for s in expand(scenario, on_gpu=False)[0].sides)
    for side in (before, after):
        side.outputs()["norms"].fill(np.nan)
        side.step()
        np.testing.assert_allclose(side.outputs()["norms"], side.reference()["norms"], rtol=1e-5)
    assert before.work == after.work
    np.testing.assert_array_equal(before.inputs()["matrix"], after.inputs()["matrix"])


def test_the_short_scaffold_compares_two_functions_that_return_the_same(tmp_path):
    yaml_path, code_path = scaffold("my-pair", tmp_path)
    scenario = load_scenario(yaml_path)
    spec = importlib.util.spec_from_file_location("scaffolded_short", code_path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    before, after = expand(scenario, on_gpu=False)[0].sides
    assert (before.plain, after.plain, before.setup_params) == (True, True, {"rows": 1024})
    argument = module.matrix(3, **before.setup_params)
    np.testing.assert_allclose(module.by_row(argument), module.whole(argument), rtol=1e-12)
    assert len([line for line in yaml_path.read_text().splitlines() if line and not line.startswith("#")]) == 4


@pytest.mark.parametrize("full", [False, True])
def test_the_scaffold_suits_the_editor(tmp_path, full):
    path = scaffold("pair.yaml", tmp_path, full=full)[0]
    assert path.name == "pair.yaml"
    validate(read_document(path).data)


def test_every_line_that_the_short_scaffold_teaches_in_a_comment_is_valid(tmp_path):
    path = scaffold("pair", tmp_path)[0]
    lines = path.read_text().splitlines()
    taught = [line[2:] for line in lines if line.startswith(("# check:", "# expect:"))]
    assert len(taught) == 2
    path.write_text("\n".join([*lines, *taught]) + "\n")
    assert (load_scenario(path).expect, load_scenario(path).check.rtol) == ((Expectation("equivalent"),), 1e-5)


def test_every_line_that_the_scaffold_teaches_in_a_comment_is_valid(tmp_path):
    path = scaffold("pair", tmp_path, full=True)[0]
    lines = path.read_text().splitlines()
    taught = [line[2:] for line in lines if line.startswith(("# gpu:", "# needs:", "# measure:"))]
    assert len(taught) == 3
    path.write_text("\n".join([*lines, *taught]) + "\n")
    assert load_scenario(path).needs.libraries == {"torch": ">=2.6"}


@pytest.mark.parametrize("taken", ["pair.yaml", "pair.py"])
def test_nothing_is_overwritten(tmp_path, taken):
    (tmp_path / taken).write_text("mine")
    with pytest.raises(UserError, match="already exists"):
        scaffold("pair", tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == [taken]
    assert (tmp_path / taken).read_text() == "mine"


@pytest.mark.parametrize("name", ["", "../up", "a b", ".yaml", "a/b", "x" * 200])
def test_a_name_that_is_none_is_refused(tmp_path, name):
    with pytest.raises(UserError, match="is not a valid scenario name"):
        scaffold(name, tmp_path)


def test_a_folder_that_cannot_be_made_is_a_fault(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write"):
        scaffold("pair", tmp_path / "file" / "sub")


def test_a_copy_of_a_shipped_scenario_differs_from_it_by_its_citations_alone(tmp_path):
    for each in list_scenarios()[::40]:
        (path,) = copy_shipped("my-copy", each.name, tmp_path / each.name)
        copied, origin = (dict(read_document(one).data) for one in (path, each.path))
        origin.pop("book", None)
        assert copied == origin
        load_scenario(path)


@pytest.mark.parametrize(
    ("name", "shipped", "said"),
    [
        ("mine", "same-vs-sane", "Did you mean same-vs-same"),
        ("same-vs-same", "same-vs-same", "records are stored under it"),
        ("a/b", "same-vs-same", "is not a valid scenario name"),
    ],
)
def test_a_copy_of_nothing_or_under_a_shipped_name_is_refused(tmp_path, name, shipped, said):
    with pytest.raises(UserError) as refused:
        copy_shipped(name, shipped, tmp_path)
    (fault,) = refused.value.faults
    assert said in f"{fault.what} {fault.hint}"
    assert not list(tmp_path.iterdir())
