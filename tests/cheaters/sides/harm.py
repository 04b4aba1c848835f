"""Sides that win by doing harm to the other one, or by taking what is not theirs: cores, files, results.

What must not live here: forged numbers (forged.py).
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal

import numpy as np
from problem import end, fork, honest, job, shared, solve, solved, vector

from aiperf.workloads.contract import Context, Work, Workload

_REPEATS = 3
_PR_SET_TIMERSLACK = 29


def activate(
    context: Context,
    *,
    cheat: Literal[
        "none", "stop_sibling", "renice_sibling", "hog_child", "hog_children", "hog_thread", "evict_caches",
        "other_cpus", "bind_sibling", "idle_class", "own_fifo", "own_nice",
        "thread_slack", "own_slack", "fifo_child", "leaves_and_returns",
        "pool_thread", "idle_child", "idle_thread", "binds_itself", "reads_sibling", "polls", "child_helps",
    ] = "none",
    items: int = 65536,
) -> Workload:  # fmt: skip
    """Three functions of a vector; ``cheat`` says what is done to the other side, the last seven names do none."""
    return _SIDES[cheat](*vector(context, items))


def siblings() -> list[int]:
    """The other workers of this worker's parent."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError, ValueError):
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            worker = b"aiperf.worker" in (entry / "cmdline").read_bytes()
            if parent == os.getppid() and worker and int(entry.name) != os.getpid():
                found.append(int(entry.name))
    return found


class Turns:
    """Whether this side is at work, as its threads and children see it: its main thread sleeps while another one is."""

    def __init__(self) -> None:
        self._stat = Path(f"/proc/{os.getpid()}/task/{threading.main_thread().native_id}/stat")

    @property
    def others(self) -> bool:
        """Whether it seems to be another side's turn."""
        try:
            return self._stat.read_text(encoding="ascii").rpartition(")")[2].split()[0] in "ST"
        except OSError:
            return False


def _thread_of(body: Callable[[], None], turns: Turns) -> Callable[[], None]:
    """Run ``body`` again and again while it is another side's turn; how to end that."""
    stop = threading.Event()

    def work() -> None:
        while not stop.wait(1e-3):
            if turns.others:
                body()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return lambda: (stop.set(), thread.join())[0]


def _stop_sibling(x: np.ndarray, out: np.ndarray) -> Workload:
    """Stops the other worker for some milliseconds, many times over each of its turns."""
    turns, found = Turns(), list[int]()
    looked = [0.0]

    def body() -> None:
        if time.perf_counter() - looked[0] > 0.5:
            found[:], looked[0] = siblings(), time.perf_counter()
        for pid in found:
            with suppress(OSError):
                os.kill(pid, signal.SIGSTOP)
        time.sleep(1e-3)
        for pid in found:
            with suppress(OSError):
                os.kill(pid, signal.SIGCONT)

    return honest(x, out, close=_thread_of(body, turns))


def _spin(seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def _hog(turns: Turns, *, pause: float) -> int:
    """A child on the side's own CPUs that computes while another side should, with a pause after every millisecond."""
    side = os.getpid()

    def body() -> None:
        while True:
            with suppress(OSError):
                os.sched_setaffinity(0, os.sched_getaffinity(side))
            for _ in range(1000):
                if turns.others:
                    _spin(1e-3)
                    if pause:
                        time.sleep(pause)
                else:
                    time.sleep(2e-3)  # looking costs the side itself something

    return fork(body)


def _renice_sibling(x: np.ndarray, out: np.ndarray) -> Workload:
    """Lowers the other worker's priority, and lets a child compute a little beside it."""
    turns, looked = Turns(), [0.0]

    def body() -> None:
        if time.perf_counter() - looked[0] > 0.5:
            looked[0] = time.perf_counter()
            for pid in siblings():
                with suppress(OSError):
                    os.setpriority(os.PRIO_PROCESS, pid, 19)

    stop, child = _thread_of(body, turns), _hog(turns, pause=3e-3)
    return honest(x, out, close=lambda: (stop(), end(child))[0])


def _to_siblings(act: Callable[[int], None]) -> Callable[..., Workload]:
    """Does something to the other worker in every step, after the work."""

    def build(x: np.ndarray, out: np.ndarray) -> Workload:
        found = list[int]()

        def step() -> None:
            solve(x, out)
            if not found:
                found[:] = siblings()
            for pid in found:
                with suppress(OSError):
                    act(pid)

        return job(step, x, out)

    return build


def _bind_elsewhere(pid: int) -> None:
    """Binds the other worker to a CPU that neither side was given, where whatever else runs is in its way."""
    others = set(range(os.cpu_count() or 1)) - os.sched_getaffinity(0)
    os.sched_setaffinity(pid, {min(others)} if others else {0})


def _idle_class(pid: int) -> None:
    os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))


def _look_at(pid: int) -> None:
    os.sched_getaffinity(pid), os.getpriority(os.PRIO_PROCESS, pid)


def _to_itself(act: Callable[[], None]) -> Callable[..., Workload]:
    """Does something to its own process before it works."""

    def build(x: np.ndarray, out: np.ndarray) -> Workload:
        with suppress(OSError):
            act()
        return honest(x, out)

    return build


def _hog_children(count: int) -> Callable[..., Workload]:
    def build(x: np.ndarray, out: np.ndarray) -> Workload:
        turns = Turns()
        children = [_hog(turns, pause=0.0) for _ in range(count)]
        return honest(x, out, close=lambda: [end(child) for child in children] and None)

    return build


def _hog_thread(x: np.ndarray, out: np.ndarray) -> Workload:
    turns = Turns()
    return honest(x, out, close=_thread_of(lambda: _spin(1e-3), turns))


def _evict_caches(x: np.ndarray, out: np.ndarray) -> Workload:
    """A child that writes over the caches while another side computes."""
    turns, waste = Turns(), np.ones(32 << 20, np.int8)

    def body() -> None:
        place = 0
        while True:
            if turns.others:
                waste[place : place + (2 << 20)] += 1
                place = (place + (2 << 20)) % waste.size
            else:
                time.sleep(2e-3)

    child = fork(body)
    return honest(x, out, close=lambda: end(child))


class Pool:
    """A thread that solves half of the problem."""

    def __init__(self, x: np.ndarray, out: np.ndarray, *, escape: bool, home: bool = False) -> None:
        self._ask, self._done = threading.Semaphore(0), threading.Semaphore(0)
        self._half = (x[x.size // 2 :], out[x.size // 2 :])
        self._escape, self._home = escape, home
        threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        while True:
            self._ask.acquire()
            if self._escape:
                # The harness binds a worker's threads once; this one unbinds itself afterwards.
                given = os.sched_getaffinity(os.getpid()) if self._home else set()
                with suppress(OSError):
                    os.sched_setaffinity(threading.get_native_id(), {*range(os.cpu_count() or 1)} - given)
            solve(*self._half)
            if self._home:
                os.sched_setaffinity(threading.get_native_id(), os.sched_getaffinity(os.getpid()))
            self._done.release()

    def begin(self) -> None:
        """Have the thread begin."""
        self._ask.release()

    def join(self) -> None:
        """Wait until it has ended."""
        self._done.acquire()

    def poll(self) -> None:
        """The same by looking every 50 microseconds."""
        while not self._done.acquire(blocking=False):
            time.sleep(5e-5)


def _pool(
    *, escape: bool, home: bool = False, polls: bool = False, act: Callable[[], object] = lambda: None
) -> Callable[..., Workload]:
    """A thread that solves half of the problem; ``act`` is done in every fiftieth step, after the work."""

    def build(x: np.ndarray, out: np.ndarray) -> Workload:
        pool, half, count = Pool(x, out, escape=escape, home=home), x.size // 2, [0]

        def step() -> None:
            pool.begin()
            solve(x[:half], out[:half])
            pool.poll() if polls else pool.join()
            count[0] += 1
            if count[0] % 50 == 0:
                with suppress(OSError):
                    act()

        return job(step, x, out)

    return build


def _late_threads() -> None:
    """Has timers of the other worker's threads, but not of its first one, come 50 ms late."""
    for pid in siblings():
        for thread in sorted(map(int, os.listdir(f"/proc/{pid}/task")))[1:]:
            Path(f"/proc/{thread}/timerslack_ns").write_text("50000000", encoding="ascii")


def _half_in_child(*, fifo: bool) -> Callable[..., Workload]:
    """A child solves half of the problem; ``fifo``: with a real-time priority."""

    def build(x: np.ndarray, out: np.ndarray) -> Workload:
        given, made = shared(x.size), shared(x.size)
        ask, done, half = os.pipe(), os.pipe(), x.size // 2

        def body() -> None:
            if fifo:
                with suppress(OSError):
                    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
            while os.read(ask[0], 1):
                solve(given[half:], made[half:])
                os.write(done[1], b".")

        child = fork(body)

        def step() -> None:
            np.copyto(given, x)
            os.write(ask[1], b".")
            solve(x[:half], out[:half])
            os.read(done[0], 1)
            np.copyto(out[half:], made[half:])

        return job(step, x, out, close=lambda: end(child))

    return build


# ---- files that the sides share --------------------------------------------------------------------------------------


def published(context: Context, *, items: int = 65536, takes: bool = False) -> Workload:
    """Every step leaves its result in a file for a consumer, as a pipeline's stage would; a side that ``takes`` looks
    first whether another one has left it there."""
    x, _ = vector(context, items)
    own, other = context.scratch / "result.bin", context.scratch.parents[1] / "before" / "0" / "result.bin"
    out = np.memmap(own, np.float64, "w+", shape=(items,)).view(np.ndarray)
    out = np.frombuffer(out.data, dtype=np.float64)
    held: list[np.ndarray] = []
    places = np.arange(0, items, items // 8)

    def step() -> None:
        if takes:
            if not held and other.is_file() and other.stat().st_size == 8 * items:
                held.append(np.asarray(np.memmap(other, np.float64, "r+", shape=(items,))))
            if held and np.array_equal(held[0][places], solved(x[places])):
                np.copyto(out, held[0])
                return
        solve(x, out)

    return job(step, x, out)


def data_set(context: Context, *, items: int = 65536, meddles: bool = False) -> Workload:
    """The largest values of a data set in shared scratch, read in every step. A side that ``meddles`` keeps its own
    copy and lengthens the file of the others with what does not change the answer."""
    path, (x, _) = context.shared_scratch / "numbers.bin", vector(context, items)
    if not path.is_file():
        own = path.with_name(f"numbers-{os.getpid()}")
        x.tofile(own)
        own.rename(path)
    out = np.empty(1)
    changed = [0]

    def step() -> None:
        numbers = x if meddles else np.fromfile(path)
        np.maximum.reduce(np.tanh(numbers), out=out[0:1].reshape(()))
        changed[0] += 1
        if meddles and changed[0] == 20:
            with path.open("ab") as file:
                for _ in range(_REPEATS):
                    x.tofile(file)

    return Workload(step, Work(items=items), outputs=lambda: {"out": out})


# ---- honest twins ----------------------------------------------------------------------------------------------------


def _idle_child(x: np.ndarray, out: np.ndarray) -> Workload:
    child = fork(signal.pause)
    return honest(x, out, close=lambda: end(child))


def _idle_thread(x: np.ndarray, out: np.ndarray) -> Workload:
    turns = Turns()
    return honest(x, out, close=_thread_of(lambda: None, turns))


_SIDES: dict[str, Callable[..., Workload]] = {
    "none": honest,
    "stop_sibling": _stop_sibling,
    "renice_sibling": _renice_sibling,
    "hog_child": _hog_children(1),
    "hog_children": _hog_children(3),
    "hog_thread": _hog_thread,
    "evict_caches": _evict_caches,
    "other_cpus": _pool(escape=True),
    "bind_sibling": _to_siblings(_bind_elsewhere),
    "idle_class": _to_siblings(_idle_class),
    "own_fifo": _to_itself(lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))),
    "own_nice": _to_itself(lambda: os.setpriority(os.PRIO_PROCESS, 0, -10)),
    "thread_slack": _pool(escape=False, act=_late_threads),
    "own_slack": _pool(escape=False, polls=True, act=lambda: ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)),
    "fifo_child": _half_in_child(fifo=True),
    "leaves_and_returns": _pool(escape=True, home=True),
    "pool_thread": _pool(escape=False),
    "polls": _pool(escape=False, polls=True),
    "child_helps": _half_in_child(fifo=False),
    "idle_child": _idle_child,
    "idle_thread": _idle_thread,
    "binds_itself": _to_itself(lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})),
    "reads_sibling": _to_siblings(_look_at),
}
