"""The training loop of model.py: optimizers, loss scaling, gradient accumulation, and when the host reads the loss.

What must not live here: models (models.py), compilation and capture (model.py), process groups (parallel.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch

from aiperf.workloads.shared import models
from aiperf.workloads.shared.queues import replay_of

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adamw_loop": partial(torch.optim.AdamW, foreach=False, fused=False),
    "adamw_foreach": partial(torch.optim.AdamW, foreach=True, fused=False),
    "adamw_fused": partial(torch.optim.AdamW, fused=True),
    "adafactor": partial(torch.optim.Adafactor, foreach=False),
}


class Ready(NamedTuple):
    """A step that can run."""

    step: Callable[[], None]
    outputs: Callable[[], Mapping[str, Any]]
    reset: Callable[[], None] | None = None
    counters: Callable[[], dict[str, float]] = dict


class _Updates:
    """Forward, backward and update of one batch."""

    def __init__(
        self, task: models.Task, forward: Callable[[Any, Any], Any], cast: Callable[[], Any], asked: SimpleNamespace
    ):
        self._forward, self._cast = forward, cast
        self._parts = task.parts(asked.accumulate)
        captured = {"capturable": True} if asked.graph == "step" else {}
        make = OPTIMIZERS[asked.optimizer]
        self.optimizer = make(task.module.parameters(), lr=asked.learning_rate, **captured)
        self.passes = 0
        """Forward and backward passes of the last update."""
        # Loss scaling, as float16 gradients need it; elsewhere a scaler that is off leaves all as it is.
        self.scaler = torch.amp.GradScaler(task.batch.device.type, enabled=asked.autocast == "float16_scaled")
        self._fresh_scale = self.scaler.state_dict()

    def one(self) -> Any:
        """The mean loss of the whole batch, still on its device."""
        self.optimizer.zero_grad(set_to_none=True)
        self.passes = 0
        losses = [self._backward(x, y, share) for x, y, share in self._parts]
        self.scaler.unscale_(self.optimizer)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return losses[0] if len(losses) == 1 else torch.stack(losses).sum()

    def _backward(self, x: Any, y: Any, share: float) -> Any:
        with self._cast():
            loss = self._forward(x, y)
        if len(self._parts) > 1:
            loss = loss * share
        self.scaler.scale(loss).backward()
        self.passes += 1
        return loss.detach()

    def kept_bytes(self) -> float:
        """What the optimizer keeps from one update to the next."""
        return float(sum(value.nbytes for state in self.optimizer.state.values() for value in state.values()))

    def skipped(self) -> float:
        """Updates since the last reset that were left out for gradients that overflowed: each has halved the scale."""
        fresh = self._fresh_scale.get("scale", 0.0)
        return max(0.0, round(math.log2(fresh / self.scaler.get_scale()))) if fresh else 0.0

    def reset_scale(self) -> None:
        """Back to the scale of the beginning."""
        self.scaler.load_state_dict(self._fresh_scale)


def training(
    task: models.Task, forward: Callable[[Any, Any], Any], cast: Callable[[], Any], asked: SimpleNamespace
) -> Ready:
    """The step over ``asked.steps`` updates of ``task``; ``forward`` maps (batch, targets) to the mean loss. Outputs
    are losses and gradients, with ``watch: losses`` those alone, or with ``watch: parameters`` the weights after the
    last update, which are state."""
    updates = _Updates(task, forward, cast, asked)
    host_losses = torch.zeros(asked.steps)
    reads = 0
    latest: dict[str, Any] = {}
    restore = models.snapshot(task.module, updates.optimizer)

    def one() -> None:
        latest["loss"] = updates.one()

    def several() -> None:
        nonlocal reads
        every = asked.sync_every or asked.steps
        pending: list[Any] = []
        values: list[float] = []
        reads = 0
        with (asked.context.scratch / "losses.log").open("w", encoding="utf-8") as lines:
            for number in range(1, asked.steps + 1):
                pending.append(updates.one())
                if asked.log_every and number % asked.log_every == 0:
                    lines.write(f"update {number} loss {pending[-1].item():.6f}\n")
                    lines.flush()
                    reads += 1
                if number % every == 0 or number == asked.steps:
                    values += [pending[0].item()] if len(pending) == 1 else torch.stack(pending).tolist()
                    reads += 1
                    pending.clear()
        latest["loss"] = host_losses.copy_(torch.tensor(values))

    def outputs() -> dict[str, Any]:
        if asked.watch == "parameters":
            return {name: p.detach() for name, p in task.module.named_parameters()}
        if asked.watch == "losses":
            return dict(latest)
        return {**latest, **models.gradients(task.module)}

    def reset() -> None:
        restore()
        updates.reset_scale()

    if asked.graph == "step":
        replay = replay_of(one)
        reset()  # the runs before the capture were updates too
        return Ready(replay, outputs, reset, lambda: {"passes": float(updates.passes)})
    return Ready(
        step=several if asked.steps > 1 or asked.sync_every or asked.log_every else one,
        outputs=outputs,
        reset=reset,
        counters=lambda: {
            "host_reads": float(reads),
            "passes": float(updates.passes * asked.steps),
            "optimizer_bytes": updates.kept_bytes(),
            **(rounded(updates, task) if asked.autocast != "none" else {}),
        },
    )


class _Loss(torch.nn.Module):
    """A model together with its loss, so that both can be captured as one module."""

    def __init__(self, task: models.Task) -> None:
        super().__init__()
        self.module, self._loss = task.module, task.loss

    def forward(self, x: Any, y: Any) -> Any:
        """The mean loss."""
        return self._loss(self.module(x), y)


def graphed_passes(task: models.Task) -> Callable[[Any, Any], Any]:
    """(batch, targets) -> mean loss, whose forward and backward pass are replayed as a CUDA graph each."""
    graphed: Callable[[Any, Any], Any] = torch.cuda.make_graphed_callables(_Loss(task), (task.batch, task.targets))
    return graphed


def rounded(updates: _Updates, task: models.Task) -> dict[str, float]:
    """What a type of few exponents loses in a step: updates that were skipped, gradients that are zero (in any type
    those of tokens that a batch lacks)."""
    grads = models.gradients(task.module).values()
    return {
        "skipped_updates": updates.skipped(),
        "zero_gradients": float(sum(int((grad == 0).sum()) for grad in grads)),
    }


def unequal_gradients(task: models.Task, forward: Callable[[Any, Any], Any], repeats: int) -> float:
    """Elements of the gradients that in any of ``repeats`` further passes have other bits than in the first."""
    weights = [p for p in task.module.parameters() if p.requires_grad]

    def once() -> list[Any]:
        return list(torch.autograd.grad(forward(task.batch, task.targets), weights))

    first = once()
    unequal = [torch.zeros_like(gradient, dtype=torch.bool) for gradient in first]
    for _ in range(repeats):
        for seen, gradient, other in zip(unequal, first, once(), strict=True):
            seen |= gradient != other
    return float(sum(int(seen.sum()) for seen in unequal))
