"""Sessions of honest sides are counted from stored runs: an invalid verdict accuses, a note tells."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from aiperf.store.read import find_runs, open_run
from tests.cheaters import honest

REFERENCE = Path(__file__).parents[2] / "results" / "reference"
"""Runs of the library, whose sides are honest."""
RUN = "2026-11-27T02-10-51-vm"


def counted(capsys: pytest.CaptureFixture[str], folders: Sequence[Path]) -> tuple[int, str]:
    code = honest.main(folders)
    return code, capsys.readouterr().out.splitlines()[-1]


def test_a_run_of_the_library_accuses_nobody(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(REFERENCE / RUN, tmp_path / RUN)
    code, line = counted(capsys, [tmp_path])
    assert code == 0
    assert line.startswith("5 sessions of 5 cases")
    assert ": 0 accused," in line


@pytest.mark.parametrize(("word", "accused"), [("invalid", 5), ("improved", 0)])
def test_an_invalid_verdict_accuses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, word: str, accused: int
) -> None:
    shutil.copytree(REFERENCE / RUN, tmp_path / RUN)
    run = open_run(find_runs(tmp_path)[0], results=tmp_path)
    records, damaged = run.read_cases()
    worded = tuple(
        replace(r, results=tuple(replace(x, verdict=replace(x.verdict, word=word)) for x in r.results)) for r in records
    )
    monkeypatch.setattr(type(run), "read_cases", lambda self: (worded, damaged))
    code, line = counted(capsys, [tmp_path])
    assert code == bool(accused)
    assert f": {accused} accused," in line
