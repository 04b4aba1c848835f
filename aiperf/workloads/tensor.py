"""Family tensor.op: one array operation, expressed element by element in Python or as one call.

What must not live here: timing, matrix products, hand-written kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from aiperf.workloads._seeded import empty, fill_normal, memory_roof, torch_dtype
from aiperf.workloads.contract import Context, Work, Workload

_READS = {"add": 2, "copy": 1, "where": 2}


def _loop(op: str, out: Any, a: Any, b: Any) -> Callable[[], None]:
    """The operation as a Python loop over tensor elements, the way it is written by hand."""

    def add() -> None:
        for i in range(len(out)):
            out[i] = a[i] + b[i]

    def copy() -> None:
        for i in range(len(out)):
            out[i] = a[i]

    def where() -> None:
        for i in range(len(out)):
            out[i] = a[i] if a[i] > 0 else b[i]

    return {"add": add, "copy": copy, "where": where}[op]


def _call(op: str, out: Any, a: Any, b: Any) -> Callable[[], object]:
    """The operation as one vectorised call into the same output."""
    import torch

    calls: dict[str, Callable[[], object]] = {
        "add": lambda: torch.add(a, b, out=out),
        "copy": lambda: out.copy_(a),
        "where": lambda: torch.where(a > 0, a, b, out=out),
    }
    return calls[op]


def _reference(op: str, a: Any, b: Any) -> Any:
    wide, other = a.double(), b.double() if b is not None else None
    if op == "add":
        return wide + other
    return wide if op == "copy" else wide.where(wide > 0, other)


def _work(context: Context, op: str, n: int, element: int) -> Work:
    moved = (_READS[op] + 1) * n * element
    roofs = memory_roof(context.device, moved=moved, working_set=moved)
    return Work(bytes=moved, flops=n if op == "add" else 0, items=n, item="elements", roofs=roofs)


def op(
    context: Context,
    *,
    op: Literal["add", "copy", "where"] = "add",
    impl: Literal["python_loop", "torch"] = "torch",
    n: int = 1 << 20,
    dtype: Literal["float32", "float64", "bfloat16"] = "float32",
    source: Literal["contiguous", "strided", "gather"] = "contiguous",
    stride: int = 2,
) -> Workload:
    """``op`` over ``n`` elements into an output allocated once.

    ``where`` keeps positive elements of the first input and takes the others from the second. ``source`` says how the
    first input lies in memory: packed, every ``stride``-th element of a larger array read through a strided view, or
    the same elements fetched through an int64 index (copy only). All three hold the same n values. Bytes are the
    useful ones: n values read per input, n written.
    """
    import torch

    if source == "gather" and (op, impl) != ("copy", "torch"):
        raise ValueError("source gather is there for op copy with impl torch")
    kind = torch_dtype(dtype)
    step_over = 1 if source == "contiguous" else stride
    base = empty(context, (n * step_over,), kind)
    base.zero_()
    a = base[::step_over]
    b = empty(context, (n,), kind) if _READS[op] == 2 else None
    out = empty(context, (n,), kind).zero_()

    def redraw(seed: int) -> None:
        fill_normal(a, seed=seed, name="a")
        if b is not None:
            fill_normal(b, seed=seed, name="b")

    redraw(context.seed)
    inputs = {"a": base} if b is None else {"a": base, "b": b}
    if source == "gather":
        inputs["index"] = torch.arange(0, n * stride, stride, device=context.device)
        index = inputs["index"]

        def step() -> object:
            return torch.index_select(base, 0, index, out=out)
    else:
        step = (_loop if impl == "python_loop" else _call)(op, out, a, b)

    return Workload(
        step=step,
        work=_work(context, op, n, out.element_size()),
        outputs=lambda: {"out": out},
        inputs=lambda: inputs,
        redraw=redraw,
        reference=lambda: {"out": _reference(op, a, b)},
        counters=lambda: {"calls_per_step": float(n if impl == "python_loop" else 1)},
        facts={"source_bytes": base.numel() * base.element_size(), "threads": torch.get_num_threads()},
    )
