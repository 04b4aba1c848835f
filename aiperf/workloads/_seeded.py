"""Equal seeded inputs for both sides of a pair, and where a working set lies in the memory hierarchy.

What must not live here: any workload.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiperf.workloads._parts import by_parts
from aiperf.workloads.contract import Context

if TYPE_CHECKING:
    import numpy as np

_PAST = 16
"""A working set this many times the last-level cache leaves it little: at 4 times, a copy still beat memory by 15 %."""
_DRAWN = 1 << 20
"""Values that are drawn from one generator; fixed, so that a seed gives the same values on any number of CPUs."""
_BLOCK = 1 << 22
"""Values that are drawn at all, as audits draw all inputs anew: 2^26 values took two CPUs 0.31 s, from a block 0.06."""
_PIECES = 1
"""Beside a seed: the stream that says how it goes on after the block; no part of the block begins there."""


def own_seed(seed: int, name: str) -> int:
    """A seed of its own for each named array."""
    return (seed * 1_000_003 + zlib.crc32(name.encode())) % 2**63


def generator(seed: int, name: str) -> np.random.Generator:
    """A numpy generator for one named array."""
    import numpy as np

    return np.random.default_rng(own_seed(seed, name))


def torch_dtype(name: str) -> Any:
    """The torch dtype called ``name``."""
    import torch

    return getattr(torch, name)


def empty(context: Context, shape: Sequence[int], dtype: Any) -> Any:
    """An uninitialised torch tensor on the context's device, ``context.pad`` bytes into its allocation."""
    import numpy as np
    import torch

    count = int(np.prod(shape, dtype=np.int64))
    skip = context.pad // torch.empty((), dtype=dtype).element_size()
    return torch.empty(count + skip, dtype=dtype, device=context.device)[skip:].view(*shape)


def draw_normal(host: np.ndarray[Any, Any], *, seed: int) -> None:
    """Fill a flat float32 array in place with standard normal values; equal seeds, equal values on every host.

    What is longer than a block goes on with pieces of it, each of another length, place and sign.
    """
    _draw(host, "standard_normal", seed)


def draw_uniform(host: np.ndarray[Any, Any], *, seed: int) -> None:
    """Fill a flat float32 array in place with values from 0 to below 1; long ones as in ``draw_normal``."""
    _draw(host, "random", seed)


def _draw(host: np.ndarray[Any, Any], method: str, seed: int) -> None:
    import numpy as np

    block, rest = host[:_BLOCK], host[_BLOCK:]

    def draw(part: slice) -> None:
        getattr(_part_generator(seed, part), method)(out=block[part], dtype=np.float32)

    by_parts(draw, block.size, part=_DRAWN)
    pieces = _pieces(method, seed, rest.size)

    def repeat(part: slice) -> None:
        for into, values, sign in pieces[part]:
            np.multiply(block[values], np.float32(sign), out=rest[into])

    by_parts(repeat, len(pieces), part=1)


def _pieces(method: str, seed: int, size: int) -> list[tuple[slice, slice, int]]:
    """(where to, from where in the block, sign) of what follows the block, over ``size`` values.

    Pieces of other lengths from other places, so that no two stretches of the whole have one sum.
    """
    import numpy as np

    draw = np.random.Generator(np.random.SFC64([seed, _PIECES]))
    found: list[tuple[slice, slice, int]] = []
    at = 0
    while at < size:
        length = min(int(draw.integers(_BLOCK // 2, _BLOCK)), size - at)
        start, sign = int(draw.integers(_BLOCK - length)), int(draw.choice((-1, 1)))
        signed = sign if method == "standard_normal" else 1
        found.append((slice(at, at + length), slice(start, start + length), signed))
        at += length
    return found


def draw_words(host: np.ndarray[Any, Any], *, seed: int) -> None:
    """Fill a flat uint32 array in place with uniform values; equal seeds, equal values on every host."""
    import numpy as np

    def draw(part: slice) -> None:
        host[part] = _part_generator(seed, part).integers(2**32, size=part.stop - part.start, dtype=np.uint32)

    by_parts(draw, host.size, part=_DRAWN)


def _part_generator(seed: int, part: slice) -> np.random.Generator:
    import numpy as np

    return np.random.Generator(np.random.SFC64([seed, part.start]))


def fill_normal(tensor: Any, *, seed: int, name: str) -> None:
    """Fill a floating torch tensor in place with standard normal values; equal on every device."""
    _fill(tensor, "standard_normal", own_seed(seed, name))


def fill_uniform(tensor: Any, *, seed: int, name: str) -> None:
    """Fill a floating torch tensor in place with values from 0 to below 1; equal on every device."""
    _fill(tensor, "random", own_seed(seed, name))


def _fill(tensor: Any, method: str, seed: int) -> None:
    import numpy as np
    import torch

    if tensor.device.type == "cpu" and tensor.dtype == torch.float32 and tensor.is_contiguous():
        _draw(tensor.detach().view(-1).numpy(), method, seed)
        return
    # A block is drawn here and goes on over there, in the tensor itself: what is allocated counts as the side's.
    host = np.empty(min(tensor.numel(), _BLOCK), np.float32)
    _draw(host, method, seed)
    with torch.no_grad():
        whole = tensor.detach()
        if not tensor.is_contiguous():
            whole = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
        flat = whole.view(-1)
        block, rest = flat[: len(host)].copy_(torch.from_numpy(host)), flat[len(host) :]
        for into, values, sign in _pieces(method, seed, len(rest)):
            piece = rest[into].copy_(block[values])
            if sign < 0:
                piece.neg_()
        if not tensor.is_contiguous():
            tensor.copy_(whole)


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


def memory_charge(device: str, moved: float) -> dict[str, dict[str, float]]:
    """``roofs`` and ``held`` of a step that moves its whole working set of ``moved`` bytes once.

    On a GPU twice the L2 is enough to be charged: at most as much as lies in it was found there from the step before,
    or has yet to be written when the step ends, and a side is judged to be beyond the memory without that.
    """
    if not device.startswith("cuda"):
        return {"roofs": memory_roof(device, moved=moved, working_set=moved)}
    cache = float(last_level_cache(device))
    return {"roofs": {"dram": moved}, "held": {"dram": cache}} if moved > 2 * cache > 0 else {}


def memory_roof(device: str, *, moved: float, working_set: float) -> dict[str, float]:
    """The memory roof with ``moved`` bytes, or nothing while the working set fits the caches or they are unknown."""
    cache = last_level_cache(device)
    if not cache or working_set < _PAST * cache:
        return {}
    return {"dram" if device.startswith("cuda") else "cpu_stream": moved}
