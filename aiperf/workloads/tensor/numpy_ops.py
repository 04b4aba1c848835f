"""The operations of tensor.op that run on arrays of numpy, cupy and torch alike, and their Python loops.

What must not live here: torch expressions (ops.py), timing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aiperf.workloads.contract import Context, Work, Workload
from aiperf.workloads.shared.cupy_kernels import import_cupy, view_stream
from aiperf.workloads.shared.seeded import generator

_LINE = 80
_UNKNOWN = 1


def token_table() -> Any:
    """Token ids of the 256 bytes, int32: letters without case, digits, blanks and line ends; the rest is unknown."""
    table = np.full(256, _UNKNOWN, np.int32)
    for index, letter in enumerate(range(ord("a"), ord("z") + 1)):
        table[letter] = table[letter - 32] = 20 + index
    for index in range(10):
        table[ord("0") + index] = 4 + index
    table[ord(" ")], table[ord("\n")] = 2, 3
    return table


def tokenise(context: Context, *, n: int, impl: str, copied: bool) -> Workload:
    """``n`` bytes of text in lines of 80 to int32 ids by table: byte by byte in Python, by one numpy call, or by torch
    on the device; with ``copied`` from host memory to ids on the device, so that numpy's are copied after the look-up
    and torch's text before it."""
    if impl not in ("python_loop", "numpy", "torch") or (impl == "torch") > copied:
        raise ValueError(f"op byte_tokenise has impl python_loop, numpy and (copied) torch, not {impl}")
    if copied:
        return _tokenise_to_device(context, n=n, impl=impl)
    table, text, ids = token_table(), np.empty(n, np.uint8), np.zeros(n, np.int32)

    def redraw(seed: int) -> None:
        _draw_text(text, seed)

    redraw(context.seed)

    def loop() -> None:
        known = {byte: int(token) for byte, token in enumerate(table)}
        found: list[int] = []
        for line in text.tobytes().splitlines(keepends=True):
            for byte in line:
                found.append(known[byte])
        ids[:] = found

    return Workload(
        step=loop if impl == "python_loop" else lambda: np.take(table, text, out=ids),
        work=Work(bytes=5.0 * n, items=n, item="bytes of text"),
        outputs=lambda: {"ids": ids},
        inputs=lambda: {"text": text},
        redraw=redraw,
        reference=lambda: {"ids": table[text]},
        counters=lambda: {"calls_per_step": float(n if impl == "python_loop" else 1)},
        facts={"impl": impl},
    )


def _draw_text(text: Any, seed: int) -> None:
    text[:] = generator(seed, "text").integers(32, 127, len(text), dtype=np.uint8)
    text[_LINE - 1 :: _LINE] = ord("\n")


def _tokenise_to_device(context: Context, *, n: int, impl: str) -> Workload:
    """The ids end up on the device. What is copied lies in pinned memory on a GPU's host, so that a copy is one
    transfer: a byte each of text, or four of ids."""
    import torch

    if impl not in ("numpy", "torch"):
        raise ValueError(f"copied is there for byte_tokenise by numpy and torch, not {impl}")
    table = token_table()
    pinned = {"pin_memory": context.on_gpu}
    text, ids = torch.zeros(n, dtype=torch.uint8, **pinned), torch.zeros(n, dtype=torch.int32, device=context.device)
    staged = torch.zeros(n, dtype=torch.int32, **pinned) if impl == "numpy" else None
    on_device = torch.from_numpy(table).to(context.device)
    bytes_there = torch.zeros(n, dtype=torch.uint8, device=context.device) if impl == "torch" else None

    def redraw(seed: int) -> None:
        _draw_text(text.numpy(), seed)

    def by_numpy() -> None:
        assert staged is not None
        np.take(table, text.numpy(), out=staged.numpy())
        ids.copy_(staged)

    def by_torch() -> None:
        assert bytes_there is not None
        bytes_there.copy_(text, non_blocking=True)
        torch.index_select(on_device, 0, bytes_there.int(), out=ids)

    redraw(context.seed)
    return Workload(
        step=by_numpy if impl == "numpy" else by_torch,
        work=Work(bytes=5.0 * n, items=n, item="bytes of text"),
        outputs=lambda: {"ids": ids},
        inputs=lambda: {"text": text},
        redraw=redraw,
        reference=lambda: {"ids": table[text.numpy()]},
        counters=lambda: {"copied_bytes": float(n if impl == "torch" else 4 * n)},
        facts={"impl": impl, "device": "cpu" if impl == "numpy" else context.device},
    )


def standardise(context: Context, *, n: int, cols: int, impl: str, copied: bool) -> Workload:
    """Rows of ``cols`` float32 to mean 0 and deviation 1, by the same expression in numpy (host memory), cupy or torch
    (the device's); with ``copied`` from host memory to a result on the device, by one copy on either side."""
    if n % cols:
        raise ValueError(f"{n} elements do not make whole rows of {cols}")
    host = np.empty((n // cols, cols), np.float32)
    x, put, compute = _array(context, impl, host)
    to_device = _copied_to(context.device) if copied and impl == "numpy" else None
    put_first = copied and to_device is None
    held: dict[str, Any] = {}

    def redraw(seed: int) -> None:
        host[...] = generator(seed, "x").standard_normal(host.shape, dtype=np.float32)
        if not put_first:
            put(host)

    def step() -> None:
        if put_first:
            put(host)
        held["out"] = compute() if to_device is None else to_device(compute())

    def reference() -> dict[str, Any]:
        wide = host.astype(np.float64)
        return {"out": (wide - wide.mean(1, keepdims=True)) / wide.std(1, keepdims=True)}

    redraw(context.seed)
    step()
    return Workload(
        step=step,
        work=Work(bytes=8.0 * n, flops=5.0 * n, items=n, item="elements"),
        outputs=lambda: dict(held),
        inputs=lambda: {"x": host if put_first else x},
        redraw=redraw,
        reference=reference,
        facts={"impl": impl, "copied": copied, "device": "cpu" if impl == "numpy" else context.device},
        close=held.clear,
    )


def _copied_to(device: str) -> Callable[[Any], Any]:
    import torch

    return lambda values: torch.from_numpy(values).to(device)


def _array(context: Context, impl: str, host: Any) -> tuple[Any, Callable[[Any], object], Callable[[], Any]]:
    """The input where ``impl`` computes, how new values get into it, and the computation."""
    if impl == "numpy":
        x = np.empty_like(host)
        return x, lambda values: np.copyto(x, values), lambda: _standardised(x)
    import torch

    if impl == "torch":
        tensor = torch.empty(host.shape, dtype=torch.float32, device=context.device)

        def by_torch() -> Any:
            mean = tensor.mean(1, keepdim=True)
            return (tensor - mean) / tensor.std(1, keepdim=True, correction=0)

        return tensor, lambda values: tensor.copy_(torch.from_numpy(values)), by_torch
    if impl != "cupy":
        raise ValueError(f"op standardise_rows has impl numpy, cupy and torch, not {impl}")
    context.use_gpu("CuPy needs a GPU")
    array = import_cupy().empty(host.shape, np.float32)

    def by_cupy() -> Any:
        with view_stream(torch.cuda.current_stream().cuda_stream):
            return _standardised(array)

    def put(values: Any) -> None:
        with view_stream(torch.cuda.current_stream().cuda_stream):
            array.set(values)

    return array, put, by_cupy


def _standardised(x: Any) -> Any:
    return (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True)
