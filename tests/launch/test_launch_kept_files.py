"""Programs in a view of the file system of their own, with and without what their first run left."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aiperf.launch.environment import program_environment
from aiperf.launch.kept_files import (
    KeptFiles,
    _outermost,
    _places,
    files_otherwise,
    private_view,
    read_report,
    sides_in_view,
)
from aiperf.launch.program import Launcher
from aiperf.records import Case, Needs, Side

_MEMO = """
import pathlib, sys
file = pathlib.Path(sys.argv[1]) / "answer"
if not file.exists():
    file.parent.mkdir(exist_ok=True)
    file.write_text(str(sum(i * i for i in range(1_000_000))))
pathlib.Path("log").open("a").write("run\\n")
print(file.read_text())
"""
Tried = Callable[..., KeptFiles | None]


def case_of(*commands: tuple[str, ...]) -> Case:
    names = ("before", "after")
    return Case("pair", "pair", "", "", tuple(Side(n, command=c) for n, c in zip(names, commands, strict=False)))


@pytest.fixture
def tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tried:
    """Tries a program that begins in ``tmp_path / "own"``; skips where this host has no views."""
    spool, own = tmp_path / "spool", tmp_path / "own"
    spool.mkdir()
    own.mkdir()
    monkeypatch.chdir(own)

    def run(code: str, *arguments: str) -> KeptFiles | None:
        case = case_of((sys.executable, "-S", "-c", code, *arguments))
        env = program_environment({"HOME": str(own)}, seed=1)
        wrap = private_view(case, case.sides[0], spool=spool, most_s=1.0)
        with Launcher() as launcher, launcher.start(wrap(case.sides[0].command, env), env=env, keep=1 << 20) as child:
            assert child.wait(60) is not None
        assert list(spool.iterdir()) == []
        return read_report(child.printed.head)

    if run("") is None:
        pytest.skip("this host has no mount namespaces for this user")
    return run


def test_a_program_that_keeps_its_answer_takes_longer_without_it_and_leaves_nothing(
    tried: Tried, tmp_path: Path
) -> None:
    (tmp_path / "own" / "log").write_text("mine\n")
    found = tried(_MEMO, str(tmp_path / "kept"))
    assert found is not None
    assert len(found.kept_s) == len(found.without_s) >= 3
    assert min(found.without_s) > 2 * max(found.kept_s)
    assert set(found.left) == {str(tmp_path / "kept"), str(tmp_path / "own" / "log")}
    assert f"{tmp_path}/kept/answer" in found.files
    assert not (tmp_path / "kept").exists()
    assert (tmp_path / "own" / "log").read_text() == "mine\n"


def test_a_program_that_writes_nothing_runs_once(tried: Tried) -> None:
    found = tried("print(1)")
    assert found is not None
    assert (found.kept_s, found.without_s, found.left, found.files) == ((), (), (), {})
    assert 0 < found.first_s < 5


def test_compiled_code_is_there_in_every_run(tried: Tried, tmp_path: Path) -> None:
    found = tried(_MEMO.replace('"answer"', '"answer.so"'), str(tmp_path / "kept"))
    assert found is not None
    assert found.left == (str(tmp_path / "own" / "log"),)
    assert len(found.kept_s) == 1 or min(found.without_s) < 2 * max(found.kept_s)


def test_files_that_vary_from_run_to_run_are_not_compared(tried: Tried) -> None:
    found = tried(
        "import os, pathlib; [pathlib.Path(n).write_text(t) for n, t in (('a', '1'), ('b', str(os.getpid())))]"
    )
    assert found is not None
    assert [Path(path).name for path in found.files] == ["a"]


@pytest.mark.parametrize("code", ["raise SystemExit(3)", "import time; time.sleep(60)"])
def test_of_a_program_that_fails_or_lasts_too_long_nothing_is_known(tried: Tried, code: str) -> None:
    assert tried(code) is None


def test_a_program_cannot_tell_by_its_parent_that_it_is_tried(tried: Tried) -> None:
    code = "import os, pathlib; pathlib.Path('seen').write_bytes(open(f'/proc/{os.getppid()}/cmdline', 'rb').read())"
    assert tried(f"{code}; assert b'files' not in open('seen', 'rb').read()") is not None
    assert tried(f"{code}; assert b'files' in open('seen', 'rb').read()") is None


def test_processes_that_a_program_leaves_end_with_its_run(tried: Tried) -> None:
    code = f"""
import os, pathlib, socket, time
held = socket.socket(socket.AF_UNIX)
held.bind("\\0aiperf-test-{os.getpid()}")
pathlib.Path("file").touch()
os.fork() or (os.setsid(), time.sleep(50))
"""
    found = tried(code)
    assert found is not None
    assert found.kept_s


def test_a_line_that_prepares_a_side_and_a_gpu_keep_a_case_from_it() -> None:
    case = case_of(("a",), ("b",))
    assert [side.name for side in sides_in_view(case)] == ["before", "after"]
    assert sides_in_view(replace(case, needs=Needs(gpus=1))) == ()
    prepared = replace(case.sides[1], prepare=("rm",))
    assert sides_in_view(replace(case, sides=(case.sides[0], prepared))) == ()


def test_places_are_those_that_a_program_is_given_without_those_inside_of_others(tmp_path: Path) -> None:
    for name in ("own", "home/inner", "state", "a,b"):
        (tmp_path / name).mkdir(parents=True)
    words = ("prog", f"--state={tmp_path}/state/new/file", f"{tmp_path}/a,b", "/", "relative", f"{tmp_path}/home/inner")
    env = {"HOME": f"{tmp_path}/home", "TMPDIR": "relative"}
    found = list(_outermost(_places(words, env, tmp_path / "own")))
    assert [place for place in found if place.startswith(str(tmp_path))] in (
        [],  # where the folder for temporary files holds them all
        [f"{tmp_path}/{name}" for name in ("home", "own", "state")],
    )
    named = list(_outermost(iter([f"{tmp_path}/{name}" for name in ("state", "home/inner", "home", "a,b", "no")])))
    assert named == [f"{tmp_path}/home", f"{tmp_path}/state"]
    assert list(_outermost(iter([os.sep, "relative"]))) == []


def test_sides_that_write_a_file_otherwise_are_named_with_it() -> None:
    base = KeptFiles(0.1, files={"out": "1", "log": "2", "only": "3"})
    other = KeptFiles(0.1, files={"out": "9", "log": "2", "own": "4"})
    assert files_otherwise({"before": base, "after": other, "third": base}) == {"after": ("out",)}
    assert files_otherwise({"before": base}) == files_otherwise({}) == {}


def test_what_is_no_report_says_nothing() -> None:
    assert read_report(b"") is None
    found = read_report(b'{"first": 0.5, "kept": [0.1], "without": [0.4], "left": ["/a"], "files": {"/a": "1"}}')
    assert found == KeptFiles(0.5, (0.1,), (0.4,), ("/a",), {"/a": "1"})
    assert found is not None
    assert found.facts == {"first_s": 0.5, "kept_s": [0.1], "without_s": [0.4], "left": ["/a"]}
