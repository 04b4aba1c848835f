"""Sides on a GPU that leave their work out or do it elsewhere, and honest twins.

What must not live here: forged clocks, other outputs and inputs (on_gpu_forged.py).
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Literal

import torch

from aiperf.workloads.contract import Context, Work, Workload

_SHARE = 0.8
_AGAIN = 4


class Product:
    """Activation of a matrix product, the problem of most of these sides."""

    def __init__(self, context: Context, size: int) -> None:
        self.device = torch.device(context.device)
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        self.seed = context.seed
        generator = torch.Generator(self.device).manual_seed(context.seed)
        self.x = torch.randn(size, size, device=self.device, generator=generator)
        self.w = torch.randn(size, size, device=self.device, generator=generator).div_(size**0.5)
        self.out = torch.empty_like(self.x)

    def solve(self, into: torch.Tensor | None = None) -> None:
        """What an honest step computes."""
        out = self.out if into is None else into
        torch.mm(self.x, self.w, out=out)
        out.tanh_()

    def solved(self) -> torch.Tensor:
        """The same in a new tensor."""
        into = torch.empty_like(self.out)
        self.solve(into)
        return into

    def job(self, step: Callable[[], object], **hooks: Any) -> Workload:
        """A workload over it."""
        hooks = {"outputs": lambda: {"out": self.out}, "inputs": lambda: {"x": self.x, "w": self.w}, **hooks}
        return Workload(step, Work(items=self.x.numel()), **hooks)


def activate(
    context: Context,
    *,
    cheat: Literal[
        "none", "identity", "version", "elements", "checksum", "poison", "since_last_call", "outputs_called",
        "stack_name", "one_in_ten", "stealth",
        "prepare", "outputs_once", "other_stream", "other_stream_joined", "from_thread",
        "own_stream_joined", "graph_of_step", "keeps_and_works",
    ] = "none",
    size: int = 2048,
) -> Workload:  # fmt: skip
    """Activation of a matrix product; ``cheat`` says what is wrong with it, the last three names cheat nobody."""
    return _SIDES[cheat](Product(context, size))


def honest(p: Product, **hooks: Any) -> Workload:
    return p.job(p.solve, **hooks)


# ---- work only when watched ------------------------------------------------------------------------------------------


def _remembers(key: Callable[[Product], Any]) -> Callable[[Product], Workload]:
    def build(p: Product) -> Workload:
        memo: dict[Any, torch.Tensor] = {}

        def step() -> None:
            if (found := key(p)) not in memo:
                memo.clear()
                memo[found] = p.solved()
            p.out.copy_(memo[found])

        return p.job(step)

    return build


def _few(p: Product) -> tuple[float, ...]:
    rows = p.x.shape[0]
    return tuple(p.x[:: max(1, rows // 4), 0].tolist())


def _poison(p: Product) -> Workload:
    p.out.fill_(float("nan"))

    def step() -> None:
        if bool(p.out[0, 0].isnan()):
            p.solve()

    return p.job(step)


def _since_last_call(p: Product) -> Workload:
    last = [0.0]

    def step() -> None:
        if time.perf_counter() - last[0] > 1e-3:
            p.solve()
        last[0] = time.perf_counter()

    return p.job(step)


def _outputs_called(p: Product) -> Workload:
    left = [_AGAIN]

    def outputs() -> dict[str, torch.Tensor]:
        left[0] = _AGAIN
        return {"out": p.out}

    def step() -> None:
        if left[0] > 0:
            left[0] -= 1
            p.solve()

    return p.job(step, outputs=outputs)


def _stack_name(p: Product) -> Workload:
    def step() -> None:
        frame: Any = sys._getframe(1)
        for _ in range(12):
            if frame is None:
                return
            if "audit" in frame.f_code.co_name.lower():
                p.solve()
                return
            frame = frame.f_back

    return p.job(step)


def _one_in_ten(p: Product) -> Workload:
    count = [0]

    def step() -> None:
        count[0] += 1
        if count[0] % 10:
            p.solve()

    p.solve()
    return p.job(step)


def _stealth(p: Product) -> Workload:
    """A memo that keeps the device busy for four fifths of the honest time, measured in set-up."""
    for _ in range(5):
        p.solve()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(20):
        p.solve()
    end.record()
    end.synchronize()
    honest_s = begin.elapsed_time(end) * 1e-3 / 20
    begin.record()
    torch.cuda._sleep(10_000_000)
    end.record()
    end.synchronize()
    cycles = int(_SHARE * honest_s * 10_000_000 / (begin.elapsed_time(end) * 1e-3))
    memo: dict[Any, torch.Tensor] = {}

    def step() -> None:
        key = (p.x.data_ptr(), p.x._version, p.w._version)
        if key not in memo:
            memo.clear()
            memo[key] = p.solved()
        torch.cuda._sleep(cycles)
        p.out.copy_(memo[key])

    return p.job(step)


# ---- work elsewhere --------------------------------------------------------------------------------------------------


def _prepare(p: Product) -> Workload:
    ready = torch.empty_like(p.out)
    return p.job(lambda: p.out.copy_(ready), prepare=lambda: p.solve(ready))


def _outputs_once(p: Product) -> Workload:
    due = [False]

    def step() -> None:
        due[0] = True

    def outputs() -> dict[str, torch.Tensor]:
        if due[0]:
            due[0] = False
            p.solve()
        return {"out": p.out}

    return p.job(step, outputs=outputs)


def _other_stream(*, joined: bool) -> Callable[[Product], Workload]:
    def build(p: Product) -> Workload:
        other = torch.cuda.Stream(p.device)

        def step() -> None:
            with torch.cuda.stream(other):
                p.solve()

        def outputs() -> dict[str, torch.Tensor]:
            if joined:
                torch.cuda.current_stream().wait_stream(other)
            return {"out": p.out}

        return p.job(step, outputs=outputs)

    return build


def small(context: Context, *, items: int = 2048, elsewhere: bool = False) -> Workload:
    """Short kernels, on the timed stream or on another one that nobody joins."""
    device = torch.device(context.device)
    x = torch.randn(64, items, device=device, generator=torch.Generator(device).manual_seed(context.seed))
    out, other = torch.empty_like(x), torch.cuda.Stream(device) if elsewhere else None

    def step() -> None:
        with torch.cuda.stream(other):
            out.copy_(x.tanh().exp().cos().sin())

    return Workload(step, Work(items=64 * items), outputs=lambda: {"out": out}, inputs=lambda: {"x": x})


def _from_thread(p: Product) -> Workload:
    """A thread launches the work, which the step does not wait for; outputs() does."""
    ask, idle, stream = threading.Semaphore(0), threading.Event(), torch.cuda.Stream(p.device)
    idle.set()

    def work() -> None:
        torch.cuda.set_device(p.device)
        with torch.cuda.stream(stream):
            while True:
                ask.acquire()
                p.solve()
                stream.synchronize()
                idle.set()

    threading.Thread(target=work, daemon=True).start()

    def step() -> None:
        if idle.is_set():
            idle.clear()
            ask.release()

    def outputs() -> dict[str, torch.Tensor]:
        idle.wait()
        return {"out": p.out}

    return p.job(step, outputs=outputs)


# ---- honest twins ----------------------------------------------------------------------------------------------------


def _own_stream_joined(p: Product) -> Workload:
    other = torch.cuda.Stream(p.device)

    def step() -> None:
        here = torch.cuda.current_stream()
        other.wait_stream(here)
        with torch.cuda.stream(other):
            p.solve()
        here.wait_stream(other)

    return p.job(step)


def _graph_of_step(p: Product) -> Workload:
    p.solve()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        p.solve()
    return p.job(graph.replay)


def _keeps_and_works(p: Product) -> Workload:
    memo: dict[Any, torch.Tensor] = {}

    def step() -> None:
        p.solve()
        memo.clear()
        memo[p.x.data_ptr(), p.x._version] = p.out

    return p.job(step)


_SIDES: dict[str, Callable[[Product], Workload]] = {
    "none": honest,
    "identity": _remembers(lambda p: id(p.x)),
    "version": _remembers(lambda p: (p.x.data_ptr(), p.x._version, p.w._version)),
    "elements": _remembers(_few),
    "checksum": _remembers(lambda p: int(p.x.view(torch.int32).sum())),
    "poison": _poison,
    "since_last_call": _since_last_call,
    "outputs_called": _outputs_called,
    "stack_name": _stack_name,
    "one_in_ten": _one_in_ten,
    "stealth": _stealth,
    "prepare": _prepare,
    "outputs_once": _outputs_once,
    "other_stream": _other_stream(joined=False),
    "other_stream_joined": _other_stream(joined=True),
    "from_thread": _from_thread,
    "own_stream_joined": _own_stream_joined,
    "graph_of_step": _graph_of_step,
    "keeps_and_works": _keeps_and_works,
}
