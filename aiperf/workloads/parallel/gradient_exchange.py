"""How the ranks of parallel.py bring their gradients or weights together: buckets, compression hooks, sharding.

What must not live here: models, optimizers, joining a process group, timing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

from aiperf.workloads.shared import models

_FIRST_BUCKET = dist._DEFAULT_FIRST_BUCKET_BYTES
_POWER_RANK = 2
_BEFORE_CAPTURE = 11
"""Steps before a capture, by PyTorch's notes on CUDA graphs: DDP rebuilds its buckets and times its first ones."""


def buckets_of(parameters: list[Any], cap: float) -> list[list[Any]]:
    """Parameters in the order in which backward finishes them, cut where DDP cuts by default: the first bucket is a
    small one. DDP that is told its cap has no small one."""
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


class Averaging:
    """The average over the ranks of some parameters, or of their gradients, by one all-reduce of a buffer that is kept
    from step to step. Values are divided as they are written into it, as DDP does with its buckets."""

    def __init__(self, parameters: list[Any], ranks: int, *, gradients: bool) -> None:
        self._parameters, self._share, self._gradients = parameters, 1.0 / ranks, gradients
        sizes = [p.numel() for p in parameters]
        self._flat = torch.empty(sum(sizes), dtype=parameters[0].dtype, device=parameters[0].device)
        self._places = [part.view_as(p) for part, p in zip(self._flat.split(sizes), parameters, strict=True)]

    def average(self) -> None:
        """Replace each by its average."""
        with torch.no_grad():
            tensors = [p.grad if self._gradients else p for p in self._parameters]
            for tensor, place in zip(tensors, self._places, strict=True):
                torch.mul(tensor, self._share, out=place)
            dist.all_reduce(self._flat)
            for tensor, place in zip(tensors, self._places, strict=True):
                tensor.copy_(place)


def gradient_averages(parameters: list[Any], asked: Any) -> list[Averaging]:
    """What ``after_backward`` averages: the gradients of each of DDP's buckets; nothing elsewhere or on one rank."""
    if asked.strategy != "after_backward" or asked.parts == 1:
        return []
    buckets = buckets_of(parameters, asked.bucket_mb * 2**20)
    return [Averaging(bucket, asked.parts, gradients=True) for bucket in buckets]


def _sum_rounded(bucket: Any, dtype: Any) -> Any:
    """What torch's 16-bit hooks do; its own bf16 one refuses builds without NCCL, though Gloo can add bf16."""
    buffer = bucket.buffer()
    small = buffer.to(dtype).div_(dist.get_world_size())
    return dist.all_reduce(small, async_op=True).get_future().then(lambda done: buffer.copy_(done.value()[0]))


def install_hook(module: Any, hook: str) -> None:
    """Give DDP's ``module`` the gradient compression called ``hook``; none leaves DDP as it is."""
    if hook == "powersgd":
        from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power

        state = power.PowerSGDState(process_group=None, matrix_approximation_rank=_POWER_RANK, start_powerSGD_iter=2)
        module.register_comm_hook(state, power.powerSGD_hook)
    elif hook != "none":
        dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}[hook]
        # DDP refuses a hook whose annotations it cannot read; a lambda has none.
        module.register_comm_hook(None, lambda _, bucket: _sum_rounded(bucket, dtype))


def ddp_buckets(module: Any) -> dict[str, float]:
    """Into how many buckets DDP cut the gradients, as it says from its third step on; nothing for another module."""
    if not isinstance(module, torch.nn.parallel.DistributedDataParallel):
        return {}
    told = module._get_ddp_logging_data()
    sizes = told.get("rebuilt_bucket_sizes") or told.get("bucket_sizes") or ""
    return {"ddp_buckets": float(len([size for size in str(sizes).split(",") if size.strip()]))}


def shard(task: models.Task, *, device: str, ranks: int, asked: Any) -> Any:
    """The task's model, its weights sharded over the ranks in place (torch's fully_shard): ``asked.shard: full``
    gathers them again for the backward pass, ``grad_op`` keeps them; ``wrap: block`` makes each transformer block a
    unit; ``offload: cpu`` keeps weights, gradients and update in host memory; ``prefetch: none`` gathers a unit in the
    backward pass only when it is needed."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import CPUOffloadPolicy, OffloadPolicy, fully_shard

    kind = device.split(":")[0]
    policy = CPUOffloadPolicy(pin_memory=kind == "cuda") if asked.offload == "cpu" else OffloadPolicy()
    mesh = init_device_mesh(kind, (ranks,))
    how: dict[str, Any] = {"mesh": mesh, "reshard_after_forward": asked.shard == "full", "offload_policy": policy}
    units = [*task.module.blocks, task.module] if asked.wrap == "block" else [task.module]
    for unit in units:
        fully_shard(unit, **how)
    if asked.prefetch == "none":
        for unit in units:
            # Without a list of its own a unit prefetches the one before it; itself, it has by then.
            unit.set_modules_to_backward_prefetch([unit])
    return task.module


def state_bytes(parameters: list[Any], optimizer: Any) -> float:
    """Memory of the weights, gradients and optimizer state that this rank holds; of what is sharded its own part."""
    held = [tensor for p in parameters for tensor in (p, p.grad, *optimizer.state.get(p, {}).values())]
    local = [t.to_local() if hasattr(t, "to_local") else t for t in held if isinstance(t, torch.Tensor)]
    return float(sum(t.numel() * t.element_size() for t in local))


@contextmanager
def all_on(side: Any) -> Iterator[None]:
    """Queue on the stream ``side`` within the block; what other streams hold comes before or after all of it."""
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        yield
    torch.cuda.synchronize()


def captured(step: Callable[[], object], side: Any) -> Any:
    """The CUDA graph of ``step``, a training step of this rank with its all-reduces, captured on the stream ``side``
    after as many runs as DDP needs before it settles. NCCL does not let go of a communicator before the graphs that
    hold its calls are reset."""
    with all_on(side):
        for _ in range(_BEFORE_CAPTURE):
            step()
    graph = torch.cuda.CUDAGraph()
    # NCCL's watchdog asks for events of earlier calls from a thread of its own meanwhile.
    with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
        step()
    torch.cuda.synchronize()
    return graph


def own_rows(tensors: dict[str, Any], *, rank: int, ranks: int) -> dict[str, Any]:
    """The part of each whole tensor that fully_shard gives to this rank: rows of its first dimension."""
    parts = {name: tensor.chunk(ranks, dim=0) for name, tensor in tensors.items()}
    return {name: rows[rank] for name, rows in parts.items() if rank < len(rows)}
