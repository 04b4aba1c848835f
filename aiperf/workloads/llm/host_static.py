"""A prompt's keys and values in host memory, for steps that a CUDA graph can hold: equal copies to equal addresses.

What must not live here: offloaded caches that grow (decoder/offload.py), graphs, the model.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from aiperf.workloads.decoder.caches import Cache, Extend, Room, Static


class HostStatic(Static):
    """The host keeps those of the first ``prompt`` tokens, of all layers; the device those after them, and two blocks
    that are as long as a text may become: a layer's is read whole under a mask, while the next one's is copied.

    A prompt comes whole. The first layer's copy is queued while the last layer of the step before computes; a step ends
    when it is there, as a graph must not leave a copy behind.
    """

    def __init__(self, room: Room, *, prompt: int) -> None:
        Cache.__init__(self, room.device, room.dtype)  # no block of all layers, which other static caches have
        if room.layers % 2 or prompt < 2:
            raise ValueError(f"needs an even number of layers and a prompt of 2 tokens, not {room.layers} and {prompt}")
        self._place = torch.arange(room.tokens, device=room.device)
        self.position = torch.zeros(1, dtype=torch.long, device=room.device)
        self._prompt, self._layers = prompt, room.layers
        one = (2, room.batch, room.kv_heads, room.head_dim)
        on_gpu = str(room.device).startswith("cuda")
        self._host = torch.zeros((room.layers, prompt, *one), dtype=room.dtype, pin_memory=on_gpu)
        self._newest = room.empty(room.layers, room.tokens - prompt, *one)
        self._blocks = room.empty(2, room.tokens, *one)
        self._parts = (self._newest, self._blocks)
        self._stream = torch.cuda.Stream(room.device) if on_gpu else None

    def rows(self, count: int) -> Any:
        """The next positions; kept, from the prompt's end, too."""
        rows = super().rows(count)
        self._after = rows - self._prompt
        return rows

    def mask(self, count: int) -> Any:
        """None for a prompt, which sees itself alone. Raises ValueError for anything but a whole one or one token."""
        if count not in (1, self._prompt):
            raise ValueError(f"takes a prompt of {self._prompt} tokens at once, then one token at a time; not {count}")
        return super().mask(count) if count == 1 else None

    def at(self, layer: int) -> Extend:
        """Writes a prompt to the host, or the newest token behind the layer's block, which is here; the next layer's
        is on its way then."""
        if len(self._rows) > 1:
            return partial(self._kept, layer)
        if layer:
            self._wait()
        self._fetch((layer + 1) % self._layers)
        return partial(_behind, self._blocks[layer % 2], self._newest[layer], self._rows, self._after)

    def _kept(self, layer: int, k: Any, v: Any) -> tuple[Any, Any]:
        self._host[layer].copy_(torch.stack((k, v)).permute(3, 0, 1, 2, 4), non_blocking=True)
        return k, v

    def _fetch(self, layer: int) -> None:
        """Into the block that the layer before the one at hand has used, behind what is queued now."""
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(self._blocks.device))
        with torch.cuda.stream(self._stream):
            block = self._blocks[layer % 2]
            block[: self._prompt].copy_(self._host[layer], non_blocking=True)
            block[self._prompt :].copy_(self._newest[layer])

    def _wait(self) -> None:
        if self._stream is not None:
            torch.cuda.current_stream(self._blocks.device).wait_stream(self._stream)

    def advance(self, count: int) -> None:
        """The first layer is there for the next token."""
        super().advance(count)
        self._wait()

    def truncate(self, length: int) -> None:
        """Back to the end of the prompt, or to nothing; the first layer is fetched."""
        super().truncate(length)
        self._fetch(0)
        self._wait()


def _behind(block: Any, newest: Any, rows: Any, after: Any, k: Any, v: Any) -> tuple[Any, Any]:
    """All keys and values of a layer, of which ``block`` [tokens, 2, ...] has those before."""
    new = torch.stack((k, v)).permute(3, 0, 1, 2, 4)
    newest.index_copy_(0, after, new)
    block.index_copy_(0, rows, new)
    whole = block.permute(1, 2, 3, 0, 4)
    return whole[0], whole[1]
