"""What tests/nursery.py forks is to the kernel and to aiperf what a worker that is started afresh would be."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import psutil
import pytest
from patience import PATIENCE_S

from aiperf.launch import child
from aiperf.launch.environment import side_environment
from aiperf.launch.gang import Gang, GangPlan
from aiperf.launch.guardian import Guardian
from aiperf.launch.watchdog import LAUNCH_VARIABLE

WORKER, JUDGE = ("-m", "aiperf.worker"), ("-P", "-m", "aiperf.worker.judge")
PROFILED = ("-m", "aiperf.worker.standalone")


def seen(program: tuple[str, ...], folder: Path, cpu: int) -> dict[str, Any]:
    """A running worker as others see it."""
    env = side_environment({}, seed=1)
    plan = GangPlan("after", 1, env, "", ((cpu,),), folder, program=program)
    with Guardian() as guardian, Gang(plan, guardian) as gang:
        gang.start()
        gang.await_start(limit=PATIENCE_S)
        (pid,) = gang.pids
        process = psutil.Process(pid)
        variables = process.environ()
        assert variables.pop(LAUNCH_VARIABLE) == env[LAUNCH_VARIABLE]
        return {
            "words": [word for word in process.cmdline() if word and not word.isdigit()],
            "variables": variables,
            "folder": process.cwd(),
            "cpus": process.cpu_affinity(),
            "parent": process.ppid() == os.getpid(),
            "session": (os.getsid(pid), os.getpgid(pid)) == (pid, pid),
            "files": sorted(os.readlink(f"/proc/{pid}/fd/{number}") for number in (0, 1, 2)),
            "descriptors": process.num_fds(),
        }


@pytest.mark.parametrize("program", [WORKER, JUDGE])
def test_a_forked_worker_is_what_one_that_is_started_afresh_would_be(
    tmp_path: Path, program: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    forks: list[bool] = []
    popen = child.subprocess.Popen

    def start(*argv: Any, **how: Any) -> Any:
        started = popen(*argv, **how)
        forks.append(type(started).__name__ == "Forked")
        return started

    monkeypatch.setattr(child.subprocess, "Popen", start)
    cpu = max(os.sched_getaffinity(0))
    forked = seen(program, tmp_path, cpu)
    monkeypatch.undo()
    with monkeypatch.context() as patch:
        patch.setattr(child.subprocess, "_fits", lambda *_: False)
        afresh = seen(program, tmp_path, cpu)
    assert forks == [True]
    assert forked == afresh


def test_a_variable_that_an_interpreter_reads_has_a_worker_started_afresh() -> None:
    fits = child.subprocess._fits
    env = {**os.environ, "PYTHONPATH": child.subprocess._paths[0], "OPENBLAS_NUM_THREADS": "1"}
    assert fits(WORKER, env)
    assert fits(WORKER, {**env, "AIPERF_PAD": "x", "RANK": "1"})
    for odd in (
        {"PYTHONHASHSEED": "1"},
        {"LD_PRELOAD": "x.so"},
        {"PYTHONPATH": "/elsewhere"},
        {"OMP_NUM_THREADS": "7"},
    ):
        assert not fits(WORKER, {**env, **odd}), odd
    few = {"PYTHONPATH": env["PYTHONPATH"], "TMPDIR": "/elsewhere"}
    assert fits(PROFILED, few)
    assert not fits(WORKER, few)
    assert not fits(PROFILED, {**few, "OMP_NUM_THREADS": "7"})
