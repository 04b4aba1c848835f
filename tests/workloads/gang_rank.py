"""One rank of a gang, started by a test: runs the named sides and leaves rank 0's outputs in a file."""

from __future__ import annotations

import importlib
import json
import os
import sys

import numpy as np
import torch.distributed as dist
from cpu_pairs import audit

from aiperf.workloads.contract import Context


def main(rank: int, port: int, target: str, sides: list[dict]) -> None:
    context = Context(rank=rank, world_size=2, store_port=port, seed=3)
    found = {}
    for number, side in enumerate(sides):
        family, function = side.pop("workload").split(".")
        workload = getattr(importlib.import_module(f"aiperf.workloads.{family}.workload"), function)(context, **side)
        workload.step()
        for name, array in audit(workload, seed=9).items():
            found[f"{number}:{name}"] = array
        for name in ("bytes", "flops", "items"):
            found[f"{number}:work.{name}"] = np.array(getattr(workload.work, name))
        for name, value in workload.work.peaks.items():
            found[f"{number}:peak.{name}"] = np.array(value)
        for name, value in (workload.counters() if workload.counters is not None else {}).items():
            found[f"{number}:count.{name}"] = np.array(value)
        found[f"{number}:backend"] = np.array(workload.facts["backend"])
    dist.barrier()
    if rank == 0:
        np.savez(target, **found)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], json.loads(sys.argv[4]))
    # As a worker does: a thread of Gloo that has not ended yet would abort the interpreter's own end.
    os._exit(0)
