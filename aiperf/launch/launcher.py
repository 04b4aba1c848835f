"""Starts the programs of one side one after the other, ends whatever they leave behind, and reports what they used.

What must not live here: imports of this package or of anything heavy: it is started bare with ``python -I -S``,
compiled already (program.py).
The kernel hands the memory of whoever forks on to a program's own peak, so this process has to stay small.

Standard input takes orders, standard output gives reports (program.py has the other end). When standard input ends,
because of a close or because aiperf died, everything that was started here is killed.
"""

from __future__ import annotations

import os
import select
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from resource import struct_rusage

_LOOK_S = 0.05
_LOOK_SHARE = 0.02
"""Looking at the memory of a family of processes takes at most about this share of one core."""
_SWEEP_S, _DRAIN_S, _POLL_S = 3.0, 2.0, 0.001
_CHUNK, _TAIL = 1 << 16, 1 << 16
_SIGKILL, _SIGPIPE, _SIGXFSZ = 9, 13, 25
"""Without the module that names them: it is a tenth of this process."""
_OVER = ("Z", "X", "")
_SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER of prctl(2)."""


class Order:
    """What to start and how."""

    def __init__(self, payload: bytes) -> None:
        path, folder, cpus, home, kept, group, count, *words = payload.split(b"\0")
        self.path, self.folder, self.group = path, folder, os.fsdecode(group)
        self.cpus = {int(cpu) for cpu in cpus.split(b",") if cpu}
        self.home = {int(cpu) for cpu in home.split(b",") if cpu}
        self.kept = int(kept)
        """Bytes of standard output to keep and report; below 0 it goes to /dev/null."""
        self.argv = words[: int(count)]
        self.env = dict(word.split(b"=", 1) for word in words[int(count) :])


class Stream:
    """One output of a program, read as it comes: how much there was, and the part to keep."""

    def __init__(self, descriptor: int, *, first: int = 0) -> None:
        self.descriptor = descriptor
        self.first = first
        self.tail = b""
        self.size = self.kept = 0
        self.open = descriptor >= 0
        # Not in this process's own memory, which programs inherit.
        self.spool = os.memfd_create("spool") if first > 0 else -1

    def read(self) -> bool:
        """Take what is there; waits where nothing is. False at its end."""
        data = os.read(self.descriptor, _CHUNK)
        if not data:
            self.close()
        self.size += len(data)
        self.tail = (self.tail + data)[-_TAIL:]
        if self.kept < self.first:
            self.kept += os.write(self.spool, data[: self.first - self.kept])
        return self.open

    def close(self) -> None:
        """Read no more."""
        if self.open:
            os.close(self.descriptor)
            self.open = False

    def hand_on(self) -> None:
        """Report the part that was kept, if any, and forget it."""
        _say(self.tail)
        if self.spool >= 0:
            os.lseek(self.spool, 0, os.SEEK_SET)
            while piece := os.read(self.spool, _CHUNK):
                _say(piece)
            os.close(self.spool)


class Used:
    """What a program and all that it started used: sums, and the largest peak memory."""

    def __init__(self) -> None:
        self.user = self.system = 0.0
        self.peak = self.voluntary = self.involuntary = self.read = self.written = 0

    def add(self, usage: struct_rusage) -> None:
        """Count one process that was waited for, with those that it had waited for."""
        self.user += usage.ru_utime
        self.system += usage.ru_stime
        self.peak = max(self.peak, usage.ru_maxrss * 1024)
        self.voluntary += usage.ru_nvcsw
        self.involuntary += usage.ru_nivcsw
        self.read += usage.ru_inblock
        self.written += usage.ru_oublock


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _state(pid: int) -> str:
    """One letter, as /proc shows it; empty when the process is gone."""
    return (_text(f"/proc/{pid}/stat").rpartition(")")[2].split() or [""])[0]


def _children(pid: int) -> list[int]:
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    return [int(p) for task in tasks for p in _text(f"/proc/{pid}/task/{task}/children").split()]


def _family(pid: int) -> list[int]:
    """All descendants of a process, parents before their children."""
    found = _children(pid)
    for child in found:
        found += _family(child)
    return list(dict.fromkeys(found))


def _schedstat(pid: int) -> tuple[int, int]:
    """Nanoseconds that the main thread of a process, even of a zombie, had a core, and queued for one."""
    ran, queued = [*_text(f"/proc/{pid}/schedstat").split(), "0", "0"][:2]
    return int(ran), int(queued)


def _bytes(path: str, name: str) -> int:
    lines = _text(path).splitlines()
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(name)), 0)


class LaunchedProgram:
    """One program from its start to the end of all that it started."""

    def __init__(self, order: Order, everywhere: set[int]) -> None:
        self.order = order
        self.used = Used()
        self.pid = 0
        self.started = 0.0
        self._everywhere = everywhere
        self._group = ""
        self._joined_s = 0.0
        self._look_s = _LOOK_S
        self._queued: dict[int, int] = {}
        """Nanoseconds that processes which it started queued for a core, as last seen."""

    def start(self) -> None:
        """Start the program in a session of its own. Raises OSError, then with nothing left behind."""
        empty = os.open("/dev/null", os.O_RDWR)
        err, err_end = os.pipe()
        out, out_end = os.pipe() if self.order.kept >= 0 else (-1, os.dup(empty))
        self.out, self.err = Stream(out, first=self.order.kept), Stream(err)
        ends = [(os.POSIX_SPAWN_DUP2, end, number) for number, end in enumerate((empty, out_end, err_end))]
        try:
            # The program has what this process has at the time: its folder, its CPUs, its control group.
            os.sched_setaffinity(0, self.order.cpus or self._everywhere)
            os.chdir(self.order.folder)
            self._group, self._joined_s = _enter_new(self.order.group), time.process_time()
            self.started = time.perf_counter()
            self.pid = os.posix_spawn(
                self.order.path, self.order.argv, self.order.env, file_actions=ends, setsid=True,
                setsigdef=(_SIGPIPE, _SIGXFSZ),
            )  # fmt: skip
        except OSError:
            for stream in (self.out, self.err):
                stream.close()
                stream.hand_on()
            _leave(self._group)
            raise
        finally:
            os.sched_setaffinity(0, self.order.home or self._everywhere)
            os.chdir("/")
            for end in (empty, err_end, out_end):
                os.close(end)

    def watch(self) -> float:
        """Read what the program prints until it ends; gives the moment of its end, as ``time.perf_counter``.

        It stays a zombie, so that its number cannot go to another process yet. Raises EOFError when aiperf is gone.
        """
        try:
            ending = os.pidfd_open(self.pid)
        except OSError:
            ending = -1
        try:
            return self._watch(ending)
        finally:
            if ending >= 0:
                os.close(ending)

    def _watch(self, ending: int) -> float:
        poller = select.poll()
        for descriptor in (ending, 0, self.out.descriptor, self.err.descriptor):
            if descriptor >= 0:
                poller.register(descriptor, select.POLLIN)
        look = time.perf_counter() + self._look_s
        while True:
            left = max(0.0, look - time.perf_counter()) if ending >= 0 else _POLL_S
            events = {descriptor for descriptor, _ in poller.poll(left * 1000)}
            now = time.perf_counter()
            if ending in events or (ending < 0 and _state(self.pid) in _OVER):
                return now
            if 0 in events:
                raise EOFError
            for stream in (self.out, self.err):
                if stream.descriptor in events and not stream.read():
                    poller.unregister(stream.descriptor)
            if now >= look:
                self._look()
                look = time.perf_counter() + self._look_s

    def _look(self) -> None:
        """Reap orphans; see of several processes what wait4 does not tell: their memory together, their queueing."""
        began = time.perf_counter()
        self._reap()
        members = [self.pid, *_family(self.pid)]
        if len(members) > 1:
            self._queued |= {pid: _schedstat(pid)[1] for pid in members[1:]}
            # Pages that several have in common count once.
            together = sum(_bytes(f"/proc/{pid}/smaps_rollup", "Pss:") for pid in members)
            self.used.peak = max(self.used.peak, together)
        self._look_s = max(_LOOK_S, (time.perf_counter() - began) / _LOOK_SHARE)

    def _reap(self) -> None:
        """Wait for those who came to this process because their parent ended."""
        for pid in _children(os.getpid()):
            if pid != self.pid and _state(pid) == "Z":
                self.used.add(os.wait4(pid, 0)[2])

    def end(self) -> str:
        """Kill what the program left, then take the last of its output and what all of it used; the report's fields."""
        ran, queued = _schedstat(self.pid)
        # Of files and pipes, by it and by those that it has waited for; a zombie still tells.
        got, put = (_bytes(f"/proc/{self.pid}/io", name) // 1024 for name in ("rchar:", "wchar:"))
        left = self.sweep()
        _, status, usage = os.wait4(self.pid, 0)
        self.used.add(usage)
        used, own_s, grouped = self.used, time.process_time() - self._joined_s, _leave(self._group)
        if grouped:
            self._take_group(grouped, own_s)
        deadline = time.monotonic() + _DRAIN_S
        for stream in (self.out, self.err):
            while stream.open and select.select([stream.descriptor], [], [], max(0, deadline - time.monotonic()))[0]:
                stream.read()
            stream.close()
        counted = vars(used).items()
        fields = {
            "status": os.waitstatus_to_exitcode(status), "left": left, "group": int(bool(grouped)),
            "ran": ran, "got": got, "put": put, "waited": queued, "queued": queued + sum(self._queued.values()),
            "kept": int(self.order.kept >= 0), "size": self.out.size, "said": self.err.size,
            "out": self.out.kept, "tail": len(self.out.tail), "err": len(self.err.tail),
        }  # fmt: skip
        return " ".join(f"{name}={value}" for name, value in (*fields.items(), *counted))

    def _take_group(self, grouped: dict[str, str], own_s: float) -> None:
        """Take what the control group counted: it misses no process, and of memory it holds the sum."""
        used = self.used
        user, system = float(grouped["user_usec"]) / 1e6, float(grouped["system_usec"]) / 1e6
        # This process was in the group too. The kernel's split of so short a time is a guess: both lose alike.
        share = max(0.0, 1 - own_s / max(user + system, 1e-9))
        used.user, used.system = user * share, system * share
        used.peak = max(used.peak, int(grouped["peak"]))

    def give_up(self) -> None:
        """Kill the program too: nobody is left to hear of it."""
        self.pid = 0
        self.sweep()
        _leave(self._group)

    def sweep(self) -> int:
        """Kill every process of the program but itself, wherever it went; how many still lived."""
        hit: set[int] = set()
        deadline = time.monotonic() + _SWEEP_S
        while alive := [p for p in _family(os.getpid()) if p != self.pid and _state(p) not in _OVER]:
            hit.update(alive)
            for pid in alive:
                _worked(os.kill, pid, _SIGKILL)
            self._reap()
            if time.monotonic() > deadline:
                break
            time.sleep(_POLL_S)
        self._reap()
        return len(hit)


def _worked(call: Callable[..., object], *arguments: object) -> bool:
    try:
        call(*arguments)
    except OSError:
        return False
    return True


def _enter(group: str) -> None:
    with open(f"{group}/cgroup.procs", "w") as procs:
        procs.write("0")


def _enter_new(group: str) -> str:
    """Make a control group and enter it: its folder, empty where none is asked for, or none can be had."""
    if not group or not _worked(os.mkdir, group):
        return ""
    if _worked(_enter, group):
        return group
    _worked(os.rmdir, group)
    return ""


def _leave(group: str) -> dict[str, str]:
    """Leave and remove a control group, empty but for this process; what was used in it, nothing where none is."""
    if not group:
        return {}
    found = dict(line.split() for line in _text(f"{group}/cpu.stat").splitlines())
    found["peak"] = _text(f"{group}/memory.peak").strip() or "0"
    _worked(_enter, os.path.dirname(group))
    _worked(os.rmdir, group)
    return found if {"user_usec", "system_usec"} <= found.keys() else {}


def _read_order() -> Order:
    """Wait for the next order. Raises EOFError when there is none to come."""
    if not (size := sys.stdin.buffer.readline()):
        raise EOFError
    return Order(sys.stdin.buffer.read(int(size)))


def _say(data: bytes | bytearray) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


def _serve(everywhere: set[int]) -> None:
    run: LaunchedProgram | None = None
    try:
        while True:
            run = LaunchedProgram(_read_order(), everywhere)
            # The kernel hands the memory of this process on: no smaller peak can be seen.
            floor = _bytes("/proc/self/status", "VmHWM:")
            try:
                run.start()
            except OSError as error:
                _say(f"fault {error.errno} {os.fsdecode(error.filename or b'')}\n".encode(errors="surrogateescape"))
                continue
            _say(f"begun {run.pid} {run.started!r} {floor} {run.out.spool}\n".encode())
            ended = run.watch()
            _say(f"ended at={ended!r} {run.end()}\n".encode())
            run.out.hand_on()
            run.err.hand_on()
    except (EOFError, BrokenPipeError):
        if run is not None:
            run.give_up()


def _adopt() -> bool:
    """Make orphans of the programs children of this process (prctl), instead of the system's first process."""
    try:
        import ctypes

        return not ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    except (ImportError, OSError, AttributeError):
        return False


def main() -> None:
    """Take orders until there are no more to come."""
    if len(sys.argv) < 3:
        _begin_again("adopts" if _adopt() else "alone")
    _say(f"{sys.argv[2]}\n".encode())
    _serve(os.sched_getaffinity(0))


def _begin_again(word: str) -> None:
    """Replace this process by one that does not hold what was imported for one system call."""
    code = sys.argv[1]
    os.lseek(int(code), 0, os.SEEK_SET)
    load = f"import marshal; exec(marshal.loads(open({code}, 'rb').read()))"
    os.execv(sys.executable, [sys.executable, "-I", "-S", "-c", load, code, word])


if __name__ == "__main__":
    main()
