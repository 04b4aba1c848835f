"""aiperf on a real Slurm of two nodes (``make test-slurm``): what is measured, and what is left when something fails.

What must not live here: what needs no Slurm (tests/launch, tests/cli/test_cli_slurm.py).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from tests.slurm.runs import Run, measuring, until


def test_a_job_measures_over_two_nodes_and_brings_its_table_home(cluster, tmp_path):
    run = Run(cluster, tmp_path, together=True)
    code, out, err = run.job("--time", "5min")
    assert code == 0, err
    (case,) = run.cases().values()
    assert case["status"] == "measured"
    assert all(check["passed"] for pair in case["pairs"] for check in pair["checks"])
    assert all(side["node_skew"].keys() == {"n1", "n2"} for pair in case["pairs"] for side in pair["runs"])
    assert "calls=1" in out
    assert "running on n[1-2]" in err
    question = "SELECT DISTINCT rank, node, host FROM samples ORDER BY rank"
    argv = [sys.executable, "-m", "aiperf", "query", question, "--results", str(tmp_path), "--json"]
    found = json.loads(subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout)
    places = {0: "n1", 1: "n2"}
    assert found
    assert all((row["node"], row["host"]) == (places[row["rank"]], os.uname().nodename) for row in found), found


def test_inside_an_allocation_the_same_command_uses_its_nodes(cluster, tmp_path):
    run = Run(cluster, tmp_path)
    argv = ["salloc", "--nodes=2", "--exclusive", "--quiet", sys.executable, "-m", "aiperf", "run"]
    argv += [
        str(tmp_path / "two.yaml"),
        "--precision",
        "quick",
        "--results",
        str(tmp_path),
        "--no-peaks",
        "--host-check",
        "off",
    ]
    done = subprocess.run([*argv, "--slurm", "-N", "2"], env=cluster.env, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    assert [case["status"] for case in run.cases().values()] == ["measured"]


def test_a_node_that_dies_fails_its_case_by_name_and_resume_finishes(cluster, tmp_path):
    run = Run(cluster, tmp_path, calls="1, 2", together=True)
    running = run.start("--slurm", "-N", "2")
    measuring(run)
    cluster.kill_node("n2")
    for pid in run.workers("n2"):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    died = time.monotonic()
    until(lambda: not run.workers(), 10)
    assert time.monotonic() - died < 10
    until(run.command_over)
    cluster.start_node("n2")  # else Slurm waits until it takes the node for dead
    out, err = running.communicate(timeout=100)
    assert running.returncode == 5, "the head's own code, not the 137 of what was killed"
    until(cluster.all_idle, 30)
    cases = run.cases()
    assert {case["status"] for case in cases.values()} == {"failed"}, out + err
    assert all("n2" in case["failure"]["message"] for case in cases.values())
    code, _, err = run.job("--resume", "latest")
    assert code == 0, err
    assert {case["status"] for case in run.cases().values()} == {"measured"}


def test_a_daemon_that_dies_alone_takes_nothing_with_it(cluster, tmp_path):
    run = Run(cluster, tmp_path)
    running = run.start("--slurm", "-N", "2")
    measuring(run)
    cluster.kill_node("n2")
    until(run.command_over, 90)
    cluster.start_node("n2")
    out, err = running.communicate(timeout=60)
    until(cluster.all_idle, 30)
    (case,) = run.cases().values()
    assert case["status"] == "measured", out + err
    assert run.workers() == []


def test_a_cancelled_job_saves_what_it_has_and_leaves_nothing(cluster, tmp_path):
    run = Run(cluster, tmp_path, calls="1, 2", pairs=20)
    running = run.start("--slurm", "-N", "2", "--precision", "standard")
    measuring(run)
    subprocess.run(["scancel", "--name=aiperf"], env=cluster.env, check=True)
    until(lambda: not run.workers(), 10)
    _, err = running.communicate(timeout=60)
    assert running.returncode == 130
    (record,) = [json.loads(path.read_text()) for path in tmp_path.glob("2*/run.json")]
    assert record["status"] == "interrupted"
    assert f"continue with: aiperf run --resume {record['run']} {tmp_path}/two.yaml " in err


def test_an_interrupt_of_the_command_that_waits_cancels_the_job(cluster, tmp_path):
    run = Run(cluster, tmp_path, pairs=20)
    running = run.start("--slurm", "-N", "2", "--precision", "standard")
    measuring(run)
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=60)
    assert running.returncode == 130
    until(lambda: not run.workers(), 10)
    left = subprocess.run(["squeue", "-h"], env=cluster.env, capture_output=True, text=True, check=True)
    assert left.stdout == ""


def test_a_job_at_its_time_limit_has_saved_what_it_measured(cluster, tmp_path):
    run = Run(cluster, tmp_path, calls="1, 2, 3, 4", pairs=200)
    running = run.start("--slurm", "-N", "2", "--time", "1min", "--precision", "standard")
    measuring(run)
    number = cluster.asks("squeue", "-h", "-n", "aiperf", "-o", "%A %l").removesuffix(" 1:00")
    # Slurm looks twice a minute; its limits are whole minutes, and this one is reached sooner than it was asked for.
    cluster.asks("scontrol", "update", f"jobid={number}", "endtime=now+10seconds")
    running.communicate(timeout=118)
    assert running.returncode == 130
    assert cluster.job(number) == "TIMEOUT"
    assert any(case["pairs"] for case in run.cases().values())
    until(lambda: not run.workers(), 10)


def test_a_job_that_is_queued_again_goes_on_in_its_own_run_and_finishes(cluster, tmp_path):
    run = Run(cluster, tmp_path, calls="1, 2")
    running = run.start("--slurm", "-N", "2", "--requeue")
    until(lambda: list(tmp_path.glob("2*/cases/*.json")), 100)
    (first,) = [path for path in tmp_path.glob("2*") if not path.is_symlink()]
    asked = subprocess.run(["squeue", "-h", "-o", "%A"], env=cluster.env, capture_output=True, text=True, check=True)
    subprocess.run(["scontrol", "requeue", asked.stdout.strip()], env=cluster.env, check=True)
    # Once it is queued Slurm lets two minutes pass before it begins again.
    number = asked.stdout.strip()
    until(lambda: cluster.job(number) == "PENDING", 30)
    time.sleep(10)  # the longest that whoever waits for a job goes without a look
    subprocess.run(["scontrol", "update", f"jobid={number}", "starttime=now"], env=cluster.env, check=True)
    out, err = running.communicate(timeout=100)
    assert running.returncode == 0, out + err
    assert [path for path in tmp_path.glob("2*") if not path.is_symlink()] == [first]
    assert {case["status"] for case in run.cases().values()} == {"measured"}
    assert len(run.cases()) == 2
    assert "queued" in err
    assert all(f"calls={calls}" in out for calls in (1, 2))
    assert run.workers() == []


def test_a_job_that_a_more_urgent_one_preempts_is_queued_again_and_finishes_in_its_own_run(cluster, tmp_path):
    run = Run(cluster, tmp_path, calls="1, 2")
    running = run.start("--slurm", "-N", "2", "--requeue")
    until(lambda: list(tmp_path.glob("2*/cases/*.json")), 100)
    (first,) = [path for path in tmp_path.glob("2*") if not path.is_symlink()]
    number = cluster.asks("squeue", "-h", "-n", "aiperf", "-o", "%A")
    urgent = ["srun", "-p", "urgent", "-N2", "--exclusive", "bash", "-c", "echo $SLURMD_NODENAME; sleep 1"]
    came = subprocess.run(urgent, env=cluster.env, capture_output=True, text=True, timeout=60)
    assert sorted(came.stdout.split()) == ["n1", "n2"], came.stderr
    assert cluster.asks("squeue", "-h", "-t", "all", "-j", number, "-o", "%T %r") == "PENDING BeginTime"
    assert run.workers() == []
    cluster.asks("scontrol", "update", f"jobid={number}", "starttime=now")
    out, err = running.communicate(timeout=100)
    assert running.returncode == 0, out + err
    assert [path for path in tmp_path.glob("2*") if not path.is_symlink()] == [first]
    assert {name: case["status"] for name, case in run.cases().items()} == {
        "two[calls=1]": "measured", "two[calls=2]": "measured",
    }  # fmt: skip


def test_a_folder_that_fills_up_in_mid_job_is_told_and_what_was_measured_is_kept(cluster, tmp_path):
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "aiperf-test", str(tmp_path)], check=True)
    try:
        run = Run(cluster, tmp_path, calls="1, 2")
        running = run.start("--slurm", "-N", "2")
        until(lambda: list(tmp_path.glob("2*/cases/*.json")), 100)
        with suppress(OSError), (tmp_path / "full").open("wb", buffering=0) as full:
            while True:
                full.write(bytes(1 << 16))
        out, err = running.communicate(timeout=100)
        assert running.returncode == 2, out + err
        assert "could not be saved: no space left on device" in err
        assert "once there is space, continue with: aiperf run --resume 2" in err
        assert "calls=1" in out, "what was measured is shown"
        kept = {name: case["pairs"] for name, case in run.cases().items()}
        assert any(kept.values())
        assert run.workers() == []
        (tmp_path / "full").unlink()
        code, _, err = run.job("--resume", "latest")
        assert code == 0, err
        cases = run.cases()
        assert {name: case["status"] for name, case in cases.items()} == {
            "two[calls=1]": "measured", "two[calls=2]": "measured",
        }  # fmt: skip
        assert all(cases[name]["pairs"][: len(pairs)] == pairs for name, pairs in kept.items())
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def test_a_folder_that_the_nodes_do_not_share_is_told_before_anything_runs(cluster, tmp_path):
    argv = [sys.executable, "-m", "aiperf", "run", "x", "--launcher", "env", "--results"]
    line = f"exec {' '.join(argv)} {tmp_path}/$SLURMD_NODENAME"
    done = subprocess.run(
        ["srun", "-N2", "--ntasks-per-node=1", "bash", "-c", line],
        env={**cluster.env, "AIPERF_JOIN_TIMEOUT": "3s"}, capture_output=True, text=True, timeout=110,
    )  # fmt: skip
    assert done.returncode == 2
    assert "node n2 did not find the head" in done.stderr
    assert "1 of 2 nodes joined within" in done.stderr
    assert list(tmp_path.glob("*/2*")) == []


def test_a_survey_of_both_nodes_brings_its_table_home(cluster, tmp_path):
    argv = [sys.executable, "-m", "aiperf", "survey", "--slurm", "-N", "2", "--results", str(tmp_path), "--json"]
    done = subprocess.run(
        [*argv, "--slow", "1=3"], env=cluster.env, cwd=tmp_path, capture_output=True, text=True, timeout=280
    )
    assert done.returncode in (0, 6), done.stderr
    rows = {(row["node"], row["metric"]): row for row in json.loads(done.stdout)}
    assert {("n1", "gemm"), ("n2", "gemm"), ("n1", "copy"), ("n2", "all_reduce")} <= rows.keys()
    (stored,) = (tmp_path / "surveys").glob("*.json")
    skipped = json.loads(stored.read_text())["skipped"]
    assert {("n1", "disk"), ("n2", "disk")} <= rows.keys() or skipped[-1].startswith("disk: ")
    assert rows["n2", "gemm"]["deficit"] > rows["n1", "gemm"]["deficit"]


SHIPPED = sorted((Path(__file__).parents[2] / "scenarios" / "nodes").glob("*.yaml"))


@pytest.mark.parametrize("shipped", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_scenario_of_two_nodes_is_measured_and_its_outputs_agree(cluster, tmp_path, shipped):
    said = yaml.safe_load(shipped.read_text())
    said["measure"] = {**said.get("measure", {}), "max_pairs": 3}
    (tmp_path / shipped.name).write_text(yaml.safe_dump(said))
    argv = [sys.executable, "-m", "aiperf", "run", str(tmp_path / shipped.name), "--slurm", "-N", "2"]
    argv += ["--results", str(tmp_path), "--precision", "quick", "--no-peaks", "--host-check", "off"]
    done = subprocess.run(argv, env=cluster.env, cwd=tmp_path, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = [path.parent for path in tmp_path.glob("*/run.json") if not path.parent.is_symlink()]
    cases = [json.loads(path.read_text()) for path in (folder / "cases").glob("*.json")]
    assert cases
    assert {case["status"] for case in cases} == {"measured"}
    assert all(check["passed"] for case in cases for pair in case["pairs"] for check in pair["checks"])
