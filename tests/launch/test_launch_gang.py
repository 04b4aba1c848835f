"""A gang of worker processes: the protocol over the pipes, what goes wrong with it, CPUs, and what it leaves behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from patience import PATIENCE_S, until

from aiperf.launch.environment import side_environment
from aiperf.launch.gang import Gang, GangPlan, LaunchFailed, LaunchSkipped
from aiperf.launch.guardian import Guardian
from aiperf.protocol.measuring import Check, Measure
from aiperf.protocol.messages import FirstIterationRequest, LoadRequest, SetUpRequest, SummaryRequest, WorkloadCall
from aiperf.records import Failure

SIDES = Path(__file__).with_name("launch_sides.py")
HERE = str(os.getpid())
FIRST, SUMMARY = FirstIterationRequest("after"), SummaryRequest("after")
LOAD = LoadRequest((), (), device="cpu", open_gpu=False)
READY = 'os.write(write, b\'{"type": "ReadyReply"}\\n\')\n'
TAG = "tag = json.loads(os.read(read, 1000))['tag'].encode()\n"
"""Reads a request and keeps the tag that its reply must carry."""
ALL = tuple(sorted(os.sched_getaffinity(0)))


@pytest.fixture(scope="module")
def guardian() -> Iterator[Guardian]:
    with Guardian() as running:
        yield running


def left_over(guardian: Guardian) -> list[str]:
    """Command lines of the processes that this test process still has, its guardian apart."""
    return [" ".join(p.cmdline()) for p in psutil.Process().children(recursive=True) if p.pid != guardian.pid]


@pytest.fixture(autouse=True)
def _nothing_left(guardian: Guardian) -> Iterator[None]:
    descriptors = len(os.listdir("/proc/self/fd"))
    before = set(left_over(guardian))
    yield
    assert set(left_over(guardian)) <= before
    assert len(os.listdir("/proc/self/fd")) == descriptors


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def plan(folder: Path, *, ranks: int = 1, env: dict[str, str] | None = None, python: str = "") -> GangPlan:
    given = side_environment(env or {}, seed=1, gang=ranks > 1)
    return GangPlan("after", ranks, given, python, (None,) * ranks, folder)


def set_up(folder: Path, function: str, **params: object) -> SetUpRequest:
    call, measure = WorkloadCall(f"{SIDES}:{function}", params), Measure(clock="wall", delta=0.05)
    own, shared = str(folder / "own"), str(folder / "shared")
    return SetUpRequest("after", call, measure, Check("bitwise"), "cpu", seed=3, scratch=own, shared_scratch=shared)


def begin(gang: Gang, folder: Path, function: str = "vector", **params: object) -> None:
    gang.start()
    gang.await_start(limit=PATIENCE_S)
    gang.command(set_up(folder, function, **params), limit=PATIENCE_S)


def fake(folder: Path, body: str) -> str:
    """A program in the interpreter's place: it has ``read`` and ``write``, its ends of the pipes, and ``rank``."""
    path = folder / "fake"
    head = f"#!{sys.executable} -S\nimport json, os, sys, time\nread, write, rank = (int(a) for a in sys.argv[3:6])\n"
    path.write_text(head + body)
    path.chmod(0o755)
    return str(path)


def start_and_ask(gang: Gang) -> None:
    gang.await_start(limit=PATIENCE_S)
    gang.command(FIRST, limit=PATIENCE_S)


def failure_of(folder: Path, guardian: Guardian, body: str, *, ranks: int = 1, limit: float = PATIENCE_S) -> Failure:
    with Gang(plan(folder, ranks=ranks, python=fake(folder, body)), guardian) as gang:
        gang.start()
        with pytest.raises(LaunchFailed) as caught:
            gang.await_start(limit=limit)
    assert caught.value.failure.side == "after"
    assert caught.value.failure.phase == "start"
    return caught.value.failure


# ---- the protocol --------------------------------------------------------------------------------------------------


def test_a_gang_starts_answers_and_closes(folder: Path, guardian: Guardian) -> None:
    with Gang(plan(folder), guardian) as gang:
        begin(gang, folder)
        (pid,) = gang.pids
        assert gang.command(FIRST, limit=PATIENCE_S)[0].seconds > 0
        assert gang.command(SUMMARY, limit=PATIENCE_S)[0].facts["rank_variables"] == ["0", "0", "1"]
        assert gang.busy_s > 0
        gang.close(PATIENCE_S)
        assert gang.pids == ()
        assert not psutil.pid_exists(pid)


def test_answers_come_in_the_order_of_ranks_whoever_answers_first(folder: Path, guardian: Guardian) -> None:
    body = (
        READY
        + """
time.sleep(0.05 * (2 - rank))
"""
        + TAG
        + """
reply = b'{"type": "FirstIterationReply", "tag": "%s", "seconds": %d, "busy_s": 0.%d}\\n'
os.write(write, reply % (tag, rank, rank + 1))
os.read(read, 1)
"""
    )
    with Gang(plan(folder, ranks=3, python=fake(folder, body)), guardian) as gang:
        gang.start()
        gang.await_start(limit=PATIENCE_S)
        assert [reply.seconds for reply in gang.command(FIRST, limit=PATIENCE_S)] == [0, 1, 2]
        assert gang.busy_s == 0.3


def test_a_gang_is_settled_when_every_rank_has_answered_all_that_it_was_sent(folder: Path, guardian: Guardian) -> None:
    body = """
def say(text):
    os.write(write, text)
say(b'{"type": "ReadyReply"}\\n')
tag = json.loads(os.read(read, 1000))['tag'].encode()
if rank == 1:
    while not os.path.exists("go"):
        time.sleep(0.01)
say(b'{"type": "WorkerReply", "tag": "%s", "busy_s": %d}' % (tag, rank))
time.sleep(0.2)
say(b"\\n")
time.sleep(60)
"""
    with Gang(replace(plan(folder, ranks=2, python=fake(folder, body)), cwd=folder), guardian) as gang:
        gang.start()
        gang.send(LOAD)
        time.sleep(0.6)
        assert not gang.settled
        (folder / "go").touch()
        assert until(lambda: gang.settled)
        gang.await_start(limit=1)
        assert [reply.busy_s for reply in gang.collect(LoadRequest, limit=1)] == [0, 1]
        assert gang.settled


def test_who_writes_without_end_is_asked_no_longer_and_told_when_it_is_heard(
    folder: Path, guardian: Guardian, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("rank", "gang"):
        monkeypatch.setattr(f"aiperf.launch.{module}.LONGEST_LINE", 1 << 16)
    with Gang(plan(folder, python=fake(folder, "while True:\n    os.write(write, b'x' * 4096)\n")), guardian) as gang:
        gang.start()
        assert until(lambda: gang.settled)
        with pytest.raises(LaunchFailed, match="held no valid reply"):
            gang.await_start(limit=5)


def test_an_answer_may_come_in_pieces(folder: Path, guardian: Guardian) -> None:
    body = """
for piece in (b'{"type": "Skip', b'Reply", "reason": "', b'x' * 300000, b'"}', b'\\n'):
    os.write(write, piece)
    time.sleep(0.02)
os.read(read, 1)
"""
    with Gang(plan(folder, python=fake(folder, body)), guardian) as gang:
        gang.start()
        with pytest.raises(LaunchSkipped) as caught:
            gang.await_start(limit=PATIENCE_S)
    assert len(str(caught.value)) == 300_000


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("b'!! garbage !!\\n'", "(not JSON): '!! garbage !!\\n'"),
        ("b'!! first !!\\n{\"type\": \"ReadyReply\"}\\n'", "(not JSON): '!! first !!\\n{\"type\": \"ReadyReply\"}\\n'"),
        ("b'{\"type\": \"ReadyReply\"}\\n' * 2", "(more than the reply): '{\"type\": \"ReadyReply\"}\\n{\"type\""),
        ("b'\\xff\\xfe\\n'", "(not JSON): '\ufffd\ufffd\\n'"),
        ("b'[1, 2]\\n'", "(not an object): '[1, 2]\\n'"),
        ("b'{\"fine\": 1}\\n'", "(unknown message type None): '{\"fine\": 1}\\n'"),
        ("b'[' * 100000 + b'\\n'", "'[[[["),
        ("b'{\"type\": \"WorkerReply\"}\\n'", "(WorkerReply instead of ReadyReply): '{\"type\""),
    ],
)  # fmt: skip
def test_garbage_in_the_pipe_is_shown(folder: Path, guardian: Guardian, written: str, shown: str) -> None:
    failure = failure_of(folder, guardian, f"os.write(write, {written})\nos.read(read, 1)\n")
    assert failure.kind == "protocol"
    assert failure.message.startswith("its pipe to aiperf held no valid reply (")
    assert shown in failure.message
    assert len(failure.message) < 300


def test_an_error_is_told_with_its_kind_and_the_last_words(folder: Path, guardian: Guardian) -> None:
    with Gang(plan(folder), guardian) as gang:
        begin(gang, folder, "broken")
        with pytest.raises(LaunchFailed) as caught:
            gang.command(FIRST, limit=PATIENCE_S)
    failure = caught.value.failure
    assert failure.kind == "error"
    assert failure.message.startswith("ValueError: broken batch (launch_sides.py:")
    assert failure.stderr_tail.endswith("ValueError: broken batch")
    assert (failure.rank, failure.exit_status) == (None, None)


def test_a_side_that_cannot_run_here_is_skipped_with_its_reason(folder: Path, guardian: Guardian) -> None:
    with Gang(plan(folder), guardian) as gang, pytest.raises(LaunchSkipped, match="this disk has no O_DIRECT"):
        begin(gang, folder, "refuses")


def test_a_program_that_cannot_be_started_is_a_failed_start(folder: Path, guardian: Guardian) -> None:
    with (
        Gang(plan(folder, ranks=2, python="/nowhere/python"), guardian) as gang,
        pytest.raises(LaunchFailed) as caught,
    ):
        gang.start()
    assert caught.value.failure.phase == "start"
    assert "/nowhere/python cannot be started" in caught.value.failure.message


# ---- how a rank ends -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "kind", "message", "status"),
    [
        ("sys.exit(3)", "crash", "exited on its own with exit status 3", 3),
        ("sys.exit(0)", "crash", "exited on its own with exit status 0", 0),
        ("os.kill(os.getpid(), 11)", "crash", "killed by SIGSEGV", -11),
        ("os.kill(os.getpid(), 9)", "signal", "killed by SIGKILL, not by aiperf", -9),
    ],
)
def test_a_rank_that_ends_early_is_told_by_how(
    folder: Path, guardian: Guardian, body: str, kind: str, message: str, status: int
) -> None:
    failure = failure_of(folder, guardian, f"print('gone', file=sys.stderr, flush=True)\n{body}\n")
    assert (failure.kind, failure.exit_status, failure.stderr_tail) == (kind, status, "gone")
    assert failure.message.startswith(message)


def test_a_closed_pipe_of_a_living_rank_is_a_broken_protocol(folder: Path, guardian: Guardian) -> None:
    failure = failure_of(folder, guardian, "os.close(write)\ntime.sleep(600)\n")
    assert (failure.kind, failure.message) == ("protocol", "closed its pipe to aiperf without exiting")


def test_a_rank_that_does_not_answer_hangs_and_is_killed_even_if_it_ignores_sigterm(
    folder: Path, guardian: Guardian
) -> None:
    body = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(600)\n"
    began = time.monotonic()
    failure = failure_of(folder, guardian, body, limit=0.4)
    assert (failure.kind, failure.message) == ("hang", "no answer within 0.4 s")
    assert 0.4 <= time.monotonic() - began < PATIENCE_S


@pytest.mark.parametrize(
    "forged", ['{"type": "FirstIterationReply", "seconds": 0.001}', '{"type": "WorkerReply"}', "hi"]
)
def test_a_line_that_a_side_writes_into_its_reply_pipe_fails_its_launch_alone(
    folder: Path, guardian: Guardian, forged: str
) -> None:
    answer = 'b\'{"type": "FirstIterationReply", "tag": "%s", "seconds": 7}\\n\' % tag'
    body = READY + f"os.write(write, b'{forged}\\n')\n" + TAG + f"os.write(write, {answer})\nos.read(read, 1)\n"
    with Gang(plan(folder, python=fake(folder, body)), guardian) as gang:
        gang.start()
        with pytest.raises(LaunchFailed) as caught:
            start_and_ask(gang)
    assert caught.value.failure.kind == "protocol"
    assert "held no valid reply" in caught.value.failure.message


def test_the_first_silent_rank_of_a_gang_is_named(folder: Path, guardian: Guardian) -> None:
    body = (
        'rank == 1 or os.write(write, b\'{"type": "ReadyReply"}\\n\')\nopen(f"began-{rank}", "x")\nos.read(read, 1)\n'
    )
    with Gang(replace(plan(folder, ranks=3, python=fake(folder, body)), cwd=folder), guardian) as gang:
        gang.start()
        assert until(lambda: len(list(folder.glob("began-*"))) == 3)
        with pytest.raises(LaunchFailed) as caught:
            gang.await_start(limit=0.5)
    failure = caught.value.failure
    assert (failure.kind, failure.rank, failure.message) == ("hang", 1, "rank 1: no answer within 0.5 s")


def test_a_dead_rank_ends_the_wait_for_the_others(folder: Path, guardian: Guardian) -> None:
    body = "rank == 1 and sys.exit(3)\ntime.sleep(600)\n"
    began = time.monotonic()
    failure = failure_of(folder, guardian, body, ranks=2)
    assert (failure.kind, failure.rank, failure.exit_status) == ("dead_rank", 1, 3)
    assert failure.message == "rank 1: exited on its own with exit status 3"
    assert time.monotonic() - began < PATIENCE_S


def test_a_dead_rank_is_blamed_although_another_complains_first(
    folder: Path, guardian: Guardian, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aiperf.launch.gang._PEER_GRACE_S", PATIENCE_S)
    complaint = b'{"type": "FailureReply", "message": "connection closed by peer"}\\n'
    body = f"rank == 0 and os.write(write, b'{complaint.decode()}')\nrank == 1 and (time.sleep(0.1), sys.exit(3))\n"
    failure = failure_of(folder, guardian, body + "os.read(read, 1)\n", ranks=2)
    assert (failure.kind, failure.rank) == ("dead_rank", 1)


def test_a_complaint_stands_where_every_rank_lives(folder: Path, guardian: Guardian) -> None:
    complaint = b'{"type": "FailureReply", "message": "no such file"}\\n'
    body = f"rank == 0 and os.write(write, b'{complaint.decode()}')\nos.read(read, 1)\n"
    failure = failure_of(folder, guardian, body, ranks=2)
    assert (failure.kind, failure.rank, failure.message) == ("error", 0, "rank 0: no such file")


def test_a_command_to_a_rank_that_died_meanwhile_fails_in_its_phase(folder: Path, guardian: Guardian) -> None:
    with Gang(plan(folder), guardian) as gang:
        begin(gang, folder)
        psutil.Process(gang.pids[0]).kill()
        with pytest.raises(LaunchFailed) as caught:
            gang.command(FIRST, limit=PATIENCE_S)
    assert (caught.value.failure.kind, caught.value.failure.phase) == ("signal", "warm-up")


def test_what_a_side_prints_before_it_crashes_is_kept(
    folder: Path, guardian: Guardian, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    with Gang(plan(folder), guardian) as gang:
        begin(gang, folder, "talks")
        with pytest.raises(LaunchFailed) as caught:
            gang.command(FIRST, limit=PATIENCE_S)
    assert caught.value.failure.kind == "crash"
    assert caught.value.failure.stderr_tail == "last words"


# ---- ranks that meet -----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("ranks_meet")
def test_two_ranks_meet_on_loopback_and_nowhere_else(folder: Path, guardian: Guardian) -> None:
    with Gang(plan(folder, ranks=2), guardian) as gang:
        # On a host whose own name means loopback the sockets below would not tell.
        assert gang.plan.env["GLOO_SOCKET_IFNAME"] == "lo"
        begin(gang, folder, "reduces")
        gang.command(FIRST, limit=PATIENCE_S)
        told = gang.command(SUMMARY, limit=PATIENCE_S)
        assert [reply.facts["sum"] for reply in told] == [[3.0] * 4] * 2
        listening = [
            c.laddr.ip
            for pid in gang.pids
            for c in psutil.Process(pid).net_connections()
            if c.status == psutil.CONN_LISTEN
        ]
        assert listening
        assert set(listening) == {"127.0.0.1"}
        gang.close(PATIENCE_S)


def test_ranks_that_do_not_meet_load_no_torch(folder: Path, guardian: Guardian) -> None:
    with Gang(plan(folder, ranks=2), guardian) as gang:
        begin(gang, folder, "vector")
        gang.command(FIRST, limit=PATIENCE_S)
        told = gang.command(SUMMARY, limit=PATIENCE_S)
        gang.close(PATIENCE_S)
    assert ["torch" in reply.facts for reply in told] == [False, False]


@pytest.mark.usefixtures("ranks_meet")
def test_a_rank_that_dies_in_a_collective_is_the_one_that_is_named(
    folder: Path, guardian: Guardian, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aiperf.launch.gang._PEER_GRACE_S", PATIENCE_S)
    with Gang(plan(folder, ranks=2), guardian) as gang:
        begin(gang, folder, "loses_a_rank")
        with pytest.raises(LaunchFailed) as caught:
            gang.command(FIRST, limit=PATIENCE_S)
    failure = caught.value.failure
    assert (failure.kind, failure.rank, failure.exit_status) == ("dead_rank", 1, 7)


# ---- CPUs, environment, descriptors --------------------------------------------------------------------------------


def affinities(pid: int) -> list[set[int]]:
    return [os.sched_getaffinity(int(task)) for task in os.listdir(f"/proc/{pid}/task")]


def test_pinning_moves_every_thread_and_every_process_of_a_side(folder: Path, guardian: Guardian) -> None:
    with Gang(plan(folder), guardian) as gang:
        begin(gang, folder, "threads_and_children")
        child = gang.command(SUMMARY, limit=PATIENCE_S)[0].facts["child"]
        gang.pin([None])
        assert affinities(gang.pids[0])[0] == set(ALL)
        for wanted in ((ALL[-1],), (ALL[0],)):
            gang.pin([wanted])
            threads = affinities(gang.pids[0])
            assert len(threads) >= 3
            assert threads == [set(wanted)] * len(threads)
            assert affinities(child) == [set(wanted)]


def test_pinning_leaves_what_a_side_bound_within_its_cpus(folder: Path, guardian: Guardian) -> None:
    with Gang(plan(folder), guardian) as gang:
        begin(gang, folder, "threads_and_children", narrow=ALL[-1])
        gang.pin([ALL])
        threads = affinities(gang.pids[0])
        assert threads.count({ALL[-1]}) == (2 if len(ALL) > 1 else len(threads))


def test_a_side_starts_on_its_cpus(folder: Path, guardian: Guardian) -> None:
    given = plan(folder)
    with Gang(GangPlan("after", 1, given.env, "", ((ALL[-1],),), folder), guardian) as gang:
        begin(gang, folder)
        assert gang.command(SUMMARY, limit=PATIENCE_S)[0].facts["cpus"] == [ALL[-1]]


def test_the_environment_is_there_before_the_interpreter_starts(folder: Path, guardian: Guardian) -> None:
    program = "print(hash('aiperf'))"
    for seed in ("7", "8"):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        known = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, check=True).stdout
        with Gang(plan(folder, env={"PYTHONHASHSEED": seed, "TEST_SIDE": "x"}), guardian) as gang:
            begin(gang, folder)
            facts = gang.command(SUMMARY, limit=PATIENCE_S)[0].facts
        assert facts["hash"] == int(known)
        assert facts["env"] == {"TEST_SIDE": "x"}


def test_each_rank_knows_which_one_it_is(folder: Path, guardian: Guardian) -> None:
    with Gang(plan(folder, ranks=2), guardian) as gang:
        begin(gang, folder)
        facts = [r.facts for r in gang.command(SUMMARY, limit=PATIENCE_S)]
    assert [(f["rank"], f["world_size"], f["rank_variables"]) for f in facts] == [
        (0, 2, ["0", "0", "2"]),
        (1, 2, ["1", "1", "2"]),
    ]
    assert len({f["scratch"] for f in facts}) == 2
    assert len({f["shared"] for f in facts}) == 1


@pytest.mark.parametrize("leaves", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_suspended_gang_takes_no_cpu_in_any_thread_or_child_even_one_that_left_its_group(
    folder: Path, guardian: Guardian, leaves: bool
) -> None:
    with Gang(plan(folder), guardian) as gang:
        begin(gang, folder, "never_rests", leaves=leaves)
        (facts,) = (reply.facts for reply in gang.command(SUMMARY, limit=PATIENCE_S))
        family = [psutil.Process(pid) for pid in (*gang.pids, facts["child"])]
        gang.find_strayed()
        gang.suspend()
        assert until(lambda: {process.status() for process in family} == {psutil.STATUS_STOPPED})
        used = [sum(process.cpu_times()[:2]) for process in family]
        time.sleep(0.3)
        # A thread stops where it next leaves the kernel, and the kernel counts in ticks: one of 10 ms may still come.
        suspended = [sum(process.cpu_times()[:2]) for process in family]
        assert all(now - before < 0.03 for now, before in zip(suspended, used, strict=True))
        gang.resume()
        assert until(
            lambda: all(sum(p.cpu_times()[:2]) >= before + 0.1 for p, before in zip(family, suspended, strict=True))
        )


@pytest.mark.long
def test_twenty_gangs_leave_no_descriptor_and_no_process(folder: Path, guardian: Guardian) -> None:
    body = 'os.write(write, b\'{"type": "ReadyReply"}\\n\')\nos.read(read, 1)\n'
    program = fake(folder, body)
    before = sorted(os.listdir("/proc/self/fd"))
    others = set(left_over(guardian))
    for _ in range(20):
        with Gang(plan(folder, ranks=2, python=program), guardian) as gang:
            gang.start()
            gang.await_start(limit=PATIENCE_S)
    for _ in range(5):
        with Gang(plan(folder, ranks=2, python="/nowhere/python"), guardian) as gang, pytest.raises(LaunchFailed):
            gang.start()
    assert sorted(os.listdir("/proc/self/fd")) == before
    assert set(left_over(guardian)) <= others
