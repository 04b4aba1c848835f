from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from patience import PATIENCE_S, until

from aiperf.launch.child import Child, StartError, classify
from aiperf.launch.environment import PAD_VARIABLE, pad_bytes, side_environment
from aiperf.launch.watchdog import LAUNCH_VARIABLE, PARENT_VARIABLE

PROGRAMS = Path(__file__).parents[1] / "programs"


def marked() -> list[int]:
    """Every live process that carries this test's mark."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and process.environ().get("AIPERF_TEST") == MARK:
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


MARK = uuid.uuid4().hex


def start(name: str, *arguments: str, folder: Path, cpus: tuple[int, ...] | None = None) -> Child:
    env = side_environment({"AIPERF_TEST": MARK}, seed=1)
    argv = [sys.executable, str(PROGRAMS / name), *arguments]
    return Child.start(argv, env=env, cpus=cpus, stderr_path=folder / "err", stdout=folder / "out")


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    descriptors = len(os.listdir("/proc/self/fd"))
    yield
    assert marked() == []
    assert [p for p in psutil.Process().children() if p.status() == psutil.STATUS_ZOMBIE] == []
    assert len(os.listdir("/proc/self/fd")) == descriptors


def wait_for(path: Path, text: str) -> None:
    assert until(lambda: text in path.read_text()), f"{path} never said {text}"


def test_a_child_runs_bound_to_its_cpus_and_the_parent_keeps_its_own(tmp_path: Path) -> None:
    before = os.sched_getaffinity(0)
    cpu = max(before)
    code = "import os; print(sorted(os.sched_getaffinity(0)), os.getsid(0) == os.getpid())"
    env = side_environment({}, seed=1)
    with Child.start([sys.executable, "-c", code], env=env, cpus=(cpu,), stdout=tmp_path / "out") as child:
        child.wait(PATIENCE_S)
    assert (tmp_path / "out").read_text().split("\n")[0] == f"[{cpu}] True"
    assert os.sched_getaffinity(0) == before


def test_the_environment_is_exactly_the_one_given(tmp_path: Path) -> None:
    with Child.start(["/usr/bin/env"], env={"ONLY": "this"}, stdout=tmp_path / "out") as child:
        child.wait(PATIENCE_S)
    assert (tmp_path / "out").read_text() == "ONLY=this\n"


def test_time_and_memory_are_those_of_the_program(tmp_path: Path) -> None:
    with start("spin_known.py", "4000000", folder=tmp_path) as child:
        ended = child.wait(PATIENCE_S)
    assert ended is not None
    assert 0.02 < ended.user_s < 5
    assert ended.ended - child.started >= 0.5 * (ended.user_s + ended.system_s)
    # From a small process: Linux hands its own peak on to its children's account.
    code = "import sys\nfrom aiperf.launch.child import Child\n"
    code += "with Child.start(sys.argv[1:], env={}) as child:\n    print(child.wait().peak_bytes)"
    argv = [sys.executable, "-c", code, sys.executable, str(PROGRAMS / "allocate.py"), "200"]
    peak = int(subprocess.run(argv, capture_output=True, check=True, timeout=PATIENCE_S).stdout)
    assert 200 << 20 < peak < 300 << 20


def test_a_peak_below_our_own_is_unknown_and_never_ours(tmp_path: Path) -> None:
    ballast = bytearray(150 << 20)
    ballast[::4096] = b"x" * len(ballast[::4096])
    with start("exit3.py", folder=tmp_path) as child:
        unknown = child.wait(PATIENCE_S)
    assert unknown is not None
    assert unknown.peak_bytes is None
    assert unknown.floor_bytes >= 150 << 20


def test_standard_input_is_at_its_end(tmp_path: Path) -> None:
    with start("reads_stdin.py", folder=tmp_path) as child:
        assert child.wait(PATIENCE_S) is not None
    assert (tmp_path / "out").read_text() == "0\n"


@pytest.mark.parametrize(
    ("program", "status", "kind", "message"),
    [
        ("crash.py", -signal.SIGSEGV, "crash", "killed by SIGSEGV"),
        ("exit3.py", 3, "error", "exit status 3"),
    ],
)
def test_an_end_is_told_by_its_cause(tmp_path: Path, program: str, status: int, kind: str, message: str) -> None:
    with start(program, folder=tmp_path) as child:
        child.wait(PATIENCE_S)
    assert child.exit_status == status
    assert child.classify() == (kind, message)


def test_signals_are_told_apart_by_who_sent_them() -> None:
    assert classify(-9, sent=9) == ("signal", "killed by SIGKILL, sent by aiperf")
    assert classify(-9, oom_kills=1)[0] == "oom_host"
    assert classify(-9)[0] == "signal"
    assert "not by aiperf" in classify(-9)[1]
    assert classify(-6)[0] == "crash"
    assert classify(139) == ("error", "exit status 139 (a shell's word for SIGSEGV)")


def test_the_tail_of_stderr_is_short_and_decodes_whatever_was_written(tmp_path: Path) -> None:
    with start("chatty.py", folder=tmp_path) as child:
        child.wait(PATIENCE_S)
    tail = child.stderr_tail(lines=20)
    assert (tmp_path / "err").stat().st_size > 1_000_000
    assert len(tail.splitlines()) == 20
    assert tail.splitlines()[-1] == "�� the end"
    assert tail.splitlines()[-2].startswith("line 09999")


def test_a_child_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    with start("ignore_term.py", folder=tmp_path) as child:
        wait_for(tmp_path / "out", "ready")
        child.terminate()
        assert child.wait(0.2) is None
        assert child.poll() is None
        assert child.kill_group().status == -signal.SIGKILL
        assert child.kill_group() is child.ended


def test_a_stopped_child_is_killed_too(tmp_path: Path) -> None:
    with start("hang.py", folder=tmp_path) as child:
        child.signal_group(signal.SIGSTOP)
        assert child.kill_group().status == -signal.SIGKILL


def test_grandchildren_die_with_the_child_wherever_they_went(tmp_path: Path) -> None:
    with start("fork_child.py", "stay", folder=tmp_path):
        wait_for(tmp_path / "out", "left")
        assert len(marked()) == 3
    assert marked() == []


def test_grandchildren_that_outlive_the_child_are_killed_and_counted(tmp_path: Path) -> None:
    with start("fork_child.py", folder=tmp_path) as child:
        ended = child.wait(PATIENCE_S)
        assert ended is not None
        assert ended.status == 0
    assert child.stragglers == 2


@pytest.mark.parametrize("how", ["stay", "end"])
def test_an_orphan_with_an_empty_environment_ends_with_the_child(tmp_path: Path, how: str) -> None:
    left = tmp_path / "pid"
    with start("fork_twice.py", str(left), how, folder=tmp_path) as child:
        wait_for(tmp_path / "out", "left")
        pid = int(left.read_text())
        assert child.wait(PATIENCE_S if how == "end" else 0.0) is None or how == "end"
    assert not psutil.pid_exists(pid)
    assert child.stragglers == (how == "end")


def test_an_orphan_is_left_alone_while_another_program_may_have_left_it(tmp_path: Path) -> None:
    left = tmp_path / "pid"
    with start("fork_twice.py", str(left), "stay", folder=tmp_path):
        wait_for(tmp_path / "out", "left")
        (tmp_path / "other").mkdir()
        with start("exit3.py", folder=tmp_path / "other") as other:
            other.wait(PATIENCE_S)
        assert psutil.pid_exists(int(left.read_text()))
    assert not psutil.pid_exists(int(left.read_text()))


def test_children_of_this_process_that_were_there_before_are_no_orphans(tmp_path: Path) -> None:
    with subprocess.Popen(["/bin/sleep", "1000"], start_new_session=True) as bystander:
        with start("exit3.py", folder=tmp_path) as child:
            child.wait(PATIENCE_S)
        assert bystander.poll() is None
        bystander.kill()


def test_a_program_that_cannot_be_started_is_named_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"no-such-program cannot be started: No such file"):
        Child.start(["no-such-program"], env=dict(os.environ))
    plain = tmp_path / "plain"
    plain.write_text("not a program")
    with pytest.raises(StartError, match="Permission denied"):
        Child.start([str(plain)], env=dict(os.environ))


def test_a_side_environment_holds_the_sides_values_the_marks_and_a_padding_from_the_seed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NCCL_NVLS_ENABLE", "0")
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "eth7")
    env = side_environment({"OMP_NUM_THREADS": "1"}, seed=5, gang=True)
    assert env["OMP_NUM_THREADS"] == "1"
    assert env["NCCL_NVLS_ENABLE"] == "0"
    assert (env["GLOO_SOCKET_IFNAME"], env["NCCL_SOCKET_IFNAME"]) == ("lo", "eth7")
    assert env[PARENT_VARIABLE] == str(os.getpid())
    assert env[LAUNCH_VARIABLE] != side_environment({}, seed=5)[LAUNCH_VARIABLE]
    assert len(env[PAD_VARIABLE]) == pad_bytes(5)
    assert len({pad_bytes(seed) for seed in range(20)}) > 10
    assert "GLOO_SOCKET_IFNAME" not in side_environment({}, seed=5)


def test_libraries_log_into_the_folder_that_is_named_unless_the_user_or_the_side_names_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "CUFILE_LOGFILE_PATH"
    monkeypatch.delenv(name, raising=False)
    assert name not in side_environment({}, seed=5)
    assert side_environment({}, seed=5, logs=tmp_path)[name] == str(tmp_path / "cufile.log")
    assert side_environment({name: "/a"}, seed=5, logs=tmp_path)[name] == "/a"
    monkeypatch.setenv(name, "/b")
    assert side_environment({}, seed=5, logs=tmp_path)[name] == "/b"
