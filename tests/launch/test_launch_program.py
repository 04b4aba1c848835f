"""Programs as their launcher starts, counts and ends them."""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from patience import PATIENCE_S, until

from aiperf.launch import program as program_module
from aiperf.launch.child import StartError
from aiperf.launch.control_group import group_base
from aiperf.launch.environment import pad_bytes, program_environment
from aiperf.launch.program import Launcher, LauncherLost, Program

ENV = program_environment({}, seed=1)
MIB = 1 << 20


@pytest.fixture
def launcher() -> Iterator[Launcher]:
    descriptors = len(os.listdir("/proc/self/fd"))
    with Launcher() as one:
        yield one
    assert len(os.listdir("/proc/self/fd")) == descriptors


@pytest.fixture(params=["control group", "read-only tree"])
def counted(request: pytest.FixtureRequest, launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether a control group counts what the programs of this launcher use."""
    if request.param == "control group":
        return group_base() is not None
    monkeypatch.setattr(program_module, "group_folder", lambda _: "/proc/version/no-group-can-be-made-here")
    return False


def python(launcher: Launcher, code: str, *, keep: int = -1) -> Program:
    return launcher.start([sys.executable, "-I", "-S", "-c", code], env=ENV, keep=keep)


def ended(program: Program) -> Program:
    assert program.wait(PATIENCE_S) is not None
    return program


def daemon(code: str) -> str:
    """A process that leaves its family in every way it can, and the program that waits for its first word."""
    argv = f"[sys.executable, '-S', '-c', {code!r}]"
    child = f"os.setsid(); os.fork() and os._exit(0); os.execve(sys.executable, {argv}, {{}})"
    return (
        "import os, sys; r, w = os.pipe(); os.set_inheritable(w, True); assert w == 4\n"
        f"if os.fork() == 0:\n    {child}\nos.wait(); os.read(r, 1)"
    )


def test_the_peak_memory_of_a_program_far_smaller_than_aiperf_is_known(launcher: Launcher) -> None:
    ballast = bytearray(60 * MIB)
    ballast[::4096] = b"x" * len(ballast[::4096])
    small = ended(python(launcher, f"bytearray({6 * MIB})"))
    assert small.ended is not None
    assert small.ended.peak_bytes is not None
    assert 12 * MIB < small.ended.peak_bytes < 24 * MIB
    tiny = ended(launcher.start(["true"], env=ENV))
    assert tiny.ended is not None
    assert tiny.ended.peak_bytes is None
    assert tiny.ended.floor_bytes < 12 * MIB


def test_what_a_program_prints_is_not_memory_of_the_next_one(launcher: Launcher) -> None:
    floors = []
    for _ in range(2):
        loud = ended(python(launcher, f"import os; os.write(1, bytes({40 * MIB}))", keep=30 * MIB))
        assert (len(loud.printed.head), loud.printed.size) == (30 * MIB, 40 * MIB)
        assert loud.ended is not None
        floors.append(loud.ended.floor_bytes)
    assert floors[1] < floors[0] + MIB


def test_memory_and_time_of_a_daemon_that_the_program_left_are_its_own_and_it_is_ended(
    launcher: Launcher, counted: bool
) -> None:
    spin = (
        "import os, time; block = bytearray(60 << 20); [i for i in range(3_000_000)]; os.write(4, b'!'); time.sleep(99)"
    )
    before = {*psutil.Process().children(recursive=True)}
    left = ended(python(launcher, daemon(spin)))
    assert left.ended is not None
    assert left.grouped == counted
    assert left.ended.peak_bytes is not None
    assert left.ended.peak_bytes > 60 * MIB
    assert left.ended.user_s + left.ended.system_s > 0.05
    assert left.stragglers == 1
    assert {*psutil.Process().children(recursive=True)} - before <= {psutil.Process(launcher._running().pid)}


HOLDS = """
import os, sys, time
def looks():
    with open(f"/proc/{sys.argv[2]}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("voluntary_ctxt_switches"))
block = bytearray(40 << 20)
open(sys.argv[1], "x").close()
until = time.monotonic() + 30
while len(os.listdir(".")) < 3 and time.monotonic() < until:
    time.sleep(0.01)
seen = looks()
while looks() < seen + 3 and time.monotonic() < until:
    time.sleep(0.01)
"""
"""Holds a block until there are three and the launcher, which sleeps between its looks, has slept twice since then."""


@pytest.mark.long
def test_processes_that_hold_memory_at_the_same_time_count_together(
    launcher: Launcher, counted: bool, tmp_path: Path
) -> None:
    each = [shlex.join([sys.executable, "-S", "-c", HOLDS, name, str(launcher._running().pid)]) for name in "abc"]
    family = ended(launcher.start(["/bin/sh", "-c", f"{' & '.join(each)} & wait"], env=ENV, cwd=tmp_path))
    assert family.ended is not None
    assert family.ended.peak_bytes is not None
    assert family.ended.peak_bytes > 120 * MIB
    assert (family.stragglers, family.grouped) == (0, counted)


def test_a_program_that_prints_cannot_find_what_another_printed(launcher: Launcher) -> None:
    links = "[os.readlink(f'/proc/self/fd/{n}').partition(':')[0] for n in range(3)]"
    code = f"import os; print({links}, os.listdir('/proc/self/fd'))"
    found = ended(python(launcher, code, keep=1000)).printed.head.decode()
    assert found == "['/dev/null', 'pipe', 'pipe'] ['0', '1', '2', '3']\n"


def test_what_a_leftover_prints_after_the_end_of_its_program_is_not_its_output(launcher: Launcher) -> None:
    late = ended(launcher.start(["/bin/sh", "-c", "(sleep 60; echo late) & echo early"], env=ENV, keep=1000))
    assert (late.printed.head, late.stragglers >= 1) == (b"early\n", True)


def test_the_environment_does_not_say_which_side_or_run_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIPERF_SCRATCH", "/somewhere")
    first, second = program_environment({"A": "1"}, seed=1), program_environment({"A": "1"}, seed=2)
    assert [name for name in first if "AIPERF" in name.upper()] == []
    hashes, pad = [name for name in first if first[name] != second.get(name)]
    (other,) = second.keys() - first.keys()
    assert (pad.isalpha(), pad.isupper(), len(pad), other == pad) == (True, True, len(other), False)
    assert [len(first[pad]), len(second[other])] == [pad_bytes(1), pad_bytes(2)]
    assert len({*first[pad]}) > 20
    assert program_environment({"A": "1"}, seed=1) == first
    assert (hashes, first[hashes].isdecimal(), int(first[hashes]) < 2**32) == ("PYTHONHASHSEED", True, True)
    assert first["A"] == "1"
    assert program_environment({"AIPERF_OWN": "given by the side"}, seed=1)["AIPERF_OWN"] == "given by the side"


def test_a_seed_of_hashes_that_the_user_gave_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    assert program_environment({"PYTHONHASHSEED": "7"}, seed=1)["PYTHONHASHSEED"] == "7"
    monkeypatch.setenv("PYTHONHASHSEED", "random")
    assert program_environment({}, seed=1)["PYTHONHASHSEED"] == "random"


def test_a_program_starts_on_its_cpus_and_its_launcher_stays_off_them(launcher: Launcher) -> None:
    cpu, *others = sorted(os.sched_getaffinity(0), reverse=True)
    code = "print(os.sched_getaffinity(0), os.sched_getaffinity(os.getppid()), os.getsid(0) == os.getpid())"
    # It leaves them while the program begins.
    leaves = f"while {cpu} in os.sched_getaffinity(os.getppid()) and time.monotonic() < until: time.sleep(0.01)"
    awaited = f"import os, time\nuntil = time.monotonic() + {20 * bool(others)}\n{leaves}\n{code}"
    argv = [sys.executable, "-S", "-c", awaited]
    bound = ended(launcher.start(argv, env=ENV, cpus=(cpu,), keep=1000))
    assert bound.printed.head.decode() == f"{ {cpu} } { {*others} or {cpu} } True\n".replace("{ {", "{").replace(
        "} }", "}"
    )
    free = ended(launcher.start([sys.executable, "-S", "-c", f"import os; {code}"], env=ENV, keep=1000))
    assert free.printed.head.decode().startswith(str(os.sched_getaffinity(0)))


def test_signals_act_on_a_program_as_they_do_in_a_shell(launcher: Launcher) -> None:
    assert ended(launcher.start(["/bin/sh", "-c", "kill -PIPE $$"], env=ENV)).exit_status == -signal.SIGPIPE
    hanging = launcher.start(["sleep", "99"], env=ENV)
    assert hanging.wait(0.05) is None
    killed = hanging.kill_group()
    assert killed is not None
    assert (killed.status, hanging.classify()) == (-9, ("signal", "killed by SIGKILL, sent by aiperf"))


def test_its_last_words_are_kept(launcher: Launcher) -> None:
    failing = ended(python(launcher, "import sys; sys.stderr.write('x' * 500_000 + '\\n' + 'the end\\n'); sys.exit(3)"))
    assert (failing.exit_status, failing.stderr_tail(lines=1)) == (3, "the end")


@pytest.mark.parametrize(
    ("start", "message"),
    [
        (lambda one: one.start(["no-such-program"], env=ENV), "no-such-program cannot be started: No such file"),
        (lambda one: one.start(["./no-such"], env=ENV), re.escape(f"no-such (looked for from {Path.cwd()})")),
        (lambda one: one.start(["bin/no"], env=ENV, cwd=Path("/usr")), r"bin/no \(looked for from /usr\)"),
        (lambda one: one.start(["/etc/passwd"], env=ENV), "/etc/passwd cannot be started: Permission denied"),
        (lambda one: one.start(["true"], env=ENV, cwd=Path("/nowhere")), "No such file or directory: /nowhere"),
        (lambda one: one.start(["true", "a\0b"], env=ENV), "null byte"),
    ],
)
def test_a_program_that_cannot_be_started_is_named_and_the_next_one_starts(
    launcher: Launcher, start: Callable[[Launcher], Program], message: str
) -> None:
    with pytest.raises(StartError, match=message):
        start(launcher)
    assert ended(launcher.start(["true"], env=ENV)).exit_status == 0


def test_a_launcher_that_something_else_kills_takes_no_program_out_of_reach(launcher: Launcher) -> None:
    lost = launcher.start(["sleep", "99"], env=ENV)
    os.kill(launcher._running().pid, signal.SIGKILL)
    with pytest.raises(LauncherLost, match="killed from outside"):
        lost.wait(PATIENCE_S)
    assert until(lambda: not psutil.pid_exists(lost.pid) or psutil.Process(lost.pid).status() == psutil.STATUS_ZOMBIE)
    with pytest.raises(LauncherLost):
        launcher.start(["true"], env=ENV)


def test_a_control_group_is_made_only_where_the_kernel_has_one(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    group_base.cache_clear()
    try:
        assert group_base(tmp_path) is None
        (tmp_path / "proc/self/mounts").write_text("none /tree tmpfs rw 0 0\nnone /tree/unified cgroup2 rw 0 0\n")
        (tmp_path / "proc/self/cgroup").write_text("4:memory:/old\n0::/of/this\n")
        group_base.cache_clear()
        assert group_base(tmp_path) is None, "the folder of the group is not there"
        (tmp_path / "tree/unified/of/this").mkdir(parents=True)
        group_base.cache_clear()
        assert group_base(tmp_path) is None, "a plain folder has no cgroup.procs"
        assert list((tmp_path / "tree/unified/of/this").iterdir()) == []
    finally:
        group_base.cache_clear()


BUSY = "import os, time; {change}\nwhile time.process_time() < 0.25: pass"
IN_CHILD = "import os\nif os.fork():\n    os.wait()\nelse:\n    exec({code!r}); os._exit(0)"


@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        ("pass", []),
        ("os.nice(5)", ["priority"]),
        ("os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))", ["priority"]),
        ("os.sched_setaffinity(0, range(os.cpu_count()))", ["left_cpus"]),
    ],
)
@pytest.mark.parametrize("where", [pytest.param("itself", marks=pytest.mark.long), "child"])
def test_a_program_or_a_child_of_it_that_is_scheduled_otherwise_is_seen(
    launcher: Launcher, change: str, kinds: list[str], where: str
) -> None:
    code = BUSY.format(change=change)
    code = IN_CHILD.format(code=code) if where == "child" else code
    cpus = (min(os.sched_getaffinity(0)),)
    if kinds == ["left_cpus"] and len(os.sched_getaffinity(0)) == 1:
        pytest.fail("this machine has one CPU: nothing can leave it")
    program = launcher.start([sys.executable, "-I", "-S", "-c", code], env=ENV, cpus=cpus)
    while program.wait(0.02) is None:
        pass
    assert [*program.apart] == kinds


def test_what_a_program_and_its_children_read_and_write_is_counted(launcher: Launcher) -> None:
    own = "open('/dev/null', 'w').write('x' * 5000); open('/dev/zero', 'rb').read(5000)"
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', {own!r}], check=True)"
    silent, *busy = (ended(python(launcher, code)) for code in ("pass", own, child))
    assert silent.written_chars < 1000
    assert all(5000 <= each.written_chars < 6000 for each in busy)
    assert all(each.read_chars >= silent.read_chars + 5000 for each in busy)
