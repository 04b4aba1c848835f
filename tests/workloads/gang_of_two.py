"""Two Gloo ranks for tests: started together, each side audited, and what both ranks hold afterwards."""

from __future__ import annotations

import functools
import importlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from cpu_pairs import snapshot

import aiperf
from aiperf.worker import arrays
from aiperf.workloads.contract import Context

_TRAINING = ("torch._dynamo", "torch.distributed.fsdp", "torch.distributed.tensor")
"""What sides that train import."""
_LIMIT_S = 100
"""A rank that waits for another for so long is ended."""


def run_gang(sides: list[dict[str, Any]], folder: Path) -> list[list[dict[str, np.ndarray]]]:
    """found[rank][side]: outputs by name, and what the side says of itself as ``count.NAME``."""
    store = dist.TCPStore("127.0.0.1", 0, 2, is_master=True, wait_for_workers=False)
    forker = _forker()
    print(json.dumps([store.port, str(folder), sides]), file=forker.stdin, flush=True)
    assert forker.stdout.readline() == "0\n", "a rank failed: its words are above"
    return [[dict(np.load(folder / f"{rank}-{side}.npz")) for side in range(len(sides))] for rank in (0, 1)]


@functools.cache
def _forker() -> Any:
    """A process that gangs are forked from, so that torch is imported once; it ends with its input, and so with this
    one."""
    roots = (Path(aiperf.__file__).parents[1], Path(__file__).parent)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, roots)), "OMP_NUM_THREADS": "1"}
    program = [sys.executable, __file__]
    return subprocess.Popen(program, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _audited(workload: Any) -> dict[str, np.ndarray]:
    workload.step()
    workload.redraw(9)
    if workload.reset is not None:
        workload.reset()
    if workload.poison:
        for array in workload.outputs().values():
            arrays.poison(array)
    workload.step()
    return snapshot(workload)


def main(rank: int, port: int, folder: str, sides: list[dict[str, Any]]) -> None:
    """One rank."""
    signal.alarm(_LIMIT_S)
    # The backend that cuts and differentiates graphs: generating code takes longer than all the rest.
    torch.compile = functools.partial(torch.compile, backend="aot_eager")
    scratch = Path(folder) / f"scratch-{rank}"
    scratch.mkdir()
    context = Context(rank=rank, world_size=2, store_port=port, seed=3, scratch=scratch)
    for number, side in enumerate(sides):
        family, function = side.pop("workload").split(".")
        workload = getattr(importlib.import_module(f"aiperf.workloads.{family}.workload"), function)(context, **side)
        found = _audited(workload)
        counts = workload.counters() if workload.counters is not None else {}
        values = workload.values() if workload.values is not None else {}
        work = {name: getattr(workload.work, name) for name in ("bytes", "flops", "items")}
        told = {**counts, **work, **workload.work.peaks, "backend": workload.facts.get("backend", "")}
        found |= {f"count.{name}": np.array(value) for name, value in told.items()}
        found |= {f"value.{name}": np.array(value) for name, value in values.items()}
        np.savez(Path(folder) / f"{rank}-{number}.npz", **found)
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()


def _import_for(sides: list[dict[str, Any]]) -> None:
    """What both ranks will import, which takes longer than most sides."""
    families = {side["workload"].partition(".")[0] for side in sides}
    for name in _TRAINING if "parallel" in families else ():
        importlib.import_module(name)
    if any("compile" in side for side in sides):
        importlib.import_module("torch._inductor.compile_fx")  # as the first compilation does, whatever its backend
    for family in families:
        importlib.import_module(f"aiperf.workloads.{family}.workload")


def both(port: int, folder: str, sides: list[dict[str, Any]]) -> None:
    """Rank 0 here, and rank 1 in another process."""
    os.dup2(2, 1)  # what they print is no answer
    if not (other := os.fork()):
        main(1, port, folder, sides)
        os._exit(0)
    main(0, port, folder, sides)
    assert os.waitpid(other, 0)[1] == 0
    os._exit(0)  # taking the interpreter down takes a second


def serve() -> None:
    """Fork a gang for each line of the input; a line of the output is the exit status of its rank 0."""
    for line in sys.stdin:
        port, folder, sides = json.loads(line)
        _import_for(sides)
        if not (gang := os.fork()):
            both(port, folder, sides)
        print(os.waitstatus_to_exitcode(os.waitpid(gang, 0)[1]), flush=True)


if __name__ == "__main__":
    serve()
