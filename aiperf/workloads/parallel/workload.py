"""parallel.train, parallel.forward, parallel.sharded (sharded.py): training steps, and a decoder's passes, over ranks.

What must not live here: single-process steps (model/), models, how gradients meet (gradient_exchange.py), layouts.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from time import perf_counter
from types import SimpleNamespace
from typing import Any, Literal

import torch
import torch.distributed as dist

from aiperf.workloads.contract import Context, Outcome, SkipSide, Work, Workload
from aiperf.workloads.llm.agreement import same_when_rounded
from aiperf.workloads.parallel import gradient_exchange as exchange
from aiperf.workloads.parallel.duties import Duties
from aiperf.workloads.parallel.forward import check_asked, join, side_of, work_of
from aiperf.workloads.parallel.sharded import sharded
from aiperf.workloads.shared import agreement, models
from aiperf.workloads.shared.compiler_counts import compiler_counts

METRICS = {
    "train": {"exchange_share": ("", "lower"), "exchange_rate": ("B/s", "higher"), "state_bytes": ("B", "lower")}
}
__all__ = ["forward", "sharded", "train"]


def _check(asked: SimpleNamespace) -> None:
    context, strategy = asked.context, asked.strategy
    if strategy == "data_parallel":
        if not context.on_gpu or context.gpus < 2:
            raise SkipSide("DataParallel splits a batch over GPUs of one process and needs two of them")
    elif context.world_size < 2 and asked.scaling == "none":
        raise ValueError(f"strategy {strategy} needs ranks: 2 or more on this side")
    if strategy != "fsdp" and (asked.offload != "none" or asked.prefetch != "next"):
        raise ValueError("offload and prefetch are about sharded weights; they need strategy: fsdp")
    if strategy == "fsdp" and asked.wrap == "block" and asked.model not in models.TRANSFORMERS:
        raise ValueError(f'wrap: block needs a transformer; "{asked.model}" has no blocks')
    if asked.compile != "none" and asked.model not in models.TRANSFORMERS:
        # Seen with torch 2.13: it captured no graph of one, and ran it eagerly without a word.
        raise ValueError(f'compile needs a transformer; of "{asked.model}" under DDP torch.compile captures nothing')


def _check_updates(asked: SimpleNamespace) -> None:
    strategy, update = asked.strategy, asked.batch * asked.accumulate
    if min(asked.batch, asked.accumulate, asked.sync_every) < 1:
        raise ValueError("batch, accumulate and sync_every must each be 1 or more")
    if asked.samples % update:
        raise ValueError(f"{asked.samples} samples cannot be cut into updates of {update}")
    if (asked.no_sync or asked.hook != "none") and strategy != "ddp":
        raise ValueError("no_sync and hook are DDP's; they need strategy: ddp")
    if asked.compile != "none" and (strategy != "ddp" or asked.no_sync):
        raise ValueError("compile is torch.compile over DDP, with an exchange after each backward pass")
    if asked.compile != "none" and asked.bucket_mb < 1:
        raise ValueError("torch.compile cuts at DDP's buckets only from bucket_mb: 1 on, the size of DDP's first")
    if asked.accumulate > 1 and strategy not in ("ddp", "local_sgd"):
        raise ValueError("accumulate needs strategy: ddp")
    if asked.sync_every > 1 and strategy != "local_sgd":
        raise ValueError("sync_every is the distance of two averages of local SGD; it needs strategy: local_sgd")
    if strategy == "local_sgd" and not asked.samples:
        raise ValueError("local SGD is about several updates; say how many samples they walk through")


def _check_skew(asked: SimpleNamespace) -> None:
    strategy, update = asked.strategy, asked.batch * asked.accumulate
    skew, heavy = asked.skew, asked.skew * asked.batch
    if asked.skew_turns and (
        strategy not in ("ddp", "local_sgd")
        or asked.accumulate > 1
        or not asked.samples
        or asked.samples // update % 2
        or not skew
    ):
        raise ValueError(
            "skew_turns needs a skew and strategy: ddp or local_sgd over an even number of updates, accumulate: 1"
        )
    if asked.duties != "none" and (strategy != "ddp" or asked.context.on_gpu or asked.samples or asked.part != "whole"):
        raise ValueError("duties go with one update of strategy: ddp on CPUs")
    if skew and (
        asked.parts != 2 or (asked.samples and not asked.skew_turns) or heavy != int(heavy) or not 0 <= skew < 1
    ):
        raise ValueError(f"skew {skew} must be a share below 1 that moves whole samples between two ranks")


def _check_graph(asked: SimpleNamespace) -> None:
    if not asked.graph:
        return
    if asked.strategy not in ("ddp", "after_backward") or asked.compile != "none" or asked.hook != "none":
        raise ValueError("graph captures the step of strategy: ddp or after_backward, without compile or hook")
    if asked.optimizer != "sgd":
        raise ValueError("graph needs optimizer: sgd, which keeps no count of steps on the host")
    if not asked.context.on_gpu:
        raise SkipSide("a CUDA graph needs a GPU")


def _share_cores(asked: SimpleNamespace) -> None:
    """Ranks of one host that compute on the CPU split its cores instead of each taking all of them."""
    ranks = asked.context.world_size
    if asked.context.device == "cpu" and (asked.scaling == "weak" or ranks > 1):
        torch.set_num_threads(1 if asked.scaling == "weak" else max(1, len(os.sched_getaffinity(0)) // ranks))


def _join(asked: SimpleNamespace) -> str:
    """Join the gang; NCCL for GPUs and Gloo for CPUs unless the side says otherwise."""
    if asked.strategy == "data_parallel" or asked.parts == 1:
        return "none"
    asked.context.process_group(asked.context.gang_backend(asked.backend))
    return str(dist.get_backend())


def _task(asked: SimpleNamespace) -> models.Task:
    """This rank's slice of the global batch; ``skew`` moves samples of the last rank to the first."""
    context, per_rank = asked.context, asked.per_rank
    alone = asked.strategy == "data_parallel"
    cut = per_rank if asked.skew_turns else per_rank + int(asked.skew * asked.batch) * asked.accumulate
    skewed = slice(cut, 2 * per_rank) if context.rank else slice(0, cut)
    return models.build(
        asked.model,
        seed=context.seed,
        device=context.device,
        batch=per_rank * asked.parts,
        seq=asked.seq,
        part=0 if alone else context.rank,
        parts=1 if alone else asked.parts,
        rows=skewed if cut > per_rank and not alone else None,
    )


def _parallel_module(task: models.Task, asked: SimpleNamespace) -> Any:
    context = asked.context
    if asked.strategy in ("after_backward", "local_sgd") or asked.parts == 1:
        return task.module
    if asked.strategy == "data_parallel":
        return torch.nn.DataParallel(task.module, device_ids=list(range(context.gpus)))
    if asked.strategy == "fsdp":
        return exchange.shard(task, device=context.device, ranks=asked.parts, asked=asked)
    ids = [torch.device(context.device).index] if context.on_gpu else None
    module = torch.nn.parallel.DistributedDataParallel(task.module, device_ids=ids, bucket_cap_mb=asked.bucket_mb)
    exchange.install_hook(module, asked.hook)
    return module if asked.compile == "none" else torch.compile(module)


class _Step:
    """One timed step: ``updates`` times the micro-batches, the exchange and the optimizer."""

    def __init__(self, task: models.Task, module: Any, optimizer: Any, asked: SimpleNamespace) -> None:
        self._task, self._module, self._optimizer, self._asked = task, module, optimizer, asked
        self._weight = len(task.batch) / asked.per_rank if asked.skew else 1.0
        """Of this rank's loss; where updates differ in size, each has its own."""
        self.duties: Duties | None = None
        if asked.duties != "none":
            shares = asked.parts if asked.duties == "shared" else 1
            named = dict(task.module.named_parameters())
            self.duties = Duties(named, asked.context.scratch, rank=asked.context.rank, shares=shares)
        self._parameters = list(task.module.parameters())
        self.buckets, local = exchange.gradient_averages(self._parameters, asked), asked.strategy == "local_sgd"
        self._whole = exchange.Averaging(self._parameters, asked.parts, gradients=False) if local else None
        self.exchanges = self._exchanged = 0
        self._exchanging = self._running = 0.0

    def run(self) -> None:
        """The timed region."""
        began = perf_counter()
        self.exchanges = 0
        micro = self._micro()
        for number in range(self._asked.updates):
            self._update(micro[number * self._asked.accumulate : (number + 1) * self._asked.accumulate])
            if self._whole is not None and (number + 1) % self._asked.sync_every == 0:
                self._whole.average()
                self.exchanges += 1
        self._exchanged += self.exchanges
        self._running += perf_counter() - began

    def _micro(self) -> list[tuple[Any, Any]]:
        """(batch, targets) of each pass, in order."""
        asked, both = self._asked, (self._task.batch, self._task.targets)
        if not asked.skew_turns:
            cut = [part.chunk(asked.updates * asked.accumulate) for part in both]
        else:
            heavy = int(asked.skew * asked.batch)
            larger = [number % 2 == asked.context.rank % 2 for number in range(asked.updates)]
            cut = [part.split([asked.batch + (heavy if more else -heavy) for more in larger]) for part in both]
        return list(zip(*cut, strict=True))

    def values(self) -> dict[str, float]:
        """Memory of this rank's training state, and of the steps since the last call, where nothing hides the buckets'
        all-reduces, what they took of the time, waiting for the other ranks included, and their bytes by the time."""
        found = {"state_bytes": exchange.state_bytes(self._parameters, self._optimizer)}
        # On a GPU an all-reduce is only queued by the end of the step.
        if self.buckets and not self._asked.context.on_gpu and self._running:
            found["exchange_share"] = self._exchanging / self._running
            found["exchange_rate"] = 4.0 * self._task.parameters * self._exchanged / self._running
        self._exchanging = self._running = 0.0
        self._exchanged = 0
        return found

    def _update(self, micro: list[tuple[Any, Any]]) -> None:
        self._optimizer.zero_grad(set_to_none=True)
        for index, (x, y) in enumerate(micro):
            quiet = self._asked.no_sync and index < len(micro) - 1
            with self._module.no_sync() if quiet else contextlib.nullcontext():
                loss = self._task.loss(self._module(x), y)
                weight = len(x) / self._asked.batch if self._asked.skew_turns else self._weight
                (loss * (weight / len(micro)) if weight != len(micro) else loss).backward()
            exchanged = self._asked.strategy in ("ddp", "fsdp", "after_backward") and self._asked.parts > 1
            self.exchanges += exchanged and not quiet
        began = perf_counter()
        for bucket in self.buckets:
            bucket.average()
        self._exchanging += perf_counter() - began
        self._optimizer.step()
        if self.duties is not None:
            self.duties.fulfil()


def _outputs(task: models.Task, asked: SimpleNamespace) -> dict[str, Any]:
    """Gradients, or the weights where the step makes several updates; whole, or the rows that are this rank's."""
    if asked.samples:
        return {name: p.detach() for name, p in task.module.named_parameters()}
    found = models.gradients(task.module)
    if asked.strategy == "fsdp":
        return {name: grad.to_local() for name, grad in found.items() if grad.to_local().numel()}
    return exchange.own_rows(found, rank=asked.context.rank, ranks=asked.parts) if asked.part == "rank" else found


def train(
    context: Context,
    *,
    strategy: Literal["after_backward", "ddp", "data_parallel", "fsdp", "local_sgd"] = "ddp",
    model: str = "small",
    batch: int = 4,
    seq: int = 64,
    accumulate: int = 1,
    samples: int = 0,
    scaling: Literal["none", "weak", "strong"] = "none",
    bucket_mb: float = 25.0,
    compile: Literal["none", "default"] = "none",
    hook: Literal["none", "fp16", "bf16", "powersgd"] = "none",
    no_sync: bool = False,
    sync_every: int = 1,
    skew: float = 0.0,
    skew_turns: bool = False,
    duties: Literal["none", "rank0", "shared"] = "none",
    shard: Literal["full", "grad_op"] = "full",
    wrap: Literal["model", "block"] = "block",
    prefetch: Literal["next", "none"] = "next",
    offload: Literal["none", "cpu"] = "none",
    graph: bool = False,
    part: Literal["whole", "rank"] = "whole",
    optimizer: Literal["sgd", "adamw"] = "sgd",
    learning_rate: float = 1e-5,
    backend: Literal["auto", "gloo", "nccl"] = "auto",
) -> Workload:
    """One update on a global batch of ``batch`` samples per rank (per GPU for data_parallel, which has one rank).

    ``after_backward`` averages DDP's buckets when the whole backward pass is done; ``bucket_mb: 0``: one all-reduce
    per parameter. ``accumulate`` micro-batches of ``batch`` make an update; with ``no_sync`` DDP exchanges
    gradients after the last only. ``samples`` per rank: as many updates as they give, at a learning rate in
    proportion to the update's samples. ``local_sgd`` averages weights every ``sync_every`` updates. ``skew`` moves
    that share of the last rank's samples to rank 0, or with ``skew_turns`` lets the ranks' updates be larger and
    smaller by it in turns; the losses are weighted, so that the mean stays the same. ``duties``: after each update
    ``rank0`` alone, or all with arrays ``shared`` out, log the norms of gradients, write the weights, read them
    back and hash them; then all hear of the norms. ``fsdp`` is torch's fully_shard. ``compile`` compiles DDP's
    forward and backward passes, cut into a graph for each bucket, in the first step. ``scaling`` lets one rank run
    alone, without any exchange; ``weak`` also gives each rank one thread. Of fsdp, ``prefetch: none`` gathers a
    unit's weights in the backward pass only when they are needed, not beside the unit before, and ``offload: cpu``
    keeps weights, gradients and update in host memory. ``graph`` replays the whole step, all-reduces included, from
    a CUDA graph of each rank.

    Rank 0's ``state_bytes``: weights, gradients, optimizer state; of ``after_backward`` on CPUs ``exchange_share`` of
    its time (averaging gradients, waiting included), ``exchange_rate`` (their bytes by all its time).

    Outputs: the averaged gradients, or of ``part: rank`` the rows that fully_shard would leave on this rank; with
    ``samples`` the weights (state: not poisoned, reset restores). Bytes: the gradients of one exchange. Items: tokens
    or samples of all ranks. Models: tiny, small, medium, base, mlp:small, mlp:medium, mlp:large. Book, ch. 4, 5, 13.
    """
    asked = SimpleNamespace(**locals())
    asked.parts = context.gpus if strategy == "data_parallel" else context.world_size
    for check in (_check, _check_updates, _check_skew, _check_graph):
        check(asked)
    # Per rank and timed step, were the samples shared out equally.
    asked.updates = samples // (batch * accumulate) or 1
    asked.per_rank = asked.updates * accumulate * batch
    _share_cores(asked)
    return _workload(asked, _join(asked))


def _workload(asked: SimpleNamespace, joined: str) -> Workload:
    task, samples = _task(asked), asked.samples
    checks: dict[str, Callable[[Mapping[str, Any], Mapping[str, Any]], Outcome]] = {
        "gradients_close": agreement.gradients_close
    }
    if samples:
        # Read before fully_shard cuts the weights.
        checks["update_close"] = agreement.update_close(task.module)
    # DDP's hooks belong to the stream that it was made on, which must be the captured one.
    side = torch.cuda.Stream() if asked.graph else None
    with exchange.all_on(side) if side is not None else contextlib.nullcontext():
        module = _parallel_module(task, asked)
    kind = torch.optim.AdamW if asked.optimizer == "adamw" else torch.optim.SGD
    rate = asked.learning_rate * (asked.batch * asked.accumulate if samples else 1)
    stepper = kind(task.module.parameters(), lr=rate)
    step = _Step(task, module, stepper, asked)
    # Copies of shards on the GPU would count as memory of the side that keeps its shards there.
    reset = models.snapshot(task.module, stepper, on_host=asked.strategy == "fsdp")
    graph = exchange.captured(step.run, side) if asked.graph else None
    if graph is not None:
        reset()
    flops = task.train_flops
    return Workload(
        step=step.run if graph is None else graph.replay,
        work=Work(
            bytes=4.0 * task.parameters,
            flops=flops,
            items=task.items,
            item=task.item,
            peaks={} if asked.context.on_gpu else {"cpu_gemm_fp32": flops},
        ),
        outputs=lambda: _outputs(task, asked) | ({"norms": step.duties.norms} if step.duties is not None else {}),
        inputs=lambda: {"batch": task.batch, "targets": task.targets},
        redraw=task.redraw,
        reset=reset,
        counters=lambda: (
            {
                "exchanges": float(step.exchanges),
                "saved_bytes": float(step.duties.bytes if step.duties is not None else 0),
                "graphs": compiler_counts("cut_graphs")["cut_graphs"] if asked.compile != "none" else 0.0,
            }
            | exchange.ddp_buckets(module)
        ),
        values=step.values,
        poison=not samples,
        checks=checks,
        close=None if graph is None else graph.reset,
        facts={
            "backend": joined,
            "parts": asked.parts,
            "threads": torch.get_num_threads(),
            "gradient_bytes": 4 * task.parameters,
            "after_backward_buckets": len(step.buckets),
            "own_samples": len(task.batch),
            "captured": asked.graph,
            "sharded_parameters": sum(1 for p in task.module.parameters() if hasattr(p, "to_local")),
        },
    )


def forward(
    context: Context,
    *,
    layout: Literal["tensor", "pipeline", "replicas", "context"] = "tensor",
    decode_layout: Literal["same", "replicas"] = "same",
    model: Literal["tiny", "small", "base", "1b", "8b", "70b-2layer"] = "tiny",
    phase: Literal["prefill", "both", "train", "attention"] = "prefill",
    batch: int = 1,
    tokens: int = 128,
    new_tokens: int = 8,
    microbatches: int = 1,
    graph: bool = False,
    dtype: Literal["float32", "bfloat16"] = "float32",
) -> Workload:
    """One random-weight decoder over all ranks of the side: a prefill of ``batch`` prompts of ``tokens``, with ``both``
    then ``new_tokens`` greedy tokens for each; with ``train`` the gradients of one update, with ``attention`` that of
    one layer's heads alone.

    ``layout``: ``tensor`` splits heads, hidden units and vocabulary (two all-reduces a layer); ``pipeline`` splits the
    layers, and the batch into ``microbatches``; ``replicas`` splits the batch; ``context`` splits the prompt, and keys
    and values go round in a ring. One rank has the whole model. ``decode_layout: replicas`` moves the keys and values
    of a tensor-parallel prefill to replicas, whose weights lie on every rank besides. ``train`` takes microbatches by
    1F1B; the last stage has fewer layers for the head. ``graph`` replays the decoding step as a CUDA graph. On the CPU
    every rank has one thread.

    Outputs, on every rank: logits after the prompts, tokens and margins of the choices, the first from those logits;
    of ``train`` some rows of the stage's gradients, and the loss; of ``attention`` 128 tokens' results. FLOPs: 2 x
    parameters x tokens, plus attention; 3 times that for ``train``. Bytes: the weights once for each pass, or queries,
    keys, values and results. Items: prompts' tokens, with ``both`` new ones (book, chapters 13, 15, 18, 19).
    """
    asked = SimpleNamespace(**locals())
    check_asked(asked)
    joined = join(context)
    side = side_of(asked)
    return Workload(
        step=side.step,
        work=work_of(asked),
        outputs=lambda: dict(side.held),
        inputs=side.inputs,
        redraw=side.redraw,
        checks={
            "same_when_rounded": same_when_rounded,
            "gradients_close": agreement.gradients_close,
            "relative_frobenius": agreement.relative_frobenius,
        },
        facts={"backend": joined, "ranks": context.world_size, "threads": torch.get_num_threads()},
        close=side.close,
    )
