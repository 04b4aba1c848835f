"""Requests from the rank that computed their prompts, or began to decode, to the one that goes on: keys and values,
over the process group.

What must not live here: pages (engine/pages.py), who decodes what.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist

from aiperf.workloads.decoder.model import Shape
from aiperf.workloads.engine.demands import Demand
from aiperf.workloads.engine.pages import BrokenBooks
from aiperf.workloads.engine.running import Running


def _head(answered: int) -> int:
    """Numbers of 8 bytes before the keys and values: tokens of the answer, their margins, their times, when the request
    started, checksum."""
    return 3 * answered + 2


def checksum(kv: Any) -> Any:
    """Of all bits and their places, modulo 2**64; a tensor of one number."""
    words = kv.flatten().view(torch.int64)
    return (words * torch.arange(1, 2 * len(words), 2, device=kv.device)).sum()


class Handover:
    """One rank's way to the others. Each direction between two ranks has a group of its own, so that what is under way
    in one does not wait for the other; all ranks make the same ``routes`` (source, destination) in the same order.

    A rank that ``recomputes`` takes no token from another one: it puts the prompt's last token through the model again.
    """

    def __init__(
        self, rank: int, shape: Shape, device: str, routes: Iterable[tuple[int, int]], *, recomputes: bool = False
    ) -> None:
        self._rank, self._device, self._recomputes = rank, torch.device(device), recomputes
        self._size = (2, shape.layers, shape.kv_heads, shape.head_dim)
        self._groups = {route: dist.new_group(list(route)) for route in routes}
        self.sources = [source for source, to in self._groups if to == rank]
        self.sent_bytes = 0

    def send(self, one: Running, kv: Any) -> None:
        """A request with its answer so far, to the rank that it is handed to."""
        assert one.hand_to is not None
        head = torch.tensor([*one.answer, *one.margins, *one.times, one.started, 0.0], dtype=torch.float64)
        head = head.to(kv.device)
        head.view(torch.int64)[-1] = checksum(kv)
        dist.send(torch.cat((head.view(kv.dtype), kv.flatten())), one.hand_to, self._groups[self._rank, one.hand_to])
        self.sent_bytes += kv.nbytes

    def receive(self, tokens: int, source: int, answered: int = 1) -> Any:
        """The next request from ``source``, whose prompt has so many tokens, and its answer ``answered``, as it was
        sent."""
        both, layers, heads, values = self._size
        kept = tokens + answered - 1
        whole = torch.empty(2 * _head(answered) + both * layers * kept * heads * values, device=self._device)
        dist.recv(whole, source, self._groups[source, self._rank])
        return whole

    def opened(self, demand: Demand, prompt: list[int], whole: Any, answered: int = 1) -> Running:
        """The request that was received, with so many tokens of its answer. Raises BrokenBooks when its keys and values
        are not what was sent."""
        both, layers, heads, values = self._size
        edge = 2 * _head(answered)
        head, kv = whole[:edge].view(torch.float64), whole[edge:]
        sent, came = int(head.view(torch.int64)[-1]), int(checksum(kv))
        if sent != came:
            raise BrokenBooks(
                f"keys and values of request {demand.number}: sent with checksum {sent}, came with {came}"
            )
        *told, started = head[:-1].tolist()
        tokens, margins, times = (told[part * answered :][:answered] for part in range(3))
        brought = kv.view(both, layers, demand.prompt_tokens + answered - 1, heads, values)
        if self._recomputes:
            return Running(demand, prompt, started=started, brought=brought[:, :, : demand.prompt_tokens - 1])
        return Running(demand, [*prompt, *map(int, tokens)], margins, times, started=started, brought=brought)
