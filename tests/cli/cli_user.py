"""Somebody who types commands in a folder of tiny scenarios.

What must not live here: tests and fixtures.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pytest
from patience import PATIENCE_S

from aiperf.cli.main import entry

CHECKOUT = Path(__file__).resolve().parents[2]
WORKLOAD = """
import os
import time

import numpy as np

from aiperf.workloads.contract import Context, Work, Workload


def add(context: Context, *, items: int = 256, wrong: bool = False, fails: bool = False, pause: float = 0.0):
    if fails:
        raise RuntimeError("the model file is missing")
    x = np.random.default_rng(context.seed).standard_normal(items)
    out = np.empty_like(x)

    def step() -> None:
        np.add(x, 1.0 + wrong, out=out)
        if pause:
            time.sleep(pause)

    return Workload(step, Work(items=items), outputs=lambda: {"out": out}, inputs=lambda: {"x": x})
"""
SCENARIO = """\
title: Add against add
why: Both sides are the same, so that nothing but the command is tried.
tags: [mine]
workload: ./work.py:add
before: {}
after: {}
expect: equivalent
"""
IN_ONE_PROCESS = "measure: {isolation: in_process}\n"
"""A pair starts half as many processes; for what is the same whichever processes its sides run in."""
PRECISION = """\
looks: [3]
alpha: 0.05
delta: 0.9
width: 5
case_seconds: 20
rounds: 2
round_seconds: 0.002
side_seconds: 0.01
warmup_seconds: 0.05
warmup_window: 5
audits: 1
provisional: true
"""
ENDLESS = (
    PRECISION.replace("looks: [3]", "looks: [3, 1000]")
    .replace("alpha: 0.05", "alpha: 1.0e-12")
    .replace("0.9", "0.000001")
    .replace("width: 5", "width: 1.0e-9")
    .replace("case_seconds: 20", "case_seconds: 3600")
)
"""No verdict can be reached: also by chance an interval at this alpha does not leave 1 out; nor does a busy host's
slowness use up the time of the case."""


QUIET_CPU = {"AIPERF_PIN": str(max(os.sched_getaffinity(0)))}
"""For commands in processes of their own."""
_FOLDERS = {
    "AIPERF_STATE",
    "AIPERF_SCRATCH",
    "TEST_MARK",
    "GITHUB_ACTIONS",
    "GITHUB_STEP_SUMMARY",
    "MY_API_TOKEN",
    "AIPERF_NSYS",
    "COLUMNS",
}
"""What a command in this process may find changed: it is read at each use."""

CALM = {"equivalent", "inconclusive"}
"""What three pairs of equal sides may come to; a wide threshold keeps noise from the other words."""


@dataclass(frozen=True)
class Typed:
    """What came of a command."""

    code: int
    out: str
    err: str

    @property
    def plain(self) -> bool:
        """Whether neither stream holds a traceback or a control character."""
        both = self.out + self.err
        return "Traceback" not in both and "\x1b" not in both and "\r" not in both


@dataclass
class User:
    """Types commands in a folder that holds tiny.yaml, its workload and two precisions."""

    folder: Path
    env: dict[str, str] = field(default_factory=dict)
    done: Typed = Typed(0, "", "")
    """What the last command of a prepared user came to."""

    def __post_init__(self) -> None:
        self.write("work.py", WORKLOAD)
        self.write("tiny.yaml", SCENARIO + IN_ONE_PROCESS)
        self.write("fast.yaml", PRECISION)
        self.write("endless.yaml", ENDLESS)

    def write(self, name: str, text: str | bytes) -> Path:
        """Write a file of the folder."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    def scenario(self, name: str, **blocks: str) -> str:
        """Write tiny.yaml with other blocks, less those that are empty, under another name; the path to type."""
        kept = dict(line.split(": ", 1) for line in (SCENARIO + IN_ONE_PROCESS).splitlines()) | blocks
        self.write(f"{name}.yaml", "".join(f"{k}: {v}\n" for k, v in kept.items() if v))
        return f"./{name}.yaml"

    def environment(self) -> dict[str, str]:
        """The environment of what is typed."""
        return {**os.environ, "PYTHONPATH": str(CHECKOUT), **self.env}

    def start(self, *argv: str, **more: Any) -> subprocess.Popen[str]:
        """Start a command in a process group of its own, which need not try every CPU to find a quiet one."""
        return subprocess.Popen(
            [sys.executable, "-m", "aiperf", *argv],
            cwd=self.folder, env={**QUIET_CPU, **self.environment()}, start_new_session=True, text=True,
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more},
        )  # fmt: skip

    def types(self, *argv: str, apart: bool = False, **more: Any) -> Typed:
        """Type a command and wait for its end.

        It runs in this process, which has imported the package already, unless ``apart`` is set, its environment
        differs in more than folders, or ``more`` says how to start a process.
        """
        if not apart and not more and self.env.keys() <= _FOLDERS:
            return self._types_here(*argv)
        with self.start(*argv, **more) as process:
            out, err = process.communicate(timeout=PATIENCE_S)
        return Typed(process.returncode, out or "", err or "")

    def _types_here(self, *argv: str) -> Typed:
        with (
            pytest.MonkeyPatch.context() as patch,
            tempfile.TemporaryFile("w+", encoding="utf-8") as out,
            tempfile.TemporaryFile("w+", encoding="utf-8") as err,
        ):
            for name, value in self.environment().items():
                patch.setenv(name, value)
            patch.chdir(self.folder)
            patch.setattr(sys, "argv", ["aiperf", *argv])
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            # Programs that the command starts write there, too.
            with _descriptor(1, out), _descriptor(2, err):
                code = int(entry())
            texts = [(file.seek(0), file.read())[1] for file in (out, err)]
        return Typed(code, *texts)

    def runs(self, *argv: str, apart: bool = False) -> Typed:
        """Type a run of the fast precision, without limits being measured."""
        return self.types("run", *argv, "--precision", "fast.yaml", "--no-peaks", apart=apart)

    def latest(self) -> Path:
        """The newest run's folder."""
        return (self.folder / "results" / "latest").resolve()

    def record(self, case: str = "tiny") -> dict[str, Any]:
        """A case of the newest run as stored."""
        return json.loads((self.latest() / "cases" / f"{case}.json").read_text())

    def only_record(self) -> dict[str, Any]:
        """The newest run's only case as stored."""
        (path,) = (self.latest() / "cases").glob("*.json")
        return json.loads(path.read_text())

    def run_record(self) -> dict[str, Any]:
        """The newest run's own record."""
        return json.loads((self.latest() / "run.json").read_text())


@contextlib.contextmanager
def _descriptor(number: int, file: IO[str]) -> Iterator[None]:
    """The file in place of what this descriptor of the process was."""
    former = os.dup(number)
    os.dup2(file.fileno(), number)
    try:
        yield
        file.flush()
    finally:
        os.dup2(former, number)
        os.close(former)


def processes_with(marker: str) -> list[int]:
    """Live processes with a text in their environment: a run's workers, programs and guardian carry their folder."""
    found = []
    for entry_ in Path("/proc").iterdir():
        if entry_.name.isdigit() and int(entry_.name) != os.getpid():
            with contextlib.suppress(OSError):
                state = (entry_ / "stat").read_bytes().rpartition(b")")[2].split()[0]
                if marker.encode() in (entry_ / "environ").read_bytes() and state != b"Z":
                    found.append(int(entry_.name))
    return found
