"""Every cheater of the shelf, through the command: its verdict is invalid and says why; the honest pair passes."""

from __future__ import annotations

from pathlib import Path

import pytest
from shelf_runs import Ran, run_scenarios, shelf

from aiperf.errors import Exit
from aiperf.records import CheckResult

FOLDER, SHELF = shelf("cheaters")
HERE = [entry for entry in SHELF if not entry.gpus]
CHEATERS = [entry for entry in HERE if entry.cheat]
HONEST = [entry for entry in HERE if not entry.cheat]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return run_scenarios([FOLDER / entry.scenario for entry in HERE], tmp_path_factory.mktemp("cheaters"))


def failed(ran: Ran, name: str) -> list[CheckResult]:
    return [check for pair in ran.records[name].pairs for check in pair.checks if not check.passed]


def test_every_scenario_file_is_on_the_shelf() -> None:
    assert {path.name for path in FOLDER.glob("*.yaml")} == {entry.scenario for entry in SHELF}
    assert len(CHEATERS) >= 9
    assert len(HONEST) == 1


@pytest.mark.parametrize("entry", CHEATERS, ids=lambda e: Path(e.scenario).stem)
def test_a_cheater_is_invalid_and_is_told_why(ran: Ran, entry) -> None:
    name = Path(entry.scenario).stem
    record = ran.records[name]
    assert record.status == "measured"
    assert {(r.verdict.word, r.verdict.reason) for r in record.results} == {("invalid", "wrong_output")}
    told = [check.detail for check in failed(ran, name)]
    assert any(entry.reason in detail and "after" in detail for detail in told)
    headline = next(r for r in record.results if r.primary)
    assert any(detail in headline.verdict.sentence for detail in told)
    assert name in ran.output


@pytest.mark.parametrize("entry", CHEATERS, ids=lambda e: Path(e.scenario).stem)
def test_a_cheater_is_caught_in_each_of_the_pairs_that_have_all_audits(ran: Ran, entry) -> None:
    """The third pair has one audit, which a step that works only every second time may pass."""
    pairs = ran.records[Path(entry.scenario).stem].pairs
    assert len(pairs) == 3
    assert [any(not check.passed for check in pair.checks) for pair in pairs[:2]] == [True] * 2


@pytest.mark.parametrize("entry", HONEST, ids=lambda e: Path(e.scenario).stem)
def test_the_honest_control_passes_every_check(ran: Ran, entry) -> None:
    name = Path(entry.scenario).stem
    record = ran.records[name]
    assert record.status == "measured"
    assert failed(ran, name) == []
    assert all(pair.checks for pair in record.pairs)
    assert {r.verdict.word for r in record.results} <= {"improved", "regressed", "equivalent", "inconclusive"}


def test_the_command_says_that_outputs_are_wrong_and_leaves_nothing_behind(ran: Ran) -> None:
    assert ran.status == Exit.WRONG
    assert "Traceback" not in ran.errors + ran.output
    assert (ran.alive, ran.scratch) == ([], [])
