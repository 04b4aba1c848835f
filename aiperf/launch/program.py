"""A program of one side, started by a small process that also ends what the program leaves behind.

What must not live here: what that process does (launcher.py), and any opinion on a program's timing.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import TracebackType

from aiperf.errors import AiperfError
from aiperf.launch import launcher, watchdog
from aiperf.launch.child import FLOOR_MARGIN, Ended, GroupLeader, StartError
from aiperf.launch.control_group import group_folder
from aiperf.launch.environment import OWN
from aiperf.launch.guardian import Guardian
from aiperf.launch.scheduling import Scheduling, apart, of_family

_LOAD = "import marshal; exec(marshal.loads(open({}, 'rb', closefd=False).read()))"
_START_S = 20.0
_CLOSE_S = 5.0
_KILL_WAIT_S = 10.0
_PEEK_BYTES = 64 << 10
_LOOK_S = 0.05


class LauncherLost(AiperfError):
    """The process that starts programs ended before it was told to."""


@dataclass(frozen=True)
class ProgramOutput:
    """Standard output of one run."""

    head: bytes
    """Its beginning, as much as was asked for."""
    tail: bytes
    """Its last 64 KiB."""
    size: int
    """Bytes of all of it."""
    elsewhere: int = field(default=0, compare=False)
    """Bytes that its processes wrote to files and pipes besides standard output and error; 0 where that is unknown."""

    @property
    def text(self) -> bytes:
        """As much of it as is known, in order."""
        unknown = self.size - len(self.head)
        return self.head + self.tail[-unknown:] if unknown > 0 else self.head


class Launcher:
    """Handle on the process that starts one side's programs, one at a time; not safe to use from several threads.

    It is the programs' parent: small, so that a program's own peak memory shows, and the one to whom every process
    comes whose parent ended, so that none outlives its run.
    """

    def __init__(self, guardian: Guardian | None = None) -> None:
        self._guardian = guardian
        self._process: subprocess.Popen[bytes] | None = None
        self._buffer = bytearray()
        self._runs = 0
        self.adopts = False
        """Whether orphans of its programs come to it."""

    def __enter__(self) -> Launcher:
        env = {name: value for name, value in os.environ.items() if not name.startswith(OWN)}
        try:
            with _code() as code:
                argv = [sys.executable, "-I", "-S", "-c", _LOAD.format(code), str(code)]
                self._process = subprocess.Popen(
                    argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env, cwd="/",
                    start_new_session=True, bufsize=0, pass_fds=(code,),
                )  # fmt: skip
            if self._guardian is not None:
                self._guardian.watch(self._process.pid)
            self.adopts = self.line(_START_S) == "adopts"
        except BaseException as error:
            self.__exit__()
            if isinstance(error, OSError):
                raise StartError(f"the process that starts programs cannot be started: {error}") from error
            raise
        return self

    def __exit__(self, *_: object) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(_CLOSE_S)
        except subprocess.TimeoutExpired:
            watchdog.kill_family((process.pid,))
            process.wait()
        process.stdout.close()
        if self._guardian is not None:
            self._guardian.release(process.pid)

    def start(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path | None = None,
        cpus: tuple[int, ...] | None = None,
        keep: int = -1,
    ) -> Program:
        """Start a program afresh (exec) in its own session, bound to ``cpus``, its input empty, its environment
        exactly ``env``. ``keep``: bytes of its standard output to keep; below 0 it goes to /dev/null.

        Raises StartError, and LauncherLost.
        """
        self._runs += 1
        marks = launcher_marks(os.sched_getaffinity(0), cpus)
        group = group_folder(f"aiperf-{os.getpid()}-{id(self):x}-{self._runs}")
        folder = str(cwd or Path.cwd())
        head = [_found(argv, env), folder, *marks, str(keep), group, str(len(argv))]
        words = [*head, *argv, *(f"{name}={value}" for name, value in env.items())]
        if any("\0" in word for word in words):
            raise StartError(f"{argv[0]} cannot be started: embedded null byte")
        self._send("\0".join(words))
        word, _, rest = self.line(_START_S).partition(" ")
        if word == "fault":
            number, _, where = rest.partition(" ")
            why = os.strerror(int(number)) if number.isdigit() and int(number) else where
            relative = f" (looked for from {folder})" if os.sep in argv[0] and not os.path.isabs(argv[0]) else ""
            what = f": {where}" if where and where != why else ""
            raise StartError(f"{argv[0]} cannot be started: {why}{what}{relative}")
        pid, started, floor, spool = rest.split()
        found = Program(self, tuple(argv), int(pid), started=float(started), floor=int(floor) + FLOOR_MARGIN)
        found.parent, found.cpus = self._running().pid, cpus or ()
        found.spool = Path(f"/proc/{found.parent}/fd/{spool}")
        return found

    def fileno(self) -> int:
        """Where reports come from."""
        return self._running().stdout.fileno()  # type: ignore[union-attr]

    def ready(self, timeout: float | None) -> bool:
        """Wait at most ``timeout`` seconds for a report to begin."""
        if self._buffer:
            return True
        poller = select.poll()
        poller.register(self.fileno(), select.POLLIN)
        return bool(poller.poll(None if timeout is None else max(0.0, timeout) * 1000))

    def line(self, timeout: float | None = None) -> str:
        """The next line of a report. Raises LauncherLost."""
        while (end := self._buffer.find(b"\n")) < 0:
            self._take(timeout)
        return os.fsdecode(self._cut(end + 1)[:-1])

    def data(self, size: int) -> bytes:
        """The next bytes of a report. Raises LauncherLost."""
        while len(self._buffer) < size:
            self._take(None)
        return self._cut(size)

    def _cut(self, size: int) -> bytes:
        found = bytes(self._buffer[:size])
        del self._buffer[:size]
        return found

    def _take(self, timeout: float | None) -> None:
        if timeout is not None and not select.select([self.fileno()], [], [], timeout)[0]:
            raise LauncherLost(f"the process that starts programs did not respond within {timeout:g} s")
        piece = os.read(self.fileno(), 1 << 20)
        if not piece:
            raise LauncherLost("the process that starts programs was killed from outside")
        self._buffer += piece

    def _send(self, text: str) -> None:
        payload = os.fsencode(text)
        try:
            self._running().stdin.write(b"%d\n" % len(payload) + payload)  # type: ignore[union-attr]
        except OSError as error:
            raise LauncherLost(f"the process that starts programs cannot be reached: {error.strerror}") from error

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise LauncherLost("the process that starts programs is not running")
        return self._process


class Program(GroupLeader):
    """A running or ended program, leader of its own session and process group.

    Whoever starts it must see it end: ``wait``, or ``kill_group``, or leave the ``with`` block. Its end takes all that
    it started with it, before its output counts.
    """

    def __init__(self, starter: Launcher, argv: tuple[str, ...], pid: int, *, started: float, floor: int) -> None:
        super().__init__(pid)
        self.argv = argv
        self.started = started
        """``time.perf_counter`` just before its process was made."""
        self.stragglers = 0
        """Processes of its own that outlived it and were killed."""
        self.ran_s = 0.0
        """Time that its main thread had a core, from its start to its end."""
        self.queued_s = 0.0
        """Time that its main thread was ready to run but had none."""
        self.read_chars = self.written_chars = 0
        """Bytes of files and pipes, its own and of those that it waited for; 0 where the kernel does not say."""
        self.grouped = False
        """Whether what it used was counted by a control group."""
        self.printed = ProgramOutput(b"", b"", 0)
        self.stderr = b""
        """The end of what it wrote there, 64 KiB at most."""
        self.parent = 0
        """The process that started it, to which its orphans come."""
        self.spool = Path(os.devnull)
        """Where the head of its output is while it runs."""
        self.cpus: tuple[int, ...] = ()
        """Those that it was given; none where they are free."""
        self.apart: dict[str, str] = {}
        """Kind of incident -> in which way it, or what it started, was seen scheduled otherwise than aiperf is."""
        self._next_look = 0.0
        self._launcher = starter
        self._floor = floor

    def __enter__(self) -> Program:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill_group()

    @property
    def exit_status(self) -> int | None:
        """Exit status, minus the number of the signal that ended it, or None while it runs."""
        return self.ended.status if self.ended else None

    def wait(self, timeout: float | None = None) -> Ended | None:
        """Wait for its end at most ``timeout`` seconds; None when it still runs then. Raises LauncherLost."""
        if self.ended is None:
            try:
                if self._launcher.ready(timeout):
                    self._close()
                else:
                    self._look()
            except LauncherLost:
                watchdog.kill_family((self.pid,))
                raise
        return self.ended

    def kill_group(self) -> Ended | None:
        """SIGKILL the program and wait until all that it started is gone too; None where nobody is left to say how it
        ended.
        """
        if self.ended is None:
            self.signal_group(signal.SIGKILL)
            try:
                if self.wait(_KILL_WAIT_S) is None:
                    what = f"process {self.pid} cannot be killed"
                    raise AiperfError(f"{what}: the kernel holds it in uninterruptible sleep")
            except LauncherLost:
                return None
        return self.ended

    def so_far(self) -> bytes:
        """The end of what it has printed by now, as far as its output is kept."""
        try:
            with self.spool.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _PEEK_BYTES))
                return file.read()
        except OSError:
            return b""

    def stderr_tail(self, *, lines: int = 20) -> str:
        """The last lines that it wrote to stderr, undecodable bytes replaced; empty while it runs."""
        return "\n".join(self.stderr.decode("utf-8", errors="replace").splitlines()[-lines:])

    def _look(self) -> None:
        """See now and then how it is scheduled: a process that has ended tells nothing of that."""
        if (now := time.perf_counter()) >= self._next_look:
            self._next_look = now + _LOOK_S
            self.apart |= apart(of_family(self.pid, self.parent), Scheduling.of(0), self.cpus)

    def _close(self) -> None:
        words = dict(word.split("=", 1) for word in self._launcher.line().split()[1:])
        tail, head = (self._launcher.data(int(words[name])) for name in ("tail", "out"))
        size = int(words["size"])
        elsewhere = int(words["put"]) - size - int(words["said"]) if words["kept"] == "1" else 0
        self.printed = ProgramOutput(head, tail, size, max(0, elsewhere))
        self.stderr = self._launcher.data(int(words["err"]))
        self.stragglers = int(words["left"]) if self._sent is None else 0
        self.ran_s, self.queued_s = int(words["ran"]) / 1e9, int(words["waited"]) / 1e9
        self.read_chars, self.written_chars = int(words["got"]), int(words["put"])
        self.grouped = words["group"] == "1"
        peak = int(words["peak"])
        self.ended = Ended(
            status=int(words["status"]),
            ended=float(words["at"]),
            user_s=float(words["user"]),
            system_s=float(words["system"]),
            peak_bytes=peak if peak > self._floor else None,
            floor_bytes=self._floor,
            voluntary_switches=int(words["voluntary"]),
            involuntary_switches=int(words["involuntary"]),
            read_bytes=int(words["read"]) * 512,
            written_bytes=int(words["written"]) * 512,
            queued_s=int(words["queued"]) / 1e9,
        )


def launcher_marks(allowed: set[int], cpus: tuple[int, ...] | None) -> tuple[str, str]:
    """The CPUs of a program and those of the process that starts it, as an order says them: the latter stays off the
    measured ones where there are others.
    """
    home = sorted(allowed - set(cpus or ())) if cpus else []
    return ",".join(map(str, cpus or ())), ",".join(map(str, home))


def _found(argv: Sequence[str], env: Mapping[str, str]) -> str:
    """Where a program lies: looked up before it is started, so that the search is not in its time."""
    return shutil.which(argv[0], path=env.get("PATH", os.defpath)) or argv[0]


@contextlib.contextmanager
def _code() -> Iterator[int]:
    """A descriptor of the launcher's code, compiled: Python keeps that of what is imported, and not of what it starts
    with. Closed here at the end."""
    name, path = launcher.__name__, str(launcher.__file__)
    found = os.memfd_create("launcher")
    try:
        os.write(found, marshal.dumps(SourceFileLoader(name, path).get_code(name)))
        os.lseek(found, 0, os.SEEK_SET)
        yield found
    finally:
        os.close(found)
