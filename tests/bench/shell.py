"""Starting aiperf as a user would, and keeping what was measured so that a broken run can be taken up again.

What must not live here: figures and their targets.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiperf.cli.signals import interruptible
from aiperf.workloads.serve.server import end_group

ROOT = Path(__file__).resolve().parents[2]
_LEAVE_S = 30.0
"""For a program that is asked to end: its servers have ten seconds of their own."""
_INSIDE = Path(__file__).with_name("inside.py")


@dataclass(frozen=True)
class Done:
    """A finished program."""

    code: int
    out: str
    err: str
    seconds: float
    facts: dict[str, Any]
    """What ``inside.py`` saw at the end of the process; empty for a plain program."""
    cut: str = ""
    """Why it was ended before its end: limit or signal; empty where it ended by itself."""


def say(text: str) -> None:
    """Progress, on stderr."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def run(*command: str, env: dict[str, str] | None = None, show: bool = False) -> Done:
    """Run a program from the checkout's root; ``show`` lets its stderr through."""
    began = time.perf_counter()
    done = subprocess.run(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=None if show else subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        env={**os.environ, **(env or {})},
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr or "", time.perf_counter() - began, {})


def run_within(seconds: float, *command: str, env: dict[str, str] | None = None) -> Done:
    """Run a program for at most ``seconds``; it is asked to end then, or when SIGTERM or Ctrl-C comes here, and nothing
    of its process group stays."""
    began, cut = time.perf_counter(), ""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env={**os.environ, **(env or {})},
            process_group=0,
        )  # fmt: skip
        try:
            with interruptible():
                process.wait(seconds)
        except (subprocess.TimeoutExpired, KeyboardInterrupt) as reason:
            cut = "limit" if isinstance(reason, subprocess.TimeoutExpired) else "signal"
            end_group(process, patience=_LEAVE_S)
        took = time.perf_counter() - began
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode("utf-8", "replace"))
    return Done(process.returncode, *texts, took, {}, cut)


def aiperf_within(seconds: float, *arguments: str, state: Path) -> Done:
    """Run aiperf for at most ``seconds``; what it had measured by then it saves when it is asked to end."""
    return run_within(seconds, sys.executable, "-m", "aiperf", *arguments, env={"AIPERF_STATE": str(state)})


def aiperf(*arguments: str, state: Path, show: bool = False) -> Done:
    """Run ``python -m aiperf`` with its state kept in ``state``: a user's own calibration must not steer the bench."""
    return run(sys.executable, "-m", "aiperf", *arguments, env={"AIPERF_STATE": str(state)}, show=show)


def aiperf_seen(*arguments: str, state: Path, show: bool = False) -> Done:
    """Run aiperf and tell, from inside its process, the memory it used and the modules it loaded."""
    with tempfile.TemporaryDirectory() as folder:
        facts = Path(folder) / "facts.json"
        env = {"AIPERF_STATE": str(state), "AIPERF_BENCH_FACTS": str(facts)}
        done = run(sys.executable, str(_INSIDE), *arguments, env=env, show=show)
        seen = json.loads(facts.read_text()) if facts.is_file() else {}
    return Done(done.code, done.out, done.err, done.seconds, seen)


def keep(path: Path, data: Any) -> None:
    """Write ``data`` as JSON, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    part.replace(path)


def kept(path: Path) -> Any:
    """What was kept there, or None."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def machine() -> dict[str, Any]:
    """When and under which load a measurement was taken."""
    return {"when": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "load": os.getloadavg()[0]}
