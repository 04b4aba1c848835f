"""Equal seeded inputs for both sides of a pair, and the peaks that a step's bytes or FLOPs are charged to.

What must not live here: any workload.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from aiperf.workloads.contract import Context
from aiperf.workloads.shared.parts import by_parts

_ALIGNMENT = 256
"""Bytes to which the CUDA runtime aligns an allocation."""
_PAST = 16
"""A CPU working set of so many times the last-level cache is charged to memory: caches serve much of a smaller one."""
_DRAWN = 1 << 20
"""Values that are drawn from one generator; fixed, so that a seed gives the same values on any number of CPUs."""
_BLOCK = 1 << 22
"""Values that are drawn at all; longer arrays repeat pieces of them, because an audit draws all inputs again."""
_PIECES = 1
"""Beside a seed: the stream that chooses the pieces after the block; no part of the block uses it."""


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


def empty(context: Context, shape: Sequence[int], dtype: Any, *, host: bool = False, pinned: bool = False) -> Any:
    """An uninitialised torch tensor on the context's device or the ``host`` (page-locked with ``pinned``),
    ``context.pad`` bytes, in whole 256, into its allocation."""
    import torch

    skip = context.pad // _ALIGNMENT * _ALIGNMENT // torch.empty((), dtype=dtype).element_size()
    device = "cpu" if host else context.device
    flat = torch.empty(math.prod(shape) + skip, dtype=dtype, device=device, pin_memory=pinned and host)
    return flat[skip:].view(*shape)


def draw_normal(host: np.ndarray[Any, Any], *, seed: int) -> None:
    """Fill a flat float32 array in place with standard normal values; equal seeds, equal values on every host. Past a
    block it goes on with pieces of it, each of another length, place and sign."""
    _draw(host, "standard_normal", seed)


def _draw(host: np.ndarray[Any, Any], method: str, seed: int) -> None:
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
    """(where to, from where in the block, sign) of what follows the block, over ``size`` values; pieces differ in
    length and place, so that no two stretches have the same sum."""
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

    def draw(part: slice) -> None:
        host[part] = _part_generator(seed, part).integers(2**32, size=part.stop - part.start, dtype=np.uint32)

    by_parts(draw, host.size, part=_DRAWN)


def _part_generator(seed: int, part: slice) -> np.random.Generator:
    return np.random.Generator(np.random.SFC64([seed, part.start]))


def fill_normal(tensor: Any, *, seed: int, name: str) -> None:
    """Fill a floating torch tensor in place with standard normal values; equal on every device."""
    _fill(tensor, "standard_normal", own_seed(seed, name))


def fill_uniform(tensor: Any, *, seed: int, name: str) -> None:
    """Fill a floating torch tensor in place with values from 0 to below 1; equal on every device."""
    _fill(tensor, "random", own_seed(seed, name))


def _fill(tensor: Any, method: str, seed: int) -> None:
    import torch

    if tensor.device.type == "cpu" and tensor.dtype == torch.float32 and tensor.is_contiguous():
        _draw(tensor.detach().view(-1).numpy(), method, seed)
        return
    # A block is drawn here and repeated in the tensor itself: memory allocated there would count as the side's.
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


def draw_on_device(array: Any, *, seed: int, name: str, distinct: int = 0) -> None:
    """Standard normal values in place, equal for equal seeds on devices of one kind; with ``distinct`` only so many
    entries of the second dimension are drawn, and the others repeat them."""
    import torch

    shape = list(array.shape)
    if distinct:
        shape[1] = distinct
    source = torch.Generator(array.device).manual_seed(own_seed(seed, name))
    drawn = torch.randn(shape, generator=source, device=array.device)
    array.copy_(drawn.repeat_interleave(array.shape[1] // distinct, dim=1) if distinct else drawn)


def last_level_cache(device: str = "cpu") -> int:
    """Bytes of the largest cache in front of the device's memory; 0 when unknown."""
    if device.startswith("cuda"):
        import torch

        return int(torch.cuda.get_device_properties(device).L2_cache_size)
    sizes = Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
    return max((int(p.read_text().strip().removesuffix("K")) * 1024 for p in sizes), default=0)


class Charge(TypedDict, total=False):
    """Fields of ``Work``."""

    peaks: dict[str, float]
    maybe_cached: dict[str, float]


def memory_charge(device: str, moved: float) -> Charge:
    """``peaks`` and ``maybe_cached`` of a step that moves its whole working set of ``moved`` bytes once.

    On a GPU a working set of twice the L2 is charged: at most an L2 of it may be left from the step before, or
    unwritten when the step ends, which is what ``maybe_cached`` says.
    """
    if not device.startswith("cuda"):
        return {"peaks": memory_peak(device, moved=moved, working_set=moved)}
    cache = float(last_level_cache(device))
    return {"peaks": {"dram": moved}, "maybe_cached": {"dram": cache}} if moved > 2 * cache > 0 else {}


def memory_peak(device: str, *, moved: float, working_set: float) -> dict[str, float]:
    """The memory peak with ``moved`` bytes; empty when the working set may fit the caches or they are unknown."""
    cache = last_level_cache(device)
    if not cache or working_set < _PAST * cache:
        return {}
    return {"dram" if device.startswith("cuda") else "cpu_stream": moved}


def gemm_peak(device: str, dtype: str, flops: float) -> dict[str, float]:
    """The peak of products in ``dtype`` (torch's name) with its charge; a CPU has one for float32 only."""
    kind = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}[dtype]
    if device.startswith("cuda"):
        return {f"gemm_{kind}": flops}
    return {"cpu_gemm_fp32": flops} if kind == "fp32" else {}
