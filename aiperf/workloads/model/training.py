"""The training loop of model.py: optimizers, loss scaling, gradient accumulation, and when the host reads the loss.

What must not live here: models (models.py), compilation and capture (model.py), process groups (parallel.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from aiperf.workloads.shared import models

OPTIMIZERS: dict[str, dict[str, bool]] = {
    "adamw_loop": {"foreach": False, "fused": False},
    "adamw_foreach": {"foreach": True, "fused": False},
    "adamw_fused": {"fused": True},
}


@dataclass(frozen=True)
class TrainingPlan:
    """What one timed step does besides forward and backward."""

    optimizer: str
    learning_rate: float
    steps: int
    """Updates in one timed step, all on the same batch."""
    accumulate: int
    """Equal parts into which the batch of an update is cut; their gradients add up to its mean."""
    sync_every: int
    """Updates after which the host reads the losses so far; 0: at the end."""
    log_every: int
    """Updates after which a line with the loss is written and flushed; 0: never."""
    scaled: bool
    """Loss scaling, as float16 gradients need it."""
    watch: str

    def __post_init__(self) -> None:
        if min(self.steps, self.accumulate) < 1:
            raise ValueError(f"steps and accumulate are {self.steps} and {self.accumulate}; each must be 1 or more")
        if min(self.sync_every, self.log_every) < 0:
            raise ValueError(f"sync_every and log_every are {self.sync_every} and {self.log_every}; 0 is the least")
        if max(self.sync_every, self.log_every) > self.steps:
            raise ValueError(f"the host would never look: a step has {self.steps} updates, fewer than it waits for")


class Ready(NamedTuple):
    """A step that can run."""

    step: Callable[[], None]
    outputs: Callable[[], Mapping[str, Any]]
    reset: Callable[[], None] | None = None
    counters: Callable[[], dict[str, float]] = dict


class _Updates:
    """Forward, backward and update of one batch."""

    def __init__(
        self, task: models.Task, forward: Callable[[Any, Any], Any], cast: Callable[[], Any], plan: TrainingPlan
    ):
        self._forward, self._cast = forward, cast
        device = task.batch.device.type
        self._parts = list(zip(task.batch.chunk(plan.accumulate), task.targets.chunk(plan.accumulate), strict=True))
        self.optimizer = torch.optim.AdamW(
            task.module.parameters(), lr=plan.learning_rate, **OPTIMIZERS[plan.optimizer]
        )
        self.passes = 0
        """Forward and backward passes of the last update."""
        self.scaler = torch.amp.GradScaler(device) if plan.scaled else None
        self._fresh_scale = self.scaler.state_dict() if self.scaler is not None else {}

    def one(self) -> Any:
        """The mean loss of the whole batch, still on its device."""
        self.optimizer.zero_grad(set_to_none=True)
        self.passes = 0
        losses = [self._backward(x, y) for x, y in self._parts]
        if self.scaler is None:
            self.optimizer.step()
        else:
            self.scaler.unscale_(self.optimizer)
            self.scaler.step(self.optimizer)
            self.scaler.update()
        return losses[0] if len(losses) == 1 else torch.stack(losses).sum()

    def _backward(self, x: Any, y: Any) -> Any:
        with self._cast():
            loss = self._forward(x, y)
        if len(self._parts) > 1:
            loss = loss / len(self._parts)
        (loss if self.scaler is None else self.scaler.scale(loss)).backward()
        self.passes += 1
        return loss.detach()

    def reset_scale(self) -> None:
        """Back to the scale of the beginning."""
        if self.scaler is not None:
            self.scaler.load_state_dict(self._fresh_scale)


class _Loop:
    """``steps`` updates, and when the host reads their losses."""

    def __init__(self, updates: _Updates, plan: TrainingPlan, log: Path) -> None:
        self._updates, self._plan, self._log = updates, plan, log
        self.host = bool(plan.steps > 1 or plan.sync_every or plan.log_every)
        self.losses = torch.zeros(plan.steps)
        self.reads = 0

    def run(self) -> None:
        """One timed step."""
        every = self._plan.sync_every or self._plan.steps
        pending: list[Any] = []
        values: list[float] = []
        self.reads = 0
        with self._log.open("w", encoding="utf-8") as lines:
            for number in range(1, self._plan.steps + 1):
                pending.append(self._updates.one())
                if self._plan.log_every and number % self._plan.log_every == 0:
                    lines.write(f"update {number} loss {pending[-1].item():.6f}\n")
                    lines.flush()
                    self.reads += 1
                if number % every == 0 or number == self._plan.steps:
                    values += [pending[0].item()] if len(pending) == 1 else torch.stack(pending).tolist()
                    self.reads += 1
                    pending.clear()
        self.losses.copy_(torch.tensor(values))


def training(
    task: models.Task, forward: Callable[[Any, Any], Any], cast: Callable[[], Any], plan: TrainingPlan, *, scratch: Path
) -> Ready:
    """The step over ``plan.steps`` updates of ``task``; ``forward`` maps (batch, targets) to the mean loss.

    Outputs are loss and gradients, or with ``watch: parameters`` the weights after the last update, which are state.
    """
    updates = _Updates(task, forward, cast, plan)
    loop = _Loop(updates, plan, scratch / "losses.log")
    latest: dict[str, Any] = {}
    restore = models.snapshot(task.module, updates.optimizer)

    def one() -> None:
        latest["loss"] = updates.one()

    def outputs() -> dict[str, Any]:
        if plan.watch == "parameters":
            return {name: p.detach() for name, p in task.module.named_parameters()}
        return {**({"loss": loop.losses} if loop.host else latest), **models.gradients(task.module)}

    def reset() -> None:
        restore()
        updates.reset_scale()

    return Ready(
        step=loop.run if loop.host else one,
        outputs=outputs,
        reset=reset,
        counters=lambda: {"host_reads": float(loop.reads), "passes": float(updates.passes * plan.steps)},
    )
