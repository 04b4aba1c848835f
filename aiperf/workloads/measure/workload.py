"""measure.instrument: the same work under an instrument or without, and read by a stated clock.

What must not live here: the harness's own clocks and ranges, profilers that attach from outside.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any, Literal

import torch

from aiperf.workloads.contract import Context, Seconds, SkipSide, Work, Workload
from aiperf.workloads.measure.events import events
from aiperf.workloads.measure.paced import paced
from aiperf.workloads.shared import models
from aiperf.workloads.shared.seeded import normal

_RATE = 1e-5
_PARTS = ("train_step", "forward", "backward", "optimizer_step")


def instrument(
    context: Context,
    *,
    subject: Literal["train_step", "small_kernels", "batches", "events"] = "train_step",
    steps: int = 4,
    ranges: int = 0,
    timer: Literal["none", "wall", "wall_synced", "events"] = "none",
    n: int = 512,
    pause: Seconds = 0.0,
    report: Literal["none", "log", "counters"] = "none",
) -> Workload:
    """``steps`` repetitions of a piece of work, with NVTX ranges or a clock around each, or a report of each.

    ``train_step``: forward, backward and SGD of the ``tiny`` transformer, 4 sequences of 64 tokens, the first
    ``ranges`` of four NVTX ranges around its parts (no tool need be attached); outputs are the last loss and the
    gradients. Counter ``ranges``: those that the latest step made, none where ``NVTX_DISABLE`` is set; where no tool
    listens, newer packages make them and push nothing. ``small_kernels``: products of two ``n`` x ``n`` float32
    matrices on the GPU, each read by ``timer``: ``wall`` is the host's clock around the call alone, ``wall_synced``
    waits before and after, ``events`` are CUDA events read at the end. Counter ``timer_mean_us``: the timer's mean over
    the latest step. ``batches``: a repetition is a batch of two products of ``n`` x ``n`` bfloat16 matrices, which the
    GPU goes through without a gap, or with a ``pause`` after each for which the host waits. Latency: a batch, without
    its pause. ``events``: a repetition is a batch of one product of ``n`` x ``n`` float32 matrices on one core, and is
    reported: by a debug line of a text ``log``, or by ``counters`` at an HTTP endpoint, which another process scrapes
    once a step, with the debug line off. Outputs are the totals that the log or the endpoint gives. Counters:
    ``log_lines``, ``log_bytes``, ``scrapes``. Items: repetitions.
    Source: book chapters 13, 16.
    """
    if steps < 1 or n < 1 or not 0 <= ranges <= len(_PARTS):
        raise ValueError(f"steps and n must be 1 or more, ranges 0 to {len(_PARTS)}")
    if (subject == "small_kernels") == (timer == "none"):
        raise ValueError("timer is for subject small_kernels, which needs one; aiperf alone times the others")
    if pause < 0 or (pause and subject != "batches"):
        raise ValueError("pause is for subject batches, and 0 s or more")
    if (subject == "events") == (report == "none"):
        raise ValueError("report is for subject events, which needs log or counters")
    if subject == "train_step":
        return _training(context, steps=steps, ranges=ranges)
    if ranges:
        raise ValueError("ranges are for subject train_step")
    if subject == "batches":
        return paced(context, count=steps, pause=pause, n=n)
    if subject == "events":
        return events(context, count=steps, report=report, n=n)
    if not context.on_gpu:
        raise SkipSide("work that the host does not wait for needs a GPU")
    return _kernels(context, steps=steps, timer=timer, n=n)


def _range_makers(count: int, made: list[str]) -> list[Callable[[], Any]]:
    """A maker of context managers for each part: NVTX ranges for the first ``count``, nothing for the rest. ``made``
    gets the name of each range that was made."""
    if not count:
        return [contextlib.nullcontext] * len(_PARTS)
    import nvtx

    def ranged(part: str) -> Any:
        found = nvtx.annotate(part, domain="train")
        if not isinstance(found, contextlib.nullcontext):
            made.append(part)
        return found

    makers: list[Callable[[], Any]] = [partial(ranged, part) for part in _PARTS[:count]]
    return makers + [contextlib.nullcontext] * (len(_PARTS) - count)


def _training(context: Context, *, steps: int, ranges: int) -> Workload:
    task = models.build("tiny", seed=context.seed, device=context.device, batch=4, seq=64)
    optimizer = torch.optim.SGD(task.module.parameters(), lr=_RATE)
    made: list[str] = []
    whole, forward, backward, update = _range_makers(ranges, made)
    latest: dict[str, Any] = {}

    def step() -> None:
        made.clear()
        for _ in range(steps):
            with whole():
                optimizer.zero_grad(set_to_none=True)
                with forward():
                    loss = task.loss(task.module(task.batch), task.targets)
                with backward():
                    loss.backward()
                with update():
                    optimizer.step()
                latest["loss"] = loss.detach()

    return Workload(
        step=step,
        work=Work(flops=steps * task.train_flops, items=steps, item="training steps"),
        outputs=lambda: {**latest, **models.gradients(task.module)},
        inputs=lambda: {"batch": task.batch, "targets": task.targets},
        redraw=task.redraw,
        reset=models.snapshot(task.module),
        counters=lambda: {"ranges": float(len(made))},
        facts={"ranges": ranges, "threads": torch.get_num_threads()},
    )


def _kernels(context: Context, *, steps: int, timer: str, n: int) -> Workload:
    torch.cuda.set_device(torch.device(context.device))
    a, b = (normal(context, name, (n, n), dtype=torch.float32) for name in ("a", "b"))
    out = torch.zeros_like(a)
    read = {"wall": _wall, "wall_synced": _wall_synced, "events": _events}[timer](steps)
    readings: list[float] = []

    def step() -> None:
        readings[:] = read(lambda: torch.mm(a, b, out=out))
        torch.cuda.synchronize()

    step()
    return Workload(
        step=step,
        work=Work(flops=2.0 * steps * n**3, items=steps, item="products"),
        outputs=lambda: {"product": out},
        inputs=lambda: {"a": a, "b": b},
        reference=lambda: {"product": a.double() @ b.double()},
        counters=lambda: {"timer_mean_us": 1e6 * sum(readings) / len(readings)},
        facts={"timer": timer},
    )


Reader = Callable[[Callable[[], object]], list[float]]
"""Calls the work as often as it was made for; returns seconds for each call."""


def _wall(steps: int) -> Reader:
    def read(work: Callable[[], object]) -> list[float]:
        found = []
        for _ in range(steps):
            began = perf_counter()
            work()
            found.append(perf_counter() - began)
        return found

    return read


def _wall_synced(steps: int) -> Reader:
    def waited(work: Callable[[], object]) -> float:
        torch.cuda.synchronize()
        began = perf_counter()
        work()
        torch.cuda.synchronize()
        return perf_counter() - began

    return lambda work: [waited(work) for _ in range(steps)]


def _events(steps: int) -> Reader:
    pairs = [tuple(torch.cuda.Event(enable_timing=True) for _ in range(2)) for _ in range(steps)]

    def read(work: Callable[[], object]) -> list[float]:
        for start, end in pairs:
            start.record()
            work()
            end.record()
        torch.cuda.synchronize()
        return [start.elapsed_time(end) * 1e-3 for start, end in pairs]

    return read
