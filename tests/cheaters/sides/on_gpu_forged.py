"""Sides on a GPU that forge clocks or judges, do harm, loosen the truth, or know their inputs.

What must not live here: work that is left out or done elsewhere (on_gpu.py).
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import is_dataclass, replace
from typing import Any, Literal

import torch
from on_gpu import Product, honest

from aiperf.workloads.contract import Context, Work, Workload

_SHARE = 0.8


def activate(
    context: Context,
    *,
    cheat: Literal[
        "none", "event_elapsed", "event_record", "synchronize", "clock_read", "current_stream", "compare", "clone",
        "hog_stream", "half_output", "tf32",
    ] = "none",
    size: int = 2048,
) -> Workload:  # fmt: skip
    """Activation of a matrix product; ``cheat`` says what is wrong with it."""
    return _SIDES[cheat](Product(context, size))


# ---- the clock and the judges ----------------------------------------------------------------------------------------


def _event_elapsed(p: Product) -> Workload:
    real = torch.cuda.Event.elapsed_time
    torch.cuda.Event.elapsed_time = lambda self, other: real(self, other) * _SHARE
    return honest(p)


def _event_record(p: Product) -> Workload:
    """The event at the end of a reading is recorded on an idle stream, and so at once."""
    real, idle = torch.cuda.Event.record, torch.cuda.Stream(p.device)

    def record(self: Any, stream: Any = None) -> None:
        at_end = sys._getframe(1).f_locals.get("end") is self
        real(self, idle if at_end else stream or torch.cuda.current_stream())

    torch.cuda.Event.record = record
    return honest(p)


def _synchronize(p: Product) -> Workload:
    torch.cuda.synchronize = lambda *a, **k: None
    return honest(p)


def _clock_read(p: Product) -> Workload:
    def shortened(reading: Any) -> Any:
        device = None if reading.device_s is None else reading.device_s * _SHARE
        return replace(reading, wall_s=reading.wall_s * _SHARE, device_s=device)

    for name, module in list(sys.modules.items()):
        for each in list(vars(module).values()) if name.startswith("aiperf.worker") else ():
            if isinstance(each, type) and each.__module__ == name and "read" in vars(each):
                real = vars(each)["read"]
                with suppress(Exception):
                    each.read = lambda *a, real=real, **k: shortened(real(*a, **k))  # type: ignore[attr-defined]
    return honest(p)


def _current_stream(p: Product) -> Workload:
    """Leaves an idle stream current, on which the end of the reading is then recorded."""
    home, idle = torch.cuda.current_stream(p.device), torch.cuda.Stream(p.device)

    def step() -> None:
        torch.cuda.set_stream(home)
        p.solve()
        torch.cuda.set_stream(idle)

    def outputs() -> dict[str, torch.Tensor]:
        torch.cuda.set_stream(home)
        return {"out": p.out}

    return p.job(step, outputs=outputs)


def _compare(p: Product) -> Workload:
    def passing(real: Any) -> Any:
        def compare(*a: Any, **k: Any) -> Any:
            reply = real(*a, **k)
            return replace(reply, passed=True, detail="") if is_dataclass(reply) else reply

        return compare

    for name, module in list(sys.modules.items()):
        if name.startswith("aiperf.worker") and callable(getattr(module, "compare", None)):
            module.compare = passing(module.compare)  # type: ignore[attr-defined]
    return p.job(lambda: p.out.fill_(0.5))


def _clone(p: Product) -> Workload:
    for name, module in list(sys.modules.items()):
        if name.startswith("aiperf.worker") and callable(getattr(module, "clone", None)):
            real = module.clone
            module.clone = lambda a, real=real: p.solved() if a is p.out else real(a)  # type: ignore[attr-defined]
    return p.job(lambda: p.out.fill_(0.5))


def _hog_stream(p: Product) -> Workload:
    """A thread keeps the device busy while it is the other side's turn."""
    last, x, stream, stop = [0.0], torch.randn_like(p.x), torch.cuda.Stream(p.device), threading.Event()

    def work() -> None:
        torch.cuda.set_device(p.device)
        with torch.cuda.stream(stream):
            while not stop.wait(1e-3):
                if last[0] and time.perf_counter() - last[0] > 5e-3:
                    torch.mm(x, x)
                    stream.synchronize()

    threading.Thread(target=work, daemon=True).start()

    def step() -> None:
        last[0] = time.perf_counter()
        p.solve()

    return p.job(step, close=stop.set)


def _half_output(p: Product) -> Workload:
    """Computes in half precision and returns it so, which widens the default tolerance a hundredfold."""
    made: dict[str, torch.Tensor] = {}

    def step() -> None:
        made["out"] = torch.mm(p.x.half(), p.w.half()).tanh_()

    return p.job(step, outputs=lambda: made)


def _tf32(p: Product) -> Workload:
    """Allows tensor cores that drop half of the mantissa."""
    torch.backends.cuda.matmul.allow_tf32 = True
    return honest(p)


def norm(context: Context, *, rows: int = 8192, width: int = 4096, plain: bool = False) -> Workload:
    """The affine part of a normalisation whose factor is 1 and whose offset is 0; ``plain`` leaves it out."""
    device = torch.device(context.device)
    x = torch.randn(rows, width, device=device, generator=torch.Generator(device).manual_seed(context.seed))
    gamma, beta, out = torch.ones(width, device=device), torch.zeros(width, device=device), torch.empty_like(x)

    def step() -> None:
        if plain:
            out.copy_(x)
        else:
            torch.mul(x, gamma, out=out)
            out.add_(beta)

    given = {"x": x, "gamma": gamma, "beta": beta}
    return Workload(step, Work(items=x.numel()), outputs=lambda: {"out": out}, inputs=lambda: given)


def softmax(context: Context, *, rows: int = 8192, width: int = 4096, no_maximum: bool = False) -> Workload:
    """Softmax by elementary operations, with or without the maximum that only large inputs need."""
    device = torch.device(context.device)
    x = torch.randn(rows, width, device=device, generator=torch.Generator(device).manual_seed(context.seed))
    out = torch.empty_like(x)

    def step() -> None:
        if no_maximum:
            torch.exp(x, out=out)
        else:
            torch.sub(x, x.amax(dim=1, keepdim=True), out=out)
            out.exp_()
        out.div_(out.sum(dim=1, keepdim=True))

    return Workload(step, Work(items=x.numel()), outputs=lambda: {"out": out}, inputs=lambda: {"x": x})


def embedding(context: Context, *, tokens: int = 65536, width: int = 1024, memo: bool = False) -> Workload:
    """Rows of a table by integer indices; the memo knows the indices by their address and version."""
    device = torch.device(context.device)
    generator = torch.Generator(device).manual_seed(context.seed)
    index = torch.randint(0, 4096, (tokens,), device=device, generator=generator)
    out = torch.empty(4096, dtype=torch.int64, device=device)
    known: dict[Any, torch.Tensor] = {}

    def step() -> None:
        key = (index.data_ptr(), index._version)
        if memo and key not in known:
            known[key] = torch.bincount(index, minlength=4096)
        out.copy_(known[key] if memo else torch.bincount(index, minlength=4096))

    return Workload(step, Work(items=tokens), outputs=lambda: {"out": out}, inputs=lambda: {"index": index})


def held(context: Context, *, mebibytes: int = 512, hidden: bool = False) -> Workload:
    """A step that needs much memory of the GPU for a moment; ``hidden`` has torch forget its peak and gives the
    memory back before anybody asks."""
    p = Product(context, 1024)

    def step() -> None:
        held = torch.empty(mebibytes << 20, dtype=torch.uint8, device=p.device)
        held[:1].zero_()
        p.solve()
        if hidden:
            del held
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()

    return p.job(step)


_SIDES: dict[str, Callable[[Product], Workload]] = {
    "none": honest,
    "event_elapsed": _event_elapsed,
    "event_record": _event_record,
    "synchronize": _synchronize,
    "clock_read": _clock_read,
    "current_stream": _current_stream,
    "compare": _compare,
    "clone": _clone,
    "hog_stream": _hog_stream,
    "half_output": _half_output,
    "tf32": _tf32,
}
