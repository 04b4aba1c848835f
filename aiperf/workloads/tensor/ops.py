"""The operations of tensor.op that are written as torch expressions: inputs, expression, what they move and compute.

What must not live here: kernels (triton_ops.py), element loops and numpy (tensor.py, numpy_ops.py), timing.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Literal

from aiperf.workloads.contract import SkipSide, Work, Workload
from aiperf.workloads.shared.compiler_counts import compiler_counts
from aiperf.workloads.shared.seeded import empty, fill_normal, fill_uniform, memory_charge, torch_dtype
from aiperf.workloads.shared.triton_gemm import need_triton
from aiperf.workloads.tensor.triton_ops import (
    EPSILON,
    SCALE,
    SHIFT,
    TOP,
    launcher,
    registered_add,
    registered_gate,
)

Layout = Literal["all", "row", "matrix", "table"]
TABLE = 1024
_HALF = 0.5
KEEP = 0.9


@dataclass(frozen=True)
class Given:
    """One input: over all elements, over one row, a square matrix of rows, or a short table; and how it is drawn."""

    layout: Layout = "all"
    draw: Literal["normal", "weight", "angle", "mask", "square", "ranks"] = "normal"


@dataclass(frozen=True)
class Operation:
    """An expression over named inputs. ``moved`` and ``flops`` are values and operations for each element, without
    matrices."""

    inputs: Mapping[str, Given]
    make: Callable[[int, int], Callable[..., Any]]
    """(depth, elements) -> function of the inputs, in their order."""
    moved: float
    flops: float
    rows: bool = False
    """Works along the last of two dimensions."""
    outputs: tuple[str, ...] = ("out",)


def _chain(depth: int, n: int) -> Callable[..., Any]:
    def chain(x: Any) -> Any:
        for _ in range(depth):
            x = x * SCALE + SHIFT
        return x

    return chain


def _l2norm(x: Any) -> Any:
    squares = x * x
    return x / (squares.sum(-1, keepdim=True) + EPSILON).sqrt()


def _layer_norm(x: Any, weight: Any, bias: Any) -> Any:
    import torch

    return torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, EPSILON)


def _norm_dropout(x: Any, residual: Any, kept: Any, weight: Any, bias: Any) -> Any:
    return _layer_norm(x, weight, bias) * kept + residual


def _linear_gelu_dropout(x: Any, kept: Any, weight: Any, bias: Any) -> Any:
    import torch

    return torch.nn.functional.gelu(torch.nn.functional.linear(x, weight, bias)) * kept


def _lookup(depth: int, n: int) -> Callable[..., Any]:
    import torch

    return lambda table: torch.index_select(table, 0, torch.arange(n, device=table.device) % TABLE)


def _swiglu(gate: Any, up: Any) -> Any:
    import torch

    return torch.nn.functional.silu(gate) * up


def _top_k_gate(x: Any) -> Any:
    """The best experts of each token and the shares in which they are mixed, as Mixtral's router is written."""
    shares, experts = x.softmax(-1).topk(TOP, -1)
    return shares / shares.sum(-1, keepdim=True), experts


def _plain(function: Callable[..., Any]) -> Callable[[int, int], Callable[..., Any]]:
    return lambda depth, n: function


_X = {"x": Given()}
_NORM = {"weight": Given("row"), "bias": Given("row")}
OPERATIONS: Mapping[str, Operation] = {
    "add": Operation({"a": Given(), "b": Given()}, _plain(lambda a, b: a + b), 3, 1),
    "sin_sqrt": Operation({"x": Given(draw="angle")}, _plain(lambda x: x.sin().sqrt()), 2, 2),
    "add_scale": Operation({"a": Given(), "b": Given()}, _plain(lambda a, b: (a + b) * _HALF), 3, 2),
    "relu_abs": Operation(_X, _plain(lambda x: x.relu().abs()), 2, 2),
    "axpb": Operation(_X, _chain, 2, 2),
    "row_l2norm": Operation(_X, _plain(_l2norm), 2, 3, rows=True),
    "row_sum": Operation(_X, _plain(lambda x: x.sum(-1)), 1, 1, rows=True),
    "use_stored_square": Operation(
        {"x": Given(), "square": Given(draw="square")}, _plain(lambda x, square: x + square * _HALF), 2, 3
    ),
    "recompute_square": Operation(_X, _plain(lambda x: x + x * x * _HALF), 2, 3),
    "swiglu": Operation({"gate": Given(), "up": Given()}, _plain(_swiglu), 3, 5),
    "softmax": Operation(_X, _plain(lambda x: x.softmax(-1)), 2, 5, rows=True),
    "layer_norm": Operation({**_X, **_NORM}, _plain(_layer_norm), 2, 7, rows=True),
    "norm_dropout_residual": Operation(
        {**_X, "residual": Given(), "kept": Given(draw="mask"), **_NORM}, _plain(_norm_dropout), 4, 9, rows=True
    ),
    "linear_gelu_dropout": Operation(
        {**_X, "kept": Given(draw="mask"), "weight": Given("matrix", "weight"), "bias": Given("row")},
        _plain(_linear_gelu_dropout), 3, 7, rows=True,
    ),
    "gated_activation": Operation(
        {"x": Given(), "gate": Given()},
        _plain(lambda x, gate: x * (1.702 * x).sigmoid() * gate.relu().square()), 3, 8,
    ),
    "modulo_lookup": Operation({"table": Given("table")}, _lookup, 1, 0),
    "mul_add_relu": Operation({"x": Given(), "y": Given()}, _plain(lambda x, y: (x * _HALF + y).relu()), 3, 3),
    "top_k_gate": Operation(
        {"x": Given(draw="ranks")}, _plain(_top_k_gate), 1, 5, rows=True, outputs=("shares", "experts")
    ),
}  # fmt: skip


def drawn(given: Given, tensor: Any, held: Mapping[str, Any], *, seed: int, name: str) -> None:
    """Fill one input in place; equal on every device."""
    import torch

    if given.draw == "square":
        torch.mul(held["x"], held["x"], out=tensor)
    elif given.draw == "ranks":
        # No two values of a row are equal, so that there is one order of them.
        noise = torch.empty(tensor.shape)
        fill_normal(noise, seed=seed, name=name)
        ranks = noise.argsort(-1) * (8.0 / tensor.shape[-1]) - 4.0
        tensor.copy_(ranks * (0.5 + noise[..., :1].abs()))
    elif given.draw in ("normal", "weight"):
        fill_normal(tensor, seed=seed, name=name)
        if given.draw == "weight":
            tensor.mul_(tensor.shape[-1] ** -0.5)
    else:
        uniform = torch.empty(tensor.shape)
        fill_uniform(uniform, seed=seed, name=name)
        # clear of both zeros of the sine, where its relative error is that of the angle
        tensor.copy_(uniform * 3.0 + 0.05 if given.draw == "angle" else (uniform < KEEP).float() / KEEP)


def own(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with a code object of its own: torch.compile counts recompilations by code object."""
    assert isinstance(function, types.FunctionType)
    return types.FunctionType(
        function.__code__.replace(), function.__globals__, function.__name__, function.__defaults__,
        function.__closure__,
    )  # fmt: skip


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """By torch.compile with static shapes, in one graph: what breaks it or falls back is an error."""
    import torch

    return torch.compile(own(function), fullgraph=True, dynamic=False)


def _named(names: tuple[str, ...], found: Any) -> dict[str, Any]:
    return dict(zip(names, found if isinstance(found, tuple) else (found,), strict=True))


def _runner(asked: SimpleNamespace, inputs: Mapping[str, Any], held: dict[str, Any]) -> Callable[[], object]:
    """One step that leaves its result in ``held``."""
    impl, function = asked.impl, OPERATIONS[asked.op].make(asked.depth, asked.n)
    if impl == "triton":
        import torch

        launch = launcher(asked.op, depth=asked.depth, block=asked.block, warps=asked.warps)
        held["out"] = torch.empty_like(next(iter(inputs.values())))
        return lambda: launch(inputs, held["out"])
    if asked.op == "top_k_gate" and impl == "transparent":
        gate = registered_gate()
        function = lambda x: gate(x)  # noqa: E731
    elif impl in ("opaque", "transparent"):
        add = registered_add(impl == "transparent", asked.block)
        function = lambda x, y: add(x * _HALF, y).relu()  # noqa: E731
    if impl != "torch":
        function = compiled(function)
    arguments, names = tuple(inputs.values()), OPERATIONS[asked.op].outputs

    def run() -> None:
        held.update(_named(names, function(*arguments)))

    return run


def expression(asked: SimpleNamespace) -> Workload:
    """``op`` by ``impl`` over ``n`` elements; see tensor.op. Raises ValueError for a pair that is not there."""
    context, op, impl, n, cols = asked.context, asked.op, asked.impl, asked.n, asked.cols
    operation, kind = OPERATIONS[op], torch_dtype(asked.dtype)
    if op not in {"opaque": ("mul_add_relu",), "transparent": ("mul_add_relu", "top_k_gate")}.get(impl, (op,)):
        raise ValueError(f"impl opaque is there for op mul_add_relu, transparent also for top_k_gate; op is {op}")
    if op == "top_k_gate" and (cols < TOP or asked.dtype != "float32"):
        raise ValueError(f"top_k_gate takes float32 and {TOP} columns or more; dtype is {asked.dtype}, cols {cols}")
    if operation.rows and n % cols:
        raise ValueError(f"{n} elements do not make whole rows of {cols}")
    if impl == "triton":
        launcher(op, depth=asked.depth, block=asked.block, warps=asked.warps)
    if impl in ("triton", "opaque", "transparent"):
        need_triton(context.device)
    if impl == "transparent" and not context.on_gpu:
        raise SkipSide("torch.compile cannot look into a kernel that Triton's interpreter runs")
    shapes = {
        "all": (n // cols, cols) if operation.rows else (n,),
        "row": (cols,),
        "matrix": (cols, cols),
        "table": (TABLE,),
    }
    inputs = {name: empty(context, shapes[g.layout], kind) for name, g in operation.inputs.items()}

    def redraw(seed: int) -> None:
        for name, given in operation.inputs.items():
            drawn(given, inputs[name], inputs, seed=seed, name=name)

    redraw(context.seed)
    held: dict[str, Any] = {}
    step = _runner(asked, inputs, held)
    step()
    truth = operation.make(asked.depth, n)
    matrices = sum(given.layout == "matrix" for given in operation.inputs.values())
    moved = (operation.moved * n + matrices * cols**2) * kind.itemsize
    return Workload(
        step=step,
        work=Work(
            bytes=moved,
            flops=(operation.flops * (asked.depth if op == "axpb" else 1) + 2 * cols * matrices) * n,
            items=n,
            item="elements",
            **memory_charge(context.device, moved),
        ),
        outputs=lambda: dict(held),
        inputs=lambda: inputs,
        redraw=redraw,
        reference=lambda: _named(operation.outputs, truth(*(tensor.double() for tensor in inputs.values()))),
        counters=lambda: compiler_counts("graphs"),
        facts={"impl": impl, "dtype": asked.dtype, "input_bytes": sum(t.nbytes for t in inputs.values())},
    )
