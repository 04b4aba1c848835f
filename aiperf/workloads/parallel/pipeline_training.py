"""Gradients of a decoder whose layers are split over the ranks: one microbatch forward, one backward, in turns (1F1B).

What must not live here: the stage itself (pipeline.py), an optimizer, joining a process group, timing.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F

from aiperf.workloads.decoder.caches import Nothing
from aiperf.workloads.parallel.pipeline import Pipeline

_SHOWN = 64
"""Rows of each gradient that are among the outputs, at least; every so many of all of them."""


class PipelineTraining:
    """The gradients of one stage's weights for the mean loss of a batch, in ``microbatches``."""

    def __init__(self, stage: Pipeline, *, rank: int, ranks: int, microbatches: int) -> None:
        self._stage, self._rank, self._ranks, self._count = stage, rank, ranks, microbatches
        self._first, self._last = not rank, rank == ranks - 1
        own = {f"{name}-{i}": w for i, layer in enumerate(stage.layers) for name, w in vars(layer).items()}
        if self._first:
            own["embedding"] = stage.embedding
        if self._last:
            own |= {"norm": stage.norm, "head": stage.head}
        self._weights = {name: weight.requires_grad_() for name, weight in own.items()}
        self._loss = torch.zeros((), device=stage.device)

    def step(self, tokens: Any) -> None:
        """Forward and backward passes for ``tokens`` [batch, count], each predicted from those before it. A stage runs
        ahead by as many microbatches as there are stages behind it, and then takes one forward, one backward."""
        for weight in self._weights.values():
            weight.grad = None
        self._loss = torch.zeros((), device=tokens.device)
        waiting: deque[tuple[Any, Any]] = deque()
        pieces = tokens.chunk(self._count)
        ahead = min(self._ranks - 1 - self._rank, len(pieces))
        for piece in pieces[:ahead]:
            waiting.append(self._forward(piece, self._exchange(piece, receive=self._rank - 1)))
            self._exchange(piece, self._rank + 1, waiting[-1][1].detach())
        steady = pieces[ahead:]
        x = self._exchange(pieces[0], receive=self._rank - 1) if steady else None
        for number, piece in enumerate(steady):
            waiting.append(self._forward(piece, x))
            y = waiting[-1][1].detach()
            gradient = self._exchange(piece, self._rank + 1, y, receive=self._rank + 1)
            back = self._backward(*waiting.popleft(), gradient)
            more = self._rank - 1 if number + 1 < len(steady) else -1
            x = self._exchange(piece, self._rank - 1, back, receive=more)
        while waiting:
            back = self._backward(*waiting.popleft(), self._exchange(pieces[0], receive=self._rank + 1))
            self._exchange(pieces[0], self._rank - 1, back)

    def outputs(self) -> dict[str, Any]:
        """Rows from all over each gradient of this stage, zeros before the first step; on the last stage the loss."""
        found = {name: self._shown(weight) for name, weight in self._weights.items()}
        return found | ({"loss": self._loss} if self._last else {})

    def _shown(self, weight: Any) -> Any:
        rows = slice(None, None, max(1, len(weight) // _SHOWN))
        return weight.grad[rows] if weight.grad is not None else torch.zeros_like(weight[rows], requires_grad=False)

    def _forward(self, piece: Any, x: Any) -> tuple[Any, Any]:
        """What a microbatch enters this stage with, and its states behind it; behind the last stage its loss."""
        stage = self._stage
        x = F.embedding(piece, stage.embedding) if self._first else x.requires_grad_()
        y = stage.through(x, stage.spot(Nothing(stage.device, stage.dtype), piece.shape[1]), 0, len(stage.layers))
        if self._last:
            logits = stage.logits(y[:, :-1]).flatten(0, 1).float()
            y = F.cross_entropy(logits, piece[:, 1:].flatten()) / self._count
            self._loss += y.detach()
        return x, y

    def _backward(self, x: Any, y: Any, gradient: Any) -> Any:
        """The gradient of what the microbatch entered with."""
        y.backward(gradient)
        return None if self._first else x.grad

    def _exchange(self, piece: Any, to: int = -1, states: Any = None, *, receive: int = -1) -> Any:
        """Send states or gradients of a microbatch to a stage and receive such from one, both at once; a stage that
        does not exist is left out. None where nothing is received."""
        ways, came = [], None
        if 0 <= to < self._ranks:
            ways.append(dist.P2POp(dist.isend, states, to))
        if 0 <= receive < self._ranks:
            came = torch.empty(
                *piece.shape, self._stage.shape.width, dtype=self._stage.dtype, device=self._stage.device
            )
            ways.append(dist.P2POp(dist.irecv, came, receive))
        for work in dist.batch_isend_irecv(ways) if ways else ():
            work.wait()
        return came
