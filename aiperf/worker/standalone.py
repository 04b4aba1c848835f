"""A worker without a parent: ``python -m aiperf.worker.standalone SPEC.json`` runs one side for a profiler.

What must not live here: timing that anybody compares, and anything a profiler writes. SPEC.json holds a
``StandaloneSpec``; each rank writes a ``StandaloneReport``.

Set-up and warm-up run outside any range: the range ``aiperf@SIDE`` holds the profiled iterations and nothing else.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from time import monotonic, perf_counter, sleep
from typing import BinaryIO, cast

from aiperf.protocol import messages
from aiperf.protocol.standalone import StandaloneReport, StandaloneSpec
from aiperf.protocol.wire import decode, encode
from aiperf.worker.dispatch import Worker
from aiperf.worker.ranges import Ranges

_TRIALS = 3
"""Untimed iterations that the length of the profiled part is decided by: the first ones compile, allocate, connect."""
_FEWEST_WARM = 2
_MOST_WARM = 200
_PLAN_WAIT_S = 120.0
_PEER_GRACE_S = 1.0
_LOOK_S = 0.02


def main() -> int:
    """Run the side of a spec; with several ranks, start and await one process for each."""
    path = Path(sys.argv[1])
    spec = decode(path.read_text(encoding="utf-8"), StandaloneSpec)
    if spec.ranks == 1:
        return _run_rank(spec, rank=0, port=0, listen_fd=-1)
    if len(sys.argv) == 5:
        rank, port, listen_fd = (int(text) for text in sys.argv[2:5])
        return _run_rank(spec, rank=rank, port=port, listen_fd=listen_fd)
    return _gang(path, spec.ranks)


def _gang(path: Path, ranks: int) -> int:
    """Start every rank below this process, so that a profiler of it sees them all; the first failure ends the rest."""
    command = [sys.executable, "-m", "aiperf.worker.standalone", str(path)]
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        port, fd = listener.getsockname()[1], listener.fileno()
        started = [
            subprocess.Popen(
                [*command, str(rank), str(port), str(-1 if rank else fd)],
                env={**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks)},
                pass_fds=() if rank else (fd,),
            )
            for rank in range(ranks)
        ]
    try:
        while True:
            codes = [child.poll() for child in started]
            failed = [code for code in codes if code]
            if failed or None not in codes:
                return abs(failed[0]) if failed else 0
            sleep(_LOOK_S)
    finally:
        _end(started)


def _end(started: list[subprocess.Popen[bytes]]) -> None:
    """The ranks that a failed one leaves waiting get a moment to say what they saw, then they are ended."""
    deadline = monotonic() + _PEER_GRACE_S
    for child in started:
        try:
            child.wait(max(0.0, deadline - monotonic()))
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _run_rank(spec: StandaloneSpec, *, rank: int, port: int, listen_fd: int) -> int:
    report = StandaloneReport(rank=rank, pid=os.getpid())
    try:
        report = _StandaloneRank(spec, rank=rank, port=port, listen_fd=listen_fd).run()
    except _Failed as error:
        # The worker has printed the traceback already.
        report = replace(report, error=str(error))
    except Exception as error:
        traceback.print_exc()
        report = replace(report, error=f"{type(error).__name__}: {error}".splitlines()[0][:500])
    _write_whole(Path(_of_rank(spec.report, rank)), encode(report))
    return 1 if report.error else 0


def _write_whole(path: Path, text: str) -> None:
    """Write a file that others find whole or not at all."""
    part = path.with_suffix(".part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def _of_rank(name: str, rank: int) -> str:
    return name.replace("{rank}", str(rank))


def _await_plan(where: Path) -> tuple[int, int]:
    """What rank 0 decided."""
    deadline = monotonic() + _PLAN_WAIT_S
    while not where.exists():
        if monotonic() > deadline:
            raise _Failed("rank 0 did not say how many iterations to run")
        sleep(0.005)
    warm, iterations = json.loads(where.read_text(encoding="utf-8"))
    return int(warm), int(iterations)


class _Failed(Exception):
    """A request to the worker failed; the text says how."""


class _StandaloneRank:
    """One rank of one side, from set-up to close."""

    def __init__(self, spec: StandaloneSpec, *, rank: int, port: int, listen_fd: int) -> None:
        self._spec, self._rank = spec, rank
        self._side = spec.setup.side
        self._ranges = Ranges.open(force=True)
        silent = Ranges(None, "only the profiled iterations are marked")
        self._worker = Worker(rank=rank, world_size=spec.ranks, store_port=port, listen_fd=listen_fd, ranges=silent)

    def run(self) -> StandaloneReport:
        """Set up, warm up, run the profiled iterations, and report what was done."""
        self._ask(self._spec.setup)
        self._ask(messages.FirstIterationRequest(self._side))
        warm, iterations = self._plan()
        self._warm_up(warm)
        wall = self._profiled(iterations)
        summary = self._ask(messages.SummaryRequest(self._side))
        self._ask(messages.CloseRequest())
        return StandaloneReport(
            rank=self._rank,
            pid=os.getpid(),
            iterations=iterations,
            wall_s=wall,
            backend=self._ranges.backend,
            backend_reason=self._ranges.reason,
            domain=self._ranges.domain,
            summary=summary,
        )

    def _ask(self, request: messages.WorkerRequest[messages.R]) -> messages.R:
        reply = self._worker.handle(request)
        if isinstance(reply, messages.SkipReply):
            raise _Failed(f"{request.phase}: {reply.reason}")
        if isinstance(reply, messages.FailureReply):
            raise _Failed(f"{request.phase}: {reply.message}")
        return cast(messages.R, reply)

    def _warm_up(self, readings: int) -> messages.WarmUpReply:
        return self._ask(messages.WarmUpRequest(self._side, readings=readings, iterations=1, window=5))

    def _plan(self) -> tuple[int, int]:
        """(warm-up readings, profiled iterations): rank 0 times the trials and decides, for all ranks alike."""
        each = self._trial()
        where = Path(self._spec.setup.shared_scratch) / f"plan-{self._side}.json"
        if self._rank:
            return _await_plan(where)
        warm = min(_MOST_WARM, max(_FEWEST_WARM, round(self._spec.warmup_seconds / each)))
        iterations = min(self._spec.most_iterations, max(1, round(self._spec.target_seconds / each)))
        if self._spec.ranks > 1:
            _write_whole(where, json.dumps([warm, iterations]))
        return warm, iterations

    def _trial(self) -> float:
        """Seconds of an iteration after the first. A gang takes every trial: its ranks wait for each other in each."""
        taken: list[float] = []
        alone = self._spec.ranks == 1
        while len(taken) < _TRIALS and not (alone and taken and sum(taken) >= self._spec.warmup_seconds):
            taken += self._warm_up(1).seconds
        return max(float(statistics.median(taken)), 1e-6)

    def _profiled(self, iterations: int) -> float:
        runner = self._worker.runner(self._side)
        began = perf_counter()
        with self._recorder() as ranges, self._counting():
            runner.profiled(iterations, ranges)
        return perf_counter() - began

    @contextlib.contextmanager
    def _counting(self) -> Iterator[None]:
        """Let perf count only while the profiled iterations run."""
        if self._rank or not self._spec.control:
            yield
            return
        commands, answers = self._spec.control
        with open(commands, "wb", buffering=0) as to_perf, open(answers, "rb") as from_perf:
            _switch(to_perf, from_perf, "enable")
            yield
            _switch(to_perf, from_perf, "disable")

    @contextlib.contextmanager
    def _recorder(self) -> Iterator[Ranges]:
        """torch.profiler around the iterations, when the spec asks for its trace; the ranges to run them in."""
        if not self._spec.trace:
            yield self._ranges
            return
        import torch
        from torch.autograd.profiler import profile

        # What torch.profiler.profile starts, which imports the compiler to see how that is configured: seconds.
        device = "cuda" if torch.cuda.is_available() else None
        recorded = profile(use_device=device, record_shapes=True, use_kineto=True)
        with recorded:
            # The first operators under a recording that has just begun take several times as long.
            self._warm_up(1)
            yield _Recorded()
        trace = Path(_of_rank(self._spec.trace, self._rank))
        plain = trace.with_suffix("")
        recorded.export_chrome_trace(str(plain))
        # torch compresses line by line, which takes ten times as long.
        with plain.open("rb") as whole, gzip.open(trace, "wb", compresslevel=1) as packed:
            shutil.copyfileobj(whole, packed, 1 << 20)
        plain.unlink()


class _Recorded(Ranges):
    """Ranges that torch.profiler sees: what runs between two of them is not the side's."""

    def __init__(self) -> None:
        super().__init__(None, "torch.profiler records them")

    def side(self, name: str) -> AbstractContextManager[None]:
        """Wrap a part of a side in an annotation of torch.profiler."""
        from torch.profiler import record_function

        return record_function(f"aiperf@{name}")


def _switch(to_perf: BinaryIO, from_perf: BinaryIO, word: str) -> None:
    try:
        to_perf.write(f"{word}\n".encode())
        answer = from_perf.readline()
    except BrokenPipeError:
        answer = b""
    if not answer:
        raise _Failed(f"perf ended before it acknowledged {word}")


if __name__ == "__main__":
    sys.exit(main())
