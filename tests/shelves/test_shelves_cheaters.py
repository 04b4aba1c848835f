"""The shelf of cheaters: what is on it, and that one cheat of each class is caught or told while honest twins pass."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from shelf_runs import PRECISION, Ran, run_scenarios

from aiperf.errors import Exit
from aiperf.host.read import read_host
from aiperf.plan.plan import make_plan
from aiperf.scenario.load import load_scenario
from aiperf.settings import Settings
from tests.cheaters.entries import GROUPS, SIDES, commands, write
from tests.cheaters.judge import Judged, judge
from tests.cheaters.runner import How, run_together
from tests.cheaters.table import BY_NAME, SHELF

CHEATS = [entry for entry in SHELF if not entry.honest]
FAST = [entry for entry in SHELF if entry.fast and not entry.is_program]
AFTERWARDS = ("truth-second-output", "judged-within")
"""Cheats whose rules tests/worker holds one by one; they and their twins run in make test-long."""
LATE = {*AFTERWARDS, *(BY_NAME[name].twin for name in AFTERWARDS)} - {
    e.twin for e in FAST if not e.honest and e.name not in AFTERWARDS
}
PROGRAMS = [entry for entry in SHELF if entry.fast and entry.is_program]


def test_the_shelf_holds_cheats_of_every_class_for_cpu_and_gpu() -> None:
    assert len(BY_NAME) == len(SHELF)
    by_group = Counter(entry.group for entry in CHEATS if not entry.gpus)
    assert set(by_group) == set(GROUPS)
    assert min(by_group.values()) >= 7
    assert sum(by_group.values()) >= 100
    assert sum(1 for entry in CHEATS if entry.gpus) >= 30


def test_every_cheat_has_an_honest_twin_of_its_class_or_problem() -> None:
    twins = {entry.name: entry for entry in SHELF if entry.honest}
    assert {e.name for e in CHEATS if e.twin not in twins} == set()
    assert {e.name for e in CHEATS if twins[e.twin].gpus != e.gpus} == set()
    assert {e.group for e in twins.values() if not e.gpus} == set(GROUPS)
    assert {e.name for e in twins.values() if e.intent == "accident" or e.twin} == set()


def test_every_entry_of_functions_is_a_scenario_that_loads(tmp_path: Path) -> None:
    files = [write(entry, tmp_path, None) for entry in SHELF if not entry.is_program]
    scenarios = [load_scenario(file) for file in files]
    plan = make_plan(scenarios, read_host(), Settings())
    assert len(plan.cases) + len(plan.skips) == len(files)


def test_the_sides_of_a_cheat_differ_and_those_of_programs_are_command_lines(tmp_path: Path) -> None:
    alike = [e.name for e in CHEATS if e.cheat == e.plain and not e.other and not e.preload]
    assert alike == []
    for entry in SHELF:
        if entry.is_program:
            before, after = commands(entry, tmp_path)
            assert str(SIDES / "program.py") in before
            assert f"--cheat {entry.cheat['cheat']}" in (after if entry.cheater == "after" else before)


def run_of(names: set[str], folder: Path) -> Ran:
    return run_scenarios([write(entry, folder, None) for entry in FAST if entry.name in names], folder)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return run_of({e.name for e in FAST} - LATE, tmp_path_factory.mktemp("cheaters"))


@pytest.fixture(scope="module")
def ran_late(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return run_of(LATE, tmp_path_factory.mktemp("late"))


@pytest.fixture
def its_run(request: pytest.FixtureRequest, name: str) -> Ran:
    return request.getfixturevalue("ran_late" if name in LATE else "ran")


def judged(ran: Ran, name: str) -> Judged:
    return judge(BY_NAME[name], 0, ran.records.get(name))


def named(*, honest: bool) -> list[object]:
    names = [e.name for e in FAST if e.honest == honest]
    return [pytest.param(name, marks=pytest.mark.long) if name in LATE else name for name in names]


@pytest.mark.parametrize("name", named(honest=False))
def test_the_cheat_that_stands_for_its_class_is_caught_or_told(its_run: Ran, name: str) -> None:
    found = judged(its_run, name)
    assert found.outcome in ("caught", "told")
    assert found.signs != ()


@pytest.mark.parametrize("name", named(honest=True))
def test_an_honest_twin_is_measured_and_not_invalid(its_run: Ran, name: str) -> None:
    record = its_run.records[name]
    assert record.status == "measured"
    assert [r.verdict.sentence for r in record.results if r.verdict.word == "invalid"] == []
    assert all(check.passed for pair in record.pairs for check in pair.checks)
    assert all(pair.checks for pair in record.pairs)


def test_a_wrong_output_is_named_in_the_verdict_and_the_command_leaves_nothing_behind(ran: Ran) -> None:
    wrong = [r for record in ran.records.values() for r in record.results if r.verdict.reason == "wrong_output"]
    assert wrong != []
    assert ran.status == Exit.WRONG
    assert "Traceback" not in ran.errors + ran.output
    assert (ran.alive, ran.scratch) == ([], [])


@pytest.mark.parametrize("entry", PROGRAMS, ids=lambda e: e.name)
def test_a_program_that_stands_for_its_class_is_caught_or_told(entry, tmp_path: Path) -> None:
    precision = tmp_path / "tiny.yaml"
    precision.write_text(PRECISION, encoding="utf-8")
    (found,) = run_together([entry], 1, How(precision=str(precision)))
    assert found.outcome in ("caught", "told")
