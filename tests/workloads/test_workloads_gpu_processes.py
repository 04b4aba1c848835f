"""Processes that share a GPU, with and without MPS: what they answer, leave behind and tell when they fail."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from patience import PATIENCE_S, until

from aiperf.workloads.contract import Context, SkipSide, Workload
from aiperf.workloads.gpu import mps as _mps
from aiperf.workloads.gpu import pool as _gpu_pool
from aiperf.workloads.gpu import worker as _gpu_worker
from aiperf.workloads.gpu import workload as gpu
from aiperf.workloads.gpu.pool import GpuPool
from aiperf.workloads.shared import child as _child
from aiperf.workloads.shared.child import HelperEnded


def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_gpu_pool, "BATCH", 2)
    monkeypatch.setattr(_gpu_pool, "WIDTH", 16)


def network(kind: str, *, width: int, seed: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """What a process computes, here."""
    return _gpu_worker.build(kind, _gpu_worker.draw(kind, width=width, seed=seed), device=torch.device("cpu"))


@pytest.fixture(scope="module")
def pool() -> Iterator[GpuPool]:
    """A process of each kind, all of which load torch."""
    with pytest.MonkeyPatch.context() as patch:
        small(patch)
        pool = GpuPool(_gpu_pool.KINDS, seed=3, requests=3, device=-1, env={})
    yield pool
    pool.close()


@pytest.mark.long
def test_processes_answer_from_the_shared_inputs(pool: GpuPool) -> None:
    assert pool.facts == ["cpu"] * 3
    pool.redraw(8)
    pool.results[:] = np.nan
    pool.step()
    for index, kind in enumerate(("infer", "train", "filling")):
        solo = network(kind, width=16, seed=3)
        want = solo(torch.from_numpy(pool.inputs[index].copy()))
        assert np.array_equal(pool.results[index], want.numpy())


@pytest.mark.long
def test_the_first_process_tells_what_each_of_its_requests_took_since_it_was_asked(pool: GpuPool) -> None:
    pool.take_latencies()
    began = time.monotonic()
    pool.step()
    pool.step()
    passed = time.monotonic() - began
    took = pool.take_latencies()
    assert len(took) == 6
    assert min(took) > 0
    assert sum(took) < passed
    assert pool.take_latencies() == []


@pytest.mark.long
def test_processes_end_with_the_pool(pool: GpuPool) -> None:
    pids = [worker.pid for worker in pool._workers]
    assert all(Path(f"/proc/{pid}").exists() for pid in pids)
    assert len(pids) == 3
    pool.close()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_a_process_that_dies_is_told_and_leaves_no_other_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    small(monkeypatch)
    program = tmp_path / "worker.py"
    program.write_text("import sys; print('first\\nno GPU', file=sys.stderr); sys.exit(3)", encoding="utf-8")
    monkeypatch.setattr(_gpu_pool, "_WORKER", program)
    with pytest.raises(HelperEnded, match=r"status 3: no GPU$"):
        GpuPool(["infer", "infer"], seed=3, requests=1, device=-1, env={})


def test_the_last_words_are_those_of_the_process_that_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    small(monkeypatch)
    program = tmp_path / "worker.py"
    program.write_text(
        "import sys, time\n"
        "if sys.argv[3] == '0':\n"
        "    print('the cause', file=sys.stderr); time.sleep(1); sys.exit(3)\n"
        "print('a harmless warning', file=sys.stderr, flush=True); time.sleep(30)\n",
        encoding="utf-8",
    )
    monkeypatch.setattr(_gpu_pool, "_WORKER", program)
    monkeypatch.setattr(_child, "_LEAVE_S", 0.2)
    with pytest.raises(HelperEnded, match=r"status 3: the cause$"):
        GpuPool(["infer", "infer"], seed=3, requests=1, device=-1, env={})


SAYS = """
import os, sys
print(os.environ.get("WANTED"), flush=True)
print("a warning", file=sys.stderr, flush=True)
for line in sys.stdin:
    sys.exit(4)
"""


def test_processes_have_the_environment_that_they_are_given_and_their_stderr_is_passed_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small(monkeypatch)
    (tmp_path / "worker.py").write_text(SAYS, encoding="utf-8")
    monkeypatch.setattr(_gpu_pool, "_WORKER", tmp_path / "worker.py")
    pool = GpuPool(["infer"], seed=3, requests=1, device=-1, env={"WANTED": "25"})
    assert pool.facts == ["25"]
    with pytest.raises(HelperEnded, match="status 4: a warning"):
        pool.step()
    with pytest.raises(HelperEnded, match="status 4: a warning"):
        pool.step()
    pool.close()
    pool.close()
    assert capsys.readouterr().err == "a warning\n"


def test_the_last_words_are_the_last_however_many_there_were(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    small(monkeypatch)
    told = "import sys\nfor _ in range(60_000): print('Assertion failed in a thread', file=sys.stderr)\n"
    (tmp_path / "worker.py").write_text(f"{told}sys.exit('the cause')", encoding="utf-8")
    monkeypatch.setattr(_gpu_pool, "_WORKER", tmp_path / "worker.py")
    with pytest.raises(HelperEnded, match=r"status 1: the cause$"):
        GpuPool(["infer"], seed=3, requests=1, device=-1, env={})


@pytest.mark.long
def test_the_end_of_the_input_ends_a_process_at_once_and_well(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small(monkeypatch)
    # What an interpreter with torch does when it is left to end by itself; whoever skips that does not run it.
    (tmp_path / "sitecustomize.py").write_text("import atexit; atexit.register(print, 'cleaned up')", encoding="utf-8")
    pool = GpuPool(["infer"], seed=3, requests=1, device=-1, env={"PYTHONPATH": str(tmp_path)})
    (worker,) = pool._workers
    worker.stdin.close()
    assert worker.wait(timeout=PATIENCE_S) == 0
    assert worker.stdout.read() == b""
    pool.close()
    assert capsys.readouterr().err == ""


READS = """
import os, sys
told = open(os.environ["NOTED"], "a")
print("imported", file=told, flush=True)
sys.stdin.readline()
print("on the GPU", file=told, flush=True)
print("a GPU", flush=True)
sys.stdin.readline()
"""


def test_processes_start_beside_what_makes_the_gpu_ready_and_touch_it_only_then(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    small(monkeypatch)
    (tmp_path / "worker.py").write_text(READS, encoding="utf-8")
    monkeypatch.setattr(_gpu_pool, "_WORKER", tmp_path / "worker.py")
    noted = tmp_path / "noted"

    def ready() -> None:
        # Comes to an end only because they were started before.
        while not noted.exists() or noted.read_text().count("imported") < 2:
            time.sleep(0.01)
        with noted.open("a") as told:
            told.write("ready\n")

    pool = GpuPool(["infer", "infer"], seed=3, requests=1, device=-1, env={"NOTED": str(noted)}, ready=ready)
    pool.close()
    assert noted.read_text().split("\n") == ["imported", "imported", "ready", "on the GPU", "on the GPU", ""]


def test_a_gpu_that_does_not_get_ready_leaves_no_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    small(monkeypatch)
    (tmp_path / "worker.py").write_text(READS, encoding="utf-8")
    monkeypatch.setattr(_gpu_pool, "_WORKER", tmp_path / "worker.py")
    started: list[_child.Helper] = []

    class Noted(_child.Helper):
        def __init__(self, *given: Any, **options: Any) -> None:
            super().__init__(*given, **options)
            started.append(self)

    def ready() -> None:
        raise SkipSide("no daemon")

    monkeypatch.setattr(_gpu_pool, "Helper", Noted)
    with pytest.raises(SkipSide, match="no daemon"):
        GpuPool(["infer"] * 2, seed=3, requests=1, device=-1, env={"NOTED": str(tmp_path / "noted")}, ready=ready)
    assert [child.returncode for child in started] == [0, 0]


@pytest.mark.long
def test_a_process_that_is_never_told_to_begin_does_not_ask_for_its_gpu() -> None:
    program = Path(_gpu_worker.__file__)
    told = (99, 1, 0, 2, 16, 1, 99, 3, "infer")  # neither that descriptor nor that GPU is there
    ended = subprocess.run(
        [sys.executable, "-P", program, *map(str, told)], input="", capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_processes_read_compiled_modules_from_where_they_are_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    small(monkeypatch)
    (tmp_path / "worker.py").write_text(SAYS, encoding="utf-8")
    monkeypatch.setattr(_gpu_pool, "_WORKER", tmp_path / "worker.py")
    monkeypatch.setattr(_gpu_pool, "kept_variables", lambda: {"WANTED": "kept"})
    pool = GpuPool(["infer"], seed=3, requests=1, device=-1, env={})
    assert pool.facts == ["kept"]
    pool.close()


class Daemon:
    """An MPS daemon that only notes what becomes of it."""

    env: ClassVar = {"CUDA_MPS_PIPE_DIRECTORY": "/pipe", "CUDA_VISIBLE_DEVICES": "0"}

    def __init__(self, noted: list[object], servers: int = 1) -> None:
        self._noted, self._servers = noted, servers

    def await_up(self) -> None:
        self._noted.append("daemon up")

    def servers(self) -> int:
        return self._servers

    def faults(self) -> str:
        return "no such device"

    def close(self) -> None:
        self._noted.append("daemon closed")


class Pool:
    """A pool that only notes what it was asked for."""

    facts: ClassVar = ["H200"]
    inputs = results = np.zeros(1)

    def __init__(self, noted: list[object], fault: Exception | None, *_: object, **asked: object) -> None:
        noted.append((asked["device"], asked["env"]))
        asked["ready"]()
        self._noted = noted
        if fault is not None:
            raise fault

    def step(self) -> None: ...

    def take_latencies(self) -> list[float]:
        return [0.5]

    def redraw(self, seed: int) -> None: ...

    def close(self) -> None:
        self._noted.append("pool closed")


def shared(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    *,
    fault: Exception | None = None,
    servers: int = 1,
    mps: bool = True,
) -> tuple[list[object], Callable[..., Workload]]:
    """What becomes of daemon and pool when the third GPU's jobs are set up, and the set-up."""
    noted: list[object] = []

    def start(gpu: int) -> Daemon:
        noted.append(f"daemon for {gpu}")
        return Daemon(noted, servers)

    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: noted.append(f"context on {device}"))
    monkeypatch.setattr(gpu, "Mps", start)
    monkeypatch.setattr(gpu, "GpuPool", lambda *args, **kwargs: Pool(noted, fault, *args, **kwargs))
    context = Context(device="cuda:2", seed=1, scratch=tmp_path, shared_scratch=tmp_path, gpus=3)
    made = partial(gpu.concurrent, context, jobs=["infer"], share="mps" if mps else "processes")
    return noted, made


def test_clients_of_mps_find_the_gpu_as_their_first_and_all_is_closed_pool_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    noted, made = shared(monkeypatch, tmp_path)
    workload = made()
    assert noted == ["daemon for 2", (0, Daemon.env), "context on cuda:2", "daemon up"]
    assert workload.facts["mps_servers"] == 1
    assert "CUDA_MPS_PIPE_DIRECTORY" not in workload.facts
    workload.close()
    assert noted[4:] == ["pool closed", "daemon closed"]


def test_a_side_reports_the_latencies_of_its_first_process_where_it_is_asked_to(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _, made = shared(monkeypatch, tmp_path)
    told = made(time_first=True)
    assert told.latencies is not None
    assert list(told.latencies()) == [0.5]
    assert told.latency_source
    assert made().latencies is None
    with pytest.raises(ValueError, match="time_first is for share: processes and mps"):
        made(share="streams", jobs=["tiny"], time_first=True)


def test_processes_without_mps_find_the_gpu_where_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    noted, made = shared(monkeypatch, tmp_path, mps=False)
    made()
    assert noted == [(2, {}), "context on cuda:2"]


@pytest.mark.parametrize(
    ("fault", "servers", "told", "left"),
    [
        (HelperEnded("status 1: no GPU"), 1, "status 1: no GPU; MPS logged: no such device", []),
        (OSError("no memory"), 1, "no memory", []),
        (None, 0, "has started no server", ["pool closed"]),
    ],
)
def test_whatever_fails_under_mps_the_daemon_is_closed(
    fault: Exception | None, servers: int, told: str, left: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    noted, made = shared(monkeypatch, tmp_path, fault=fault, servers=servers)
    with pytest.raises(OSError if isinstance(fault, OSError) else SkipSide, match=told):
        made()
    assert noted[4:] == [*left, "daemon closed"]


def test_a_training_answer_does_not_depend_on_the_answers_before_it() -> None:
    train = network("train", width=8, seed=1)
    first, second = torch.ones(2, 8), torch.full((2, 8), 0.5)
    want = train(first).clone()
    train(second)
    assert torch.equal(train(first), want)
    assert not torch.equal(want, train(second))


CONTROL = """#!/bin/sh
if [ "$1" = -f ]; then
  echo "$CUDA_VISIBLE_DEVICES" > "$CUDA_MPS_LOG_DIRECTORY/seen"
  touch "$CUDA_MPS_PIPE_DIRECTORY/up"
  while [ ! -e "$CUDA_MPS_PIPE_DIRECTORY/quit" ]; do sleep 0.05; done
  touch "$WITNESS"
  exit 0
fi
read -r line
[ -e "$CUDA_MPS_PIPE_DIRECTORY/up" ] || { echo "Cannot find MPS control daemon process"; exit 1; }
if [ "$line" = quit ]; then touch "$CUDA_MPS_PIPE_DIRECTORY/quit"; else echo 4711; fi
"""


def pretend_control(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> Path:
    program = folder / "nvidia-cuda-mps-control"
    program.write_text(text, encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("WITNESS", str(folder / "witness"))
    return folder / "witness"


def test_the_daemon_lives_in_its_own_folder_and_quits_with_the_side(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ended = pretend_control(tmp_path, monkeypatch, CONTROL)
    daemon = _mps.Mps(0)
    daemon.await_up()
    folder = Path(daemon.env["CUDA_MPS_PIPE_DIRECTORY"])
    assert folder.is_dir()
    assert daemon.servers() == 1
    assert not ended.exists()
    daemon.close()
    assert ended.exists()
    assert not folder.exists()


@pytest.mark.parametrize(("visible", "gpu", "seen"), [(None, 3, "3"), ("2,5", 1, "5"), ("GPU-a, GPU-b", 1, "GPU-b")])
def test_the_daemon_sees_the_one_gpu_in_use_and_its_clients_count_from_there(
    visible: str | None, gpu: int, seen: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pretend_control(tmp_path, monkeypatch, CONTROL)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    daemon = _mps.Mps(gpu)
    try:
        daemon.await_up()
        assert (Path(daemon.env["CUDA_MPS_LOG_DIRECTORY"]) / "seen").read_text().strip() == seen
        assert daemon.env["CUDA_VISIBLE_DEVICES"] == "0"
    finally:
        daemon.close()


def test_what_mps_logged_last_of_a_fault_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pretend_control(tmp_path, monkeypatch, CONTROL)
    daemon = _mps.Mps(0)
    try:
        daemon.await_up()
        assert daemon.faults() == ""
        log = Path(daemon.env["CUDA_MPS_LOG_DIRECTORY"]) / "server.log"
        log.write_text("[x] Server start\n[x] Failed to start : operation not supported\n[x] Server exited\n")
        assert daemon.faults() == "[x] Failed to start : operation not supported"
    finally:
        daemon.close()


def test_a_daemon_that_does_not_come_up_is_a_reason_to_skip_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pretend_control(tmp_path, monkeypatch, "#!/bin/sh\nexit 1\n")
    monkeypatch.setattr(_mps, "_PATIENCE_S", 0.2)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    daemon = _mps.Mps(0)
    with pytest.raises(SkipSide, match="did not start"):
        daemon.await_up()
    daemon.close()
    assert not list(tmp_path.glob("aiperf-mps-*"))


def test_a_daemon_that_does_not_quit_is_killed_and_not_only_its_shell(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stubborn = CONTROL.replace('[ ! -e "$CUDA_MPS_PIPE_DIRECTORY/quit" ]', "true").replace(
        'touch "$CUDA_MPS_PIPE_DIRECTORY/up"', 'echo $$ > "$CUDA_MPS_PIPE_DIRECTORY/up"'
    )
    pretend_control(tmp_path, monkeypatch, stubborn)
    monkeypatch.setattr(_mps, "_LEAVE_S", 0.5)
    daemon = _mps.Mps(0)
    daemon.await_up()
    pid = int((Path(daemon.env["CUDA_MPS_PIPE_DIRECTORY"]) / "up").read_text())
    assert Path(f"/proc/{pid}").exists()
    daemon.close()
    assert until(lambda: not alive(pid)), "killed, and not yet gone"


def test_a_daemon_whose_shell_has_ended_goes_all_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # Written elsewhere and then put there, or it could be read while it is empty.
    told = 'cd "$CUDA_MPS_PIPE_DIRECTORY" && echo $$ > new && mv new up'
    pretend_control(tmp_path, monkeypatch, CONTROL.replace('touch "$CUDA_MPS_PIPE_DIRECTORY/up"', told))
    daemon = _mps.Mps(0)
    daemon.await_up()
    pid = int((Path(daemon.env["CUDA_MPS_PIPE_DIRECTORY"]) / "up").read_text())
    daemon._daemon.kill()
    daemon._daemon.wait()
    assert alive(pid)
    daemon.close()
    assert until(lambda: not alive(pid)), "killed, but not waited for by anybody here"


def alive(pid: int) -> bool:
    """Whether a process still runs; one that is dead and not yet waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_without_mps_on_the_path_the_side_is_skipped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SkipSide, match="not on PATH"):
        _mps.Mps(0)
