"""Scenarios checked in a few processes side by side, each of which is replaced when it dies or has served its turn.

What must not live here: what is checked of a scenario.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from aiperf.workloads.contract import SkipSide


@dataclass(frozen=True)
class Outcome:
    """What came of one scenario."""

    name: str
    status: str
    """passed, skipped or failed."""
    detail: str = ""
    seconds: dict[str, float] = field(default_factory=dict)
    """Of a step of each side: a first look."""
    took: float = 0.0


@dataclass(frozen=True)
class Crew:
    """Who checks."""

    argv: Sequence[str]
    """Starts a process that serves (see ``serve``)."""
    jobs: int
    limit_s: float
    """Seconds that one scenario may take."""
    line: Callable[[Outcome], str]
    """An outcome for people."""
    fresh: bool = False
    """Give each scenario a process of its own."""
    heard: Callable[[Outcome], None] = lambda outcome: None
    """Told of every outcome as it comes, by one thread at a time."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    variables: Callable[[str], Mapping[str, str]] = lambda name: {}
    """What a scenario wants set in the environment of its process, which is then its own."""


def check_all(wanted: Iterable[str], crew: Crew) -> dict[str, Outcome]:
    """Name -> what came of it; every name that was asked for."""
    todo: queue.Queue[str] = queue.Queue()
    for name in wanted:
        todo.put(name)
    found: dict[str, Outcome] = {}
    threads = [threading.Thread(target=_drain, args=(todo, found, crew)) for _ in range(crew.jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def counts_of(outcomes: Iterable[Outcome]) -> dict[str, int]:
    """Status -> how many."""
    told = [outcome.status for outcome in outcomes]
    return {status: told.count(status) for status in ("passed", "skipped", "failed")}


def _drain(todo: queue.Queue[str], found: dict[str, Outcome], crew: Crew) -> None:
    child: subprocess.Popen[str] | None = None
    with contextlib.suppress(queue.Empty):
        while True:
            name = todo.get_nowait()
            try:
                variables = crew.variables(name)
            except Exception as error:  # a name that there is not, say: the others are checked all the same
                found[name] = Outcome(name, "failed", f"{type(error).__name__}: {error}")
                _tell(found[name], crew)
                continue
            if child is not None and variables:
                _end(child)
                child = None
            if child is None or child.poll() is not None:
                child = _start(crew, variables)
            found[name], alive = _ask(child, name, crew.limit_s)
            _tell(found[name], crew)
            if crew.fresh or variables or not alive:
                _end(child)
                child = None
    if child is not None:
        _end(child)


def _tell(outcome: Outcome, crew: Crew) -> None:
    with crew.lock:
        print(crew.line(outcome), flush=True)
        crew.heard(outcome)


def _start(crew: Crew, variables: Mapping[str, str]) -> subprocess.Popen[str]:
    pipe, env = subprocess.PIPE, {**os.environ, **variables}
    return subprocess.Popen(crew.argv, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, env=env)


def _end(child: subprocess.Popen[str]) -> None:
    child.kill()
    child.wait()


def _ask(child: subprocess.Popen[str], name: str, limit_s: float) -> tuple[Outcome, bool]:
    """The child's answer, and whether it can go on."""
    assert child.stdin is not None
    assert child.stdout is not None
    began = time.monotonic()
    watch = threading.Timer(limit_s, child.kill)
    watch.start()
    try:
        child.stdin.write(name + "\n")
        child.stdin.flush()
        answer = child.stdout.readline()
    except BrokenPipeError:
        answer = ""
    finally:
        watch.cancel()
    took = time.monotonic() - began
    if not answer:
        why = f"no answer within {limit_s:.0f} s" if took >= limit_s else f"its process died ({child.wait()})"
        return Outcome(name, "failed", why, took=took), False
    told = Outcome(**json.loads(answer))
    return told, told.status != "failed"


Checked = tuple[str, dict[str, float]]
"""What is said of a scenario that passed, and the seconds of its steps."""


def serve(check: Callable[[str, Path], Checked]) -> None:
    """Check the scenarios named on stdin, one a line, each with an empty folder; answer each with its outcome."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a workload prints must not be taken for an answer
    for name in map(str.strip, sys.stdin):
        began = time.monotonic()
        seconds: dict[str, float] = {}
        try:
            with tempfile.TemporaryDirectory() as folder:
                status, (detail, seconds) = "passed", check(name, Path(folder))
        except SkipSide as skip:
            status, detail = "skipped", str(skip)
        except Exception as error:  # whatever a workload raises is its outcome
            status, detail = "failed", f"{type(error).__name__}: {error}"[:600].replace("\n", " ")
        told = Outcome(name, status, detail, seconds, time.monotonic() - began)
        answers.write(json.dumps(asdict(told)) + "\n")
        answers.flush()
