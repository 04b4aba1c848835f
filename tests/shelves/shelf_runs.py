"""Runs scenario files of the shelves through the real command, fast, and finds what it may have left behind.

What must not live here: what is expected of any of them.
"""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from aiperf.records import CaseRecord
from aiperf.store.read import open_run
from tests.cli.cli_user import User

ROOT = Path(__file__).parents[2]
CPU = max(os.sched_getaffinity(0))
PRECISION = """
looks: [3]
alpha: 0.0294
delta: 0.05
width: 0.05
case_seconds: 60
round_seconds: 0.002
rounds: 4
side_seconds: 0.02
warmup_seconds: 0.2
warmup_window: 6
audits: 2
"""


@dataclass(frozen=True)
class Ran:
    """A finished command: what it said, what it stored, who of it still lives."""

    status: int
    output: str
    errors: str
    records: dict[str, CaseRecord]
    alive: list[str]
    scratch: list[str]


def shelf(name: str) -> tuple[Path, tuple[Any, ...]]:
    """Folder and entries of the shelf of this name."""
    folder = ROOT / "tests" / name
    spec = importlib.util.spec_from_file_location(f"{name}_shelf", folder / "shelf.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return folder, module.SHELF


def run_scenarios(paths: list[Path], folder: Path) -> Ran:
    """``aiperf run`` over the files, with the shortest settings that still warm up, alternate, audit and conclude."""
    results, scratch = folder / "results", folder / "scratch"
    user = User(folder, env={"AIPERF_SCRATCH": str(scratch), "COLUMNS": "200"})
    user.write("short.yaml", PRECISION)
    scratch.mkdir()
    argv = ["run", *map(str, paths), "--precision", "short.yaml", "--no-peaks"]
    argv += ["--results", str(results), "--pin", str(CPU), "--quiet"]
    done = user.types(*argv)
    cases, damaged = open_run(results=results).read_cases()
    assert damaged == ()
    records = {record.case.scenario: record for record in cases}
    left = [path.name for path in scratch.iterdir()]
    return Ran(done.code, done.out, done.err, records, of_parent(os.getpid()), left)


def of_parent(pid: int) -> list[str]:
    """Command lines of the live processes that carry the mark of this parent."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and process.environ().get("AIPERF_PARENT") == str(pid):
                found.append(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    return found
