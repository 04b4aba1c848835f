"""One child process in a session of its own: started pinned, awaited without polling, killed with all it started.

What must not live here: what the child says, and any opinion on its timing.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from aiperf.errors import AiperfError
from aiperf.host import proc
from aiperf.launch import orphans
from aiperf.launch.guardian import Guardian
from aiperf.launch.watchdog import LAUNCH_VARIABLE, family, kill_family
from aiperf.records import FailureKind

_CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSYS)
_KILL_WAIT_S = 10.0
_POLL_S = 0.001
FLOOR_MARGIN = 128 << 10
"""Memory that the process which starts a program may still touch after it looked at its own."""
_affinity_lock = threading.Lock()


class StartError(AiperfError):
    """The program could not be started: not found, not executable, or no resources."""


@dataclass(frozen=True)
class Ended:
    """How a child ended and what it used, from wait4."""

    status: int
    """Exit status; minus the signal's number when a signal ended it."""
    ended: float
    """``time.perf_counter`` when its end was seen."""
    user_s: float
    system_s: float
    peak_bytes: int | None
    """Largest resident set; None when it stayed below ``floor_bytes``."""
    floor_bytes: int
    """What this process had at most when it started the child: Linux hands that on to the child's ``ru_maxrss``."""
    voluntary_switches: int
    involuntary_switches: int
    read_bytes: int
    written_bytes: int
    """Block devices only: what the page cache served is not in them."""
    queued_s: float
    """Time it was ready to run but others had the core: its main thread, of a program also those of the processes that
    it started, as far as they were seen; 0 where the kernel does not say."""


def signal_name(number: int) -> str:
    """``SIGSEGV`` for 11; ``signal 70`` for numbers without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def classify(status: int, *, sent: int | None = None, oom_kills: int = 0) -> tuple[FailureKind, str]:
    """Failure kind and sentence of an exit status. ``sent``: the signal that aiperf itself sent; ``oom_kills``: how
    many processes the kernel's out-of-memory killer ended meanwhile.
    """
    if status >= 0:
        shell = f" (a shell's word for {signal_name(status - 128)})" if 128 < status < 160 else ""
        return "error", f"exit status {status}{shell}"
    name = signal_name(-status)
    if -status == sent:
        return "signal", f"killed by {name}, sent by aiperf"
    if -status == signal.SIGKILL and oom_kills > 0:
        return "oom_host", f"killed by {name}: the kernel's out-of-memory killer struck while it ran"
    if -status == signal.SIGKILL:
        return "signal", f"killed by {name}, not by aiperf and not by this host's out-of-memory killer"
    return ("crash" if -status in _CRASHES else "signal"), f"killed by {name}"


def oom_kill_count() -> int:
    """Count what the kernel's out-of-memory killer has ended so far in this control group, else on the system."""
    events = proc.cgroup_folders("memory")[0] / "memory.events"
    lines = [*_lines(events), *_lines(Path("/proc/vmstat"))]
    return next((int(value) for name, _, value in (line.partition(" ") for line in lines) if name == "oom_kill"), 0)


STDERR_LINES = 60
"""Kept of what a failed process wrote: a traceback with the frames of aiperf that led to the user's."""


def tail_of(path: Path, *, lines: int = 20, limit_bytes: int = 8192) -> str:
    """Return the last lines of a file, undecodable bytes replaced. Raises OSError."""
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - limit_bytes))
        return "\n".join(file.read().decode("utf-8", errors="replace").splitlines()[-lines:])


def _lines(path: Path) -> list[str]:
    return (proc.read_text(path) or "").splitlines()


@contextlib.contextmanager
def _affinity(cpus: Sequence[int] | None) -> Iterator[None]:
    """Bind the calling thread for a moment, so that a child started meanwhile is bound from its first instruction."""
    if cpus is None:
        yield
        return
    with _affinity_lock:
        former = os.sched_getaffinity(0)
        os.sched_setaffinity(0, cpus)
        try:
            yield
        finally:
            os.sched_setaffinity(0, former)


class GroupLeader:
    """A process that leads its own session and process group, running or ended."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.ended: Ended | None = None
        self._sent: int | None = None
        self._oom_kills = oom_kill_count()

    def signal_group(self, number: int) -> None:
        """Send a signal to the whole group; nothing happens when it has ended."""
        if self.ended is None:
            if number in (signal.SIGKILL, signal.SIGTERM):
                self._sent = number
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def classify(self) -> tuple[FailureKind, str]:
        """Failure kind and sentence of its end."""
        if self.ended is None:
            return "error", "still running"
        return classify(self.ended.status, sent=self._sent, oom_kills=oom_kill_count() - self._oom_kills)


class Child(GroupLeader):
    """A running or ended child process, leader of its own session and process group.

    Made by ``Child.start``. Whoever starts it must see it end: ``wait``, ``poll`` until it has ended, ``kill_group``,
    or leave the ``with`` block. The leader's end takes the rest of its group with it.
    """

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        *,
        started: float,
        stderr_path: Path | None,
        guardian: Guardian | None,
        marker: str,
        floor: int,
    ) -> None:
        super().__init__(process.pid)
        self.argv = process.args
        self.started = started
        self.stderr_path = stderr_path
        self.stragglers = 0
        """Processes of its own that outlived the leader and were killed."""
        self._process = process
        self._guardian = guardian
        self._markers = (f"{LAUNCH_VARIABLE}={marker}".encode(),) if marker else ()
        self._floor = floor
        self._pidfd = _pidfd(self.pid)

    @classmethod
    def start(
        cls,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path | None = None,
        cpus: tuple[int, ...] | None = None,
        pass_fds: Sequence[int] = (),
        stderr_path: Path | None = None,
        stdout: int | Path = subprocess.DEVNULL,
        guardian: Guardian | None = None,
    ) -> Child:
        """Start a program afresh (exec) in its own session, bound to ``cpus``, its input empty, its environment
        exactly ``env``. ``stdout``: a descriptor or a file to write. Raises StartError.
        """
        orphans.adopt()
        with contextlib.ExitStack() as files:
            err = files.enter_context(stderr_path.open("wb")) if stderr_path else subprocess.DEVNULL
            out = files.enter_context(stdout.open("wb")) if isinstance(stdout, Path) else stdout
            floor = int(proc.status().get("VmHWM", "0").split()[0]) * 1024 + FLOOR_MARGIN
            try:
                with _affinity(cpus):
                    started = time.perf_counter()
                    process = subprocess.Popen(
                        list(argv), stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=dict(env), cwd=cwd,
                        pass_fds=tuple(pass_fds), start_new_session=True,
                    )  # fmt: skip
            except (OSError, ValueError) as error:
                orphans.ended(-1)
                raise StartError(
                    f"{argv[0] if argv else '(empty command)'} cannot be started: {_reason(error)}"
                ) from error
        orphans.launched(process.pid)
        marker = env.get(LAUNCH_VARIABLE, "")
        child = cls(
            process, started=started, stderr_path=stderr_path, guardian=guardian, marker=marker, floor=floor
        )  # fmt: skip
        if guardian is not None:
            try:
                guardian.watch(child.pid)
            except BaseException:
                child._guardian = None
                child.kill_group()
                raise
        return child

    def __enter__(self) -> Child:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill_group()

    @property
    def exit_status(self) -> int | None:
        """Exit status, minus the number of the signal that ended it, or None while it runs."""
        return self.ended.status if self.ended else None

    def poll(self) -> Ended | None:
        """How it ended, or None while it runs."""
        if self.ended is None and self._is_over():
            self._reap(time.perf_counter())
        return self.ended

    def wait(self, timeout: float | None = None) -> Ended | None:
        """Wait for its end at most ``timeout`` seconds; None when it still runs then."""
        if self.ended is None and self._sleep_until_over(timeout):
            self._reap(time.perf_counter())
        return self.ended

    def fileno(self) -> int:
        """Give select a descriptor that turns readable when the child ends; -1 where the kernel has none."""
        return self._pidfd

    def terminate(self) -> None:
        """Ask the whole group to end (SIGTERM), stopped or not."""
        self.signal_group(signal.SIGTERM)
        self.signal_group(signal.SIGCONT)

    def kill_group(self) -> Ended:
        """SIGKILL the group, wait for its leader, then kill every descendant that had left the group."""
        if self.ended is None:
            if not self._is_over():
                self._sent = signal.SIGKILL
                kill_family((self.pid,), markers=self._markers)
            if not self._sleep_until_over(_KILL_WAIT_S):
                raise AiperfError(f"process {self.pid} cannot be killed: the kernel holds it in uninterruptible sleep")
            self._reap(time.perf_counter())
        if self._markers:
            self.stragglers += kill_family((), markers=self._markers) + orphans.sweep()
        assert self.ended is not None
        return self.ended

    def family(self) -> set[int]:
        """Every process of its group and session, those that carry its mark, and their descendants; itself too."""
        return family((self.pid,), markers=self._markers) if self.ended is None else set()

    def queued_s(self) -> float:
        """Seconds for which its main thread has waited for a CPU so far; 0 where the kernel does not say."""
        return queued_s(self.pid)

    def stderr_tail(self, *, lines: int = STDERR_LINES, limit_bytes: int = 8192) -> str:
        """Return the last lines it wrote to stderr, undecodable bytes replaced."""
        if self.stderr_path is None or not self.stderr_path.is_file():
            return ""
        return tail_of(self.stderr_path, lines=lines, limit_bytes=limit_bytes)

    def _is_over(self) -> bool:
        # WNOWAIT leaves the zombie in place: its number cannot go to another process before the group is killed.
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _sleep_until_over(self, timeout: float | None) -> bool:
        if self._pidfd >= 0:
            poller = select.poll()
            poller.register(self._pidfd, select.POLLIN)
            return bool(poller.poll(None if timeout is None else max(0.0, timeout) * 1000))
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._is_over():
            if deadline is not None and time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
        return True

    def _reap(self, at: float) -> None:
        outlived = kill_family((self.pid,))
        self.stragglers += outlived if self._sent is None else 0
        queued = queued_s(self.pid)
        _, status, usage = os.wait4(self.pid, 0)
        self._process.returncode = os.waitstatus_to_exitcode(status)
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1
        peak = usage.ru_maxrss * 1024
        self.ended = Ended(
            status=self._process.returncode,
            ended=at,
            user_s=usage.ru_utime,
            system_s=usage.ru_stime,
            peak_bytes=peak if peak > self._floor else None,
            floor_bytes=self._floor,
            voluntary_switches=usage.ru_nvcsw,
            involuntary_switches=usage.ru_nivcsw,
            read_bytes=usage.ru_inblock * 512,
            written_bytes=usage.ru_oublock * 512,
            queued_s=queued,
        )
        left = orphans.ended(self.pid)
        self.stragglers += left if self._sent is None else 0
        if self._guardian is not None:
            self._guardian.release(self.pid)


def queued_s(pid: int | str) -> float:
    """Seconds a thread was ready to run but had no core (second field of schedstat), even of a zombie."""
    fields = (proc.read_text(Path(f"/proc/{pid}/schedstat")) or "").split()
    return int(fields[1]) / 1e9 if len(fields) == 3 else 0.0


def _pidfd(pid: int) -> int:
    try:
        return os.pidfd_open(pid)
    except OSError:
        return -1


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return str(error)
