"""Streams that fail, limits that are too small and signals that come early: which exit code it ends with."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from cli_user import QUIET_CPU, processes_with
from patience import PATIENCE_S, until

from aiperf.errors import Exit

MAIN = (sys.executable, "-m", "aiperf")


def code_of(user, line: str, *argv: str) -> tuple[int, str]:
    """Exit code and stderr of a command that a shell starts with other descriptors or limits; stderr on file 3."""
    shell = subprocess.run(
        ["bash", "-c", line, "bash", *MAIN, *argv],
        cwd=user.folder, env={**QUIET_CPU, **user.environment()}, capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip
    return shell.returncode, shell.stderr


@pytest.mark.parametrize(
    ("line", "argv", "code"),
    [
        ('"$@" >&-', ("list",), Exit.OUTPUT),
        ('"$@" >&- 2>&-', ("run", "tiny.yaml", "--dry-run"), Exit.OUTPUT),
        pytest.param('"$@" > /dev/full', ("list",), Exit.OUTPUT, marks=pytest.mark.long),
        pytest.param('"$@" > /dev/full', ("--help",), Exit.OUTPUT, marks=pytest.mark.long),
        pytest.param('"$@" 1< /dev/null', ("list",), Exit.OUTPUT, marks=pytest.mark.long),
        pytest.param('"$@" 2>&-', ("list",), Exit.OK, marks=pytest.mark.long),
        ('"$@" 2>&-', ("list", "--no-such-option"), Exit.USAGE),
        pytest.param('"$@" 2> /dev/full', ("run", "./no-such-scenario.yaml"), Exit.USAGE, marks=pytest.mark.long),
        pytest.param('"$@" <&-', ("list",), Exit.OK, marks=pytest.mark.long),
        ('ulimit -v 30000; "$@"', ("list",), Exit.RESOURCES),
        pytest.param('ulimit -v 20000; "$@"', ("list",), Exit.RESOURCES, marks=pytest.mark.long),
        *(
            pytest.param(f'ulimit -v {kib}; "$@"', ("list",), Exit.RESOURCES, marks=pytest.mark.long)
            for kib in range(18_500, 21_500, 500)
            if kib != 20_000
        ),
    ],
)
def test_a_stream_or_a_limit_that_fails_has_a_code_of_its_own(user, line, argv, code) -> None:
    ended, err = code_of(user, line, *argv)
    assert ended == code, err
    assert "Traceback" not in err


@pytest.mark.long
def test_a_run_whose_progress_nobody_can_read_is_measured_to_its_end(user) -> None:
    ended, _ = code_of(user, '"$@" 2> /dev/full', "run", "tiny.yaml", "--precision", "fast.yaml", "--no-peaks")
    assert ended == Exit.OK
    assert user.run_record()["status"] == "finished"


@pytest.fixture
def heard() -> Iterator[None]:
    """Hang-ups reach what is started here, also where these tests themselves run under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.long
@pytest.mark.usefixtures("heard")
def test_a_run_whose_terminal_is_gone_is_closed_as_interrupted(marked) -> None:
    marked.scenario("tiny")  # both sides in one process
    marked.env["TERM"] = "xterm"
    master, slave = os.openpty()
    process = marked.start(
        "run", "tiny.yaml", "--precision", "endless.yaml", "--no-peaks", stdin=slave, stdout=slave, stderr=slave
    )
    os.close(slave)
    assert until(lambda: list(marked.folder.glob("results/*/cases/tiny.json")))
    os.close(master)
    assert process.wait(PATIENCE_S) == Exit.INTERRUPTED
    assert marked.run_record()["status"] == "interrupted"
    assert marked.record()["stop"] in {"interrupted", "budget"}
    assert until(lambda: not processes_with(marked.env["TEST_MARK"]))


@pytest.mark.parametrize("module", ["aiperf.cli.main", "aiperf.cli.list"])
def test_an_interrupt_while_the_command_is_loaded_shows_no_traceback(user, module) -> None:
    # Before it runs at all Python itself takes some milliseconds, in which nobody can catch a signal.
    program = f"""
import importlib, os, signal
import aiperf.__main__ as command
load = importlib.import_module
def interrupted(name, package=None):
    if name == {module!r}:
        os.kill(os.getpid(), signal.SIGINT)
    return load(name, package)
importlib.import_module = interrupted
raise SystemExit(command.main())
"""
    done = subprocess.run(
        [sys.executable, "-c", program, "list"],
        cwd=user.folder, env={**QUIET_CPU, **user.environment()}, capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (Exit.INTERRUPTED, "", "")


def test_a_child_that_cannot_be_started_for_want_of_processes_is_no_mistake_of_the_user(user, monkeypatch) -> None:
    def none_left(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("aiperf.launch.guardian.subprocess.Popen", none_left)
    typed = user.runs("tiny.yaml")
    assert typed.code == Exit.RESOURCES
    assert "ulimit" in typed.err
