"""Heads that cannot be reached or are killed, folders without room and nodes that a survey loses, on a real Slurm of
two nodes (``make test-slurm``).

What must not live here: faults of nodes and folders in mid-run (test_slurm.py).
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

import psutil

from aiperf.records.surveyed import SurveyReading, SurveyRecord
from tests.slurm.runs import Run, measuring, until

JOIN = """
import sys
from pathlib import Path

from aiperf.cli.nodes import joined

with joined("env", Path(sys.argv[1]), all_needed=False) as nodes:
    print(nodes.absent, nodes.names)
"""
AIPERF = [sys.executable, "-m", "aiperf"]


@contextmanager
def small_disk(folder: Path, megabytes: int):
    """A file system of its own at ``folder``."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "aiperf-test", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def steps_on(run: Run, node: str) -> list[int]:
    """The aiperf processes of a job's step on a node, without what they started, also where that is a copy so far."""
    found = {
        pid
        for pid in run.workers(node)
        if b"\0--launcher\0env\0" in Path(f"/proc/{pid}/cmdline").read_bytes()
        and b"\0SLURM_PROCID=" in Path(f"/proc/{pid}/environ").read_bytes()
        and Path(f"/proc/{pid}/exe").resolve().name.startswith("python")
    }
    return [pid for pid in found if psutil.Process(pid).ppid() not in found]


def test_a_head_that_a_node_cannot_reach_is_named_before_anything_runs(cluster, tmp_path):
    run = Run(cluster, tmp_path)
    command = " ".join([*AIPERF, "run", f"{tmp_path}/two.yaml", "--launcher", "env", "--results", str(tmp_path)])
    # n2 sees the folder, and has a network of its own in which there is nothing.
    line = f"if [ $SLURMD_NODENAME = n2 ]; then exec unshare --net {command}; else exec {command}; fi"
    done = subprocess.run(
        ["srun", "-N2", "--ntasks-per-node=1", "bash", "-c", line],
        env=cluster.env, cwd=tmp_path, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert re.search(r"node n2 sees the results folder, but cannot reach [\d.]+:\d+", done.stderr)
    assert "Check the firewall" in done.stderr
    assert list(tmp_path.glob("2*")) == list((tmp_path / ".nodes").iterdir()) == []
    assert run.workers() == []


def test_a_folder_without_room_is_refused_when_a_job_is_submitted_and_again_when_it_starts(cluster, tmp_path):
    with small_disk(tmp_path, 32):
        run = Run(cluster, tmp_path)
        (tmp_path / "job.yaml").write_text("sbatch: [--hold]\n")
        code, out, err = run.job("--slurm-file", str(tmp_path / "job.yaml"), "--detach")
        assert code == 0, err
        (number,) = re.findall(r"^job (\d+) submitted", out)
        (tmp_path / "full").write_bytes(bytes(20 << 20))
        code, _, err = run.job()
        assert code == 2
        assert re.search(r"its file system is full: \d+ MiB are free, 16 MiB are needed", err), err
        assert cluster.asks("squeue", "-h", "-o", "%A") == number, "nothing else was submitted"
        cluster.asks("scontrol", "release", number)
        argv = [*AIPERF, "run", "--collect", number, "--results", str(tmp_path)]
        done = subprocess.run(argv, env=cluster.env, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert done.returncode == 2, done.stdout + done.stderr
        assert "its file system is full" in done.stderr
        assert list(tmp_path.glob("2*")) == []


def test_a_head_that_is_killed_leaves_nothing_on_either_node_and_its_run_can_go_on(cluster, tmp_path):
    run = Run(cluster, tmp_path, pairs=20)
    running = run.start("--slurm", "-N", "2", "--precision", "standard")
    measuring(run)
    (head,) = steps_on(run, "n1")
    os.kill(head, signal.SIGKILL)
    until(lambda: not run.workers(), 10)
    _, err = running.communicate(timeout=60)
    assert running.returncode == 130, err
    assert "node n2: the head on n1 is gone" in err
    (record,) = [json.loads(path.read_text()) for path in tmp_path.glob("2*/run.json") if path.parent.name != "latest"]
    assert f"continue with: aiperf run --resume {record['run']} {tmp_path}/two.yaml " in err
    until(cluster.all_idle, 30)


def test_a_survey_that_loses_a_node_calls_it_unreachable_and_judges_the_other_one(cluster, tmp_path):
    run = Run(cluster, tmp_path)
    argv = [*AIPERF, "survey", "--slurm", "-N", "2", "--results", str(tmp_path), "--json"]
    survey = subprocess.Popen(argv, env=cluster.env, cwd=tmp_path, stdout=-1, stderr=-1, text=True)
    until(lambda: any("round 1 of" in path.read_text() for path in tmp_path.glob(".nodes/slurm-*.err")), 60)
    (agent,) = steps_on(run, "n2")
    os.kill(agent, signal.SIGKILL)
    out, err = survey.communicate(timeout=60)
    assert survey.returncode == 6, err
    assert re.search(r"n2 was lost in round \d+: .*; the survey ends", err)
    verdicts = {(row["node"], row["metric"]): row["verdict"] for row in json.loads(out)}
    assert {verdict for (node, _), verdict in verdicts.items() if node == "n2"} == {"unreachable"}
    assert {"copy", "gemm"} <= {metric for node, metric in verdicts if node == "n1"}
    assert {verdict for (node, _), verdict in verdicts.items() if node == "n1"} <= {"ok", "undecided"}
    (stored,) = (tmp_path / "surveys").glob("*.json")
    assert [lost["node"] for lost in json.loads(stored.read_text())["lost"]] == [1]
    assert run.workers() == []


def test_a_cancelled_survey_keeps_its_complete_rounds_calls_no_node_lost_and_leaves_nothing(cluster, tmp_path):
    run = Run(cluster, tmp_path)
    argv = [*AIPERF, "survey", "--slurm", "-N", "2", "--results", str(tmp_path), "--json"]
    survey = subprocess.Popen(argv, env=cluster.env, cwd=tmp_path, stdout=-1, stderr=-1, text=True)
    until(lambda: any("round 1 of" in path.read_text() for path in tmp_path.glob(".nodes/slurm-*.err")), 60)
    subprocess.run(["scancel", "--name=aiperf"], env=cluster.env, check=True)
    _, err = survey.communicate(timeout=60)
    assert survey.returncode == 130, err
    (stored,) = (tmp_path / "surveys").glob("*.json")
    assert f"show what it measured with: aiperf survey --from {stored}" in err
    record = json.loads(stored.read_text())
    assert (record["ended"], record["lost"], record["planned"]) == ("interrupted", [], 12)
    assert 1 <= record["rounds"] < 12
    until(lambda: run.workers() == [], 10)


def test_a_survey_of_three_nodes_goes_on_without_the_one_that_crashes_and_with_the_one_that_is_drained(
    three_nodes, tmp_path
):
    run = Run(three_nodes, tmp_path)
    argv = [*AIPERF, "survey", "--results", str(tmp_path), "--json"]
    survey = subprocess.Popen(
        [*argv, "--slurm", "-N", "3"], env=three_nodes.env, cwd=tmp_path, stdout=-1, stderr=-1, text=True
    )
    try:
        until(lambda: any("round 2 of" in path.read_text() for path in tmp_path.glob(".nodes/slurm-*.err")), 120)
        three_nodes.asks("scontrol", "update", "nodename=n2", "state=drain", "reason=test")
        three_nodes.kill_node("n3")
        assert run.workers("n3"), "no process of n3 is known by its variables"
        for pid in run.workers("n3"):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until(lambda: not run.workers("n3"), 10)
        out, err = survey.communicate(timeout=280)
        until(lambda: not any(run.workers(node) for node in three_nodes.nodes), 10)
    finally:
        survey.kill()
        three_nodes.start_node("n3")
        three_nodes.asks("scontrol", "update", "nodename=n2", "state=resume")
        until(three_nodes.all_idle, 60)
    assert survey.returncode == 6, err
    assert re.search(r"n3 was lost in round \d+: .*; continuing with 2 nodes", err)
    rows = {(row["node"], row["metric"]): row for row in json.loads(out)}
    assert {row["verdict"] for (node, _), row in rows.items() if node == "n3"} == {"unreachable"}
    assert all(re.match(r"lost in round \d+: .*n3", row["reason"]) for (node, _), row in rows.items() if node == "n3")
    for node in ("n1", "n2"):
        assert {"copy", "gemm", "all_reduce"} <= {metric for name, metric in rows if name == node}
        assert {row["verdict"] for (name, _), row in rows.items() if name == node} <= {"ok", "undecided", "slow"}
    (stored,) = (tmp_path / "surveys").glob("*.json")
    record = json.loads(stored.read_text())
    assert [lost["node"] for lost in record["lost"]] == [2]
    assert {reading["launch"] for reading in record["readings"] if reading["nodes"] == [0, 1]} == set(range(6))
    past = subprocess.run([*argv, "--history"], capture_output=True, text=True, check=True, cwd=tmp_path, timeout=60)
    assert {row["since"] for row in json.loads(past.stdout) if row["node"] == "n3"} == {"unreachable"}


def test_a_node_that_a_survey_does_without_is_named_as_slurm_names_it(three_nodes, tmp_path):
    (tmp_path / "join.py").write_text(JOIN)
    # n2 looks for the head in a folder of its own.
    line = (
        f"exec {sys.executable} {tmp_path}/join.py {tmp_path}/$([ $SLURMD_NODENAME = n2 ] && echo own || echo shared)"
    )
    done = subprocess.run(
        ["srun", "-N3", "--ntasks-per-node=1", "--kill-on-bad-exit=0", "bash", "-c", line],
        env={**three_nodes.env, "AIPERF_JOIN_TIMEOUT": "4s"}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.stdout == "{'n2': 'did not join within 4 s'} ('n1', 'n3')\n", done.stderr
    assert "continuing without: n2 did not join within 4 s" in done.stderr


def test_the_line_that_drains_a_slow_node_does_so_when_it_is_copied_from_the_output(cluster, tmp_path):
    slow = {"copy": 1.2, "gemm": 1.3, "disk": 1.4, "gpu0_copy": 1.5, "gpu0_gemm": 1.2}
    readings = tuple(
        SurveyReading(metric, turn, (node,), (1 + 0.001 * ((turn + node) % 3)) * (times if node == 1 else 1), turn % 3)
        for metric, times in slow.items()
        for turn in range(9)
        for node in range(3)
    )
    (tmp_path / "survey.json").write_text(json.dumps(asdict(SurveyRecord(("n1", "n2", "n3"), 1, 0.03, readings))))
    argv = ["salloc", "--nodes=1", "--quiet", *AIPERF, "survey", "--from", str(tmp_path / "survey.json")]
    env = {**cluster.env, "COLUMNS": "80"}
    done = subprocess.run(argv, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 6, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if "scontrol" in line]
    try:
        subprocess.run(["bash", "-c", line], env=cluster.env, check=True, timeout=20)
        node = cluster.asks("scontrol", "show", "node", "n2")
        assert "DRAIN" in node
        assert all(metric in node.partition("Reason=")[2] for metric in slow), node
    finally:
        cluster.asks("scontrol", "update", "nodename=n2", "state=resume")
