"""Commands on the two-node Slurm, what they stored, and which of their processes are left.

What must not live here: the daemons (local_slurm.py).
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.slurm.local_slurm import LocalSlurm

SCENARIO = """
title: The same work on both sides
why: Both sides are the same, so that nothing but the nodes is tried.
workload: {workload}
params: {params}
axes: {{calls: [{calls}]}}
before: {{}}
after: {{}}
expect: equivalent
check: {{rtol: 0.00001}}
measure: {{max_pairs: {pairs}}}
"""
ALONE = '''"""Work that the ranks do each by itself: no import of torch, which else takes most of a short run."""

import numpy as np

from aiperf.workloads.contract import Context, Work, Workload


def tanh(context: Context, *, calls: int = 1) -> Workload:
    x = np.random.default_rng(context.seed + context.rank).standard_normal(20_000)
    out = np.empty_like(x)

    def step() -> None:
        for _ in range(calls):
            np.tanh(x, out=out)

    return Workload(step, Work(items=calls), outputs=lambda: {"out": out}, inputs=lambda: {"x": x})
'''


class Run:
    """A command on the cluster, in a folder of its own.

    ``pairs``: of each case, few where only that it is measured matters, many where it must not end by itself.
    ``together``: in a collective, so that a rank waits for one that is lost.
    """

    def __init__(
        self, cluster: LocalSlurm, folder: Path, *, calls: str = "1", pairs: int = 3, together: bool = False
    ) -> None:
        self._cluster, self.folder = cluster, folder
        workload, params = "./alone.py:tanh", "{ranks: 2, nodes: 2}"
        if together:
            workload, params = "comm.collective", "{op: all_reduce, nodes: 2, size: 4KiB}"
        (folder / "alone.py").write_text(ALONE)
        said = SCENARIO.format(workload=workload, params=params, calls=calls, pairs=pairs)
        (folder / "two.yaml").write_text(said)

    def start(self, *more: str) -> subprocess.Popen[str]:
        argv = [sys.executable, "-m", "aiperf", "run", str(self.folder / "two.yaml"), "--precision", "quick"]
        argv += ["--results", str(self.folder), "--no-peaks", "--host-check", "off", *more]
        # In its own folder: what changes in the checkout meanwhile is none of a run that goes on.
        return subprocess.Popen(argv, env=self._cluster.env, cwd=self.folder, stdout=-1, stderr=-1, text=True)

    def job(self, *more: str) -> tuple[int, str, str]:
        running = self.start("--slurm", "-N", "2", *more)
        out, err = running.communicate(timeout=240)  # only a hang gets there
        return running.returncode, out, err

    def command_over(self) -> bool:
        """Whether the command of a job has ended; the job itself may still wait for a node."""
        return any(self.folder.glob(".nodes/slurm-*.exit"))

    def cases(self) -> dict[str, dict]:
        (folder,) = [path.parent for path in self.folder.glob("*/run.json") if not path.parent.is_symlink()]
        found = [json.loads(path.read_text()) for path in (folder / "cases").glob("*.json")]
        return {case["case"]["id"]: case for case in found}

    def workers(self, node: str = "") -> list[int]:
        """Processes of this run's sides, or of all that belongs to a node."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                variables = (entry / "environ").read_bytes()
                mine = str(self.folder).encode() in variables + (entry / "cmdline").read_bytes()
                worker = b"aiperf.worker" in (entry / "cmdline").read_bytes()
                # Two clusters of the tests have nodes of the same names.
                own = f"SLURM_CONF={self._cluster.conf}\0".encode() in variables
                on_node = own and f"SLURMD_NODENAME={node}\0".encode() in variables
                if (on_node if node else worker and b"SLURM_JOB_ID" in variables) and (mine or node):
                    found.append(int(entry.name))
        return found


def until(true: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.1)


def measuring(run: Run) -> None:
    """Wait until a pair of the first case has its ranks on both nodes."""
    until(lambda: len(run.workers()) >= 4)
