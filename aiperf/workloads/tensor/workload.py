"""Family tensor.op: one array operation, expressed element by element in Python, as one call, compiled, or as a kernel.

What must not live here: timing, matrix products, the kernels (triton_ops.py).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, Literal

from aiperf.workloads.contract import Context, Work, Workload
from aiperf.workloads.shared.seeded import empty, fill_normal, memory_charge, torch_dtype
from aiperf.workloads.tensor.numpy_ops import standardise, tokenise
from aiperf.workloads.tensor.ops import OPERATIONS, expression

_READS = {"add": 2, "copy": 1, "where": 2, "scale_add": 2}
_HALF = 0.5


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
    """The operation as one vectorised call, for ``where`` two, into the same output."""
    import torch

    calls: dict[str, Callable[[], object]] = {
        "add": lambda: torch.add(a, b, out=out),
        "copy": lambda: out.copy_(a),
        "where": lambda: torch.where(a > 0, a, b, out=out),
        "scale_add": lambda: torch.add(a, b, alpha=_HALF, out=out),
    }
    return calls[op]


def _reference(op: str, a: Any, b: Any) -> Any:
    wide: Any = a.double()
    other: Any = b.double() if b is not None else None
    if op in ("add", "scale_add"):
        return wide + other * (1 if op == "add" else _HALF)
    return wide if op == "copy" else wide.where(wide > 0, other)


def _each(out: Any, a: Any, b: Any, tensors: int) -> Callable[[], None]:
    """The sum of ``a`` and half of ``b`` over many small tensors, a call for each; they lie one behind the other."""
    import torch

    pieces = [tuple(part.unbind()) for part in (t.view(tensors, -1) for t in (a, b, out))]
    triples = list(zip(*pieces, strict=True))

    def each() -> None:
        for one, other, target in triples:
            torch.add(one, other, alpha=_HALF, out=target)

    return each


def op(
    context: Context,
    *,
    op: Literal[
        "add", "copy", "where", "scale_add", "sin_sqrt", "add_scale", "relu_abs", "axpb", "row_l2norm", "row_sum",
        "use_stored_square", "recompute_square", "swiglu", "softmax", "layer_norm", "norm_dropout_residual",
        "linear_gelu_dropout", "gated_activation", "modulo_lookup", "mul_add_relu", "standardise_rows", "byte_tokenise",
        "top_k_gate",
    ] = "add",
    impl: Literal[
        "python_loop", "per_tensor", "numpy", "cupy", "torch", "compiled", "triton", "opaque", "transparent"
    ] = "torch",
    n: int = 1 << 20,
    cols: int = 1024,
    dtype: Literal["float32", "float64", "bfloat16", "float16"] = "float32",
    source: Literal["contiguous", "strided", "gather"] = "contiguous",
    stride: int = 2,
    depth: int = 1,
    tensors: int = 1,
    block: int = 1024,
    warps: int = 4,
    copied: bool = False,
) -> Workload:  # fmt: skip
    """``op`` over ``n`` elements; where it works on rows they have ``cols`` elements each.

    ``add``, ``copy``, ``where`` (positive elements of the first input, else the second's) and ``scale_add`` write an
    output allocated once, by ``python_loop``, ``torch`` or (scale_add) ``per_tensor``, a call for each of ``tensors``
    equal parts. ``source``: the first input is packed, every ``stride``-th element of an array, or gathered (copy).

    The other operations are expressions with intermediates: ``torch`` runs them call by call, ``compiled`` in one graph
    by torch.compile, ``triton`` as one kernel written by hand (``block`` elements a program, or a row; ``warps``).
    ``axpb`` is x * 0.99 + 0.01, ``depth`` times. ``mul_add_relu`` compiles relu(x / 2 + y) whole, or with its addition
    as a Triton operator that the compiler cannot look into (``opaque``) or can (``transparent``). ``top_k_gate`` makes
    softmax shares of a row's 8 best scores, also as one ``transparent`` kernel. ``standardise_rows`` is there for
    numpy, cupy and torch; with ``copied`` a step also brings it from host memory to the device, before cupy and torch
    and after numpy. ``byte_tokenise`` is there for python_loop, numpy and, ``copied``, torch. Bytes: inputs and outputs
    once; items: elements. Source: book chapters 6 to 9, 12, 14 and appendix.
    """
    asked = SimpleNamespace(**locals())
    if min(n, cols, depth, tensors, block, warps) < 1:
        raise ValueError("n, cols, depth, tensors, block and warps must each be 1 or more")
    if op == "byte_tokenise":
        return tokenise(context, n=n, impl=impl, copied=copied)
    if op == "standardise_rows":
        return standardise(context, n=n, cols=cols, impl=impl, copied=copied)
    if copied:
        raise ValueError("copied is there for ops standardise_rows and byte_tokenise")
    if op in OPERATIONS and (op not in _READS or impl in ("compiled", "triton")):
        if impl not in ("torch", "compiled", "triton", "opaque", "transparent"):
            raise ValueError(f"op {op} has no impl {impl}")
        return expression(asked)
    if impl not in ("python_loop", "torch", "per_tensor") or (impl == "per_tensor") > (op == "scale_add"):
        raise ValueError(f"op {op} has no impl {impl}")
    if op == "scale_add" and (impl == "python_loop" or n % tensors):
        raise ValueError(f"op scale_add takes {n} elements in equal parts, by impl torch or per_tensor")
    if source == "gather" and (op, impl) != ("copy", "torch"):
        raise ValueError("source gather is there for op copy with impl torch")
    if source != "contiguous" and impl == "per_tensor":
        raise ValueError("impl per_tensor takes parts of packed memory: source contiguous")
    return _direct(asked)


def _direct(asked: SimpleNamespace) -> Workload:
    """One of the operations that write an output allocated once."""
    import torch

    context, op, impl, n = asked.context, asked.op, asked.impl, asked.n
    step_over = 1 if asked.source == "contiguous" else asked.stride
    kind = torch_dtype(asked.dtype)
    base = empty(context, (n * step_over,), kind).zero_()
    a = base[::step_over]
    b = empty(context, (n,), kind) if _READS[op] == 2 else None
    out = empty(context, (n,), kind).zero_()

    # Vectorised, "where" compares and then chooses.
    calls = {"python_loop": n, "per_tensor": asked.tensors}.get(impl, 2 if op == "where" else 1)

    def redraw(seed: int) -> None:
        fill_normal(a, seed=seed, name="a")
        if b is not None:
            fill_normal(b, seed=seed, name="b")

    redraw(context.seed)
    inputs = {"a": base} if b is None else {"a": base, "b": b}
    step: Callable[[], object]
    if asked.source == "gather":
        index = inputs["index"] = torch.arange(0, n * asked.stride, asked.stride, device=context.device)
        step = partial(torch.index_select, base, 0, index, out=out)
    elif impl == "per_tensor":
        step = _each(out, a, b, asked.tensors)
    else:
        step = (_loop if impl == "python_loop" else _call)(op, out, a, b)

    moved = (_READS[op] + 1) * n * out.element_size()
    flops = {"add": n, "scale_add": 2 * n}.get(op, 0)
    return Workload(
        step=step,
        work=Work(bytes=moved, flops=flops, items=n, item="elements", **memory_charge(context.device, moved)),
        outputs=lambda: {"out": out},
        inputs=lambda: inputs,
        redraw=redraw,
        reference=lambda: {"out": _reference(op, a, b)},
        counters=lambda: {"calls_per_step": float(calls)},
        facts={"source_bytes": base.nbytes, "threads": torch.get_num_threads()},
    )
