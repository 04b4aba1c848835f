"""Family torch.step (named model.step here, so that nothing shadows torch): one training or inference step.

What must not live here: process groups (parallel.py), the models themselves (_models.py), timing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch

from aiperf.workloads import _models as models
from aiperf.workloads.contract import Context, Work, Workload

_LEARNING_RATE = 1e-5


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
    return lambda: torch.autocast(context.device.split(":")[0], dtype=getattr(torch, name))


def _training(
    task: models.Task, forward: Callable[[Any, Any], Any], autocast: Callable[[], Any]
) -> tuple[Callable[[], None], Callable[[], Mapping[str, Any]], Callable[[], None]]:
    """Forward, backward and a fused AdamW update; returns step, outputs (loss and gradients) and reset."""
    optimizer = torch.optim.AdamW(task.module.parameters(), lr=_LEARNING_RATE, fused=True)
    latest: dict[str, Any] = {}

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with autocast():
            loss = forward(task.batch, task.targets)
        loss.backward()
        optimizer.step()
        latest["loss"] = loss.detach()

    def outputs() -> dict[str, Any]:
        return {**latest, **models.gradients(task.module)}

    return step, outputs, models.snapshot(task.module, optimizer)


def _inference(
    task: models.Task, predict: Callable[[Any], Any], autocast: Callable[[], Any], *, guards: str
) -> tuple[Callable[[], None], Callable[[], Mapping[str, Any]]]:
    """A forward pass; ``guards`` says which switches against gradient recording surround it.

    The prediction is handed over in a buffer made outside inference mode: a tensor born inside it cannot be overwritten
    from outside, which an audit needs to do.
    """
    held: dict[str, Any] = {}
    inner = torch.no_grad if guards == "inference_mode_and_no_grad" else contextlib.nullcontext

    def step() -> None:
        with torch.inference_mode(), inner(), autocast():
            prediction = predict(task.batch)
            if not held:
                with torch.inference_mode(False):
                    held["prediction"] = torch.empty(prediction.shape, dtype=prediction.dtype, device=prediction.device)
            held["prediction"].copy_(prediction)

    return step, lambda: dict(held)


def step(
    context: Context,
    *,
    model: str = "tiny",
    mode: Literal["train", "infer"] = "train",
    batch: int = 4,
    seq: int = 64,
    compile: Literal["none", "default", "reduce-overhead", "max-autotune"] = "none",
    autocast: Literal["none", "bfloat16"] = "none",
    guards: Literal["inference_mode", "inference_mode_and_no_grad"] = "inference_mode",
    cudnn_benchmark: bool = False,
) -> Workload:
    """One step of a random-weight model (presets: tiny, small, base, mlp:small, mlp:medium, mlp:large).

    Training returns its loss and gradients; the optimizer is eager on both sides, so ``compile`` covers the forward
    and backward passes. FLOPs: 2 per weight and token forward, twice that again backward, plus attention.
    """
    torch.set_flush_denormal(True)  # moments of rows that a batch no longer touches decay into denormals
    torch.backends.cudnn.benchmark = cudnn_benchmark
    task = models.build(model, seed=context.seed, device=context.device, batch=batch, seq=seq)
    cast = _autocast(context, autocast)
    compiled = compile != "none"

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        return torch.compile(function, mode=None if compile == "default" else compile) if compiled else function

    if mode == "train":
        run, outputs, reset = _training(task, wrap(lambda x, y: task.loss(task.module(x), y)), cast)
    else:
        task.module.eval()
        run, outputs = _inference(task, wrap(task.module), cast, guards=guards)
        reset = None
    flops = task.train_flops if mode == "train" else task.forward_flops
    kind = "bf16" if autocast == "bfloat16" else "fp32"
    on_gpu = context.device.startswith("cuda")
    roof = f"gemm_{kind}" if on_gpu else f"cpu_gemm_{kind}"
    return Workload(
        step=run,
        work=Work(
            flops=flops,
            items=task.items,
            item=task.item,
            roofs={roof: flops} if roof != "cpu_gemm_bf16" else {},
        ),
        outputs=outputs,
        inputs=lambda: {"batch": task.batch, "targets": task.targets},
        redraw=task.redraw,
        reset=reset,
        counters=_graph_counts if compiled else lambda: {"graphs": 0.0, "graph_breaks": 0.0},
        facts={
            "parameters": task.parameters,
            "threads": torch.get_num_threads(),
            "cudnn_benchmark": torch.backends.cudnn.benchmark,
            "compile": compile,
        },
    )
