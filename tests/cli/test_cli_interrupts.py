"""What is left when a run is interrupted, terminated or killed."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli_user import processes_with
from patience import PATIENCE_S, until

from aiperf.cli.signals import interruptible


def start_endless(user, *more: str):
    """A run that would go on for ever, once its first pairs are stored."""
    process = user.start("run", "tiny.yaml", *more, "--precision", "endless.yaml", "--no-peaks")
    assert until(lambda: list(user.folder.glob("results/*/cases/tiny.json"))), "no case was ever stored"
    return process


def test_an_interrupted_run_saves_and_reports_what_was_measured(marked) -> None:
    marked.scenario("tiny")  # both sides in one process
    process = start_endless(marked)
    # As make and a terminal do it: the whole group, and more than once; and whatever comes after.
    os.killpg(process.pid, signal.SIGINT)
    time.sleep(0.05)
    os.killpg(process.pid, signal.SIGTERM)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "interrupted" in out
    assert "tiny" in out
    assert marked.run_record()["status"] == "interrupted"
    record = marked.record()
    # Where it stood at a look, that look's verdict stays.
    assert (record["status"], record["stop"]) in {("interrupted", "interrupted"), ("measured", "budget")}
    assert len(record["pairs"]) >= 3
    assert until(lambda: not processes_with(marked.env["TEST_MARK"]))
    told = marked.types("report", "--recompute")
    assert told.code == 0
    assert "interrupted" in told.out


@pytest.mark.long
def test_an_interrupt_in_the_first_pair_leaves_a_run_that_can_be_reported(marked) -> None:
    slow = marked.scenario("slow", before="{pause: 0.5}", after="{pause: 0.5}")
    process = marked.start("run", slow, "--precision", "fast.yaml", "--no-peaks", "-q")
    assert until(lambda: list(marked.folder.glob("results/*/run.json")))
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, "Traceback" in out + err) == (130, False)
    assert marked.run_record()["status"] == "interrupted"
    assert marked.types("report").code == 0


def test_a_killed_run_leaves_no_worker_and_its_stored_cases_have_no_verdict(marked) -> None:
    process = start_endless(marked)
    assert until(lambda: len(processes_with(marked.env["TEST_MARK"])) >= 3)
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    assert until(lambda: not processes_with(marked.env["TEST_MARK"]))
    record = marked.record()
    assert (record["status"], record["stop"]) == ("interrupted", "")
    for more in ((), ("--recompute",)):
        told = marked.types("report", *more)
        assert told.code == 0
        assert "tiny" in told.out
        assert (
            f"or killed, after {len(record['pairs'])} pairs, before any stopping rule applied: no verdict" in told.out
        )


@pytest.mark.long
def test_programs_die_with_the_comparison_that_started_them(marked) -> None:
    program = f"{sys.executable} -I -S -c {shlex.quote('while True: pass')}"
    process = marked.start("ab", program, program, "--precision", "fast.yaml")
    assert until(lambda: len(processes_with(marked.env["TEST_MARK"])) >= 3)
    process.terminate()
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, "Traceback" in out + err) == (130, False)
    assert until(lambda: not processes_with(marked.env["TEST_MARK"]))


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_survey_stores_and_reports_what_was_measured(marked, number) -> None:
    process = marked.start("survey", "--groups", "3", "--json", "--results", str(marked.folder / "results"))
    for line in process.stderr:
        if line.startswith("round 2 of"):
            break
    # To all processes, as a scheduler sends it.
    os.killpg(process.pid, number)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, "Traceback" in err) == (130, False)
    (file,) = (marked.folder / "results" / "surveys").glob("*.json")
    record = json.loads(file.read_text())
    assert (record["ended"], record["planned"], record["lost"]) == ("interrupted", 24, [])
    assert 2 <= record["rounds"] < 24
    assert {row["ended"] for row in json.loads(out)} == {"interrupted"}
    assert until(lambda: not processes_with(marked.env["TEST_MARK"]))


@pytest.mark.long
def test_an_interrupted_calibration_says_so_and_keeps_nothing_half_done(marked) -> None:
    marked.scenario("tiny")
    marked.env["AIPERF_STATE"] = str(marked.folder / "state")
    process = marked.start("calibrate", "tiny.yaml", "--precision", "fast.yaml", "--sessions", "500")
    assert until(lambda: list(marked.folder.glob("results/*/cases/*.json")))
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert "interrupted" in err
    assert "Traceback" not in err
    assert marked.run_record()["status"] == "interrupted"
    assert not list((marked.folder / "state").rglob("*calibration*"))


@pytest.fixture
def handlers():
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    former = {number: signal.getsignal(number) for number in numbers}
    yield numbers
    for number, handler in former.items():
        signal.signal(number, handler)


def test_each_signal_interrupts_once_and_later_ones_do_not_disturb_the_leaving(handlers) -> None:
    for number in handlers:
        for each in handlers:
            signal.signal(each, signal.default_int_handler if each == signal.SIGINT else signal.SIG_DFL)
        saved = False
        with pytest.raises(KeyboardInterrupt), interruptible():  # noqa: PT012
            try:
                signal.raise_signal(number)
            finally:
                for again in handlers:
                    signal.raise_signal(again)
                saved = True
        assert saved
        assert {signal.getsignal(each) for each in handlers} == {signal.SIG_IGN}


def test_without_a_signal_everything_is_as_it_was_and_what_the_caller_ignores_stays_ignored(handlers) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    before = [signal.getsignal(number) for number in handlers]
    with interruptible():
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    assert [signal.getsignal(number) for number in handlers] == before


@pytest.mark.usefixtures("host_read_anew")
def test_a_worker_of_an_earlier_run_is_reported_as_a_finding(marked) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    commands, replies = os.pipe(), os.pipe()
    argv = [sys.executable, "-m", "aiperf.worker", str(commands[0]), str(replies[1]), "0", "1", "0", "-1"]
    env = {**marked.environment(), "AIPERF_PARENT": str(gone.pid)}
    stale = subprocess.Popen(argv, env=env, pass_fds=(commands[0], replies[1]), cwd=Path(marked.folder))
    try:
        done = marked.types("run", marked.scenario("big", needs="{gpus: 9}"))
        assert done.code == 77
        # Another run of the tests on this machine may have left one of its own.
        assert re.search(rf"Workers of an earlier aiperf: PID (\d+ )*{stale.pid} ", done.err)
        found = {finding["id"]: finding["value"] for finding in marked.run_record()["findings"]}
        assert str(stale.pid) in found["stale_workers"]
        assert stale.poll() is None
    finally:
        stale.kill()
        stale.wait()
        for end in (*commands, *replies):
            os.close(end)
