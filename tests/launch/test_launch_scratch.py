from __future__ import annotations

import os
import re
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from aiperf.errors import UserError
from aiperf.launch import scratch
from aiperf.launch.guardian import Guardian
from aiperf.launch.scratch import Scratch, prefix, scratch_area

HOLDER = """
import sys, time
from pathlib import Path
from aiperf.launch.guardian import Guardian
from aiperf.launch.scratch import Scratch
guardian = Guardian().start()
folder = Scratch(guardian, "run", area=Path(sys.argv[1])).open()
(folder / "deep").mkdir()
(folder / "deep" / "outputs").write_bytes(b"x" * 100)
print(guardian.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "_UNHELD_S", 0.0)


def held_elsewhere(area: Path) -> tuple[subprocess.Popen[str], int]:
    """A run of another process that holds a folder; and its guardian."""
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(area)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    return holder, int(holder.stdout.readline())


def killed_together(holder: subprocess.Popen[str], guardian: int) -> None:
    # Stopped first, so that it cannot do its work in between.
    os.kill(guardian, signal.SIGSTOP)
    holder.kill()
    holder.communicate()
    os.kill(guardian, signal.SIGKILL)


def test_a_folder_is_this_users_alone_and_goes_with_all_that_is_in_it(tmp_path: Path) -> None:
    with Scratch(None, "run", area=tmp_path) as folder:
        assert folder.parent == tmp_path
        assert folder.stat().st_mode & 0o777 == 0o700
        assert re.fullmatch(re.escape(prefix("run")) + "[0-9a-f]{16}", folder.name)
        (folder / "deep").mkdir()
        (folder / "deep" / "file").write_text("text")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_known_to_the_guardian_before_it_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there: list[bool] = []
    told = Guardian.scratch
    monkeypatch.setattr(Guardian, "scratch", lambda self, path: there.append(path.exists()) or told(self, path))
    with Guardian() as guardian:
        assert Scratch(guardian, "run", area=tmp_path).open().is_dir()
    assert there == [False]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("at_once")
def test_what_a_run_left_that_was_killed_with_its_guardian_goes_with_the_next_run(tmp_path: Path) -> None:
    killed_together(*held_elsewhere(tmp_path))
    (left,) = tmp_path.iterdir()
    assert (left / "deep" / "outputs").exists()
    with Scratch(None, "run", area=tmp_path) as folder:
        assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.usefixtures("at_once")
def test_the_folder_of_a_run_that_lives_stays(tmp_path: Path) -> None:
    holder, guardian = held_elsewhere(tmp_path)
    try:
        (held,) = tmp_path.iterdir()
        with Scratch(None, "run", area=tmp_path), Scratch(None, "run", area=tmp_path):
            assert (held / "deep" / "outputs").exists()
        assert list(tmp_path.iterdir()) == [held]
    finally:
        killed_together(holder, guardian)


@pytest.mark.usefixtures("at_once")
def test_nothing_else_is_swept(tmp_path: Path) -> None:
    digits = "0123456789abcdef"
    kept = [
        tmp_path / f"aiperf-run-another_node-{digits}",
        tmp_path / f"{prefix('profile')}{digits}",
        tmp_path / f"{prefix('run')}{digits}0",
        tmp_path / f"{prefix('run')}mine",
    ]
    for folder in kept:
        folder.mkdir()
    aside = tmp_path / "aside"
    aside.mkdir()
    (tmp_path / f"{prefix('run')}{digits}").symlink_to(aside)
    with Scratch(None, "run", area=tmp_path):
        pass
    assert sorted(tmp_path.iterdir()) == sorted([*kept, aside, tmp_path / f"{prefix('run')}{digits}"])


def test_a_folder_that_was_made_just_now_is_left_to_who_is_about_to_hold_it(tmp_path: Path) -> None:
    fresh = tmp_path / f"{prefix('run')}0123456789abcdef"
    fresh.mkdir()
    with Scratch(None, "run", area=tmp_path):
        assert fresh.is_dir()


@pytest.mark.usefixtures("at_once")
def test_a_folder_of_another_user_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / f"{prefix('run')}0123456789abcdef"
    other.mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: other.stat().st_uid + 1)
    with Scratch(None, "run", area=tmp_path):
        assert other.is_dir()


def test_a_place_that_cannot_be_written_is_told_with_what_to_do(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(UserError, match="no scratch folder can be created here") as told:
        Scratch(None, "run", area=file / "below").open()
    assert "AIPERF_SCRATCH" in told.value.faults[0].hint


def test_the_area_is_the_one_asked_for_or_the_systems(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AIPERF_SCRATCH", str(tmp_path))
    assert scratch_area() == tmp_path
    monkeypatch.setenv("AIPERF_SCRATCH", "")
    assert scratch_area().is_absolute()


@pytest.mark.usefixtures("at_once")
def test_a_lock_ends_with_its_folder_and_so_does_that_of_a_folder_swept(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        (tmp_path / f"{prefix('run')}0123456789abcdef").mkdir()
        with Scratch(None, "run", area=tmp_path) as folder:
            assert list(tmp_path.iterdir()) == [folder]
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("area_too", [False, True])
def test_what_a_side_has_removed_is_made_again(tmp_path: Path, area_too: bool) -> None:
    scratch = Scratch(None, "run", area=tmp_path / "area")
    scratch.path.parent.mkdir()
    with scratch as folder:
        shutil.rmtree(folder.parent if area_too else folder)
        scratch.restore()
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert not folder.exists()
