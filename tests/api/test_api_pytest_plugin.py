"""The pytest plug-in: what fails a test, what is gated against a commit, and what it costs where nothing uses it."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import duckdb  # noqa: F401 - as below
import numpy  # noqa: F401
import pytest
from api_made import FUNCTIONS, PRECISION

# A run in this process forgets what it was the first to import, and not all of that can be imported twice.
import aiperf.api.benchmark
import aiperf.recipes.function_gate
import aiperf.scenario.document  # noqa: F401

ROOT = Path(__file__).resolve().parents[2]
FAST = ("-p", "no:cacheprovider", "--aiperf-precision", "fast.yaml", "--aiperf-threshold", "0.1")
COMPARING = """
import mine

def test_wrong(aiperf):
    aiperf.compare(mine.loop, mine.wrong, setup=mine.make)

def test_slower(aiperf):
    aiperf.compare(mine.loop, mine.often, setup=mine.make)

def test_faster(aiperf):
    came = aiperf.compare(mine.often, mine.loop, setup=mine.make)
    assert came.ratio > 1

def test_refused(aiperf):
    aiperf.compare(lambda xs: xs, mine.loop)
"""
GATED = """
import pytest
import mine

def test_one_function(aiperf):
    aiperf(mine.loop, setup=mine.make)

def test_one_function_by_name(aiperf):
    aiperf(mine.scaled, setup=mine.make, params={"count": 3, "by": 4.0})

@pytest.mark.aiperf
@pytest.mark.parametrize("count", [500])
def test_marked(count):
    assert len(mine.loop(range(count))) == count

@pytest.mark.aiperf
def test_with_a_fixture(tmp_path):
    pass

def test_of_no_commit():
    pass
"""
NEW = """
import pytest

@pytest.mark.aiperf
def test_new():
    pass
"""


@pytest.fixture
def folder(pytester, monkeypatch):
    monkeypatch.setenv("AIPERF_STATE", str(pytester.path / "state"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (pytester.path / "mine.py").write_text(FUNCTIONS)
    (pytester.path / "fast.yaml").write_text(PRECISION)
    return pytester


def run(folder, *words, apart=False):
    """Run pytest, in this process unless it is to be ``apart``."""
    installed = "aiperf" in {point.name for point in entry_points(group="pytest11")}
    runs = folder.runpytest_subprocess if apart else folder.runpytest_inprocess
    return runs(*FAST, *([] if installed else ["-p", "aiperf.api.pytest_plugin"]), *words)


@pytest.mark.long
def test_a_test_fails_on_what_is_slower_or_wrong_with_one_table_in_its_report(folder, monkeypatch):
    # A runner of CI, where pytest does not shorten the lines of its summary.
    monkeypatch.setenv("CI", "true")
    folder.makepyfile(test_pairs=COMPARING)
    # A busy host may need more than three pairs also for an effect of 200x.
    (folder.path / "fast.yaml").write_text(PRECISION.replace("looks: [3]", "looks: [3, 6, 12]"))
    done = run(folder)
    done.assert_outcomes(passed=1, failed=3)
    text = done.stdout.str()
    assert "invalid: wrong output: " in text
    assert "regressed: after is slower than before" in text
    assert text.count("scenario / case") == 2
    assert "test_slower\n" in text
    assert text.count("before: a lambda has no name that a fresh process could import.") == 2
    done.stdout.re_match_lines([r"test_pairs\.py::test_faster: improved: \d+.*x \[.* \.\.\. .*\]"])
    assert (folder.path / ".pytest_cache" / "aiperf" / "latest").exists()
    assert not (folder.path / "results").exists()


def commit(folder):
    for words in (
        ["init", "-q", "."],
        ["add", "-A"],
        ["-c", "user.name=n", "-c", "user.email=a@b", "commit", "-qm", "a"],
    ):
        subprocess.run(["git", *words], cwd=folder.path, check=True)


@pytest.mark.long
def test_marked_tests_and_single_functions_are_called_once_or_gated_against_a_commit(folder):
    folder.makepyfile(test_gated=GATED)
    (folder.path / "fast.yaml").write_text(PRECISION.replace("looks: [3]", "looks: [4]"))
    run(folder).assert_outcomes(passed=5)
    commit(folder)
    slow = FUNCTIONS.replace("out.append(2 * x)", "out.append(2 * x)\n        for _ in range(300): pass")
    (folder.path / "mine.py").write_text(slow)
    folder.makepyfile(test_new=NEW)
    done = run(folder, "--aiperf-against", "HEAD", "-k", "not one_function")
    done.assert_outcomes(passed=1, failed=2, skipped=1)
    text = done.stdout.str()
    assert (
        "to reproduce: pytest 'test_gated.py::test_marked[500]' --aiperf-against HEAD --aiperf-precision fast.yaml"
        in text
    )
    assert "--aiperf-threshold 0.1\n" in text
    assert re.search(r"\ntest_gated\.py::test_marked\[500\]: regressed: .*x \[.*\], .* -> .*\n", text)
    assert re.search(r"\nregressed: .* against HEAD \([0-9a-f]{12}\), confirmed in a fresh session\n", text)
    assert "exit code" not in text.partition("Captured aiperf call")[0]
    assert "test_with_a_fixture takes fixtures (tmp_path), which a fresh process does not have. Write def" in text


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--aiperf-against", "nowhere"), '"nowhere" is not a branch, tag or commit of '),
        (("--aiperf-precision", "fats"), 'precision "fats" is not known. Choose one of '),
        (("--aiperf-threshold", "lots"), 'threshold: "lots" is not a share above 0'),
    ],
)
def test_a_mistake_in_an_option_ends_the_run_before_any_test(folder, words, told):
    folder.makepyfile(test_gated="import mine\ndef test_one(aiperf):\n    open('ran', 'w')\n")
    commit(folder)
    done = run(folder, *words, apart="nowhere" in words)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    assert f"ERROR: {told}" in done.stderr.str()
    assert not (folder.path / "ran").exists()
    assert "Traceback" not in done.stderr.str()


def test_the_plug_in_loads_nothing_of_aiperf_until_a_test_uses_it():
    code = (
        "import sys, pytest; before = set(sys.modules); import aiperf.api.pytest_plugin; "
        "print(sorted(m for m in set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "['aiperf', 'aiperf.api', 'aiperf.api.pytest_plugin']\n"
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]
    assert declared == {"aiperf": "aiperf.api.pytest_plugin"}
