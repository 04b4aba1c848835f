"""Family torch.step (named model.step here, so that nothing shadows torch): one training or inference step.

What must not live here: process groups (parallel.py), the models themselves (models.py), optimizers (training.py),
timing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Literal

import torch

from aiperf.workloads.contract import Context, SkipSide, Work, Workload
from aiperf.workloads.model import pruning, training, unequal
from aiperf.workloads.shared import agreement, models
from aiperf.workloads.shared.queues import replay_of

_KINDS = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}


def _graph_counts() -> dict[str, float]:
    """How many graphs torch.compile built in this process, and how often it gave up in the middle of one."""
    from torch._dynamo.utils import counters

    return {
        "graphs": float(counters["stats"]["unique_graphs"]),
        "graph_breaks": float(sum(counters["graph_break"].values())),
    }


def _autocast(context: Context, name: str) -> Callable[[], Any]:
    if name == "none":
        return contextlib.nullcontext
    dtype = getattr(torch, name.removesuffix("_scaled"))
    return lambda: torch.autocast(context.device.split(":")[0], dtype=dtype)


def _infer(
    task: models.Task,
    predict: Callable[[Any], Any],
    autocast: Callable[[], Any],
    *,
    guards: str,
    graph: str,
    parts: int,
) -> training.Ready:
    """A forward pass for each of ``parts`` of the batch; ``guards`` says which switches against gradient recording
    surround them.

    The prediction is handed over in a buffer made outside inference mode: a tensor born inside it cannot be overwritten
    from outside, which an audit needs to do.
    """
    held: dict[str, Any] = {}
    batches = task.batch.chunk(parts)
    passes = 0
    inner = torch.no_grad if guards == "inference_mode_and_no_grad" else contextlib.nullcontext

    def into(like: Any, number: int) -> Any:
        if not held:
            shape = (len(like) * parts, *like.shape[1:])
            with torch.inference_mode(False):
                held["prediction"] = torch.empty(shape, dtype=like.dtype, device=like.device)
        return held["prediction"].chunk(parts)[number]

    def step() -> None:
        nonlocal passes
        passes = 0
        with torch.inference_mode(), inner(), autocast():
            for number, batch in enumerate(batches):
                prediction = task.pick(predict(batch))
                into(prediction, number).copy_(prediction)
                passes += 1

    return training.Ready(
        replay_of(step) if graph == "forward" else step,
        lambda: dict(held),
        counters=lambda: {"passes": float(passes)},
    )


def _train(
    context: Context,
    task: models.Task,
    plan: training.TrainingPlan,
    autocast: Callable[[], Any],
    *,
    compile: str,
    checkpoint: str,
    samples: int,
) -> training.Ready:
    """The training step; without a compiler its counters also tell what ``samples`` keep for the backward pass."""
    if checkpoint != "none":
        task.module.checkpoint = checkpoint
    loss = _compiler(compile)(lambda x, y: task.loss(task.module(x), y))
    ready = training.training(task, loss, autocast, plan, scratch=context.scratch)
    if compile != "none":
        return ready
    return ready._replace(counters=_with_saved_bytes(task, autocast, ready.counters, samples=samples))


def _task(
    context: Context, *, model: str, batch: int, seq: int, accumulate: int, lengths: str, prune: float, removed: bool
) -> models.Task:
    if lengths == "equal":
        task = models.build(model, seed=context.seed, device=context.device, batch=batch * accumulate, seq=seq)
    elif accumulate > 1:
        raise ValueError("samples of unequal length come in one batch; lengths other than equal need accumulate: 1")
    else:
        packed = lengths == "packed"
        task = unequal.unequal(
            model, packed=packed, seed=context.seed, device=context.device, samples=batch, longest=seq
        )
    return pruning.pruned(task, share=prune, removed=removed) if prune else task


def _validate(
    context: Context,
    *,
    model: str,
    mode: str,
    compile: str,
    graph: str,
    checkpoint: str,
    sizes: list[int],
    prune: float,
    steps: int,
) -> None:
    if min(sizes) < 1:
        raise ValueError("batch, seq and accumulate must each be 1 or more")
    if steps > 1 and mode != "train":
        raise ValueError("steps counts updates; it needs mode: train. Inference in several passes is accumulate")
    if prune and mode != "infer":
        raise ValueError("prune compares predictions, and training would fill zeroed weights; it needs mode: infer")
    if graph != "none" and (mode != "infer" or compile != "none"):
        raise ValueError("graph: forward captures an eager forward pass; it needs mode: infer and compile: none")
    if checkpoint != "none" and (mode != "train" or model not in models.TRANSFORMERS):
        raise ValueError("checkpoint recomputes the blocks of a transformer in its backward pass; it needs mode: train")
    on_gpu = context.device.startswith("cuda")
    if not on_gpu and (graph != "none" or compile in ("reduce-overhead", "max-autotune")):
        raise SkipSide("CUDA graphs need a GPU")


def step(
    context: Context,
    *,
    model: str = "tiny",
    mode: Literal["train", "infer"] = "train",
    batch: int = 4,
    seq: int = 64,
    steps: int = 1,
    accumulate: int = 1,
    dtype: Literal["float32", "bfloat16"] = "float32",
    autocast: Literal["none", "bfloat16", "float16_scaled"] = "none",
    compile: Literal["none", "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"] = "none",
    graph: Literal["none", "forward"] = "none",
    checkpoint: Literal["none", "blocks", "all"] = "none",
    optimizer: Literal["adamw_loop", "adamw_foreach", "adamw_fused"] = "adamw_fused",
    learning_rate: float = 1e-5,
    sync_every: int = 0,
    log_every: int = 0,
    watch: Literal["gradients", "parameters"] = "gradients",
    lengths: Literal["equal", "padded", "packed"] = "equal",
    prune: float = 0.0,
    pruned: Literal["zeroed", "removed"] = "removed",
    guards: Literal["inference_mode", "inference_mode_and_no_grad"] = "inference_mode",
    cudnn_benchmark: bool = False,
) -> Workload:
    """One step of a random-weight model (presets: tiny, small, base, moe:tiny, mlp:wide, mlp:small, mlp:medium,
    mlp:large).

    Training: ``steps`` updates of ``accumulate`` micro-batches of ``batch`` sequences; it returns the losses and the
    gradients of the last update, or with ``watch: parameters`` the weights after it (state: not poisoned, ``reset``
    puts them back). The optimizer is eager on every side, so ``compile`` covers the forward and backward passes.
    ``checkpoint: all`` recomputes embedding, last norm and head besides the blocks. Inference: ``accumulate`` forward
    passes of ``batch`` sequences, one after the other.

    ``lengths`` other than equal: ``batch`` samples of log-normal lengths up to ``seq`` tokens, each ``padded`` to the
    longest, or ``packed`` into rows of ``seq`` with a mask that keeps them apart; losses and predictions are of true
    tokens. ``prune``: the share of hidden units and heads, those of least norm, whose weights are zeroed, or removed.
    FLOPs: 2 per weight and token forward, twice that again backward, plus attention; those of recomputing, of padding,
    of pruned weights and of experts that were not chosen do not count. Items: tokens, without padding. Source: AI
    Systems Performance Engineering, chapters 5, 8, 9, 13 and 14.
    """
    _validate(
        context, sizes=[batch, seq, accumulate], model=model, mode=mode, compile=compile, graph=graph,
        checkpoint=checkpoint, prune=prune, steps=steps,
    )  # fmt: skip
    torch.set_flush_denormal(True)  # moments of rows that a batch no longer touches decay into denormals
    torch.backends.cudnn.benchmark = cudnn_benchmark
    task = _task(
        context, model=model, batch=batch, seq=seq, accumulate=accumulate, lengths=lengths, prune=prune,
        removed=pruned == "removed",
    )  # fmt: skip
    task.module.to(getattr(torch, dtype))
    cast = _autocast(context, autocast)
    if mode == "train":
        plan = training.TrainingPlan(
            optimizer=optimizer, learning_rate=learning_rate, steps=steps, accumulate=accumulate, watch=watch,
            sync_every=sync_every, log_every=log_every, scaled=autocast == "float16_scaled",
        )  # fmt: skip
        ready = _train(context, task, plan, cast, compile=compile, checkpoint=checkpoint, samples=batch)
    else:
        ready = _infer(task, _compiler(compile)(task.module.eval()), cast, guards=guards, graph=graph, parts=accumulate)
    return _workload(
        task,
        ready,
        work=_work(context, task, kind=_kind(autocast, dtype), train=mode == "train", steps=steps),
        counts=_graph_counts if compile != "none" else lambda: {"graphs": 0.0, "graph_breaks": 0.0},
        poison=mode == "infer" or watch == "gradients",
        facts=_facts(task, compile=compile, graph=graph),
    )


def _workload(
    task: models.Task,
    ready: training.Ready,
    *,
    work: Work,
    counts: Callable[[], dict[str, float]],
    poison: bool,
    facts: dict[str, Any],
) -> Workload:
    computed = float(work.items / task.items * _computed_items(task))
    return Workload(
        step=ready.step,
        work=work,
        outputs=ready.outputs,
        inputs=lambda: {"batch": task.batch, "targets": task.targets},
        redraw=task.redraw,
        reset=ready.reset,
        counters=lambda: {**counts(), "computed_items": computed, **ready.counters()},
        checks={"gradients_close": agreement.gradients_close, "predictions_close": agreement.predictions_close},
        poison=poison,
        facts=facts,
    )


def _computed_items(task: models.Task) -> int:
    """Items that the model computes in one update or inference, padding included."""
    return int(task.batch.numel() if task.item == "tokens" else len(task.batch))


def _facts(task: models.Task, *, compile: str, graph: str) -> dict[str, Any]:
    return {
        "parameters": task.parameters,
        "parameter_dtype": str(next(task.module.parameters()).dtype).removeprefix("torch."),
        "threads": torch.get_num_threads(),
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "compile": compile,
        "captured": graph == "forward",
        "padding": 1 - task.items / _computed_items(task),
    }


def _compiler(mode: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    if mode == "none":
        return lambda function: function
    return lambda function: torch.compile(function, mode=None if mode == "default" else mode)


def _with_saved_bytes(
    task: models.Task, cast: Callable[[], Any], own: Callable[[], dict[str, float]], *, samples: int
) -> Callable[[], dict[str, float]]:
    """The counts of the loop, and what one more forward pass over a micro-batch keeps for its backward pass."""
    kept: dict[str, float] = {}

    def count() -> dict[str, float]:
        if not kept:
            with cast():
                kept["saved_bytes"] = models.saved_bytes(task, samples)
        return {**own(), **kept}

    return count


def _kind(autocast: str, dtype: str) -> str:
    return _KINDS[dtype if autocast == "none" else autocast.removesuffix("_scaled")]


def _work(context: Context, task: models.Task, *, kind: str, train: bool, steps: int) -> Work:
    flops = (task.train_flops if train else task.forward_flops) * steps
    on_gpu = context.device.startswith("cuda")
    peak = f"gemm_{kind}" if on_gpu else f"cpu_gemm_{kind}"
    return Work(
        flops=flops,
        items=task.items * steps,
        item=task.item,
        peaks={peak: flops} if on_gpu or kind == "fp32" else {},
    )
