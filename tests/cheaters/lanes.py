"""Several aiperf runs side by side, each on CPUs of its own.

What must not live here: what is run, and what becomes of its records.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

Lane = tuple[int, ...]
"""CPUs of one run at a time."""
Job = TypeVar("Job")
_END_S = 20.0


def lanes(count: int) -> list[Lane]:
    """The CPUs of this process in so many parts of the same size."""
    cpus = sorted(os.sched_getaffinity(0))
    width = max(len(cpus) // count, 1)
    return [tuple(cpus[start : start + width]) for start in range(0, width * min(count, len(cpus)), width)]


class Lanes:
    """Takes one job after another on each of some lanes, until there are none or somebody says that it is enough."""

    def __init__(self, count: int) -> None:
        self._lanes = lanes(count)
        self._live: set[subprocess.Popen[bytes]] = set()
        self._over, self._lock = threading.Event(), threading.Lock()

    def each(self, jobs: Iterable[Job], do: Callable[[Job, Lane], None]) -> None:
        """``do`` for every job, each on a lane. Raises what ``do`` raises; then, and when this is interrupted, what
        runs is ended first."""
        todo = iter(jobs)

        def drain(lane: Lane) -> None:
            while not self._over.is_set():
                with self._lock:
                    job = next(todo, None)
                if job is None:
                    return
                try:
                    do(job, lane)
                except BaseException:
                    self._over.set()
                    raise

        with ThreadPoolExecutor(len(self._lanes)) as pool:
            try:
                for done in as_completed([pool.submit(drain, lane) for lane in self._lanes]):
                    done.result()
            finally:
                self.stop()

    def stop(self) -> None:
        """Begin no other job, and end what runs."""
        self._over.set()
        for process in list(self._live):
            with suppress(ProcessLookupError):
                process.terminate()

    @property
    def stopped(self) -> bool:
        """Whether jobs are over, so that what one says of itself may be cut short."""
        return self._over.is_set()

    def call(self, argv: Sequence[str], lane: Lane, folder: Path, env: Mapping[str, str], limit_s: float) -> int:
        """Run a command on the CPUs of a lane, with its output in ``folder/log``, and end it after ``limit_s``; its
        status."""
        own = ["taskset", "-c", ",".join(map(str, lane)), *argv] if len(self._lanes) > 1 else list(argv)
        with (folder / "log").open("wb") as log:
            # In a session of its own: what a side does to its parent's group must not reach this process.
            process = subprocess.Popen(own, env=dict(env), cwd=folder, stdout=log, stderr=log, start_new_session=True)
            self._live.add(process)
            try:
                if not self._over.is_set():
                    process.wait(limit_s)
            except subprocess.TimeoutExpired:
                pass
            finally:
                _end(process)
                self._live.discard(process)
        return process.returncode


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask aiperf to end where it has not, so that it ends its sides; kill it where it does not obey."""
    if process.poll() is None:
        process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_END_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
