"""One command under real launchers, torchrun, and mpirun where it is installed: two processes on each of two nodes.

The nodes are names of this host. What must not live here: what the variables of launchers mean
(test_launch_nodes_place.py).
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

SCENARIO = """
title: The same collective on both sides
why: Both sides are the same.
workload: comm.collective
params: {op: all_reduce, ranks: 4, nodes: 2, size: 4KiB}
before: {calls: 1}
after: {calls: 1}
expect: equivalent
check: {rtol: 0.00001}
measure: {max_pairs: 3}
"""
# In place of ssh: what mpirun starts on another host runs on this one, under the name of the other.
RSH = """#!/bin/bash
exec unshare --uts bash -c "hostname $1; ${*:2}"
"""
HAS_MPIRUN = shutil.which("mpirun") is not None and os.geteuid() == 0


def torchruns(folder: Path, command: Sequence[str]) -> list[subprocess.Popen[str]]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    argv = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=2"]
    argv += ["--master-addr=127.0.0.1", f"--master-port={port}"]
    return [
        subprocess.Popen(
            [*argv, f"--node-rank={rank}", "-m", *command[2:]], env={**os.environ, "AIPERF_NODE": f"n{rank + 1}"},
            cwd=folder, stdout=-1, stderr=-1, text=True,
        )
        for rank in (0, 1)
    ]  # fmt: skip


def mpirun(folder: Path, command: Sequence[str]) -> list[subprocess.Popen[str]]:
    rsh = folder / "rsh"
    rsh.write_text(RSH)
    rsh.chmod(0o755)
    argv = ["mpirun", "--allow-run-as-root", "--host", "n1:2,n2:2", "-np", "4", "--mca", "plm", "rsh"]
    argv += ["--mca", "plm_rsh_agent", str(rsh), *command]
    return [subprocess.Popen(argv, cwd=folder, stdout=-1, stderr=-1, text=True)]


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("ranks_meet")
@pytest.mark.parametrize("launch", [torchruns, *([mpirun] if HAS_MPIRUN else [])])
def test_four_processes_of_a_launcher_on_two_nodes_measure_one_pair_with_two_ranks_on_each(tmp_path, launch):
    (tmp_path / "four.yaml").write_text(SCENARIO)
    command = [sys.executable, "-m", "aiperf", "run", str(tmp_path / "four.yaml"), "--launcher", "env"]
    command += ["--results", str(tmp_path / "results"), "--precision", "quick", "--no-peaks", "--host-check", "off"]
    launched = launch(tmp_path, command)
    deadline = time.monotonic() + 270
    try:
        said = [process.communicate(timeout=max(1.0, deadline - time.monotonic())) for process in launched]
    finally:
        for process in launched:
            process.terminate()  # a launcher that is killed leaves its workers behind
        for process in launched:
            with suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()
    assert {process.returncode for process in launched} == {0}, said
    assert sum(out.count("scenario / case") for out, _ in said) == 1, "the first process alone prints"
    (file,) = (tmp_path / "results").glob("2*/cases/four.json")
    case = json.loads(file.read_text())
    assert case["status"] == "measured", case
    runs = [side for pair in case["pairs"] for side in pair["runs"]]
    assert all(side["node_skew"].keys() == {"n1", "n2"} and side["facts"]["ranks"] == 4 for side in runs)
    assert all(check["passed"] for pair in case["pairs"] for check in pair["checks"])
    assert list((tmp_path / "results" / ".nodes").iterdir()) == []
