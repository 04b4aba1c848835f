"""Gate runs in a small repository whose commits are known: slower, the same, noisy, the same beside a busy neighbour.

What must not live here: how a gate measures or judges.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.figures import Figure, seconds
from tests.bench.shell import aiperf, keep, kept, machine, say

STEP_S = 0.5e-3
"""Length of a step at base."""
LONGEST_S = 60.0
"""Of one session; a regression takes two, because a fresh one must confirm it."""
PRECISION = """\
# Five looks (Pocock), a minute a session at most: pairs scatter by 1 to 4 % on a small virtual machine.
looks: [6, 10, 16, 24, 40]
alpha: 0.0158
delta: 0.02
width: 0.01
case_seconds: 60
side_seconds: 0.3
warmup_seconds: 0.05
audits: 2
"""
_PROBE = 400_000
GATE = "precision: precision.yaml\nmetrics: {time: {}}\n"
DIGEST = '''"""The code under test: a digest of a buffer of known size."""

import hashlib
import random

import numpy as np

from aiperf.workloads.contract import Context, Work, Workload

SIZE = %s


def digest(context: Context) -> Workload:
    """BLAKE2b of SIZE bytes."""
    data = np.random.default_rng(context.seed).bytes(SIZE)
    out = np.zeros(1)

    def step() -> None:
        out[0] = hashlib.blake2b(data).digest()[0] >= 0

    return Workload(
        step=step,
        work=Work(items=1),
        outputs=lambda: {"done": out},
        fixed_inputs="BLAKE2b takes the same time for any bytes, and commits may differ in how many there are",
    )
'''
"""Not a loop in Python: where its integers lie in memory makes one start in ten 5 to 90 % slower for all its life."""
SCENARIO = """\
title: A digest
why: Its commits are known.
workload: ./digest.py:digest
before: {}
after: {}
expect: equivalent
"""


@dataclass(frozen=True)
class Kind:
    """One kind of commit, and what a gate must say of it."""

    name: str
    told: str
    size: str
    """Bytes to digest at this commit, as it stands in its source; ``{n}`` is that of base. Empty: other words."""
    code: int
    sessions: int = 1
    on_inconclusive: str = "warn"
    busy: bool = False


# The random work averages, over logs, what the gate allows: it can be decided either way only by chance.
KINDS = (
    Kind("plus5", "+5 % work", "round({n} * 1.05)", 1, sessions=2),
    Kind("plus15", "+15 % work", "round({n} * 1.15)", 1, sessions=2),
    Kind("docs", "a commit that changes documentation only", "", 0),
    Kind("noop", "no-op", "{n}  # the same", 0),
    Kind("noisy", "random work at each start", "round({n} * random.uniform(0.225, 2.13))", 3, on_inconclusive="fail"),
    Kind("neighbour", "no-op beside a busy core", "{n}  # the same", 0, busy=True),
)


def measure(out: Path, *, gates: int, kinds: Sequence[str] = ()) -> list[Figure]:
    """Gate each kind of commit until ``gates`` runs of it are kept, in turns; then the rows of the table."""
    folder = out / "gate"
    repo = _repository(folder / "repo")
    chosen = [kind for kind in KINDS if kind.name in (kinds or [k.name for k in KINDS])]
    for number in range(1, gates + 1):
        for kind in chosen:
            _gate_once(folder, repo, kind, number)
    return figures(folder, gates=gates, kinds=chosen)


def figures(folder: Path, *, gates: int, kinds: Sequence[Kind] = KINDS) -> list[Figure]:
    """How often each exit code came, and how long a gate run took."""
    rows = []
    for kind in kinds:
        found = [kept(path) for path in sorted(folder.glob(f"{kind.name}-*.json"))][:gates]
        codes = Counter(row["exit"] for row in found)
        told = ", ".join(f"{count} × exit {code}" for code, count in sorted(codes.items()))
        right = codes[kind.code] == gates
        said = Counter(row["status"] for row in found)
        words = ", ".join(f"{count} {word}" for word, count in said.most_common())
        rows.append(
            Figure(
                f"gate, {kind.told}", f"exit {kind.code} in {gates} of {gates}", f"{told or 'none yet'} ({words})",
                right and len(found) == gates,
            )
        )  # fmt: skip
        if found:
            middle = statistics.median(row["seconds"] for row in found)
            longest = kind.sessions * LONGEST_S
            rows.append(Figure(f"gate, {kind.told}: median", f"<= {longest:.0f} s", seconds(middle), middle <= longest))
    return rows


def _gate_once(folder: Path, repo: Path, kind: Kind, number: int) -> None:
    path = folder / f"{kind.name}-{number:02d}.json"
    if path.is_file():
        return
    around = machine()
    with _neighbour() if kind.busy else contextlib.nullcontext():
        done = aiperf(
            "gate", str(repo / "digest.yaml"), "--config", str(repo / "gate.yaml"),
            *("--against", "base", "--head", kind.name, "--seed", str(1000 * number)),
            *("--on-inconclusive", kind.on_inconclusive, "--no-peaks", "--quiet", "--json"),
            *("--results", str(folder / "results")),
            state=folder / "state",
        )  # fmt: skip
    row = _row(done.out)
    told = {name: row.get(name) for name in ("status", "sentence", "ratio", "low", "high", "pairs", "confirmed", "p")}
    keep(
        path, {"kind": kind.name, **around, "exit": done.code, "seconds": done.seconds, "err": done.err[-500:], **told}
    )
    ratio = (
        f"{row['ratio']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"
        if row.get("ratio")
        else told["sentence"] or done.err[-200:]
    )
    say(f"{number:2d} {kind.name:9} exit {done.code}  {told['status']}  {ratio}  {done.seconds:.0f} s")


def _row(text: str) -> dict[str, Any]:
    try:
        row: dict[str, Any] = json.loads(text)["rows"][0]
    except (ValueError, LookupError):
        return {"status": "nothing"}
    return row


@contextlib.contextmanager
def _neighbour() -> Iterator[None]:
    """Keep the last CPU busy."""
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    os.sched_setaffinity(busy.pid, {max(os.sched_getaffinity(0))})
    try:
        yield
    finally:
        busy.kill()
        busy.wait()


def _repository(folder: Path) -> Path:
    """A repository with the tag base and a branch for each kind; made once, so that a broken bench goes on with it."""
    if (folder / ".done").is_file():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    size = _size(STEP_S)
    say(f"a digest of {size} bytes takes about {STEP_S} s")
    _git(folder, "init", "-q", "-b", "main")
    (folder / "digest.yaml").write_text(SCENARIO)
    (folder / "precision.yaml").write_text(PRECISION)
    (folder / "gate.yaml").write_text(GATE)
    (folder / ".gitignore").write_text(".done\n")
    _commit(folder, str(size), "base")
    _git(folder, "tag", "base")
    for kind in KINDS:
        _git(folder, "checkout", "-q", "-b", kind.name, "base")
        if not kind.size:
            (folder / "README.md").write_text("Other words.\n")
        _commit(folder, (kind.size or "{n}").format(n=size), kind.name)
    (folder / ".done").touch()
    return folder


def _commit(folder: Path, size: str, message: str) -> None:
    (folder / "digest.py").write_text(DIGEST % size)
    _git(folder, "add", "-A")
    _git(folder, "commit", "-q", "-m", message)


def _git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=bench", "-c", "user.email=bench@localhost")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, stdout=subprocess.DEVNULL)


def _size(wanted: float) -> int:
    """Bytes whose digest takes about this many seconds here, by the fastest of many: noise only lengthens."""
    data, best = os.urandom(_PROBE), float("inf")
    for _ in range(50):
        began = time.perf_counter()
        hashlib.blake2b(data).digest()
        best = min(best, time.perf_counter() - began)
    return int(round(_PROBE * wanted / best, -3))
