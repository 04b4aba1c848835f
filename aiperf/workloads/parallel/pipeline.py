"""A decoder whose layers are split over the ranks: microbatches go through the stages one behind the other.

What must not live here: other layouts, gradients (pipeline_training.py), joining a process group, timing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F

from aiperf.workloads.decoder.caches import Cache
from aiperf.workloads.decoder.model import Shape
from aiperf.workloads.parallel.grouped import Grouped


def own_layers(shape: Shape, *, rank: int, ranks: int, head: bool) -> range:
    """The layers of a stage. With ``head`` every token goes through the head, which the last stage's layers make up
    for. Raises ValueError where there are more stages than layers."""
    if ranks > shape.layers:
        raise ValueError(f"{shape.layers} layers are too few for {ranks} stages")
    whole = shape.layers + (shape.head_parameters / shape.layer_parameters if head else 0.0)

    def start(stage: int) -> int:
        return max(stage, min(round(whole * stage / ranks), shape.layers - (ranks - stage)))

    return range(start(rank), start(rank + 1))


class Microbatches(Cache):
    """Keys and values of a batch that is cut into microbatches, each with a cache of its own."""

    def __init__(self, parts: Sequence[Cache]) -> None:
        super().__init__(parts[0].device, parts[0].dtype)
        self.parts = parts

    def truncate(self, length: int) -> None:
        """Forget all but the first ``length`` tokens of every sequence."""
        for part in self.parts:
            part.truncate(length)


class Pipeline(Grouped):
    """One stage: its layers, on the first the embedding, on the last the norm and the head."""

    def forward(self, tokens: Any, cache: Cache, *, every: bool = False) -> Any:
        """Logits after the last of ``tokens`` [batch, count], on every rank; ``cache`` is ``Microbatches``. States are
        received one microbatch ahead, and sent while the next one is computed."""
        assert isinstance(cache, Microbatches)
        assert not every
        stage, stages = dist.get_rank(), dist.get_world_size()
        pieces = tokens.chunk(len(cache.parts))
        coming = self._receive(pieces[0]) if stage else None
        done, sent = [], []
        for number, (piece, part) in enumerate(zip(pieces, cache.parts, strict=True)):
            if coming is None:
                x = F.embedding(piece, self.embedding)
            else:
                x, arrival = coming
                arrival.wait()
                coming = self._receive(pieces[number + 1]) if number + 1 < len(pieces) else coming
            x = self.through(x, self.spot(part, piece.shape[1]), 0, len(self.layers))
            part.advance(piece.shape[1])
            if stage == stages - 1:
                done.append(self.logits(x[:, -1:]))
            else:
                sent.append((x, dist.isend(x, stage + 1)))
        for _, sending in sent:
            sending.wait()
        logits = torch.cat(done) if done else self._empty(len(tokens), 1, self.shape.vocab)
        dist.broadcast(logits, stages - 1)
        return logits

    def _receive(self, piece: Any) -> tuple[Any, Any]:
        """Where the states of a microbatch will be, and what is to be waited for."""
        states = self._empty(*piece.shape, self.shape.width)
        return states, dist.irecv(states, dist.get_rank() - 1)

    def _empty(self, *size: int) -> Any:
        return torch.empty(size, dtype=self.dtype, device=self.device)
