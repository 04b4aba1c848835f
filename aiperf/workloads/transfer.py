"""transfer.copy: one payload between host and GPU, or within the GPU, by a stated path.

What must not live here: files and storage (see gds.py), timing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from aiperf.workloads.contract import Context, Size, SkipSide, Work, Workload

_ELEMENT = 4
_ALIGNMENT = 256


def copy(
    context: Context,
    *,
    direction: Literal["h2d", "d2h", "d2d"] = "h2d",
    size: Size = 1 << 28,
    pinned: bool = True,
    non_blocking: bool = True,
) -> Workload:
    """Copy ``size`` bytes of float32 from a source into a destination that was allocated before.

    ``pinned`` is about the host's end (no meaning for d2d). A pageable copy makes the host wait, even when it is
    ``non_blocking``: time it with the wall clock.
    """
    if size < _ELEMENT or size % _ELEMENT:
        raise ValueError(f"size is {size} bytes; it must be a multiple of {_ELEMENT} above 0")
    if not context.device.startswith("cuda"):
        raise SkipSide("copies between host and GPU need a GPU")
    import torch

    torch.cuda.set_device(torch.device(context.device))
    on_host = {"h2d": (True, False), "d2h": (False, True), "d2d": (False, False)}[direction]
    source, destination = (_buffer(context, size=size, host=host, pinned=pinned) for host in on_host)
    redraw = _drawer(source)
    redraw(context.seed)
    # First touch belongs to set-up: an untouched pageable page would fault inside the first copy.
    destination.zero_()
    torch.cuda.synchronize()

    def step() -> None:
        destination.copy_(source, non_blocking=non_blocking)

    host = [buffer for buffer in (source, destination) if buffer.device.type == "cpu"]
    return Workload(
        step=step,
        work=Work(bytes=size, roofs=_roofs(context, direction, size)),
        outputs=lambda: {"destination": destination},
        inputs=lambda: {"source": source},
        redraw=redraw,
        reference=lambda: {"destination": source.double()},
        counters=lambda: {"copies": 1.0},
        facts={"host_memory": ("pinned" if host[0].is_pinned() else "pageable") if host else "none"},
    )


def _buffer(context: Context, *, size: int, host: bool, pinned: bool) -> Any:
    import torch

    skip = context.pad // _ALIGNMENT * _ALIGNMENT // _ELEMENT
    count = size // _ELEMENT + skip
    if host:
        return torch.empty(count, dtype=torch.float32, pin_memory=pinned)[skip:]
    return torch.empty(count, dtype=torch.float32, device=context.device)[skip:]


def _drawer(source: Any) -> Callable[[int], None]:
    """Uniform noise in place; equal seeds give equal values whether or not host memory is pinned."""
    if source.device.type == "cpu":
        import numpy as np

        view = source.numpy()

        def redraw(seed: int) -> None:
            # SFC64 fills a quarter of a gigabyte in a fraction of a second; torch's generator takes several.
            np.random.Generator(np.random.SFC64(seed)).random(out=view, dtype=np.float32)

        return redraw
    import torch

    generator = torch.Generator(device=source.device)

    def redraw_on_device(seed: int) -> None:
        source.uniform_(generator=generator.manual_seed(seed))

    return redraw_on_device


def _roofs(context: Context, direction: str, size: int) -> dict[str, float]:
    """A copy within the GPU reads and writes DRAM, unless both buffers fit its L2."""
    if direction != "d2d":
        return {direction: float(size)}
    import torch

    cache = torch.cuda.get_device_properties(torch.device(context.device)).L2_cache_size
    return {"dram": 2.0 * size} if size > cache else {}
