"""transfer.peer: one payload from one GPU to another of this process, straight or through host memory.

What must not live here: transfers between processes (see comm/), copies between host and GPU (workload.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch

from aiperf.workloads.contract import Context, Size, SkipSide, Work, Workload
from aiperf.workloads.shared.seeded import empty

_ELEMENT = 4
Follow = Callable[[Any, Any], object]
"""(after, before): what is queued on the current stream of the first device waits for that of the second."""


def peer(context: Context, *, size: Size = 1 << 28, via: Literal["peer", "host"] = "peer") -> Workload:
    """Copy ``size`` bytes of float32 from the second GPU to the first, with the driver's direct copy (``peer``), or to
    page-locked memory of the host and from there.

    The direct copy goes over NVLink or PCIe without the host's memory; a host whose GPUs cannot access each other is
    skipped. Bytes are counted once. Source: AI Systems Performance Engineering, chapters 2, 4, 12, 13, 15 and 19.
    """
    if size < _ELEMENT or size % _ELEMENT:
        raise ValueError(f"size is {size} bytes; it must be a multiple of {_ELEMENT} above 0")
    if not context.on_gpu or context.gpus < 2:
        raise SkipSide("copies between two GPUs of one process need two of them")
    device = context.use_gpu("copies between two GPUs need GPUs")
    other = torch.device("cuda", 1 - (device.index or 0))
    if not torch.cuda.can_device_access_peer(device.index or 0, other.index):
        raise SkipSide("the driver does not let these two GPUs access each other's memory")
    words = size // _ELEMENT
    # The destination is on the first GPU, whose stream the harness watches.
    destination = empty(context, (words,), torch.float32)
    source = torch.empty(words, device=other)
    generator = torch.Generator(other)

    def redraw(seed: int) -> None:
        source.uniform_(generator=generator.manual_seed(seed))

    redraw(context.seed)
    destination.zero_()
    host = None if via == "peer" else empty(context, (words,), torch.float32, host=True, pinned=True).zero_()
    step = through(host, source, destination, _follow) if host is not None else None
    for each in (device, other):
        torch.cuda.synchronize(each)
    return Workload(
        step=step or (lambda: destination.copy_(source, non_blocking=True)),
        work=Work(bytes=size, peaks={"p2p": float(size)} if host is None else {"d2h": float(size), "h2d": float(size)}),
        outputs=lambda: {"destination": destination},
        inputs=lambda: {"source": source},
        redraw=redraw,
        counters=lambda: {"copies": 1.0 if host is None else 2.0},
        facts={"via": via},
    )


def through(host: Any, source: Any, destination: Any, follow: Follow) -> Callable[[], None]:
    """A step that copies to the host and from there."""

    def step() -> None:
        # The last step's copy out of the host's memory comes before this one's into it.
        follow(source.device, destination.device)
        host.copy_(source, non_blocking=True)
        follow(destination.device, source.device)
        destination.copy_(host, non_blocking=True)

    return step


def _follow(after: Any, before: Any) -> None:
    torch.cuda.current_stream(after).wait_event(torch.cuda.current_stream(before).record_event())
