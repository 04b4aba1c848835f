"""Ways to a job on a real Slurm of two nodes (``make test-slurm``), and nodes that are taken away in mid-run.

What must not live here: faults of nodes and folders (test_slurm.py).
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from tests.slurm.runs import Run, measuring, until

AIPERF = [sys.executable, "-m", "aiperf"]


def state_of(cluster, node: str) -> str:
    return cluster.asks("sinfo", "-N", "-h", "-p", "all", "-n", node, "-o", "%T")


def both_idle(cluster) -> None:
    until(cluster.all_idle, 60)


def test_a_node_that_is_drained_in_mid_run_finishes_what_it_has(cluster, tmp_path):
    run = Run(cluster, tmp_path)
    running = run.start("--slurm", "-N", "2")
    measuring(run)
    cluster.asks("scontrol", "update", "nodename=n2", "state=drain", "reason=test")
    assert state_of(cluster, "n2").startswith("drain")
    out, err = running.communicate(timeout=110)
    until(lambda: state_of(cluster, "n2") == "drained", 30)
    cluster.asks("scontrol", "update", "nodename=n2", "state=resume")
    both_idle(cluster)
    assert running.returncode == 0, out + err
    assert [case["status"] for case in run.cases().values()] == ["measured"]
    assert run.workers() == []


def test_a_node_that_is_set_down_in_mid_run_fails_its_cases_by_name_and_resume_finishes(cluster, tmp_path):
    run = Run(cluster, tmp_path, calls="1, 2", together=True)
    running = run.start("--slurm", "-N", "2")
    measuring(run)
    cluster.asks("scontrol", "update", "nodename=n2", "state=down", "reason=test")
    until(lambda: not run.workers("n2"), 10)
    out, err = running.communicate(timeout=110)
    both_idle(cluster)  # a daemon that answers brings its node back (ReturnToService)
    cases = run.cases()
    assert {case["status"] for case in cases.values()} == {"failed"}, out + err
    assert all("n2" in case["failure"]["message"] for case in cases.values())
    assert run.workers() == []
    code, _, err = run.job("--resume", "latest")
    assert code == 0, err
    assert {case["status"] for case in run.cases().values()} == {"measured"}


def test_a_batch_script_of_the_users_own_runs_the_command_on_the_nodes_that_it_holds(cluster, tmp_path):
    run = Run(cluster, tmp_path)
    script = tmp_path / "own.sh"
    line = f"{' '.join(AIPERF)} run {tmp_path}/two.yaml --slurm --precision quick --results {tmp_path} --no-peaks"
    line += " --host-check off"
    script.write_text(f"#!/bin/bash\n#SBATCH --nodes=2 --exclusive\n{line}\n")
    number = cluster.asks("sbatch", "--parsable", f"--output={tmp_path}/own.out", f"--chdir={tmp_path}", str(script))
    # Not by sbatch --wait, which looks ever more rarely.
    until(lambda: cluster.job(number) not in ("PENDING", "RUNNING", "COMPLETING"), 120)
    said = (tmp_path / "own.out").read_text()
    assert cluster.job(number) == "COMPLETED", said
    assert "calls=1" in said
    (case,) = run.cases().values()
    assert case["status"] == "measured"
    assert all(side["node_skew"].keys() == {"n1", "n2"} for pair in case["pairs"] for side in pair["runs"])


def test_a_detached_job_is_collected_with_the_command_that_it_printed(cluster, tmp_path):
    run = Run(cluster, tmp_path)
    code, out, err = run.job("--detach")
    assert code == 0, err
    (number,) = re.findall(r"^job (\d+) submitted", out)
    _, _, printed = out.strip().partition("collect its table with: aiperf ")
    collected = subprocess.run(
        [*AIPERF, *printed.split()], env=cluster.env, cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert collected.returncode == 0, collected.stderr
    assert "calls=1" in collected.stdout
    assert f"job {number}: running on n[1-2]" in collected.stderr
    assert [case["status"] for case in run.cases().values()] == ["measured"]
    again = subprocess.run(
        [*AIPERF, *printed.split(), "-q"], env=cluster.env, cwd=tmp_path, capture_output=True, text=True, timeout=30
    )
    assert (again.returncode, again.stdout) == (0, collected.stdout), "what is over can be collected again"


def test_the_gpus_of_each_node_are_asked_for_as_they_were_typed_and_both_nodes_get_them(cluster, tmp_path):
    run = Run(cluster, tmp_path, pairs=20)
    code, out, err = run.job("--detach", "--gpus-per-node", "2")
    assert code == 0, err
    (number,) = re.findall(r"^job (\d+) submitted", out)

    def has_gpus(pid: int) -> bool:
        with suppress(OSError):
            return b"\0SLURM_GPUS_ON_NODE=2\0" in Path(f"/proc/{pid}/environ").read_bytes()
        return False

    try:
        job = cluster.asks("scontrol", "show", "job", number)
        assert re.search(r"\bTresPerNode=gres[:/]gpu:2\b", job), job  # the character differs by version
        until(lambda: all(any(map(has_gpus, run.workers(node))) for node in ("n1", "n2")), 30)
    finally:
        cluster.asks("scancel", number)
    code, _, err = run.job("--gpus-per-node", "3")
    assert code == 2
    assert "sbatch rejected the job: " in err
    both_idle(cluster)


def test_two_commands_are_compared_as_a_job_of_one_node(cluster, tmp_path):
    programs = [f"{sys.executable} -c 'sum(range({count}))'" for count in (8_000_000, 1_000_000)]
    argv = [*AIPERF, "ab", *programs, "--slurm", "--precision", "quick", "--json", "--results", str(tmp_path)]
    done = subprocess.run(argv, env=cluster.env, cwd=tmp_path, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    assert re.search(r"job \d+: running on n[12]$", done.stderr, re.MULTILINE)
    rows = {row["metric"]: row for row in json.loads(done.stdout)["rows"]}
    assert rows["time"]["verdict"] == "improved", rows
    (record,) = [json.loads(path.read_text()) for path in tmp_path.glob("2*/run.json")]
    assert record["status"] == "finished"
