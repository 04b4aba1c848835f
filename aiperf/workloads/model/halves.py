"""model.halves: batches pass through the two halves of a transformer, one after the other or on a stream for each half.

What must not live here: the models, copies over the link (see stream/), timing.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import torch

from aiperf.workloads.contract import Context, SkipSide, Work, Workload
from aiperf.workloads.shared import models
from aiperf.workloads.shared.queues import Queues, fork, join, replay_of
from aiperf.workloads.shared.seeded import gemm_peak


def halves(
    context: Context,
    *,
    model: str = "tiny",
    batches: int = 4,
    batch: int = 1,
    seq: int = 16,
    dtype: Literal["float32", "bfloat16"] = "float32",
    streams: Literal[1, 2] = 1,
    graph: bool = False,
) -> Workload:
    """A forward pass of ``batches`` batches of ``batch`` sequences through a random-weight transformer.

    With one stream each batch goes through all blocks before the next begins. With two, the first half of the blocks
    works on the next batch while the second, on a stream of its own, works on this one; an event hands over. ``graph``
    replays the whole step, whichever its streams, as one CUDA graph. What is kept of a batch is its prediction for the
    last position. Items: tokens; FLOPs as in model.step. Source: AI Systems Performance Engineering, chapter 11.
    """
    if model not in models.TRANSFORMERS:
        raise ValueError(f'model "{model}" is not a transformer; there are {", ".join(models.TRANSFORMERS)}')
    if min(batches, batch, seq) < 1:
        raise ValueError("batches, batch and seq must each be 1 or more")
    if not context.on_gpu and (graph or streams > 1):
        raise SkipSide("streams and CUDA graphs need a GPU")
    kind = getattr(torch, dtype)
    task = models.build(model, seed=context.seed, device=context.device, batch=batches * batch, seq=seq)
    work = Halves(task.module.to(kind).eval(), task.batch.chunk(batches), kind)
    step = work.in_turn
    if streams > 1:
        queues = Queues(context.device)
        step = partial(work.overlapped, queues, queues.streams(2))
    flops = task.forward_flops
    return Workload(
        step=replay_of(step) if graph else step,
        work=Work(flops=flops, items=task.items, item="tokens", peaks=gemm_peak(context.device, dtype, flops)),
        outputs=lambda: {"predictions": work.predictions},
        inputs=lambda: {"batch": task.batch},
        redraw=task.redraw,
        facts={"parameters": task.parameters, "streams": streams, "captured": graph},
    )


class Halves:
    """A transformer cut in two, with an array for what each batch hands over."""

    def __init__(self, module: Any, batches: Any, kind: Any) -> None:
        self._module, self._batches, middle = module, batches, len(module.blocks) // 2
        self._lower, self._upper = module.blocks[:middle], module.blocks[middle:]
        rows, seq = batches[0].shape
        place = {"dtype": kind, "device": batches[0].device}
        self._between = torch.zeros(len(batches), rows, seq, module.head.in_features, **place)
        self.predictions = torch.zeros(len(batches), rows, module.head.out_features, **place)

    def first(self, number: int) -> None:
        """Embedding and the lower blocks for batch ``number``."""
        with torch.inference_mode():
            self._between[number].copy_(self._lower(self._module.embed(self._batches[number])))

    def second(self, number: int) -> None:
        """The upper blocks and the head for the last position."""
        with torch.inference_mode():
            last = self._upper(self._between[number])[:, -1]
            self.predictions[number].copy_(self._module.head(self._module.norm(last)))

    def in_turn(self) -> None:
        """Batch after batch."""
        for number in range(len(self._batches)):
            self.first(number)
            self.second(number)

    def overlapped(self, queues: Any, lanes: Any) -> None:
        """Each half on a lane of its own; a batch enters the second when it has left the first."""
        fork(queues, lanes)
        for number in range(len(self._batches)):
            queues.queue(lanes[0], partial(self.first, number))
            queues.wait(lanes[1], queues.mark(lanes[0]))
            queues.queue(lanes[1], partial(self.second, number))
        join(queues, lanes)
