"""Small real servers and sides under load, for the tests of serve.load."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import Any

from patience import PATIENCE_S

from aiperf.workloads.contract import Context, Workload
from aiperf.workloads.serve.server import Server
from aiperf.workloads.serve.workload import load

SERVER = Path(__file__).resolve().parents[1] / "programs" / "openai_server.py"
TRACE = {"arrivals": "constant", "rate": 100.0, "requests": 12, "prompt_tokens": 6, "output_tokens": 4}


def command(*options: str) -> str:
    return " ".join([sys.executable, str(SERVER), "--port", "{port}", *options])


@contextmanager
def running(tmp_path: Path, *options: str) -> Iterator[Server]:
    server = Server.start(command(*options), port=0, log=tmp_path / "log")
    try:
        server.await_ready("/health", PATIENCE_S)
        yield server
    finally:
        server.end()


@contextmanager
def loaded(tmp_path: Path, *options: str, seed: int = 1, **params: Any) -> Iterator[Workload]:
    """A side under load, which is closed; the CPUs of this process stay as they were."""
    given = {"trace": TRACE, "server": command(*options), "segments": 2, **params}
    affinity = os.sched_getaffinity(0)
    try:
        workload = load(Context(seed=seed, scratch=tmp_path, shared_scratch=tmp_path), **given)
        try:
            yield workload
        finally:
            assert workload.close is not None
            workload.close()
    finally:
        os.sched_setaffinity(0, affinity)


def play(workload: Workload) -> dict[str, float]:
    """Warm up and play every turn, as a worker does; the mean of the turns' values."""
    for _ in range(2):
        workload.step()
    turns = []
    for _ in range(workload.rounds):
        workload.step()
        assert workload.values is not None
        turns.append(workload.values())
    return {name: fmean(turn[name] for turn in turns) for name in turns[0]}


def not_late(faults: dict[str, str]) -> dict[str, str]:
    """The faults less those of a client that a busy host kept from sending in time."""
    return {code: said for code, said in faults.items() if code not in ("rate_off", "sent_late", "client_busy")}


def faults(tmp_path: Path, url: str, **params: object) -> tuple[dict[str, str], dict[str, object]]:
    """What a side finds wrong with a running server whose prompts are always the same, and its facts."""
    spec = {**TRACE, "prompt_tokens": 40, "seed": 9}
    with loaded(tmp_path, server="", url=url, trace=spec, **params) as workload:
        play(workload)
        assert workload.faults is not None
        return not_late(dict(workload.faults())), dict(workload.facts)
