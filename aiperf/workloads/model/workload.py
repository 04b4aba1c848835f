"""model.step: one training or inference step of a random-weight model.

What must not live here: process groups (parallel/), the models (models.py), the training loop (training.py), timing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Literal

import torch

from aiperf.workloads.contract import Context, SkipSide, Work, Workload
from aiperf.workloads.model import convolutions, pruning, training, unequal
from aiperf.workloads.model.halves import halves
from aiperf.workloads.model.piecewise import decode
from aiperf.workloads.model.replaced import replaced
from aiperf.workloads.model.variants import graphs
from aiperf.workloads.shared import agreement, models
from aiperf.workloads.shared.compiler_counts import compiler_counts
from aiperf.workloads.shared.queues import replay_of
from aiperf.workloads.shared.seeded import gemm_peak

__all__ = ["decode", "graphs", "halves", "replaced", "step"]


def _infer(task: models.Task, cast: Callable[[], Any], asked: SimpleNamespace) -> training.Ready:
    """A forward pass for each of ``accumulate`` parts of the batch, into a buffer made outside inference mode: an audit
    must overwrite it."""
    predict, parts = _compiler(asked.compile)(task.module.eval()), asked.accumulate
    held: dict[str, Any] = {}
    batches = task.batch.chunk(parts)
    passes = 0
    inner = torch.no_grad if asked.guards == "inference_mode_and_no_grad" else contextlib.nullcontext

    def into(like: Any, number: int) -> Any:
        if not held:
            shape = (len(like) * parts, *like.shape[1:])
            with torch.inference_mode(False):
                held["prediction"] = torch.empty(shape, dtype=like.dtype, device=like.device)
        return held["prediction"].chunk(parts)[number]

    def step() -> None:
        nonlocal passes
        passes = 0
        with torch.inference_mode(), inner(), cast():
            for number, batch in enumerate(batches):
                prediction = task.pick(predict(batch))
                into(prediction, number).copy_(prediction)
                passes += 1

    return training.Ready(
        replay_of(step) if asked.graph == "forward" else step,
        lambda: dict(held),
        counters=lambda: {"passes": float(passes)},
    )


def _train(task: models.Task, cast: Callable[[], Any], asked: SimpleNamespace) -> training.Ready:
    """The training step; without a compiler its counters also have what one micro-batch keeps for the backward pass."""
    if asked.checkpoint != "none":
        task.module.recompute(asked.checkpoint)
    plain = lambda x, y: task.loss(task.module(x), y)  # noqa: E731
    loss = training.graphed_passes(task) if asked.graph == "passes" else _compiler(asked.compile)(plain)
    ready = training.training(task, loss, cast, asked)
    kept: dict[str, float] = {}

    def counters() -> dict[str, float]:
        if not kept:
            with cast():
                kept["saved_bytes"] = models.saved_bytes(task, asked.batch)
                if asked.repeats:
                    kept["unequal_gradients"] = training.unequal_gradients(task, plain, asked.repeats)
        return {**ready.counters(), **kept}

    return ready if asked.compile != "none" else ready._replace(counters=counters)


def _task(asked: SimpleNamespace) -> models.Task:
    context = asked.context
    if asked.model.startswith("conv:"):
        return convolutions.build(
            asked.model, seed=context.seed, device=context.device,
            samples=asked.batch * asked.accumulate, side=asked.seq, dtype=getattr(torch, asked.dtype),
        )  # fmt: skip
    if asked.lengths == "equal":
        samples = asked.batch * asked.accumulate
        task = models.build(asked.model, seed=context.seed, device=context.device, batch=samples, seq=asked.seq)
    elif asked.accumulate > 1:
        raise ValueError("samples of unequal length come in one batch; lengths other than equal need accumulate: 1")
    else:
        task = unequal.unequal(
            asked.model, how=asked.lengths, seed=context.seed, device=context.device,
            samples=asked.batch, longest=asked.seq,
        )  # fmt: skip
    if asked.prune:
        task = pruning.pruned(task, share=asked.prune, removed=asked.pruned == "removed")
    return _fed(task, getattr(torch, asked.dtype)) if task.batch.is_floating_point() else task


def _fed(task: models.Task, dtype: Any) -> models.Task:
    """The task with samples of this type, drawn as before and then rounded."""
    batch = task.batch.to(dtype)

    def redraw(seed: int) -> None:
        task.redraw(seed)
        batch.copy_(task.batch)

    return replace(task, batch=batch, redraw=redraw)


def _validate(asked: SimpleNamespace) -> None:
    mode, steps, compile = asked.mode, asked.steps, asked.compile
    if min(asked.batch, asked.seq, asked.accumulate, steps) < 1:
        raise ValueError("batch, seq, accumulate and steps must each be 1 or more")
    if steps > 1 and mode != "train":
        raise ValueError("steps counts updates; it needs mode: train. Inference in several passes is accumulate")
    if min(asked.sync_every, asked.log_every) < 0:
        raise ValueError(f"sync_every and log_every are {asked.sync_every} and {asked.log_every}; 0 is the least")
    if mode == "train" and max(asked.sync_every, asked.log_every) > steps:
        raise ValueError(f"the host would never look: a step has {steps} updates, fewer than it waits for")
    if asked.lengths == "ragged" and mode != "train":
        raise ValueError("ragged samples take a forward and backward pass each; they need mode: train")
    if asked.prune and mode != "infer":
        raise ValueError("prune compares predictions, and training would fill zeroed weights; it needs mode: infer")
    if asked.graph != "none":
        _validate_captured(asked)
    if asked.model.startswith("conv:") and (asked.lengths, asked.prune) != ("equal", 0):
        raise ValueError("convolutions take images of one size, and none of their channels are pruned")
    if asked.repeats and (mode != "train" or compile != "none"):
        raise ValueError("repeats compares gradients of the eager pass; it needs mode: train and compile: none")
    if asked.checkpoint != "none" and (mode != "train" or asked.model not in models.TRANSFORMERS):
        raise ValueError("checkpoint recomputes the blocks of a transformer in its backward pass; it needs mode: train")
    on_gpu = asked.context.on_gpu
    if not on_gpu and (asked.graph != "none" or compile in ("reduce-overhead", "max-autotune")):
        raise SkipSide("CUDA graphs need a GPU")


def _validate_captured(asked: SimpleNamespace) -> None:
    if (asked.graph == "forward") != (asked.mode == "infer") or asked.compile != "none":
        raise ValueError("graph: forward needs mode: infer; passes and step need mode: train; all need compile: none")
    if asked.graph == "forward":
        return
    if asked.optimizer == "adafactor":
        raise ValueError("adafactor reads its count of updates on the host; a captured step needs an AdamW")
    if (asked.steps, asked.accumulate, asked.sync_every, asked.log_every) != (1, 1, 0, 0):
        raise ValueError("a captured step is one update of one batch whose loss the host does not read")
    if (asked.autocast, asked.checkpoint, asked.lengths) != ("none", "none", "equal"):
        raise ValueError("a captured step needs autocast: none, checkpoint: none and lengths: equal")


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
    graph: Literal["none", "forward", "passes", "step"] = "none",
    checkpoint: Literal["none", "blocks", "all"] = "none",
    optimizer: Literal["adamw_loop", "adamw_foreach", "adamw_fused", "adafactor"] = "adamw_fused",
    learning_rate: float = 1e-5,
    sync_every: int = 0,
    log_every: int = 0,
    watch: Literal["gradients", "losses", "parameters"] = "gradients",
    lengths: Literal["equal", "ragged", "padded", "packed"] = "equal",
    prune: float = 0.0,
    pruned: Literal["zeroed", "removed"] = "removed",
    guards: Literal["inference_mode", "inference_mode_and_no_grad"] = "inference_mode",
    cudnn_benchmark: bool = False,
    deterministic: bool = False,
    repeats: int = 0,
) -> Workload:
    """One step of a random-weight model (tiny, small, medium, base, moe:tiny, mlp:wide, mlp:small, mlp:medium,
    mlp:large, and conv:small over images of ``seq`` pixels squared).

    Training: ``steps`` updates of ``accumulate`` micro-batches of ``batch`` sequences of ``seq`` tokens; outputs are
    the losses and the gradients of the last update, with ``watch: losses`` the losses alone, or with ``watch:
    parameters`` the weights after it (state: not poisoned, ``reset`` puts them back). ``compile`` covers forward and
    backward passes; the optimizer is eager.
    ``checkpoint: blocks`` recomputes each block from its stored input; ``all`` embedding, head and every norm,
    attention and feed-forward part, each from a stored input of its own. ``sync_every`` and ``log_every``:
    updates between two reads of the loss by the host. Inference: ``accumulate`` forward passes of ``batch`` sequences.
    ``graph`` replays as CUDA graphs the ``forward`` pass of inference, of training the forward and backward ``passes``
    with an eager optimizer, or the whole ``step``. ``deterministic`` allows only algorithms that give the same bits
    each time; ``repeats``: so many more passes count the elements of the gradients that differ from the first's.

    ``lengths`` other than equal: ``batch`` samples of log-normal lengths up to ``seq`` tokens: ``ragged``, a pass of
    its own length for each, gradients summed; each ``padded`` to the longest; or ``packed`` into rows of ``seq`` with a
    mask that keeps them apart. ``prune``: the share of hidden units
    and heads, those of least norm, whose weights are zeroed, or removed.

    FLOPs: 2 per weight and token forward, twice that again backward, plus attention, without recomputing, padding,
    pruned weights and experts that were not chosen. Items: tokens, without padding. Source: AI Systems Performance
    Engineering, chapters 5, 8, 9, 13 and 14.
    """
    asked = SimpleNamespace(**locals())
    _validate(asked)
    torch.set_flush_denormal(True)  # moments of rows that a batch no longer touches decay into denormals
    torch.backends.cudnn.benchmark = cudnn_benchmark
    torch.backends.cudnn.deterministic = deterministic
    torch.use_deterministic_algorithms(deterministic)
    task = _task(asked)
    task.module.to(getattr(torch, dtype))
    kind = dtype if autocast == "none" else autocast.removesuffix("_scaled")

    def cast() -> Any:
        if autocast == "none":
            return contextlib.nullcontext()
        return torch.autocast(context.device.split(":")[0], dtype=getattr(torch, kind))

    start = agreement.update_close(task.module) if watch == "parameters" else None
    ready = (_train if mode == "train" else _infer)(task, cast, asked)
    flops = (task.train_flops if mode == "train" else task.forward_flops) * steps
    computed = int(task.batch.numel() if task.item == "tokens" else len(task.batch))
    return Workload(
        step=ready.step,
        work=Work(flops=flops, items=task.items * steps, item=task.item, peaks=gemm_peak(context.device, kind, flops)),
        outputs=ready.outputs,
        inputs=lambda: {"batch": task.batch, "targets": task.targets},
        redraw=task.redraw,
        reset=ready.reset,
        counters=lambda: {
            **_graph_counts(compile),
            "computed_items": float(computed * steps),
            **ready.counters(),
        },
        checks={
            "gradients_close": agreement.gradients_close,
            "losses_close": agreement.losses_close,
            "predictions_close": agreement.predictions_close,
            "relative_frobenius": agreement.relative_frobenius,
            **({"update_close": start} if start else {}),
        },
        poison=mode == "infer" or watch != "parameters",
        facts={
            "parameters": task.parameters,
            "parameter_dtype": str(next(task.module.parameters()).dtype).removeprefix("torch."),
            "threads": torch.get_num_threads(),
            "cudnn_benchmark": torch.backends.cudnn.benchmark,
            "compile": compile,
            "captured": graph != "none",
            "deterministic": torch.are_deterministic_algorithms_enabled(),
            "padding": 1 - task.items / computed,
        },
    )


def _graph_counts(compile: str) -> dict[str, float]:
    """Of this side: another one in the same process may have compiled too."""
    counts = compiler_counts("graphs", "graph_breaks", "graph_skips")
    return counts if compile != "none" else dict.fromkeys(counts, 0.0)


def _compiler(mode: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    if mode == "none":
        return lambda function: function
    return lambda function: torch.compile(function, mode=None if mode == "default" else mode)
