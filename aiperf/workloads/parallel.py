"""Family parallel.train: a training step over ranks or GPUs under a stated data-parallel strategy.

What must not live here: single-process steps (model.py), the models themselves (_models.py), timing.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

from aiperf.workloads import _models as models
from aiperf.workloads.contract import Context, SkipSide, Work, Workload

_LEARNING_RATE = 1e-5
_FIRST_BUCKET = dist._DEFAULT_FIRST_BUCKET_BYTES


def _buckets(parameters: list[Any], cap: float) -> list[list[Any]]:
    """Parameters in the order in which backward finishes them, cut where DDP cuts: the first bucket is a small one."""
    groups: list[list[Any]] = []
    filled = limit = 0.0
    for parameter in reversed(parameters):
        if not groups or filled >= limit:
            limit = cap if groups else min(cap, _FIRST_BUCKET)
            groups.append([])
            filled = 0.0
        groups[-1].append(parameter)
        filled += parameter.numel() * parameter.element_size()
    return groups


def _average(buckets: list[list[Any]], ranks: int) -> None:
    """Average the gradients of each bucket over the ranks with one all-reduce; division first, as DDP does."""
    for bucket in buckets:
        flat = _flatten_dense_tensors([p.grad for p in bucket]).div_(ranks)
        dist.all_reduce(flat)
        for parameter, mean in zip(bucket, _unflatten_dense_tensors(flat, bucket), strict=True):
            parameter.grad.copy_(mean)


def _share_cores(context: Context) -> None:
    """Ranks of one host that compute on the CPU split its cores instead of each taking all of them."""
    if context.device == "cpu" and context.world_size > 1:
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // context.world_size))


def _group(context: Context, backend: str) -> str:
    """Join the gang; NCCL for GPUs and Gloo for CPUs unless the side says otherwise."""
    on_gpu = context.device.startswith("cuda")
    if backend == "nccl" and not on_gpu:
        raise SkipSide("NCCL moves GPU memory only, and this side runs on the CPU")
    context.process_group("nccl" if backend == "nccl" or (backend == "auto" and on_gpu) else "gloo")
    return str(dist.get_backend())


def _parallel_module(context: Context, task: models.Task, *, strategy: str, bucket_mb: float) -> Any:
    if strategy == "after_backward":
        return task.module
    if strategy == "data_parallel":
        return torch.nn.DataParallel(task.module, device_ids=list(range(context.gpus)))
    ids = [torch.device(context.device).index] if context.device.startswith("cuda") else None
    return torch.nn.parallel.DistributedDataParallel(task.module, device_ids=ids, bucket_cap_mb=bucket_mb)


def _one_step(
    task: models.Task, module: Any, optimizer: Any, *, finish: Callable[[], None], latest: dict[str, Any]
) -> Callable[[], None]:
    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss = task.loss(module(task.batch), task.targets)
        loss.backward()
        finish()
        optimizer.step()
        latest["loss"] = loss.detach()

    return step


def train(
    context: Context,
    *,
    strategy: Literal["after_backward", "ddp", "data_parallel"] = "ddp",
    model: str = "small",
    batch: int = 4,
    seq: int = 64,
    bucket_mb: float = 25.0,
    backend: Literal["auto", "gloo", "nccl"] = "auto",
) -> Workload:
    """One SGD step on a global batch of ``batch`` samples per rank (per GPU for data_parallel, which has one rank).

    ``after_backward`` averages the same buckets as DDP's, but only when the whole backward pass is done;
    ``bucket_mb: 0`` makes that one all-reduce per parameter. Outputs are the averaged gradients, equal under every
    strategy; gradients are made anew by each step. Models: tiny, small, base, mlp:small, mlp:medium, mlp:large.
    """
    alone = strategy == "data_parallel"
    if alone and (not context.device.startswith("cuda") or context.gpus < 2):
        raise SkipSide("DataParallel splits a batch over GPUs of one process and needs two of them")
    if not alone and context.world_size < 2:
        raise ValueError(f"strategy {strategy} needs ranks: 2 or more on this side")
    _share_cores(context)
    joined = "none" if alone else _group(context, backend)
    parts = context.gpus if alone else context.world_size
    task = models.build(
        model,
        seed=context.seed,
        device=context.device,
        batch=batch * parts,
        seq=seq,
        part=0 if alone else context.rank,
        parts=1 if alone else parts,
    )
    module = _parallel_module(context, task, strategy=strategy, bucket_mb=bucket_mb)
    buckets = _buckets(list(task.module.parameters()), bucket_mb * 2**20)
    after = (lambda: _average(buckets, parts)) if strategy == "after_backward" else (lambda: None)
    optimizer = torch.optim.SGD(task.module.parameters(), lr=_LEARNING_RATE)
    step = _one_step(task, module, optimizer, finish=after, latest={})
    flops = task.train_flops
    return Workload(
        step=step,
        work=Work(
            bytes=4.0 * task.parameters,
            flops=flops,
            items=task.items,
            item=task.item,
            roofs={} if context.device.startswith("cuda") else {"cpu_gemm_fp32": flops},
        ),
        outputs=lambda: models.gradients(task.module),
        inputs=lambda: {"batch": task.batch, "targets": task.targets},
        redraw=task.redraw,
        reset=models.snapshot(task.module, optimizer),
        facts={
            "backend": joined,
            "parts": parts,
            "threads": torch.get_num_threads(),
            "gradient_bytes": 4 * task.parameters,
            "after_backward_buckets": len(buckets) if strategy == "after_backward" else 0,
        },
    )
