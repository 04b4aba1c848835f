"""Equal seeded inputs for both sides of a pair, and where a working set lies in the memory hierarchy.

What must not live here: any workload.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from aiperf.workloads.contract import Context

_PAST = 16
"""A working set this many times the last-level cache leaves it little: at 4 times, a copy still beat memory by 15 %."""


def own_seed(seed: int, name: str) -> int:
    """A seed of its own for each named array."""
    return (seed * 1_000_003 + zlib.crc32(name.encode())) % 2**63


def generator(seed: int, name: str) -> np.random.Generator:
    """A numpy generator for one named array."""
    return np.random.default_rng(own_seed(seed, name))


def torch_dtype(name: str) -> Any:
    """The torch dtype called ``name``."""
    import torch

    return getattr(torch, name)


def empty(context: Context, shape: Sequence[int], dtype: Any) -> Any:
    """An uninitialised torch tensor on the context's device, ``context.pad`` bytes into its allocation."""
    import torch

    count = int(np.prod(shape, dtype=np.int64))
    skip = context.pad // torch.empty((), dtype=dtype).element_size()
    return torch.empty(count + skip, dtype=dtype, device=context.device)[skip:].view(*shape)


def fill_normal(tensor: Any, *, seed: int, name: str) -> None:
    """Fill a floating torch tensor in place with standard normal values; equal on every device."""
    import torch

    source = torch.Generator().manual_seed(own_seed(seed, name))
    with torch.no_grad():
        tensor.copy_(torch.randn(tensor.shape, generator=source))


def normal(context: Context, name: str, shape: Sequence[int], *, dtype: Any) -> Any:
    """A torch tensor of standard normal values on the context's device."""
    tensor = empty(context, shape, dtype)
    fill_normal(tensor, seed=context.seed, name=name)
    return tensor


def last_level_cache(device: str = "cpu") -> int:
    """Bytes of the largest cache in front of the device's memory; 0 when the host does not tell."""
    if device.startswith("cuda"):
        import torch

        return int(torch.cuda.get_device_properties(device).L2_cache_size)
    sizes = Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
    return max((int(p.read_text().strip().removesuffix("K")) * 1024 for p in sizes), default=0)


def memory_roof(device: str, *, moved: float, working_set: float) -> dict[str, float]:
    """The memory roof with ``moved`` bytes, or nothing while the working set fits the caches or they are unknown."""
    cache = last_level_cache(device)
    if not cache or working_set < _PAST * cache:
        return {}
    return {"dram" if device.startswith("cuda") else "cpu_stream": moved}
