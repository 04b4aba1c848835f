"""Sets up and checks the first case of every scenario of scenarios/gpu, in a few processes side by side.

A kernel that writes where it must not ruins its whole process, so each process takes one scenario after another and is
replaced when it dies; what it was at is then the one that failed. ``python tests/gpu/library.py [NAME ...]`` prints a
line a scenario. What must not live here: what makes a case right (see gpu_cases.py).
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
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from aiperf.plan.cases import expand
from aiperf.records import Side
from aiperf.scenario.load import load_scenario

FOLDER = Path(__file__).parents[2] / "scenarios/gpu"
JOBS = 4
LIMIT_S = 60.0


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


def names() -> list[str]:
    """Every scenario of one GPU whose sides can share a process: one that sets their environment cannot."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml") if not any(s.env for s in expand_first(path)))


def expand_first(path: Path) -> tuple[Side, ...]:
    """The sides of a scenario's first case."""
    return expand(load_scenario(path), on_gpu=True)[0].sides


def check_all(wanted: Iterable[str], jobs: int = JOBS) -> dict[str, Outcome]:
    """Name -> what came of it; every name that was asked for."""
    todo: queue.Queue[str] = queue.Queue()
    for name in wanted:
        todo.put(name)
    found: dict[str, Outcome] = {}
    threads = [threading.Thread(target=_drain, args=(todo, found)) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def _drain(todo: queue.Queue[str], found: dict[str, Outcome]) -> None:
    child: subprocess.Popen[str] | None = None
    with contextlib.suppress(queue.Empty):
        while True:
            name = todo.get_nowait()
            if child is None or child.poll() is not None:
                child = _start()
            found[name], alive = _ask(child, name)
            print(line(found[name]), flush=True)
            if not alive:
                child.kill()
                child.wait()
                child = None
    if child is not None:
        child.kill()
        child.wait()


def _start() -> subprocess.Popen[str]:
    own = [sys.executable, __file__, "--child"]
    return subprocess.Popen(own, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def _ask(child: subprocess.Popen[str], name: str) -> tuple[Outcome, bool]:
    """The child's answer, and whether it can go on."""
    assert child.stdin is not None
    assert child.stdout is not None
    began = time.monotonic()
    watch = threading.Timer(LIMIT_S, child.kill)
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
        why = f"no answer within {LIMIT_S:.0f} s" if took >= LIMIT_S else f"its process died ({child.wait()})"
        return Outcome(name, "failed", why, took=took), False
    told = Outcome(**json.loads(answer))
    return told, told.status != "failed"


def line(outcome: Outcome) -> str:
    """One line for people."""
    first = outcome.seconds.get("before")
    steps = ", ".join(f"{1e6 * s:.1f} us" for s in outcome.seconds.values())
    gain = f" {first / min(list(outcome.seconds.values())[1:]):.2f}x" if first and len(outcome.seconds) > 1 else ""
    return f"{outcome.status:7} {outcome.name}{gain} [{steps}] {outcome.took:.1f} s {outcome.detail}".rstrip()


def _child() -> None:
    import torch
    from gpu_cases import cases_of, check_case, gpu_context

    from aiperf.workloads.contract import SkipSide

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a workload prints must not be taken for an answer
    for name in map(str.strip, sys.stdin):
        began = time.monotonic()
        status, detail, seconds = "passed", "", {}
        try:
            case = next(cases_of(FOLDER / f"{name}.yaml"))
            with tempfile.TemporaryDirectory() as folder:
                seconds = check_case(case, gpu_context(Path(folder)))
        except SkipSide as skip:
            status, detail = "skipped", str(skip)
        except Exception as error:  # whatever a workload raises is its outcome
            status, detail = "failed", f"{type(error).__name__}: {error}"[:600].replace("\n", " ")
        with contextlib.suppress(Exception):
            torch.cuda.empty_cache()
        told = Outcome(name, status, detail, seconds, time.monotonic() - began)
        answers.write(json.dumps(asdict(told)) + "\n")
        answers.flush()


if __name__ == "__main__":
    if sys.argv[1:] == ["--child"]:
        _child()
    else:
        outcomes = check_all(sys.argv[1:] or names())
        counts = {s: sum(o.status == s for o in outcomes.values()) for s in ("passed", "skipped", "failed")}
        print(counts)
        sys.exit(1 if counts["failed"] else 0)
