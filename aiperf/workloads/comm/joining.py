"""How the ranks of this family join, their payloads, and memory that NCCL knows.

What must not live here: a collective.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
import torch.distributed as dist

from aiperf.workloads.contract import Context, SkipSide
from aiperf.workloads.shared.seeded import fill_normal

_WINDOWS = (2, 27)
"""The NCCL that can register memory as symmetric windows."""


def backend_of(context: Context, backend: str) -> Literal["gloo", "nccl"]:
    """The backend that the ranks join by. Raises SkipSide without NCCL, RuntimeError for a single rank."""
    joined = context.gang_backend(backend)
    if joined == "nccl" and not dist.is_nccl_available():
        raise SkipSide("this torch was built without NCCL")
    if context.world_size < 2:
        raise RuntimeError("a process group needs ranks: 2 or more on this side")
    return joined


def join(context: Context, backend: str) -> str:
    """Join the default group; the name of its backend."""
    context.process_group(backend_of(context, backend))
    return str(dist.get_backend())


def fill(own: Any, name: str, seed: int) -> None:
    """Draw a payload in place."""
    fill_normal(own, seed=seed, name=name)


def halves() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """(reduce-scatter, all-gather) of one tensor: (result, input). Since torch 2.13 they have other names, and it warns
    of the former ones at each call."""
    scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    return scatter, getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


def registered(context: Context, shape: Sequence[int], *, symmetric: bool = False) -> tuple[Any, Callable[[], None]]:
    """(a float32 tensor from a pool of NCCL's own allocator, registered with the default group's communicator; what
    ends the registration, which must come before the group's end). ``symmetric`` registers the pool as a symmetric
    window. Raises SkipSide where NCCL is too old for one."""
    if symmetric and torch.cuda.nccl.version() < _WINDOWS:
        raise SkipSide("memory: symmetric needs NCCL 2.27 or newer; this torch has an older one")
    device = torch.device(context.device)
    backend: Any = dist.distributed_c10d._get_default_group()._get_backend(device)
    pool = torch.cuda.MemPool(backend.mem_allocator)
    with torch.cuda.use_mem_pool(pool):
        tensor = torch.zeros(tuple(shape), device=device)
    backend.register_mem_pool(pool, **({"symm": True} if symmetric else {}))

    def end() -> None:
        torch.cuda.synchronize(device)
        backend.deregister_mem_pool(pool)

    return tensor, end
