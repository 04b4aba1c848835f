"""Cheat: hands the work to another stream (GPU) or thread (CPU) and returns before it is done."""

from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from aiperf.workloads.contract import Context, Work, Workload


def activate(context: Context, *, items: int = 524288, elsewhere: bool = False) -> Workload:
    """Four activations of a vector, on the stream that is timed or on another one that nobody joins."""
    build = _on_gpu if context.device.startswith("cuda") else _on_cpu
    return build(context, items, elsewhere)


def _on_cpu(context: Context, items: int, elsewhere: bool) -> Workload:
    x = np.random.default_rng(context.seed).standard_normal(items)
    out = np.empty_like(x)
    pool = ThreadPoolExecutor(1)
    pending: list[Future[None]] = []

    def compute() -> None:
        np.copyto(out, np.sin(np.cos(np.exp(np.tanh(x)))))

    def step() -> None:
        if not elsewhere:
            compute()
        elif not pending or pending[-1].done():
            pending[:] = [pool.submit(compute)]

    work = Work(items=items)
    return Workload(step, work, outputs=lambda: {"out": out}, inputs=lambda: {"x": x}, close=pool.shutdown)


def _on_gpu(context: Context, items: int, elsewhere: bool) -> Workload:
    import torch

    generator = torch.Generator(context.device).manual_seed(context.seed)
    x = torch.randn(64, items, device=context.device, generator=generator)
    out = torch.empty_like(x)
    other = torch.cuda.Stream(context.device)

    def compute() -> None:
        out.copy_(x.tanh().exp().cos().sin())

    def step() -> None:
        if not elsewhere:
            compute()
            return
        with torch.cuda.stream(other):
            compute()

    return Workload(step, Work(items=64 * items), outputs=lambda: {"out": out}, inputs=lambda: {"x": x})
