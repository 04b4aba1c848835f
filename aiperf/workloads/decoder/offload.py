"""Keys and values, or weights, that lie in host memory and come to the device by layer, on demand or a layer ahead.

What must not live here: caches on the device (caches.py), the model, what is evicted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from aiperf.workloads.decoder.caches import Cache, Room


class Blocks:
    """Room on the device for one layer, with ``ahead`` for two, and which layer is or will be there.

    On demand, the host waits until a copy has arrived. Ahead, a stream of its own copies while what is queued on the
    current one computes.
    """

    def __init__(self, make: Callable[[], Any], *, ahead: bool) -> None:
        self._blocks, self._ahead = [make() for _ in range(1 + ahead)], ahead
        on_gpu = self._blocks[0].is_cuda
        self._stream = torch.cuda.Stream(self._blocks[0].device) if on_gpu and ahead else None
        self._fetched = (-1, 0)
        """The layer in the first block, and how much of it."""

    def fetch(self, layer: int, source: Any) -> None:
        """Copy a layer, or the first part of it, to the front of the first block, which nothing that was queued later
        reads."""
        self._fetched = (layer, len(source))
        if not len(source):
            return
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(self._blocks[0].device))
        with torch.cuda.stream(self._stream):
            self._blocks[0][: len(source)].copy_(source, non_blocking=self._ahead)

    def take(self, layer: int, source: Any) -> Any:
        """The block with that of the layer, fetched now where it was not before; ready for what is queued next."""
        if self._fetched[0] != layer or self._fetched[1] < len(source):
            self.fetch(layer, source)
        if self._stream is not None:
            torch.cuda.current_stream(self._blocks[0].device).wait_stream(self._stream)
        block, self._fetched = self._blocks[0], (-1, 0)
        self._blocks.reverse()
        return block

    @property
    def nbytes(self) -> int:
        """On the device."""
        return sum(int(block.nbytes) for block in self._blocks)


class Offloaded(Cache):
    """The host keeps the keys and values of all layers. Ahead, the first layer's are copied while the last one of the
    pass before computes."""

    def __init__(self, room: Room, *, ahead: bool) -> None:
        super().__init__(room.device, room.dtype)
        self._ahead, self._layers = ahead, room.layers
        # Tokens come first, so that those of a layer are one piece.
        shape = (room.tokens, 2, room.batch, room.kv_heads, room.head_dim)
        on_gpu = str(room.device).startswith("cuda")
        self._host = torch.zeros((room.layers, *shape), dtype=room.dtype, pin_memory=on_gpu)
        self._blocks = Blocks(lambda: room.empty(*shape), ahead=ahead)
        self._parts = (self._blocks,)

    def extend(self, layer: int, k: Any, v: Any) -> tuple[Any, Any]:
        """Take the layer, write the new tokens behind it here and on the host, fetch the next one."""
        end = self.length + k.shape[2]
        block = self._blocks.take(layer, self._host[layer, : self.length])
        for which, new in enumerate((k, v)):
            block[self.length : end, which] = new.permute(2, 0, 1, 3)
        self._host[layer, self.length : end].copy_(block[self.length : end], non_blocking=True)
        if self._ahead:
            following = (layer + 1) % self._layers
            self._blocks.fetch(following, self._host[following, : self.length if following else end])
        found = block[:end].permute(1, 2, 3, 0, 4)
        return found[0], found[1]


class HostLayers(Sequence[Any]):
    """The layers of a model in host memory, each in one piece; asking for one brings it to the device, where it stays
    until another one is asked for."""

    def __init__(self, layers: Iterable[Any], count: int, *, ahead: bool) -> None:
        """``count`` layers, taken in one at a time, so that the device never has all of them."""
        self._ahead = ahead
        for index, layer in enumerate(layers):
            whole = torch.cat([weight.flatten() for weight in vars(layer).values()])
            if not index:
                self._kind = type(layer)
                self._shapes = {name: weight.shape for name, weight in vars(layer).items()}
                self._host = torch.empty((count, len(whole)), dtype=whole.dtype, pin_memory=whole.is_cuda)
            self._host[index].copy_(whole)
        device, size = whole.device, len(whole)
        self._blocks = Blocks(lambda: torch.empty(size, dtype=self._host.dtype, device=device), ahead=ahead)
        self._newest: tuple[int, Any] = (-1, None)

    def __len__(self) -> int:
        return len(self._host)

    def __getitem__(self, index: Any) -> Any:
        """Layer ``index`` on the device; the next one is on its way, with ``ahead``."""
        if not 0 <= index < len(self):
            raise IndexError(index)
        if self._newest[0] != index:
            block = self._blocks.take(index, self._host[index])
            parts = block.split([shape.numel() for shape in self._shapes.values()])
            named = {name: x.view(shape) for (name, shape), x in zip(self._shapes.items(), parts, strict=True)}
            self._newest = (index, self._kind(**named))
            if self._ahead:
                following = (index + 1) % len(self)
                self._blocks.fetch(following, self._host[following])
        return self._newest[1]
