"""A side moved into a checkout, and the case that holds one side at two commits: pure text and paths."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from aiperf.errors import UserError
from aiperf.plan.rebuild import rebuild_case
from aiperf.plan.refs import at_checkout, commit_facts, effect_fault, unchecked
from aiperf.records import Case, Check, Measure, Needs, Side


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    return tree(tmp_path / "repo")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    return tree(tmp_path / "checkout" / "repo")


def tree(root: Path) -> Path:
    (root / "bench").mkdir(parents=True)
    (root / "bench" / "work.py").write_text("")
    (root / "bench" / "kernel.cu").write_text("")
    return root


def moved(side: Side, repo: Path, checkout: Path) -> Side:
    return at_checkout(side, repo=repo, checkout=checkout, base=repo / "bench", commit="1234")


def test_a_workload_and_paths_among_its_parameters_move_and_the_rest_stays(repo, checkout) -> None:
    params = {"source": str(repo / "bench/kernel.cu"), "data": "/data/x", "near": f"{repo}-2/x", "n": 3}
    side = Side("before", workload=f"{repo}/bench/work.py:add", params=params, ref="main", python="/v/python", ranks=2)
    found = moved(side, repo, checkout)
    assert found.workload == f"{checkout}/bench/work.py:add"
    assert found.params == {**params, "source": str(checkout / "bench/kernel.cu")}
    assert found.folder == str(checkout / "bench")
    assert (found.ref, found.python, found.ranks, found.name) == ("main", "/v/python", 2, "before")


def test_a_workload_outside_the_repository_runs_where_it_is_with_the_checkouts_packages(repo, checkout) -> None:
    found = moved(Side("before", workload="/else/where.py:add", ref="main"), repo, checkout)
    assert found.workload == "/else/where.py:add"
    assert found.env["PYTHONPATH"] == str(checkout)


def test_the_import_path_begins_with_the_checkout_and_what_was_given_moves_along(repo, checkout, monkeypatch) -> None:
    (checkout / "src").mkdir()
    side = Side("before", command=("x",), ref="main", env={"A": "1"})
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([f"{repo}/python", "/other", f"{repo}/src"]))
    found = moved(side, repo, checkout)
    wanted = [str(checkout), f"{checkout}/src", f"{checkout}/python", "/other"]
    told = {"AIPERF_COMMIT": "1234", "AIPERF_REPOSITORY": str(repo)}
    assert found.env == {"A": "1", "PYTHONPATH": os.pathsep.join(wanted), **told}
    own = moved(replace(side, env={"PYTHONPATH": "lib"}), repo, checkout)
    assert own.env["PYTHONPATH"] == os.pathsep.join([*wanted[:2], "lib"])


def test_only_a_side_that_runs_a_checkout_must_not_import_from_the_repository(repo, checkout) -> None:
    side = Side("before", workload=f"{repo}/bench/work.py:add")
    assert moved(side, repo, checkout).env["AIPERF_REPOSITORY"] == str(repo)
    assert "AIPERF_REPOSITORY" not in moved(side, repo, repo).env


def test_a_command_starts_in_the_scenarios_folder_and_its_absolute_words_move(repo, checkout) -> None:
    words = ("python", f"{repo}/bench/work.py", "./work.py", f"--x={repo}/y", "/usr/bin/x", "a b")
    found = moved(Side("before", command=words, ref="main"), repo, checkout)
    assert found.folder == str(checkout / "bench")
    assert found.command == ("python", f"{checkout}/bench/work.py", "./work.py", f"--x={checkout}/y", *words[4:])


def test_a_virtual_environment_stays_because_no_checkout_holds_it(repo, checkout) -> None:
    (repo / ".venv" / "bin").mkdir(parents=True)
    (repo / ".venv" / "pyvenv.cfg").write_text("")
    python = f"{repo}/.venv/bin/python"
    for word in (python, "../.venv/bin/python"):
        assert moved(Side("before", command=(word, "work.py"), ref="main"), repo, checkout).command[0] == python


def test_without_a_base_processes_start_in_the_root(repo, checkout) -> None:
    assert at_checkout(Side("a", command=("x",), ref="m"), repo=repo, checkout=checkout).folder == str(checkout)


def test_the_code_as_it_lies_is_run_in_the_same_way(repo) -> None:
    side = Side("after", workload=f"{repo}/bench/work.py:add")
    found = moved(side, repo, repo)
    assert (found.workload, found.folder, found.ref) == (side.workload, f"{repo}/bench", "")
    assert found.env["PYTHONPATH"] == str(repo)


@pytest.mark.parametrize(
    ("gone", "side", "says"),
    [
        ("bench/work.py", Side("before", workload="{repo}/bench/work.py:add", ref="v1"), 'of "v1" has no file bench/w'),
        ("bench", Side("before", command=("x",), ref="v1"), 'the commit of "v1" has no folder bench'),
    ],
)
def test_what_the_commit_does_not_hold_is_named(repo, checkout, gone, side, says) -> None:
    for path in sorted((checkout / "bench").iterdir()):
        path.unlink()
    if gone == "bench":
        (checkout / "bench").rmdir()
    side = replace(side, workload=side.workload.replace("{repo}", str(repo)))
    with pytest.raises(UserError, match=says):
        moved(side, repo, checkout)


def test_a_package_that_would_replace_the_harness_is_refused_for_workers_only(repo, checkout) -> None:
    (checkout / "src" / "aiperf").mkdir(parents=True)
    (checkout / "src" / "aiperf" / "__init__.py").write_text("")
    with pytest.raises(UserError, match="a package named aiperf, which would replace the one that measures"):
        moved(Side("before", workload=f"{repo}/bench/work.py:add", ref="main"), repo, checkout)
    assert moved(Side("before", command=("aiperf",), ref="main"), repo, checkout).folder


def test_a_ref_has_no_effect_on_aiperfs_own_workloads_unless_they_take_a_file_of_the_repository(repo) -> None:
    fault = effect_fault(Side("before", workload="tensor.op", params={"op": "add"}, ref="main"), repo=repo)
    assert fault is not None
    assert "tensor.op is one of aiperf's own workloads" in str(fault)
    fits = [
        Side("before", workload="cuda.kernel", params={"source": f"{repo}/bench/kernel.cu"}, ref="main"),
        Side("before", workload="/x/y.py:f", ref="main"),
        Side("before", command=("x",), ref="main"),
    ]
    assert [effect_fault(side, repo=repo) for side in fits] == [None, None, None]


def test_a_side_that_nobody_checked_out_is_found_and_the_others_tell_their_commit(repo, checkout) -> None:
    side = Side("after", command=("x",), ref="main")
    ready = moved(side, repo, checkout)
    plain = Side("before", command=("x",))
    made = make_case(plain, side)
    assert unchecked(made) == side
    assert unchecked(replace(made, sides=(plain, ready))) is None
    assert (commit_facts(ready), commit_facts(plain)) == ({"commit": "1234"}, {})


def make_case(*sides: Side, **fields: object) -> Case:
    return Case("s", "s[n=1]", "t", "w", sides, **fields)


LADDER = (
    Side("before", workload="/w.py:f", params={"n": 1}),
    Side("tiled", workload="/w.py:f", params={"n": 2}, ref="old", env={"A": "1"}),
    Side("fused", workload="/w.py:f", params={"n": 3}, ranks=2),
)


def test_a_rebuilt_case_holds_one_side_at_two_commits() -> None:
    measure = Measure(clock="device", delta=0.1, statistic="median", isolation="in_process")
    needs = Needs(gpus=1)
    case = make_case(
        *LADDER, axes={"n": 1}, measure=measure, needs=needs, check=Check("bitwise"), expect="improved",
        book=("ch01/x",), moves={"launches": "down"}, tags=("t",), path="/s.yaml", scenario_hash="h",
    )  # fmt: skip
    found = rebuild_case(case, base="main", head="topic")
    assert found.sides == (replace(LADDER[2], name="base", ref="main"), replace(LADDER[2], name="head", ref="topic"))
    assert found.title == "s: main against topic"
    assert rebuild_case(case, base="4" * 40, head="working-tree").title == "s: 444444444444 against the working tree"
    assert (found.id, found.axes, found.needs, found.check) == (case.id, case.axes, needs, Check("bitwise"))
    assert found.measure == replace(measure, isolation="process")
    assert (found.expect, found.book, found.moves) == ("", (), {})
    assert (found.path, found.scenario_hash, found.tags) == ("/s.yaml", "h", ("t",))


def test_a_rebuilt_case_may_hold_another_side_and_replaces_its_ref() -> None:
    found = rebuild_case(make_case(*LADDER), base="main", head="topic", side="tiled")
    assert [(s.name, s.ref, s.params, s.env) for s in found.sides] == [
        ("base", "main", {"n": 2}, {"A": "1"}),
        ("head", "topic", {"n": 2}, {"A": "1"}),
    ]


def test_a_side_that_the_case_does_not_have_is_the_users_mistake() -> None:
    with pytest.raises(UserError, match="s has no side tild; its sides: before, tiled, fused") as caught:
        rebuild_case(make_case(*LADDER), base="main", head="topic", side="tild")
    assert caught.value.faults[0].hint == "Did you mean tiled?"


@pytest.mark.parametrize(
    ("check", "rebuilt"),
    [
        (Check("bitwise"), Check("bitwise")),
        (Check("tolerance", rtol=0.1), Check("tolerance", rtol=0.1)),
        (Check("tolerance", rtol=0.5, reason="bf16 against fp32"), Check()),
        (Check("named", name="near", bound=1.0, reference=True), Check(reference=True)),
        (Check("none", reason="random outputs"), Check("none", reason="random outputs")),
    ],
)
def test_outputs_that_differ_by_design_must_be_the_same_at_two_commits(check, rebuilt) -> None:
    assert rebuild_case(make_case(*LADDER, check=check), base="a", head="b").check == rebuilt


@pytest.mark.parametrize(
    ("check", "rebuilt"),
    [
        (Check("bitwise", reason="other words", files=("out",)), Check("bitwise", files=("out",))),
        (Check("none", reason="prints times", files=("out",)), Check("none", reason="prints times", files=("out",))),
    ],
)
def test_files_of_programs_are_compared_at_two_commits_as_well(check, rebuilt) -> None:
    sides = (Side("before", command=("a",)), Side("after", command=("b",)))
    assert rebuild_case(make_case(*sides, check=check), base="a", head="b").check == rebuilt
