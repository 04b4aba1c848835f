"""Gloo ranks for tests, in processes of their own: two started together, each side audited, and what both hold
afterwards; or one alone."""

from __future__ import annotations

import functools
import importlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from cpu_pairs import snapshot

import aiperf
from aiperf.worker import arrays
from aiperf.workloads.contract import Context
from aiperf.workloads.parallel import gradient_exchange
from aiperf.workloads.shared import models

_TRAINING = ("torch._dynamo", "torch.distributed.fsdp", "torch.distributed.tensor")
"""What sides that train import."""
_LIMIT_S = 100
"""A rank that waits for another for so long is ended."""


def run_gang(sides: list[dict[str, Any]], folder: Path) -> list[list[dict[str, np.ndarray]]]:
    """found[rank][side]: outputs by name, and what the side says of itself as ``count.NAME``."""
    store = dist.TCPStore("127.0.0.1", 0, 2, is_master=True, wait_for_workers=False)
    _ask("both", store.port, str(folder), sides)
    return [[dict(np.load(folder / f"{rank}-{side}.npz")) for side in range(len(sides))] for rank in (0, 1)]


def ddp_buckets(cap_mb: float) -> tuple[dict[str, float], dict[str, float]]:
    """What is told of six layers of a little more than 1 MiB each once DDP has cut them, and of a module without it."""
    return tuple(_ask("_cut_by_ddp", cap_mb))


def gathered_early(prefetch: str) -> list[bool]:
    """Whether each unit that FSDP fetches ahead in a backward pass was still sharded then."""
    return list(_ask("_fetched_ahead", prefetch))


def _ask(function: str, *args: Any) -> Any:
    """What the function answers in a process of its own: a group of Gloo that is given up while a thread of its own
    wants the interpreter waits for ever, and no time limit in this process would end that."""
    forker = _forker()
    print(json.dumps([function, *args]), file=forker.stdin, flush=True)
    *answer, status = iter(forker.stdout.readline, "end\n")
    assert status == "0\n", f"{function} failed: its words are above"
    return json.loads(answer[0])


def _cut_by_ddp(cap_mb: float) -> list[dict[str, float]]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    module = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(6)))
    wrapped = torch.nn.parallel.DistributedDataParallel(module, bucket_cap_mb=cap_mb)
    for _ in range(3):
        wrapped(torch.ones(1, 512)).sum().backward()
    return [gradient_exchange.ddp_buckets(wrapped), gradient_exchange.ddp_buckets(module)]


def _fetched_ahead(prefetch: str) -> list[bool]:
    from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup

    found = []

    def noting(group: Any, pass_type: Any, wrapped: Any = FSDPParamGroup._prefetch_unshard) -> None:
        found.append(not group.is_unsharded)
        wrapped(group, pass_type)

    FSDPParamGroup._prefetch_unshard = staticmethod(noting)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    asked = SimpleNamespace(shard="full", wrap="block", offload="none", prefetch=prefetch)
    task = models.build("tiny", seed=3, device="cpu", batch=2, seq=4)
    module = gradient_exchange.shard(task, device="cpu", ranks=1, asked=asked)
    task.loss(module(task.batch), task.targets).backward()
    return found


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
    if not (other := os.fork()):
        main(1, port, folder, sides)
        os._exit(0)
    main(0, port, folder, sides)
    assert os.waitpid(other, 0)[1] == 0


def serve() -> None:
    """For each line of the input, a function and its arguments: what it answers in a fork, and the exit status."""
    for line in sys.stdin:
        function, *args = json.loads(line)
        if function == "both":
            _import_for(args[-1])
        if not (asked := os.fork()):
            signal.alarm(_LIMIT_S)
            answers = os.fdopen(os.dup(1), "w")
            os.dup2(2, 1)  # what they print is no answer
            print(json.dumps(globals()[function](*args)), file=answers, flush=True)
            os._exit(0)  # taking the interpreter down takes a second
        print(os.waitstatus_to_exitcode(os.waitpid(asked, 0)[1]), "end", sep="\n", flush=True)


if __name__ == "__main__":
    serve()
