import os
import subprocess
import sys
import time
from pathlib import Path

from host_recorded import machine, process
from patience import PATIENCE_S, until

from aiperf.host.stale import stale_workers

WORKER = ("python3", "-m", "aiperf.worker", "4")


def make_package(folder):
    package = folder / "aiperf" / "worker"
    package.mkdir(parents=True)
    (folder / "aiperf" / "__init__.py").write_text("")
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text("import time\ntime.sleep(600)\n")


def pids_of_stale():
    return [pid for pid, _, _ in stale_workers()]


def test_a_real_worker_is_stale_only_once_its_parent_is_gone(tmp_path):
    make_package(tmp_path)
    # The parent starts a dummy worker that names it, prints the worker's number, and dies when its input closes.
    code = (
        "import os, subprocess, sys\n"
        "env = {**os.environ, 'AIPERF_PARENT': str(os.getpid())}\n"
        "w = subprocess.Popen([sys.executable, '-m', 'aiperf.worker'], env=env, stdin=subprocess.DEVNULL,"
        " stdout=subprocess.DEVNULL)\n"
        "print(w.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    worker = int(parent.stdout.readline())
    try:
        assert until(lambda: b"aiperf.worker" in Path(f"/proc/{worker}/cmdline").read_bytes())
        assert worker not in pids_of_stale()
        parent.stdin.close()
        parent.wait(PATIENCE_S)
        assert until(lambda: worker in pids_of_stale())
        (found,) = [entry for entry in stale_workers() if entry[0] == worker]
        assert abs(found[1] - time.time()) < 120
        assert found[2].endswith("-m aiperf.worker")
    finally:
        os.kill(worker, 9)
        parent.stdout.close()


def test_a_worker_without_the_mark_is_stale_when_the_first_process_adopted_it(tmp_path):
    root = machine(tmp_path)
    process(root, 50, parent=1, arguments=WORKER)
    process(root, 51, parent=40, arguments=WORKER)
    assert [pid for pid, _, _ in stale_workers(root=root)] == [50]


def test_a_parent_number_that_was_used_again_does_not_count_as_alive(tmp_path):
    root = machine(tmp_path)
    process(root, 60, started=100)
    process(root, 61, parent=1, started=200, arguments=WORKER, environ=("AIPERF_PARENT=60",))
    assert stale_workers(root=root) == []
    process(root, 60, started=300)
    assert [pid for pid, _, _ in stale_workers(root=root)] == [61]


def test_aiperf_as_first_process_of_a_container_is_a_living_parent(tmp_path):
    root = machine(tmp_path)
    process(root, 1, parent=0, started=1)
    process(root, 61, parent=1, started=200, arguments=WORKER, environ=("AIPERF_PARENT=1",))
    assert stale_workers(root=root) == []


def test_other_programs_and_zombies_are_no_workers(tmp_path):
    root = machine(tmp_path)
    process(root, 70, arguments=("grep", "aiperf.worker"))
    process(root, 71, arguments=("python3", "-m", "aiperf.workers"))
    process(root, 72, arguments=("python3", "-m", "aiperf", "run"))
    process(root, 73, state="Z", arguments=WORKER)
    assert stale_workers(root=root) == []


def test_the_start_time_is_counted_from_boot(tmp_path):
    root = machine(tmp_path)
    process(root, 80, started=250, arguments=WORKER)
    ((_, started, command),) = stale_workers(root=root)
    assert started == 1_700_000_000 + 250 / os.sysconf("SC_CLK_TCK")
    assert command == "python3 -m aiperf.worker 4"
