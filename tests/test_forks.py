"""Tests in forked processes: every one runs once, what one process meets is told by the other, and what is alone is."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from forks import LONGEST

HERE = Path(__file__).parent
CONFTEST = "def pytest_addoption(pluginmanager): pluginmanager.import_plugin('forks')"
NOTED = """
import os, time
from pathlib import Path

def note(name):
    began = time.monotonic()
    time.sleep(0.05)
    with open(Path(__file__).parent / "noted", "a") as file:
        file.write(f"{name} {os.getpid()} {began} {time.monotonic()}\\n")
"""
SHARED = """
import pytest
from noted import note

@pytest.fixture(scope="module")
def once():
    note("fixture")

@pytest.mark.parametrize("number", range(4))
def test_shared(number, once, tmp_path):
    note("shared")
"""
ALONE = """
import pytest
from noted import note

@pytest.mark.alone
@pytest.mark.parametrize("number", range(2))
def test_alone(number):
    note("alone")
"""
MET = """
import os, warnings
import pytest

def test_fails():
    os.write(1, b"written " + b"to the descriptor")
    assert 1 == 2

def test_warns():
    warnings.warn("take care")

def test_ends():
    os._exit(3)

def test_aborts():
    os.abort()

@pytest.mark.skip(reason="not today")
def test_skipped():
    pass

@pytest.fixture
def broken():
    yield
    raise ValueError("at the end")

def test_after(broken):
    pass
"""


@pytest.fixture
def folder(pytester, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    pytester.makeconftest(CONFTEST)
    return pytester


def run(folder, *words):
    return folder.runpytest_subprocess("-p", "no:cacheprovider", "-p", "no:aiperf", *words)


def test_every_test_runs_once_a_file_in_one_process_and_what_is_alone_after_all_others(folder) -> None:
    folder.makepyfile(noted=NOTED, test_a=SHARED, test_b=SHARED, test_c=ALONE, test_d=ALONE)
    run(folder, "--processes", "2").assert_outcomes(passed=12)
    noted = [line.split() for line in (folder.path / "noted").read_text().splitlines()]
    shared = [(int(pid), float(began), float(ended)) for name, pid, began, ended in noted if name != "alone"]
    alone = sorted((float(began), float(ended)) for name, _, began, ended in noted if name == "alone")
    assert (len(shared), len(alone)) == (2 * (1 + 4), 4)
    assert len({pid for pid, *_ in shared}) == 2, "a file each"
    assert max(ended for *_, ended in shared) <= alone[0][0]
    assert all(ended <= began for (_, ended), (began, _) in pairwise(alone))


def test_what_happens_in_another_process_is_told_as_if_it_happened_here(folder) -> None:
    folder.makepyfile(test_met=MET)
    done = run(folder, "--processes", "2")
    done.assert_outcomes(passed=2, failed=3, errors=1, skipped=1, warnings=1)
    assert done.ret == 1
    text = done.stdout.str()
    assert text.count("written to the descriptor") == 1
    assert text.count("UserWarning: take care") == 1
    done.stdout.fnmatch_lines(
        ["E  *assert 1 == 2", "the process of this test ended with exit status 3", "*ended with signal 6"]
    )
    done.stdout.fnmatch_lines(["*files that took longest*", "* s  test_met.py"])
    assert "ValueError: at the end" in text


def test_a_run_that_is_to_stop_at_the_first_failure_does(folder) -> None:
    after = "import time\ndef test_first():\n    assert False\ndef test_later():\n    time.sleep(30)\n"
    folder.makepyfile(test_a=after, test_b="import time\ndef test_other():\n    time.sleep(30)\n")
    done = run(folder, "--processes", "2", "-x")
    done.assert_outcomes(failed=1)
    assert done.duration < 25


def test_an_error_of_collecting_and_a_run_in_one_process_are_pytests_own(folder) -> None:
    folder.makepyfile(test_a="import no_such_module", test_b="def test_b(): pass")
    assert run(folder, "--processes", "2").ret == run(folder).ret == 2
    (folder.path / "test_a.py").unlink()
    done = run(folder)
    done.assert_outcomes(passed=1)
    assert "files that took longest" not in done.stdout.str()


def test_the_files_that_go_first_are_there() -> None:
    assert [name for name in LONGEST if not (HERE / f"{name}.py").exists()] == []
