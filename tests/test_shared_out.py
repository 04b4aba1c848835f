"""Tests that several processes share: each runs once, in the company of its file; a process that dies is no pass."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

FILE = """
import os
import pathlib
import pytest

@pytest.fixture(scope="module")
def made():
    print("made in", os.getpid())
    return os.getpid()

@pytest.mark.parametrize("number", range(20))
def test_each(made, number, tmp_path):
    assert made == os.getpid()
    if number == 13:  # of both files at the same time
        print("said by", __name__)
        pathlib.Path(__name__).touch()
        while len(list(pathlib.Path().glob("test_?"))) < 2:
            pass
        assert not number

{more}
"""
ALONE = """
import os
import pathlib
import pytest

@pytest.mark.alone
def test_by_the_clock():
    assert len(pathlib.Path("others").read_text()) == 2
"""
LAST = """
def teardown_module():
    with open("others", "a") as file:
        file.write("x")
"""


@pytest.fixture
def shared(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    pytester.makeini("[pytest]\nmarkers = alone: has the machine to itself")
    return pytester


def test_files_run_whole_each_in_one_process_and_what_is_alone_comes_last(shared: pytest.Pytester) -> None:
    shared.makepyfile(test_a=ALONE, test_b=FILE.format(more=LAST), test_c=FILE.format(more=LAST))
    done = shared.runpytest_subprocess("-p", "shared_out", "--processes", "2")
    done.assert_outcomes(passed=39, failed=2)
    failures = re.split(r"^_+ test_each\[13\] _+$", done.stdout.str(), flags=re.M)[1:]
    # What each printed is shown with it, and nothing of the others.
    assert [re.findall(r"(?<=^said by test_).", failure, re.M) for failure in failures] in (
        [["b"], ["c"]],
        [["c"], ["b"]],
    )
    assert done.ret == 1


def test_a_process_that_dies_fails_its_test_and_the_other_files_run(shared: pytest.Pytester) -> None:
    dies = "import os\n\ndef test_one():\n    pass\n\ndef test_dies():\n    os.{how}\n\ndef test_never():\n    pass\n"
    killed, left = dies.format(how="kill(os.getpid(), 9)"), dies.format(how="_exit(3)")
    shared.makepyfile(test_a=killed, test_b=left, test_c="def test_last():\n    pass", test_d="def test_too(): pass")
    done = shared.runpytest_subprocess("-p", "shared_out", "--processes", "2")
    done.assert_outcomes(passed=4, failed=2)
    done.stdout.fnmatch_lines_random(["*ended in this one (SIGKILL)*", "*ended in this one (exit code 3)*"])
    assert done.ret == 1
