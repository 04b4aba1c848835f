"""Family parallel.train: a training step over ranks or GPUs under a stated data-parallel strategy.

What must not live here: single-process steps (model.py), the models themselves (models.py), how gradients meet
(gradient_exchange.py), timing.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.distributed as dist

from aiperf.workloads.contract import Context, Outcome, SkipSide, Work, Workload
from aiperf.workloads.parallel import gradient_exchange as exchange
from aiperf.workloads.shared import agreement, models


@dataclass(frozen=True)
class _Plan:
    """The parameters of train, checked."""

    strategy: str
    batch: int
    accumulate: int
    samples: int
    no_sync: bool
    sync_every: int
    skew: float
    hook: str
    shard: str
    wrap: str
    bucket_mb: float
    compile: str
    parts: int
    """Ranks, or GPUs of data_parallel."""

    def __post_init__(self) -> None:
        if min(self.batch, self.accumulate, self.sync_every) < 1:
            raise ValueError("batch, accumulate and sync_every must each be 1 or more")
        if self.samples % (self.batch * self.accumulate):
            raise ValueError(f"{self.samples} samples cannot be cut into updates of {self.batch * self.accumulate}")
        if (self.no_sync or self.hook != "none") and self.strategy != "ddp":
            raise ValueError("no_sync and hook are DDP's; they need strategy: ddp")
        if self.compile != "none" and (self.strategy != "ddp" or self.no_sync):
            raise ValueError("compile is torch.compile over DDP, with an exchange after each backward pass")
        if self.compile != "none" and self.bucket_mb < 1:
            raise ValueError("torch.compile cuts at DDP's buckets only from bucket_mb: 1 on, the size of DDP's first")
        if self.accumulate > 1 and self.strategy not in ("ddp", "local_sgd"):
            raise ValueError("accumulate needs strategy: ddp")
        if self.sync_every > 1 and self.strategy != "local_sgd":
            raise ValueError("sync_every is the distance of two averages of local SGD; it needs strategy: local_sgd")
        if self.strategy == "local_sgd" and not self.samples:
            raise ValueError("local SGD is about several updates; say how many samples they walk through")
        heavy = self.skew * self.batch
        if self.skew and (self.parts != 2 or self.samples or heavy != int(heavy) or not 0 <= self.skew < 1):
            raise ValueError(f"skew {self.skew} must be a share below 1 that moves whole samples between two ranks")

    @property
    def updates(self) -> int:
        """Updates of the weights in one timed step."""
        return self.samples // (self.batch * self.accumulate) or 1

    @property
    def per_rank(self) -> int:
        """Samples per rank and timed step, were they shared out equally."""
        return self.updates * self.accumulate * self.batch

    def rows(self, rank: int) -> slice | None:
        """The samples of the global batch that are this rank's; None: an equal slice."""
        moved = int(self.skew * self.batch) * self.accumulate
        if not moved:
            return None
        cut = self.per_rank + moved
        return slice(0, cut) if rank == 0 else slice(cut, 2 * self.per_rank)


def _share_cores(context: Context, scaling: str) -> None:
    """Ranks of one host that compute on the CPU split its cores instead of each taking all of them."""
    if context.device == "cpu" and scaling == "weak":
        torch.set_num_threads(1)
    elif context.device == "cpu" and context.world_size > 1:
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // context.world_size))


def _group(context: Context, backend: str) -> str:
    """Join the gang; NCCL for GPUs and Gloo for CPUs unless the side says otherwise."""
    on_gpu = context.device.startswith("cuda")
    if backend == "nccl" and not on_gpu:
        raise SkipSide("NCCL moves GPU memory only, and this side runs on the CPU")
    context.process_group("nccl" if backend == "nccl" or (backend == "auto" and on_gpu) else "gloo")
    return str(dist.get_backend())


def _parallel_module(context: Context, task: models.Task, plan: _Plan) -> Any:
    if plan.strategy in ("after_backward", "local_sgd") or plan.parts == 1:
        return task.module
    if plan.strategy == "data_parallel":
        return torch.nn.DataParallel(task.module, device_ids=list(range(context.gpus)))
    if plan.strategy == "fsdp":
        return exchange.shard(task, device=context.device, ranks=plan.parts, how=plan.shard, wrap=plan.wrap)
    ids = [torch.device(context.device).index] if context.device.startswith("cuda") else None
    module = torch.nn.parallel.DistributedDataParallel(task.module, device_ids=ids, bucket_cap_mb=plan.bucket_mb)
    exchange.install_hook(module, plan.hook)
    return module if plan.compile == "none" else torch.compile(module)


class _Step:
    """One timed step: ``updates`` times the micro-batches, the exchange and the optimizer."""

    def __init__(self, task: models.Task, module: Any, optimizer: Any, plan: _Plan, *, weight: float) -> None:
        self._task, self._module, self._optimizer, self._plan, self._weight = task, module, optimizer, plan, weight
        parameters = list(task.module.parameters())
        alone = plan.strategy != "after_backward" or plan.parts == 1
        self.buckets = [] if alone else exchange.buckets_of(parameters, plan.bucket_mb * 2**20)
        self._parameters = parameters
        self.exchanges = 0

    def run(self) -> None:
        """The timed region."""
        self.exchanges = 0
        parts = self._plan.updates * self._plan.accumulate
        micro = list(zip(self._task.batch.chunk(parts), self._task.targets.chunk(parts), strict=True))
        for number in range(self._plan.updates):
            self._update(micro[number * self._plan.accumulate : (number + 1) * self._plan.accumulate])
            if self._plan.strategy == "local_sgd" and (number + 1) % self._plan.sync_every == 0:
                exchange.average_weights(self._parameters, self._plan.parts)
                self.exchanges += 1

    def _update(self, micro: list[tuple[Any, Any]]) -> None:
        self._optimizer.zero_grad(set_to_none=True)
        for index, (x, y) in enumerate(micro):
            quiet = self._plan.no_sync and index < len(micro) - 1
            with self._module.no_sync() if quiet else contextlib.nullcontext():
                loss = self._task.loss(self._module(x), y)
                (loss * (self._weight / len(micro)) if self._weight != len(micro) else loss).backward()
            self.exchanges += not quiet and self._plan.strategy in ("ddp", "fsdp", "after_backward")
        if self.buckets:
            exchange.average_gradients(self.buckets, self._plan.parts)
        self._optimizer.step()


def _task(context: Context, plan: _Plan, *, model: str, seq: int) -> models.Task:
    alone = plan.strategy == "data_parallel"
    return models.build(
        model,
        seed=context.seed,
        device=context.device,
        batch=plan.per_rank * plan.parts,
        seq=seq,
        part=0 if alone else context.rank,
        parts=1 if alone else plan.parts,
        rows=None if alone else plan.rows(context.rank),
    )


def _outputs(task: models.Task, plan: _Plan, *, rank: int, part: str) -> Callable[[], dict[str, Any]]:
    """Gradients, or the weights where the step makes several updates; whole, or the rows that are this rank's."""

    def outputs() -> dict[str, Any]:
        if plan.samples:
            return {name: p.detach() for name, p in task.module.named_parameters()}
        found = models.gradients(task.module)
        if plan.strategy == "fsdp":
            return {name: grad.to_local() for name, grad in found.items() if grad.to_local().numel()}
        return exchange.own_rows(found, rank=rank, ranks=plan.parts) if part == "rank" else found

    return outputs


def train(
    context: Context,
    *,
    strategy: Literal["after_backward", "ddp", "data_parallel", "fsdp", "local_sgd"] = "ddp",
    model: str = "small",
    batch: int = 4,
    seq: int = 64,
    accumulate: int = 1,
    samples: int = 0,
    scaling: Literal["none", "weak"] = "none",
    bucket_mb: float = 25.0,
    compile: Literal["none", "default"] = "none",
    hook: Literal["none", "fp16", "bf16", "powersgd"] = "none",
    no_sync: bool = False,
    sync_every: int = 1,
    skew: float = 0.0,
    shard: Literal["full", "grad_op"] = "full",
    wrap: Literal["model", "block"] = "block",
    part: Literal["whole", "rank"] = "whole",
    optimizer: Literal["sgd", "adamw"] = "sgd",
    learning_rate: float = 1e-5,
    backend: Literal["auto", "gloo", "nccl"] = "auto",
) -> Workload:
    """One update on a global batch of ``batch`` samples per rank (per GPU for data_parallel, which has one rank).

    ``after_backward`` averages the same buckets as DDP's, but only when the whole backward pass is done; ``bucket_mb:
    0`` makes that one all-reduce per parameter. ``accumulate`` micro-batches of ``batch`` make an update; with
    ``no_sync`` DDP exchanges gradients after the last only. ``samples`` per rank: the step makes as many updates as
    they give, at a learning rate in proportion to the update's samples, so that every way of cutting them moves the
    weights alike to first order. ``local_sgd`` averages weights every ``sync_every`` updates. ``skew`` moves that share
    of the last rank's samples to rank 0; the losses are weighted, so that the mean stays the same. ``fsdp`` is torch's
    fully_shard. ``compile`` compiles DDP's forward and backward passes, cut into a graph for each bucket, so that a
    bucket's exchange can still begin before the backward pass ends; loss and update stay eager, and compilation falls
    into the first step. ``scaling: weak`` gives each rank one thread and lets one rank run alone, without any exchange.

    Outputs are the averaged gradients, equal under every strategy and made anew by each step, or of ``part: rank`` the
    rows that fully_shard would leave on this rank; with ``samples`` the weights (state: not poisoned, reset restores).
    Bytes: the gradients of one exchange. Items: tokens or samples of all ranks. Models: tiny, small, base, mlp:small,
    mlp:medium, mlp:large. Source: AI Systems Performance Engineering, chapters 4, 5 and 13.
    """
    _check(context, strategy=strategy, scaling=scaling, wrap=wrap, model=model, compile=compile)
    parts = context.gpus if strategy == "data_parallel" else context.world_size
    plan = _Plan(
        strategy=strategy, batch=batch, accumulate=accumulate, samples=samples, no_sync=no_sync, sync_every=sync_every,
        skew=skew, hook=hook, shard=shard, wrap=wrap, bucket_mb=bucket_mb, compile=compile, parts=parts,
    )  # fmt: skip
    _share_cores(context, scaling)
    joined = "none" if strategy == "data_parallel" or parts == 1 else _group(context, backend)
    task = _task(context, plan, model=model, seq=seq)
    rate = learning_rate * (batch * accumulate if samples else 1)
    return _workload(context, task, plan, optimizer=optimizer, learning_rate=rate, part=part, joined=joined)


def _graphs(compile: str) -> float:
    """How many graphs torch.compile compiled in this process, after it cut them where DDP's buckets end."""
    if compile == "none":
        return 0.0
    from torch._dynamo.utils import counters

    return float(counters["aot_autograd"]["total"])


def _check(context: Context, *, strategy: str, scaling: str, wrap: str, model: str, compile: str) -> None:
    if strategy == "data_parallel":
        if not context.device.startswith("cuda") or context.gpus < 2:
            raise SkipSide("DataParallel splits a batch over GPUs of one process and needs two of them")
    elif context.world_size < 2 and scaling != "weak":
        raise ValueError(f"strategy {strategy} needs ranks: 2 or more on this side")
    if strategy == "fsdp" and wrap == "block" and model not in models.TRANSFORMERS:
        raise ValueError(f'wrap: block needs a transformer; "{model}" has no blocks')
    if compile != "none" and model not in models.TRANSFORMERS:
        # Seen with torch 2.13: it captured no graph of one, and ran it eagerly without a word.
        raise ValueError(f'compile needs a transformer; of "{model}" under DDP torch.compile captures nothing')


def _workload(
    context: Context,
    task: models.Task,
    plan: _Plan,
    *,
    optimizer: str,
    learning_rate: float,
    part: str,
    joined: str,
) -> Workload:
    """The step over ``task``, whose gang has joined by the backend ``joined``."""
    checks: dict[str, Callable[[Mapping[str, Any], Mapping[str, Any]], Outcome]] = {
        "gradients_close": agreement.gradients_close
    }
    if plan.samples:
        # Read before fully_shard cuts the weights.
        checks["update_close"] = agreement.update_close(task.module)
    module = _parallel_module(context, task, plan)
    kind = torch.optim.AdamW if optimizer == "adamw" else torch.optim.SGD
    stepper = kind(task.module.parameters(), lr=learning_rate)
    step = _Step(task, module, stepper, plan, weight=len(task.batch) / plan.per_rank if plan.skew else 1.0)
    flops = task.train_flops
    return Workload(
        step=step.run,
        work=Work(
            bytes=4.0 * task.parameters,
            flops=flops,
            items=task.items,
            item=task.item,
            peaks={} if context.device.startswith("cuda") else {"cpu_gemm_fp32": flops},
        ),
        outputs=_outputs(task, plan, rank=context.rank, part=part),
        inputs=lambda: {"batch": task.batch, "targets": task.targets},
        redraw=task.redraw,
        reset=models.snapshot(task.module, stepper),
        counters=lambda: {"exchanges": float(step.exchanges), "graphs": _graphs(plan.compile)},
        poison=not plan.samples,
        checks=checks,
        facts={
            "backend": joined,
            "parts": plan.parts,
            "threads": torch.get_num_threads(),
            "gradient_bytes": 4 * task.parameters,
            "after_backward_buckets": len(step.buckets),
            "own_samples": len(task.batch),
            "sharded_parameters": sum(1 for p in task.module.parameters() if hasattr(p, "to_local")),
        },
    )
