"""transfer.copy: one payload between host and GPU, or within the GPU, by a stated path.

What must not live here: files and storage (see gds.py), copies beside kernels (see stream.py), timing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from aiperf.workloads.contract import Context, Size, SkipSide, Work, Workload
from aiperf.workloads.shared.host_memory import HostBuffer, bind, host_buffer
from aiperf.workloads.shared.seeded import Charge, empty, memory_charge
from aiperf.workloads.transfer.scattered import SPREAD, Scattered

_ELEMENT = 4


def copy(
    context: Context,
    *,
    direction: Literal["h2d", "d2h", "d2d"] = "h2d",
    size: Size = 1 << 28,
    pinned: bool = True,
    non_blocking: bool = True,
    part: Size = 0,
    slab: Size = 0,
    numa: Literal["any", "local", "remote"] = "any",
    register: Literal["none", "once", "each"] = "none",
) -> Workload:
    """Copy ``size`` bytes of float32 from a source into a destination that was allocated before.

    ``pinned`` is about the host's end. A pageable copy makes the host wait even when it is ``non_blocking``: time it
    with the wall clock. ``part`` scatters the payload over the source in pieces of so many bytes, which are copied one
    by one, or gathered at the source into a buffer of ``slab`` bytes for each copy. ``numa`` puts the process and its
    host memory on the GPU's NUMA node or on another one. ``register`` page-locks ordinary host memory once, or around
    each copy; either way the copy is waited for. Bytes are counted once. Source: chapters 3, 6 and 17.
    """
    _check(direction, size, part, slab, numa, register)
    if not context.device.startswith("cuda"):
        raise SkipSide("copies between host and GPU need a GPU")
    torch.cuda.set_device(torch.device(context.device))
    if numa != "any" or register != "none":
        return _by_hand(context, direction=direction, size=size, pinned=pinned, numa=numa, register=register)
    places = size // part * SPREAD * part if part else size
    on_host = {"h2d": (True, False), "d2h": (False, True), "d2d": (False, False)}[direction]
    source, destination = (
        empty(context, (each // _ELEMENT,), torch.float32, host=host, pinned=pinned)
        for each, host in zip((places, size), on_host, strict=True)
    )
    if not part:
        return _workload(context, direction, _Ends(source, destination), _whole(source, destination, non_blocking))
    pool, payload = source.view(-1, part // _ELEMENT), destination.view(-1, part // _ELEMENT)
    scattered = Scattered(pool, payload, seed=context.seed, count=len(payload))
    if slab:
        step = scattered.by_slab(min(slab, size) // part, pinned=pinned, non_blocking=non_blocking)
    else:
        step = scattered.by_part(non_blocking=non_blocking)
    copies = -(-size // slab) if slab else len(payload)
    ends = _Ends(source, destination, lambda: scattered.truth().view(-1), copies)
    return _workload(context, direction, ends, step)


def _check(direction: str, size: int, part: int, slab: int, numa: str, register: str) -> None:
    if size < _ELEMENT or size % _ELEMENT:
        raise ValueError(f"size is {size} bytes; it must be a multiple of {_ELEMENT} above 0")
    if direction == "d2d" and (part or numa != "any" or register != "none"):
        raise ValueError("part, numa and register are about copies between host and GPU: direction h2d or d2h")
    if part and (part % _ELEMENT or size % part):
        raise ValueError(f"part is {part} bytes; it must be a multiple of {_ELEMENT} that divides the size, {size}")
    if slab and (not part or slab < part or slab % part):
        raise ValueError(f"slab is {slab} bytes; it must be a multiple of part, {part}")
    if part and (numa != "any" or register != "none"):
        raise ValueError("part goes with numa: any and register: none")


@dataclass(frozen=True)
class _Ends:
    """Where a copy starts and ends."""

    source: Any
    destination: Any
    truth: Callable[[], Any] | None = None
    """The destination in float64; None for the source as it is."""
    copies: int = 1


def _whole(source: Any, destination: Any, non_blocking: bool) -> Callable[[], None]:
    def step() -> None:
        destination.copy_(source, non_blocking=non_blocking)

    return step


def _by_hand(context: Context, *, direction: str, size: int, pinned: bool, numa: str, register: str) -> Workload:
    """A copy whose host end is memory of our own."""
    device = torch.device(context.device).index or 0
    facts, restore = bind(numa, device) if numa != "any" else ({}, lambda: None)
    buffer = host_buffer(size // _ELEMENT)
    kept = register == "once" or (register == "none" and pinned)
    if kept:
        buffer.register()
    there = empty(context, (size // _ELEMENT,), torch.float32)
    ends = _Ends(buffer.words, there) if direction == "h2d" else _Ends(there, buffer.words)
    move = _whole(ends.source, ends.destination, True)

    def close() -> None:
        torch.cuda.synchronize()
        if kept:
            buffer.unregister()
        restore()

    facts = {**facts, "memory_node": buffer.node, "registered": register if register != "none" else kept}
    step = _registering(buffer, move, each=register == "each") if register != "none" else move
    return _workload(context, direction, ends, step, facts=facts, close=close)


def _registering(buffer: HostBuffer, move: Callable[[], None], *, each: bool) -> Callable[[], None]:
    """A copy that is waited for, because memory must stay registered until it has ended."""

    def step() -> None:
        if each:
            buffer.register()
        move()
        torch.cuda.current_stream().synchronize()
        if each:
            buffer.unregister()

    return step


def _workload(
    context: Context,
    direction: str,
    ends: _Ends,
    step: Callable[[], None],
    *,
    facts: dict[str, Any] | None = None,
    close: Callable[[], None] | None = None,
) -> Workload:
    source, destination = ends.source, ends.destination
    size = destination.numel() * _ELEMENT
    redraw = _drawer(source)
    redraw(context.seed)
    # First touch belongs to set-up: an untouched pageable page would fault inside the first copy.
    destination.zero_()
    torch.cuda.synchronize()
    charge = _charge(context.device, direction, size)
    host = [buffer for buffer in (source, destination) if buffer.device.type == "cpu"]
    return Workload(
        step=step,
        work=Work(bytes=size, **charge),
        outputs=lambda: {"destination": destination},
        inputs=lambda: {"source": source},
        redraw=redraw,
        reference=lambda: {"destination": source.double() if ends.truth is None else ends.truth()},
        counters=lambda: {"copies": float(ends.copies)},
        facts={"host_memory": ("pinned" if host[0].is_pinned() else "pageable") if host else "none", **(facts or {})},
        close=close,
    )


def _drawer(source: Any) -> Callable[[int], None]:
    """Uniform noise in place; equal seeds give equal values whether or not host memory is pinned."""
    if source.device.type == "cpu":
        view = source.numpy()

        def redraw(seed: int) -> None:
            # SFC64 fills a quarter of a gigabyte in a fraction of a second; torch's generator takes several.
            np.random.Generator(np.random.SFC64(seed)).random(out=view, dtype=np.float32)

        return redraw
    generator = torch.Generator(device=source.device)

    def redraw_on_device(seed: int) -> None:
        source.uniform_(generator=generator.manual_seed(seed))

    return redraw_on_device


def _charge(device: str, direction: str, size: int) -> Charge:
    """A copy within the GPU reads and writes DRAM, but for what its L2 may hold."""
    return memory_charge(device, 2.0 * size) if direction == "d2d" else {"peaks": {direction: float(size)}}
