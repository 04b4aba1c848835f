from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from patience import PATIENCE_S, until

from aiperf.errors import AiperfError
from aiperf.launch import watchdog
from aiperf.launch.child import Child
from aiperf.launch.guardian import Guardian

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "tests" / "programs"

PARENT = """
import sys, time
from pathlib import Path
from aiperf.launch.child import Child
from aiperf.launch.environment import side_environment
from aiperf.launch.guardian import Guardian
guardian = Guardian().start()
guardian.scratch(Path(sys.argv[2]))
out = Path(sys.argv[3])
for name, *rest in (["hang.py"], ["ignore_term.py"], ["fork_child.py", "stay"]):
    argv = [sys.executable, f"{sys.argv[1]}/{name}", *rest]
    Child.start(argv, env=side_environment({}, seed=1), guardian=guardian, stdout=out / name)
deadline = time.monotonic() + 60
while (out / "fork_child.py").read_text() != "left\\n" and time.monotonic() < deadline:
    time.sleep(0.01)
print(guardian.pid, flush=True)
time.sleep(600)
"""


def of_parent(pid: int) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and process.environ().get("AIPERF_PARENT") == str(pid):
                found.append(process)
        except psutil.Error:
            continue
    return found


def gone(pid: int) -> bool:
    return until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)


def sleeper(guardian: Guardian) -> Child:
    argv = [sys.executable, str(PROGRAMS / "hang.py")]
    return Child.start(argv, env={"PATH": os.environ["PATH"]}, guardian=guardian)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_parent_leaves_no_process_and_no_scratch_folder(tmp_path: Path, number: int) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    (scratch / "file").write_text("x")
    argv = [sys.executable, "-c", PARENT, str(PROGRAMS), str(scratch), str(tmp_path)]
    parent = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    guardian = int(parent.stdout.readline())
    assert len(of_parent(parent.pid)) == 5
    parent.send_signal(number)
    parent.wait()
    parent.stdout.close()
    assert gone(guardian)
    assert of_parent(parent.pid) == []
    assert not scratch.exists()


def test_closing_kills_what_is_still_watched() -> None:
    guardian = Guardian().start()
    child = sleeper(guardian)
    guardian.close()
    ended = child.wait(PATIENCE_S)
    assert ended is not None
    assert ended.status == -signal.SIGKILL
    assert guardian.pid is None


def test_a_released_group_is_left_alone() -> None:
    with Guardian() as guardian:
        child = sleeper(guardian)
        guardian.release(child.pid)
        child._guardian = None
    assert child.wait(0.2) is None
    child.kill_group()


def test_a_dead_guardian_is_replaced_and_told_everything_again(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    guardian = Guardian().start()
    guardian.scratch(scratch)
    first, child = guardian.pid, sleeper(guardian)
    assert first is not None
    os.kill(first, signal.SIGKILL)
    assert gone(first)
    other = sleeper(guardian)
    assert guardian.pid not in (None, first)
    for one in (child, other):
        one._guardian = None
    guardian.close()
    assert [one.wait(PATIENCE_S) is not None for one in (child, other)] == [True, True]
    assert not scratch.exists()


def test_orders_before_the_start_are_refused() -> None:
    with pytest.raises(AiperfError, match="call start"):
        Guardian().watch(1)


@pytest.mark.parametrize("path", ["/", "relative", "/tmp/two\nlines"])
def test_a_folder_that_must_not_be_removed_is_no_scratch_folder(path: str) -> None:
    with Guardian() as guardian, pytest.raises(ValueError, match="cannot be a scratch folder"):
        guardian.scratch(Path(path))


def test_the_guardian_ignores_the_keyboard_and_stays_small() -> None:
    with Guardian() as guardian:
        assert guardian.pid is not None
        process = psutil.Process(guardian.pid)
        with sleeper(guardian) as child:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                process.send_signal(number)
            time.sleep(0.1)
            assert process.is_running()
            assert process.status() != psutil.STATUS_ZOMBIE
            assert os.getsid(process.pid) != os.getsid(0)
            assert process.memory_info().rss < 30 << 20
            assert child.poll() is None


def test_a_family_is_the_group_the_marked_and_their_descendants() -> None:
    argv = [sys.executable, str(PROGRAMS / "fork_child.py"), "stay"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True, env={"MARK": "here"}) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert len(watchdog.family((process.pid,))) == 3
        assert watchdog.family((), markers=(b"MARK=here",)) == watchdog.family((process.pid,))
        assert watchdog.family((), markers=(b"MARK=her",)) == set()
        assert watchdog.kill_family((process.pid,)) == 3
        assert until(lambda: watchdog.family((process.pid,), markers=(b"MARK=here",)) == set())
