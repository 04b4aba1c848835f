"""``aiperf.compare``: what comes back, what is stored, what is refused."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from api_made import functions_in

import aiperf
from aiperf.api.compare import compared, settings_of
from aiperf.errors import Exit
from aiperf.recipes.run import RunOutcome
from aiperf.records import Note
from aiperf.store.read import open_run

SHIPPED = Path(aiperf.__file__).parents[1] / "results" / "reference"


@pytest.fixture(scope="module")
def mine(tmp_path_factory):
    folder = tmp_path_factory.mktemp("functions")
    with pytest.MonkeyPatch.context() as patch, functions_in(folder) as module:
        patch.chdir(folder)
        patch.setenv("AIPERF_STATE", str(folder / "state"))
        yield module


@pytest.fixture(scope="module")
def slower(mine):
    """What came of a pair whose after does 200 times the work, at a threshold of 10 %."""
    given = {"precision": "fast.yaml", "threshold": 0.1, "quiet": True, "name": "often"}
    # Three pairs have a wide interval where a neighbour disturbs one of them: of a few runs, one is left alone.
    for _ in range(4):
        found = aiperf.compare(mine.loop, mine.often, setup=mine.make, **given)
        if found.verdict != "inconclusive":
            break
    return found


@pytest.mark.long
def test_a_comparison_has_verdict_ratio_interval_and_reason(slower):
    assert slower.verdict == "regressed", slower
    assert not slower.ok
    low, high = slower.interval
    assert low < slower.ratio < high < 0.9
    assert slower.after > slower.before > 0
    assert slower.reason
    assert repr(slower).startswith("<aiperf regressed: 0.")


@pytest.mark.long
def test_its_table_is_that_of_a_run_and_a_notebook_gets_it_as_html(slower):
    assert slower.table == str(slower)
    assert "often" in slower.table
    assert "regressed" in slower.table
    html = slower._repr_html_()
    assert html.startswith("<div>")
    assert "<th>verdict</th>" in html
    assert "<td>regressed</td>" in html
    assert "What was run" in slower.explanation


@pytest.mark.long
def test_the_run_is_stored_as_any_other(slower):
    stored = open_run(slower.folder.name, results=slower.folder.parent)
    assert stored.record.command == "python"
    assert slower.folder.parent.resolve() == Path("results").resolve()
    assert slower.record.case.sides[0].plain
    assert "To reproduce it" not in slower.explanation


def test_another_result_is_invalid_and_an_exception_a_failure(mine):
    for after, verdict, said in (("wrong", "invalid", "result[]"), ("fails", "failed", "no such model")):
        came = aiperf.compare(
            mine.loop, f"{mine.__file__}:{after}", args=([1.0, 2.0],), precision="fast.yaml", quiet=True
        )
        assert (came.verdict, came.ok) == (verdict, False)
        assert said in came.reason
        assert verdict in came.table
    assert came.ratio is None
    assert repr(came) == f"<aiperf failed: {came.reason}>"


@pytest.mark.long
def test_named_values_go_to_the_set_up_and_to_both_functions(mine):
    came = aiperf.compare(
        mine.scaled, mine.scaled, setup=mine.make, params={"count": 3, "by": 4.0}, precision="fast.yaml", quiet=True
    )
    assert came.ok, came.reason


def test_what_cannot_be_compared_is_a_value_error_with_what_to_do(mine, monkeypatch):
    for given, said in (
        ({"before": lambda: 1}, "Write def run"),
        ({"check": "exact"}, 'check=\'exact\': kind: .* Write "tolerance", "bitwise"'),
        ({"check": {"kind": "none"}}, "is not a check of plain functions. Write"),
        ({"check": {"rtol": -1.0}}, "rtol: .*greater than or equal to 0"),
        ({"threshold": 2.0}, 'threshold: "2.0" is not a share above 0 and below 1. For 2 % write 2% or 0.02.'),
        ({"budget": 0.0}, "budget=0 is not a number of seconds above 0"),
        ({"budget": "1mn"}, 'budget: "1mn" is not a time'),
        ({"after": "A"}, 'after: "A" does not name a function. Pass the function itself, without calling it'),
        ({"after": "os.path:joinn"}, "has no function joinn. Did you mean join"),
        ({"before": mine.make, "after": mine.make}, r"before: make takes seed, but no arguments are given. Pass args="),
        ({"precision": "exact"}, 'precision "exact" is not known. Choose one of'),
        ({"args": (threading.Lock(),)}, "the arguments cannot be sent to fresh processes: .* Give setup="),
    ):
        with pytest.raises(ValueError, match=said):
            aiperf.compare(**{"before": mine.loop, "after": mine.loop, **given})


ABOVE = "<aiperf (equivalent|inconclusive|improved|regressed): "
BELOW = '(?s).*g is not defined above the call: compare.. is called when.*Put it under if __name__ == "__main__":'


@pytest.mark.parametrize(
    ("after", "said"),
    [pytest.param("f", ABOVE, marks=pytest.mark.long), ("'below.py:g'", BELOW)],
    ids=["above", "below"],
)
def test_a_script_compares_the_functions_above_its_call_and_is_told_of_those_below(mine, after, said):
    # Every process of a side reads the script, and with it all that a comparison needs.
    script = (
        "import aiperf\ndef f(n): return list(range(n))\n"
        "print(repr(aiperf.compare(f, {after}, args=(9,), precision='fast.yaml', quiet=True)))\ndef g(n): return [n]\n"
    )
    Path("below.py").write_text(script.format(after=after))
    env = {**os.environ, "PYTHONPATH": str(Path(aiperf.__file__).parents[1])}
    done = subprocess.run([sys.executable, "below.py"], capture_output=True, text=True, check=True, env=env)
    assert re.match(said, done.stdout), done.stdout


def test_the_reason_says_that_both_sides_are_the_same_thing():
    stored = open_run("2026-11-25T16-55-47-vm", results=SHIPPED)
    record = replace(stored.read_cases()[0][0], notes=())
    plain, same = (
        compared(RunOutcome(stored.folder, stored.record, (replace(record, notes=notes),), Exit.OK, ()))
        for notes in ((), (Note("same_sides", {"sides": ["before", "after"]}),))
    )
    assert plain.reason
    assert same.reason == f"{plain.reason}; before and after are the same: any difference is noise"


def test_settings_are_those_of_a_precision_with_what_was_asked_for():
    assert settings_of("quick", threshold=None, budget="2min", seed=0, results=Path("r")).precision.case_seconds == 120
    settings = settings_of("quick", threshold=0.1, budget=7, seed=3, results=Path("r"))
    assert (settings.precision.delta, settings.precision.case_seconds, settings.seed) == (0.1, 7.0, 3)


def test_importing_aiperf_loads_nothing_of_it_and_of_no_library():
    code = (
        "import sys; before = set(sys.modules); import aiperf; "
        "known = {'aiperf', 'importlib', 'warnings', '_warnings'}; "
        "new = {m.split('.')[0] for m in set(sys.modules) - before} - known; "
        "own = [m for m in sys.modules if m.startswith('aiperf.')]; print(sorted(new), own)"
    )
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True,
                          env={"PYTHONPATH": str(Path(aiperf.__file__).parents[1])})  # fmt: skip
    assert done.stdout == "[] []\n"
    assert set(aiperf.__all__) <= {*dir(aiperf)}
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = aiperf.nothing


def test_a_process_of_a_side_refuses_to_compare_without_loading_what_measures():
    code = (
        "import sys\nfrom aiperf import compare\ntry: compare(len, len)\n"
        "except Exception as error: print(type(error).__name__, 'aiperf.recipes' in sys.modules)"
    )
    env = {"PYTHONPATH": str(Path(aiperf.__file__).parents[1]), "AIPERF_LAUNCH": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert done.stdout == "CalledInWorker False\n"
