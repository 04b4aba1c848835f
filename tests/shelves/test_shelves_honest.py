"""Sessions of honest sides are counted from stored runs: an invalid verdict accuses, a note tells."""

import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from aiperf.records import Pair
from aiperf.store.read import find_runs, open_run, read_pairs
from tests.cheaters import honest
from tests.cheaters.rules import RULES, heard

REFERENCE = Path(__file__).parents[2] / "results" / "reference"
"""Runs of the library, whose sides are honest."""
RUN = "2026-11-27T02-10-51-vm"
FIGURES = json.loads((REFERENCE / "figures" / "honest.json").read_text(encoding="utf-8"))
BY_CODE = {rule.code: rule for rule in RULES}


def counted(capsys: pytest.CaptureFixture[str], folders: Sequence[Path]) -> tuple[int, str]:
    code = honest.main(folders)
    return code, capsys.readouterr().out.splitlines()[-1]


def test_a_run_of_the_library_accuses_nobody(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(REFERENCE / RUN, tmp_path / RUN)
    code, line = counted(capsys, [tmp_path])
    assert code == 0
    assert line.startswith("5 sessions of 5 cases")
    assert ": 0 accused," in line


@pytest.mark.parametrize("code", ["outputs", pytest.param("hidden_time", marks=pytest.mark.long)])
def test_it_is_judged_again_by_the_rules_of_today(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    shutil.copytree(REFERENCE / RUN, tmp_path / RUN)

    def lied(*given: object) -> list[Pair]:
        return [BY_CODE[code].lie(pair, min(pair.order)) for pair in read_pairs(*given)]  # type: ignore[arg-type]

    monkeypatch.setattr(honest, "read_pairs", lied)
    status, line = counted(capsys, [tmp_path])
    assert status == 1
    assert ": 5 accused," in line


def stored() -> Iterator[tuple[list[Pair], honest.CaseRecord]]:
    run = open_run(next(path for path in find_runs(REFERENCE) if path.name == RUN), results=REFERENCE)
    for record in run.read_cases()[0]:
        yield list(read_pairs(run, record)), record


def test_a_rule_without_its_numbers_is_said_to_be_silent() -> None:
    for pairs, record in stored():
        could, silent = heard(pairs, record.case)
        assert {"outputs", "hidden_time", "inputs_undeclared"} <= {*could}
        bare = [replace(p, runs=tuple(replace(r, witness={}, coverage=None) for r in p.runs), checks=()) for p in pairs]
        could_bare, silent_bare = heard(bare, record.case)
        assert {*silent_bare} - {*silent} == {"outputs", "hidden_time", "inputs_undeclared"}
        assert {*could_bare} | {*silent_bare} == {*could} | {*silent}


def test_the_figures_of_the_reference_runs_add_up_and_those_of_a_run_follow_from_it(tmp_path: Path) -> None:
    for key in honest.ADDED_UP:
        assert FIGURES[key] == sum(run[key] for run in FIGURES["runs"].values())
    assert FIGURES["accused"] == len(FIGURES["accusations"])
    shutil.copytree(REFERENCE / RUN, tmp_path / RUN)
    honest.main([tmp_path], tmp_path / "figures.json")
    found = json.loads((tmp_path / "figures.json").read_text(encoding="utf-8"))
    assert found["runs"] == {RUN: FIGURES["runs"][RUN]}
    assert {code for code, row in found["rules"].items() if row["could_speak"] == 5} == {
        "outputs", "audit_time", "fresh_inputs", "batches_only", "hidden_time", "work_in_outputs", "time_outside",
        "inputs_undeclared",
    }  # fmt: skip
