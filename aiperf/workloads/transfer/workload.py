"""transfer.copy: one payload between host and GPU, or within the GPU, by a stated path. transfer.peer is
peers.py's, transfer.handoffs handoffs.py's.

What must not live here: files and storage (see gds.py), copies beside kernels (see stream.py), timing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from aiperf.workloads.contract import Context, Size, Work, Workload
from aiperf.workloads.shared.host_memory import HostBuffer, bind, host_buffer
from aiperf.workloads.shared.seeded import Charge, empty, memory_charge
from aiperf.workloads.transfer.handoffs import handoffs
from aiperf.workloads.transfer.peers import peer
from aiperf.workloads.transfer.scattered import SPREAD, Scattered

__all__ = ["copy", "handoffs", "peer"]

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
    asked = SimpleNamespace(**locals())
    _check(asked)
    context.use_gpu("copies between host and GPU need a GPU")
    if numa != "any" or register != "none":
        return _by_hand(asked)
    places = size // part * SPREAD * part if part else size
    on_host = {"h2d": (True, False), "d2h": (False, True), "d2d": (False, False)}[direction]
    source, destination = (
        empty(context, (each // _ELEMENT,), torch.float32, host=host, pinned=pinned)
        for each, host in zip((places, size), on_host, strict=True)
    )
    if not part:
        return _workload(
            asked, _Copy(source, destination, partial(destination.copy_, source, non_blocking=non_blocking))
        )
    pool, payload = source.view(-1, part // _ELEMENT), destination.view(-1, part // _ELEMENT)
    scattered = Scattered(pool, payload, seed=context.seed, count=len(payload))
    if slab:
        step = scattered.by_slab(min(slab, size) // part, pinned=pinned, non_blocking=non_blocking)
    else:
        step = scattered.by_part(non_blocking=non_blocking)
    copies = -(-size // slab) if slab else len(payload)
    return _workload(asked, _Copy(source, destination, step, lambda: scattered.truth().view(-1), copies))


def _check(asked: SimpleNamespace) -> None:
    size, part, slab = asked.size, asked.part, asked.slab
    by_hand = asked.numa != "any" or asked.register != "none"
    if size < _ELEMENT or size % _ELEMENT:
        raise ValueError(f"size is {size} bytes; it must be a multiple of {_ELEMENT} above 0")
    if asked.direction == "d2d" and (part or by_hand):
        raise ValueError("part, numa and register are about copies between host and GPU: direction h2d or d2h")
    if part and (part % _ELEMENT or size % part):
        raise ValueError(f"part is {part} bytes; it must be a multiple of {_ELEMENT} that divides the size, {size}")
    if slab and (not part or slab < part or slab % part):
        raise ValueError(f"slab is {slab} bytes; it must be a multiple of part, {part}")
    if part and by_hand:
        raise ValueError("part goes with numa: any and register: none")


class _Copy(NamedTuple):
    """A copy, and what it must give."""

    source: Any
    destination: Any
    step: Callable[[], object]
    truth: Callable[[], Any] | None = None
    """The destination in float64; None for the source as it is."""
    copies: int = 1


def _by_hand(asked: SimpleNamespace) -> Workload:
    """A copy whose host end is memory of our own."""
    context, register, words = asked.context, asked.register, asked.size // _ELEMENT
    device = torch.device(context.device).index or 0
    facts, restore = bind(asked.numa, device) if asked.numa != "any" else ({}, lambda: None)
    buffer = host_buffer(words)
    kept = register == "once" or (register == "none" and asked.pinned)
    if kept:
        buffer.register()
    there = empty(context, (words,), torch.float32)
    source, destination = (buffer.words, there) if asked.direction == "h2d" else (there, buffer.words)
    step: Callable[[], object] = partial(destination.copy_, source, non_blocking=True)
    if register != "none":
        step = _registering(buffer, step, each=register == "each")

    def close() -> None:
        torch.cuda.synchronize()
        if kept:
            buffer.unregister()
        restore()

    facts = {**facts, "memory_node": buffer.node, "registered": register if register != "none" else kept}
    return _workload(asked, _Copy(source, destination, step), facts=facts, close=close)


def _registering(buffer: HostBuffer, move: Callable[[], object], *, each: bool) -> Callable[[], object]:
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
    asked: SimpleNamespace,
    copy: _Copy,
    *,
    facts: dict[str, Any] | None = None,
    close: Callable[[], None] | None = None,
) -> Workload:
    source, destination, size = copy.source, copy.destination, copy.destination.nbytes
    redraw = _drawer(source)
    redraw(asked.context.seed)
    # First touch belongs to set-up: an untouched pageable page would fault inside the first copy.
    destination.zero_()
    torch.cuda.synchronize()
    host = [buffer for buffer in (source, destination) if buffer.device.type == "cpu"]
    return Workload(
        step=copy.step,
        work=Work(bytes=size, **_charge(asked.context.device, asked.direction, size)),
        outputs=lambda: {"destination": destination},
        inputs=lambda: {"source": source},
        redraw=redraw,
        reference=lambda: {"destination": copy.truth() if copy.truth else source.double()},
        counters=lambda: {"copies": float(copy.copies)},
        facts={"host_memory": ("pinned" if host[0].is_pinned() else "pageable") if host else "none", **(facts or {})},
        close=close,
    )


def _drawer(source: Any) -> Callable[[int], object]:
    """Uniform noise in place; equal seeds give equal values whether or not host memory is pinned."""
    if source.device.type == "cpu":
        view = source.numpy()
        # SFC64 draws much faster than torch's generator on a CPU.
        return lambda seed: np.random.Generator(np.random.SFC64(seed)).random(out=view, dtype=np.float32)
    generator = torch.Generator(device=source.device)
    return lambda seed: source.uniform_(generator=generator.manual_seed(seed))


def _charge(device: str, direction: str, size: int) -> Charge:
    """A copy within the GPU reads and writes DRAM, but for what its L2 may hold."""
    return memory_charge(device, 2.0 * size) if direction == "d2d" else {"peaks": {direction: float(size)}}
