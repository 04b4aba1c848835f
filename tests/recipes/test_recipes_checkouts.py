"""Sides at git refs: real repositories, real workers and programs, and what a run says when a ref cannot be run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from recipes_made import HOST, Told

from aiperf.errors import Exit, UserError
from aiperf.launch import environment
from aiperf.launch.gang import LaunchFailed
from aiperf.launch.worktrees import WORKING_TREE
from aiperf.plan.cases import expand
from aiperf.plan.plan import Plan
from aiperf.plan.rebuild import rebuild_case
from aiperf.recipes.checkouts import check_refs, with_checkouts
from aiperf.recipes.run import run_plan
from aiperf.recipes.session import MeasurementSession
from aiperf.records import Case, Invocation, Measure, Pair
from aiperf.scenario.load import load_scenario
from aiperf.settings import Precision, Settings

PRECISION = Precision(
    name="tiny", looks=(4,), alpha=0.2, rounds=2, side_seconds=0.02, round_seconds=0.002, warmup_seconds=0.1,
    warmup_window=5, audits=1, width=5.0, delta=0.5,
)  # fmt: skip
CPUS = tuple(sorted(os.sched_getaffinity(0)))
WORKLOAD = """
import os
import time

import numpy as np

from aiperf.workloads.contract import Context, Work, Workload
import mine


def scale(context: Context, *, items: int = 64):
    x = np.random.default_rng(context.seed).standard_normal(items)
    out = np.empty_like(x)

    def step() -> None:
        np.multiply(x, mine.FACTOR, out=out)
        time.sleep(mine.PAUSE)

    facts = {"mine": mine.__file__, "folder": os.getcwd()}
    return Workload(step, Work(items=items), outputs=lambda: {"out": out}, inputs=lambda: {"x": x}, facts=facts)
"""
SCENARIO = """
title: Old against new
why: The code differs.
workload: ./work.py:scale
before: {ref: base}
after: {}
"""
PROGRAM = """
import mine, os, sys
print(mine.NAME, os.path.dirname(os.path.abspath(mine.__file__)), os.getcwd(), file=open(sys.argv[1], "a"))
"""


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), "-c", "user.name=u", "-c", "user.email=u@h", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def package(repo: Path, name: str, *, factor: float = 1.0, pause: float = 0.001, root: str = "src") -> None:
    """Write the package under test, its bench and commit both under a tag."""
    for folder in (repo / root / "mine", repo / "bench"):
        folder.mkdir(parents=True, exist_ok=True)
    (repo / root / "mine" / "__init__.py").write_text(f"NAME, FACTOR, PAUSE = {name!r}, {factor}, {pause}\n")
    (repo / "bench" / "work.py").write_text(WORKLOAD)
    (repo / "bench" / "prog.py").write_text(PROGRAM)
    (repo / ".gitignore").write_text("__pycache__\n")
    git(repo, "add", "--all")
    git(repo, "commit", "--quiet", "--allow-empty", "--message", name)
    git(repo, "tag", name)


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    (tmp_path / "scratch").mkdir()
    monkeypatch.setenv("AIPERF_SCRATCH", str(tmp_path / "scratch"))


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    (tmp_path / "repo").mkdir()
    git(tmp_path / "repo", "init", "--quiet", "--initial-branch", "main")
    return tmp_path / "repo"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(precision=PRECISION, results=tmp_path / "results", peaks=False)


@pytest.fixture
def session(settings: Settings) -> Iterator[MeasurementSession]:
    with MeasurementSession(replace(HOST, cpus=CPUS), settings) as opened:
        yield opened


def case_of(repo: Path, text: str = SCENARIO, name: str = "s") -> Case:
    path = repo / "bench" / f"{name}.yaml"
    path.write_text(text)
    return expand(load_scenario(path), on_gpu=False)[0]


def measured(case: Case, session: MeasurementSession, **how: object) -> Pair:
    (ready,) = with_checkouts([case], session.worktrees, **how)
    return session.measure(ready, 0, tuple(side.name for side in ready.sides), 1)


def facts(pair: Pair) -> dict[str, SimpleNamespace]:
    return {run.side: SimpleNamespace(**run.facts) for run in pair.runs}


def seconds(pair: Pair, side: str) -> float:
    return min(s.wall_s / s.iterations for s in pair.samples if s.side == side and not s.audit)


@pytest.mark.long
def test_base_runs_the_old_code_in_a_checkout_and_the_other_side_the_code_as_it_lies(repo, session) -> None:
    package(repo, "base", pause=0.020)
    package(repo, "head", pause=0.001)
    pair = measured(case_of(repo), session)
    told = facts(pair)
    assert seconds(pair, "before") >= 0.020 > seconds(pair, "after")
    assert told["before"].commit == git(repo, "rev-parse", "base")
    assert told["before"].mine.startswith(str(session.worktrees._root.path))
    assert told["after"].commit.startswith(git(repo, "rev-parse", "head") + "+")
    assert (told["after"].mine, told["after"].folder) == (f"{repo}/src/mine/__init__.py", f"{repo}/bench")
    assert told["before"].folder == str(Path(told["before"].mine).parents[2] / "bench")
    assert [check.passed for check in pair.checks] == [True]


@pytest.mark.long
def test_code_that_computes_something_else_at_head_fails_the_check(repo, session) -> None:
    package(repo, "base", factor=1.0)
    package(repo, "head", factor=2.0)
    pair = measured(rebuild_case(case_of(repo), base="base", head="head"), session)
    assert [check.passed for check in pair.checks] == [False]
    assert pair.checks[0].compared.startswith("head with base")


@pytest.mark.long
def test_neither_the_working_folder_nor_an_installed_copy_takes_the_place_of_the_checkout(
    repo, session, tmp_path, monkeypatch
) -> None:
    package(repo, "base", root=".")
    package(repo, "head", root=".")
    site = tmp_path / "site-packages"
    (site / "mine").mkdir(parents=True)
    (site / "mine" / "__init__.py").write_text("NAME, FACTOR, PAUSE = 'installed', 3.0, 0\n")
    (site / "aiperf").symlink_to(Path(environment.__file__).parents[1])
    monkeypatch.setattr(environment, "import_root", lambda: site)
    monkeypatch.chdir(repo)
    told = facts(measured(rebuild_case(case_of(repo), base="base", head=WORKING_TREE), session))
    where = {side: Path(run.mine).relative_to(session.worktrees._root.path).parts[1:] for side, run in told.items()}
    assert where == dict.fromkeys(("base", "head"), ("repo", "mine", "__init__.py"))
    assert told["base"].mine != told["head"].mine


def test_one_commit_on_both_sides_lies_in_two_folders(repo, session) -> None:
    package(repo, "base")
    case = rebuild_case(case_of(repo), base="base", head="main")
    (ready,) = with_checkouts([case], session.worktrees, build="touch built")
    before, after = (Path(side.folder) for side in ready.sides)
    assert before != after
    assert [(folder.parent / "built").exists() for folder in (before, after)] == [True, True]
    assert [side.ref for side in ready.sides] == ["base", "main"]
    assert with_checkouts([case], session.worktrees, build="touch built") == (ready,)


def test_programs_run_in_their_own_checkouts(repo, session, tmp_path) -> None:
    package(repo, "base")
    package(repo, "head")
    text = SCENARIO.replace("workload: ./work.py:scale\n", "")
    command = f"{sys.executable} prog.py {tmp_path}"
    text = text.replace("{ref: base}", f"{{ref: base, command: {command}/1}}")
    text = text.replace("{}", f"{{command: {command}/2}}")
    pair = measured(case_of(repo, text), session)
    old, new = ({tuple(line.split()) for line in (tmp_path / n).read_text().splitlines()} for n in "12")
    assert new == {("head", f"{repo}/src/mine", f"{repo}/bench")}
    ((name, origin, folder),) = old
    assert name == "base"
    assert Path(origin).parents[1] == Path(folder).parent
    assert Path(folder).is_relative_to(session.worktrees._root.path)
    assert facts(pair)["before"].commit == git(repo, "rev-parse", "base")


def test_programs_under_forbidden_bytecode_are_warned_about_when_only_one_side_is_fresh(
    repo, session, monkeypatch
) -> None:
    package(repo, "base")
    text = SCENARIO.replace("workload: ./work.py:scale\n", "")
    mixed = case_of(repo, text.replace("{ref: base}", "{ref: base, command: ls}").replace("{}", "{command: ls}"))
    said: list[str] = []
    with_checkouts([mixed], session.worktrees, progress=said.append)
    assert not any("PYTHONDONTWRITEBYTECODE" in line for line in said)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    with_checkouts([rebuild_case(mixed, base="base", head="main")], session.worktrees, progress=said.append)
    assert not any("PYTHONDONTWRITEBYTECODE" in line for line in said)
    with_checkouts([mixed], session.worktrees, progress=said.append)
    assert any("PYTHONDONTWRITEBYTECODE" in line for line in said)


def test_two_commits_never_share_a_process_and_one_commit_may(repo, session) -> None:
    package(repo, "base", pause=0.02)
    package(repo, "head")
    case = replace(case_of(repo), measure=Measure(clock="wall", isolation="in_process"))
    said: list[str] = []
    (ready,) = with_checkouts([case], session.worktrees, progress=said.append)
    assert ready.measure.isolation == "process"
    assert any("each side gets a process of its own" in line for line in said)
    same = replace(case, sides=tuple(replace(side, ref="base") for side in case.sides))
    (ready,) = with_checkouts([same], session.worktrees)
    assert ready.measure.isolation == "in_process"
    assert len({side.folder for side in ready.sides}) == 1


def test_a_case_without_refs_is_left_alone(repo, session) -> None:
    package(repo, "base")
    case = case_of(repo, SCENARIO.replace("{ref: base}", "{items: 65}"))
    assert with_checkouts([case], session.worktrees) == (case,)


@pytest.mark.long
@pytest.mark.parametrize(
    ("build", "kind", "tail"), [("echo broken; exit 4", "error", "broken"), ("echo slow; sleep 60", "hang", "slow")]
)
def test_a_build_that_fails_names_the_side_and_its_last_words(repo, session, build, kind, tail) -> None:
    package(repo, "base")
    session.worktrees._build_seconds = 3.0
    with pytest.raises(LaunchFailed, match="the build of base") as caught:
        with_checkouts([case_of(repo)], session.worktrees, build=build)
    failure = caught.value.failure
    assert (failure.side, failure.phase, failure.kind, failure.stderr_tail) == ("before", "start", kind, tail)


def test_a_package_that_would_come_from_elsewhere_fails_the_side(repo, session, tmp_path, monkeypatch) -> None:
    package(repo, "base")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    hook = "import sys\nfrom importlib.util import spec_from_file_location as s\nclass F:\n"
    hook += "  find_spec = staticmethod(lambda n, p=None, t=None: s(n, '/else/mine.py') if n == 'mine' else None)\n"
    (tmp_path / "sitecustomize.py").write_text(hook + "sys.meta_path.insert(0, F)\n")
    with pytest.raises(LaunchFailed, match=r"mine would be imported from /else/mine\.py, not from the checkout of ba"):
        with_checkouts([case_of(repo)], session.worktrees)


@pytest.mark.parametrize("late", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_package_that_lies_deeper_and_comes_from_the_repository_itself_fails_the_launch(
    repo, session, tmp_path, monkeypatch, late
) -> None:
    """As an editable install does it: a path of the repository, on ``sys.path`` whatever PYTHONPATH says."""
    package(repo, "base", root="back/end")
    if late:
        text = WORKLOAD.replace("import mine\n", "").replace("out=out)\n", "out=out)\n        import mine\n")
        (repo / "bench" / "work.py").write_text(text.replace("mine.FACTOR", "2").replace('"mine": mine.__file__, ', ""))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "sitecustomize.py").write_text(f"import sys\nsys.path.append({str(repo / 'back/end')!r})\n")
    case = rebuild_case(case_of(repo), base=WORKING_TREE, head=WORKING_TREE)
    with pytest.raises(LaunchFailed, match=r"mine was imported from .*/back/end/mine/__init__\.py, not from") as caught:
        measured(case, session)
    assert (caught.value.failure.phase, caught.value.failure.kind) == ("check" if late else "set-up", "error")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(repo / "back/end"), str(tmp_path)]))
    assert {check.passed for check in measured(case, session).checks} == {True}


def test_a_stand_refuses_a_ref_that_nobody_checked_out(repo, session) -> None:
    package(repo, "base")
    with pytest.raises(LaunchFailed, match="its ref base was not checked out"):
        session.measure(case_of(repo), 0, ("before", "after"), 1)


@pytest.mark.long
def test_a_run_measures_its_checkouts_and_leaves_nothing_but_its_results(repo, settings, tmp_path) -> None:
    package(repo, "base", pause=0.010)
    package(repo, "head", pause=0.001)
    case, broken = case_of(repo), case_of(repo, SCENARIO, "broken")
    old = git(repo, "rev-list", "--max-parents=0", "HEAD")
    git(repo, "rm", "--quiet", "bench/work.py")
    git(repo, "commit", "--quiet", "--message", "without a bench")
    git(repo, "tag", "bare")
    git(repo, "checkout", "--quiet", "head", "--", "bench/work.py")
    broken = replace(broken, sides=(replace(broken.sides[0], ref="bare"), broken.sides[1]))
    before = git(repo, "status", "--porcelain=v2"), git(repo, "for-each-ref"), git(repo, "stash", "list")
    told = Told()
    host = replace(HOST, cpus=CPUS)
    outcome = run_plan(
        Plan((broken, case), ()), host=host, settings=settings, progress=told, invocation=Invocation("run")
    )
    failed, done = outcome.records
    assert (failed.status, done.status, outcome.exit) == ("failed", "measured", Exit.WRONG)
    assert failed.failure.side == "before"
    assert 'the commit of "bare" has no file bench/work.py' in failed.failure.message
    assert [r.verdict.word for r in done.results if r.primary] == ["improved"]
    assert [side.ref for side in done.case.sides] == ["base", ""]
    assert done.pairs[0].runs[0].facts["commit"] == old
    assert told.done == ["broken", "s"]
    assert any(note.startswith("checking out base (") for note in told.notes)
    assert list((tmp_path / "scratch").iterdir()) == []
    assert git(repo, "worktree", "list").count("\n") == 0
    assert (git(repo, "status", "--porcelain=v2"), git(repo, "for-each-ref"), git(repo, "stash", "list")) == before


def test_refs_that_mean_nothing_are_all_told_before_anything_is_run(repo, settings, tmp_path) -> None:
    package(repo, "base")
    case = case_of(repo)
    unknown = replace(case, sides=(replace(case.sides[0], ref="bsae"), case.sides[1]))
    outside = replace(unknown, path=str(tmp_path / "s.yaml"))
    shipped = replace(case, sides=tuple(replace(s, workload="tensor.op", ref="base") for s in case.sides))
    plan = Plan((unknown, unknown, outside, shipped, case), ())
    with pytest.raises(UserError) as caught:
        run_plan(plan, host=HOST, settings=settings, progress=Told(), invocation=Invocation("run"))
    told = [(fault.where, fault.what) for fault in caught.value.faults]
    assert told == [
        (case.path, f'"bsae" is not a branch, tag or commit of {repo}.'),
        (outside.path, "is not in a git repository, so it has no other commit."),
        (case.path, f"tensor.op is one of aiperf's own workloads, which no commit of {repo} changes."),
    ]
    assert not settings.results.exists()


def test_a_working_tree_without_a_commit_is_told_at_once(repo) -> None:
    (repo / "bench").mkdir()
    (repo / "bench" / "work.py").write_text(WORKLOAD)
    case = case_of(repo, SCENARIO.replace("base", WORKING_TREE))
    with pytest.raises(UserError, match='"HEAD" is not a branch'):
        check_refs([case])
