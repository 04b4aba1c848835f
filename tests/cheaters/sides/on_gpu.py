"""Sides on a GPU, of every class that has its own forms there.

What must not live here: sides of the CPU. Without a GPU the ones that forge nothing of CUDA also run on a CPU.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
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
        "event_elapsed", "event_record", "synchronize", "clock_read", "current_stream",
        "compare", "clone", "hog_stream", "half_output", "tf32",
        "own_stream_joined", "graph_of_step", "keeps_and_works",
    ] = "none",
    size: int = 2048,
) -> Workload:  # fmt: skip
    """Activation of a matrix product; ``cheat`` says what is wrong with it, the last three names cheat nobody."""
    return _SIDES[cheat](Product(context, size))


def _honest(p: Product, **hooks: Any) -> Workload:
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


# ---- the clock and the judges ----------------------------------------------------------------------------------------


def _event_elapsed(p: Product) -> Workload:
    real = torch.cuda.Event.elapsed_time
    torch.cuda.Event.elapsed_time = lambda self, other: real(self, other) * _SHARE
    return _honest(p)


def _event_record(p: Product) -> Workload:
    """The event at the end of a reading is recorded on an idle stream, and so at once."""
    real, idle = torch.cuda.Event.record, torch.cuda.Stream(p.device)

    def record(self: Any, stream: Any = None) -> None:
        at_end = sys._getframe(1).f_locals.get("end") is self
        real(self, idle if at_end else stream or torch.cuda.current_stream())

    torch.cuda.Event.record = record
    return _honest(p)


def _synchronize(p: Product) -> Workload:
    torch.cuda.synchronize = lambda *a, **k: None
    return _honest(p)


def _clock_read(p: Product) -> Workload:
    from dataclasses import replace

    def shortened(reading: Any) -> Any:
        device = None if reading.device_s is None else reading.device_s * _SHARE
        return replace(reading, wall_s=reading.wall_s * _SHARE, device_s=device)

    for name, module in list(sys.modules.items()):
        for each in list(vars(module).values()) if name.startswith("aiperf.worker") else ():
            if isinstance(each, type) and each.__module__ == name and "read" in vars(each):
                real = vars(each)["read"]
                with suppress(Exception):
                    each.read = lambda *a, real=real, **k: shortened(real(*a, **k))  # type: ignore[attr-defined]
    return _honest(p)


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
    from dataclasses import is_dataclass, replace

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
    return _honest(p)


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
    "none": _honest,
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
    "own_stream_joined": _own_stream_joined,
    "graph_of_step": _graph_of_step,
    "keeps_and_works": _keeps_and_works,
}
