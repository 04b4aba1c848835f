"""gpu.concurrent without a GPU: order over streams, threads, processes on the CPU, arguments."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from aiperf.workloads import _gpu_pool, _gpu_worker, _mps, gpu
from aiperf.workloads._gpu_pool import GpuPool, PoolError
from aiperf.workloads._gpu_threads import Crew
from aiperf.workloads.contract import Context, SkipSide, Workload


class Log:
    """Streams that only note what they get."""

    def __init__(self) -> None:
        self.noted: list[tuple[str, str]] = []

    def current(self) -> str:
        return "timed"

    def queue(self, lane: str, call: Any) -> None:
        self.noted.append((lane, call()))

    def mark(self, lane: str) -> str:
        self.noted.append((lane, "mark"))
        return f"end of {lane}"

    def wait(self, lane: str, mark: str) -> None:
        self.noted.append((lane, f"wait for {mark}"))


def test_jobs_take_turns_on_the_streams_and_the_timed_stream_waits_for_every_stream() -> None:
    log = Log()
    gpu._spread(log, ["a", "b"], [lambda n=n: f"job {n}" for n in range(3)], "zero", [lambda: "stray"])
    work = [note for note in log.noted if note[1].startswith(("job", "stray"))]
    assert work == [
        ("a", "job 0"),
        ("zero", "stray"),
        ("b", "job 1"),
        ("zero", "stray"),
        ("a", "job 2"),
        ("zero", "stray"),
    ]
    last = log.noted.index(("zero", "stray"), log.noted.index(("a", "job 2")))
    joined = {note[1] for note in log.noted[last:] if note[0] == "timed"}
    assert joined == {"wait for end of a", "wait for end of b", "wait for end of zero"}


def test_without_strays_the_default_stream_is_left_alone() -> None:
    log = Log()
    gpu._spread(log, ["a"], [lambda: "job"], "zero", [])
    assert all(lane != "zero" for lane, _ in log.noted)


def test_the_threads_of_a_crew_run_at_the_same_time_and_end_with_it() -> None:
    meeting, done = threading.Barrier(3), []

    def call() -> None:
        meeting.wait(timeout=5)
        done.append(threading.get_ident())

    crew = Crew([call] * 3, start=lambda: None)
    crew.round()
    crew.round()
    assert len(done) == 6
    assert len(set(done)) == 3
    crew.close()
    assert not any(thread.is_alive() for thread in crew._threads)


def test_what_a_thread_raises_is_raised_by_the_round_and_the_crew_goes_on() -> None:
    rounds = []

    def call() -> None:
        rounds.append(1)
        if len(rounds) == 1:
            raise OSError("the launch failed")

    crew = Crew([call], start=lambda: None)
    with pytest.raises(OSError, match="the launch failed"):
        crew.round()
    crew.round()
    crew.close()
    assert len(rounds) == 2


def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_gpu_pool, "BATCH", 2)
    monkeypatch.setattr(_gpu_pool, "WIDTH", 16)


def test_processes_answer_from_the_shared_inputs_and_end_with_the_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    small(monkeypatch)
    pool = GpuPool(["infer", "train"], seed=3, requests=2, device=-1, env={})
    try:
        assert pool.facts == ["cpu", "cpu"]
        pool.redraw(8)
        pool.results[:] = np.nan
        pool.step()
        for index, kind in enumerate(("infer", "train")):
            solo = _gpu_worker.build(kind, width=16, seed=3, device=torch.device("cpu"))
            want = solo(torch.from_numpy(pool.inputs[index].copy()))
            assert np.array_equal(pool.results[index], want.numpy())
        pids = [worker.pid for worker in pool._workers]
    finally:
        pool.close()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_a_process_that_dies_is_told_and_leaves_no_other_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    small(monkeypatch)
    program = tmp_path / "worker.py"
    program.write_text("import sys; print('first\\nno GPU', file=sys.stderr); sys.exit(3)", encoding="utf-8")
    monkeypatch.setattr(_gpu_pool, "_WORKER", program)
    with pytest.raises(PoolError, match=r"status 3: no GPU$"):
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
    monkeypatch.setattr(_gpu_pool, "_LEAVE_S", 0.2)
    with pytest.raises(PoolError, match=r"status 3: the cause$"):
        GpuPool(["infer", "infer"], seed=3, requests=1, device=-1, env={})


class Daemon:
    """An MPS daemon that only notes what becomes of it."""

    env: ClassVar = {"CUDA_MPS_PIPE_DIRECTORY": "/pipe", "CUDA_VISIBLE_DEVICES": "0"}

    def __init__(self, noted: list[object], servers: int = 1) -> None:
        self._noted, self._servers = noted, servers

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
        self._noted = noted
        if fault is not None:
            raise fault

    def step(self) -> None: ...

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
) -> tuple[list[object], Callable[[], Workload]]:
    """What becomes of daemon and pool when the third GPU's jobs are set up, and the set-up."""
    noted: list[object] = []

    def start(gpu: int) -> Daemon:
        noted.append(f"daemon for {gpu}")
        return Daemon(noted, servers)

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
    assert noted == ["daemon for 2", (0, Daemon.env)]
    assert workload.facts["mps_servers"] == 1
    assert "CUDA_MPS_PIPE_DIRECTORY" not in workload.facts
    workload.close()
    assert noted[2:] == ["pool closed", "daemon closed"]


def test_processes_without_mps_find_the_gpu_where_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    noted, made = shared(monkeypatch, tmp_path, mps=False)
    made()
    assert noted == [(2, {})]


@pytest.mark.parametrize(
    ("fault", "servers", "told", "left"),
    [
        (PoolError("status 1: no GPU"), 1, "status 1: no GPU; MPS logged: no such device", []),
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
    assert noted[2:] == [*left, "daemon closed"]


def test_a_training_answer_does_not_depend_on_the_answers_before_it() -> None:
    train = _gpu_worker.build("train", width=8, seed=1, device=torch.device("cpu"))
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
        assert (Path(daemon.env["CUDA_MPS_LOG_DIRECTORY"]) / "seen").read_text().strip() == seen
        assert daemon.env["CUDA_VISIBLE_DEVICES"] == "0"
    finally:
        daemon.close()


def test_what_mps_logged_last_of_a_fault_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pretend_control(tmp_path, monkeypatch, CONTROL)
    daemon = _mps.Mps(0)
    try:
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
    with pytest.raises(SkipSide, match="did not come up"):
        _mps.Mps(0)
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
    pid = int((Path(daemon.env["CUDA_MPS_PIPE_DIRECTORY"]) / "up").read_text())
    assert Path(f"/proc/{pid}").exists()
    daemon.close()
    assert not alive(pid)


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


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"jobs": []}, "are none"),
        ({"jobs": ["large"]}, "tiny, small, filling, gemm"),
        ({"jobs": ["infer"]}, "share streams knows"),
        ({"jobs": ["gemm"], "share": "processes"}, "infer, train"),
        ({"jobs": ["gemm"], "share": "threads", "stream_flags": "legacy"}, "tiny, small"),
        ({"jobs": ["small"], "share": "threads"}, "legacy or per_thread"),
        ({"jobs": ["small"], "stream_flags": "per_thread"}, "for share: threads"),
        ({"jobs": ["small"], "streams": 0}, "1 or more"),
        ({"jobs": ["small"], "share": "serial", "stray_legacy": 1}, "for share: streams"),
        ({"jobs": ["infer"], "share": "mps", "thread_percentage": 0}, "from 1 to 100"),
        ({"jobs": ["infer"], "share": "processes", "thread_percentage": 50}, "for share: mps"),
        ({"jobs": ["small"], "rounds": 0}, "1 or more"),
    ],
)
def test_an_impossible_sharing_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gpu.concurrent(Context(), **given)


def test_without_a_gpu_the_side_is_skipped() -> None:
    with pytest.raises(SkipSide, match="GPU"):
        gpu.concurrent(Context(), jobs=["small"])
