"""Triton kernels of the workloads in Triton's interpreter: a program of its own, because TRITON_INTERPRET counts when a
kernel is defined. Reads cases from one JSON file and writes what became of each to another.

More than values is looked at: no element outside the arrays of a launch is read or written, none is written twice in a
launch, and what a masked load leaves undefined is NaN here rather than the zero that the interpreter would give.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import json
import os
import sys
import traceback
from dataclasses import replace
from inspect import getmembers
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
import triton.language as tl
from triton.runtime import interpreter
from triton.tools.tensor_descriptor import TensorDescriptor

from aiperf.worker import arrays
from aiperf.workloads.attention.kept import Keeping, restored
from aiperf.workloads.attention.masks import Mask
from aiperf.workloads.attention.ops import composed
from aiperf.workloads.attention.tiles import AttentionTile, Tiled
from aiperf.workloads.contract import Context, SkipSide, Workload
from aiperf.workloads.decoder.caches import Room, Static
from aiperf.workloads.decoder.model import Decoder, Shape
from aiperf.workloads.llm import hand_written
from aiperf.workloads.llm.workload import generate
from aiperf.workloads.quant import casts
from aiperf.workloads.quant import few_bits as quantised
from aiperf.workloads.shared import triton_gemm as gemm
from aiperf.workloads.tensor import ops
from aiperf.workloads.tensor import triton_ops as elementwise

# The interpreter cuts a float32 off where it stores a bfloat16, a GPU rounds: twice the error of one rounding.
RELATIVE = {torch.float32: 1e-5, torch.float16: 2**-10, torch.bfloat16: 2**-7}
GEMM_DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


class Span:
    """The elements of one array, which may be a strided view: where they lie, and how often each was written."""

    def __init__(self, tensor: torch.Tensor) -> None:
        offsets = np.zeros((), dtype=np.int64)
        for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
            offsets = np.add.outer(offsets, np.arange(size) * stride)
        self.start, self.item = tensor.data_ptr(), tensor.element_size()
        self.member = np.zeros(offsets.max() + 1, dtype=bool)
        self.member[offsets.ravel()] = True
        self.written = np.zeros(self.member.size, dtype=np.int32)

    def elements(self, addresses: np.ndarray) -> np.ndarray:
        """Which element lies at each address; -1 where none does."""
        element, rest = np.divmod(addresses.astype(np.int64) - self.start, self.item)
        element[(rest != 0) | (element < 0) | (element >= self.member.size)] = -1
        element[(element >= 0) & ~self.member[element]] = -1
        return element


class Guard:
    """The arrays of the launch under way, and the kernels that ran in the case under way."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.ran: set[str] = set()

    def enter(self, function: Any, arguments: list[Any]) -> None:
        self.ran.add(kernel_name(function))
        held = [a.base if isinstance(a, TensorDescriptor) else a for a in arguments]
        views = {(t.data_ptr(), t.shape, t.stride()): t for t in held if isinstance(t, torch.Tensor)}
        self.spans = [Span(tensor) for tensor in views.values()]

    def check(self, pointers: Any, mask: Any, *, write: bool) -> None:
        addresses = np.asarray(pointers.data)
        active = addresses[np.broadcast_to(np.asarray(mask.data).astype(bool), addresses.shape)]
        found = [span.elements(active) for span in self.spans]
        outside = np.logical_and.reduce([element < 0 for element in found])
        if outside.any():
            verb = "written" if write else "read"
            raise AssertionError(f"{int(outside.sum())} elements outside the arrays of the launch are {verb}")
        for span, element in zip(self.spans, found, strict=True):
            if write:
                np.add.at(span.written, element[element >= 0], 1)
                if (span.written > 1).any():
                    raise AssertionError(f"{int((span.written > 1).sum())} elements are written twice in one launch")


def kernel_name(function: Any) -> str:
    return f"{function.__module__.rpartition('.')[2]}.{function.__name__}"


def install(guard: Guard) -> None:
    """Put the guard before launches, device functions, loads and stores."""
    builder, executor, function = (
        interpreter.InterpreterBuilder, interpreter.GridExecutor, interpreter.InterpretedFunction,
    )  # fmt: skip
    load, store, launch, call = (
        builder.create_masked_load, builder.create_masked_store, executor.__call__, function.__call__,
    )  # fmt: skip

    builtins: dict[Any, list[str]] = {}

    def builtin_members(package: Any) -> list[tuple[str, Any]]:
        """What the interpreter looks for with each call of a device function: found once, a fifth of all its time."""
        if package not in builtins:
            builtins[package] = [name for name, member in getmembers(package) if tl.core.is_builtin(member)]
        return [(name, getattr(package, name)) for name in builtins[package]]

    # Whether whole numbers overflow is computed at each operation, a fifth of all time; only debugging asserts it.
    assert not interpreter.interpreter_builder.options.debug
    interpreter.interpreter_builder.options = replace(interpreter.interpreter_builder.options, sanitize_overflow=False)
    interpreter.inspect = SimpleNamespace(**vars(inspect) | {"getmembers": builtin_members})

    def guarded_load(self: Any, pointers: Any, mask: Any, other: Any, *rest: Any, **named: Any) -> Any:
        guard.check(pointers, mask, write=False)
        if other is None:
            element = pointers.get_element_ty()
            kind = interpreter._get_np_dtype(element)
            undefined = np.full((*pointers.data.shape, kind.itemsize), 0xFF, dtype=np.uint8).view(kind)[..., 0]
            other = interpreter.TensorHandle(undefined, element)
        return load(self, pointers, mask, other, *rest, **named)

    def guarded_store(self: Any, pointers: Any, value: Any, mask: Any, *rest: Any, **named: Any) -> Any:
        guard.check(pointers, mask, write=True)
        return store(self, pointers, value, mask, *rest, **named)

    def guarded_launch(self: Any, *arguments: Any, **named: Any) -> Any:
        guard.enter(self.fn, [*arguments, *named.values()])
        return launch(self, *arguments, **named)

    def noted_call(self: Any, *arguments: Any, **named: Any) -> Any:
        guard.ran.add(kernel_name(self.fn))
        return call(self, *arguments, **named)

    builder.create_masked_load, builder.create_masked_store = guarded_load, guarded_store
    executor.__call__, function.__call__ = guarded_launch, noted_call


def multiply_bfloat16_as_numbers() -> None:
    """The interpreter keeps bfloat16 in 16-bit whole numbers, and tl.dot multiplies those; widened they are exact."""
    dot = interpreter.InterpreterBuilder.create_dot

    def wide(handle: Any) -> Any:
        if handle.dtype.scalar != tl.bfloat16:
            return handle
        return interpreter.TensorHandle((handle.data.astype(np.uint32) << 16).view(np.float32), tl.float32)

    def corrected(self: Any, a: Any, b: Any, *rest: Any, **named: Any) -> Any:
        return dot(self, wide(a), wide(b), *rest, **named)

    interpreter.InterpreterBuilder.create_dot = corrected


def error(found: torch.Tensor, truth: torch.Tensor, *, slack: float = 1e-5) -> float:
    """The largest error in units of what is allowed: rounding, and ``slack`` times the truth's rms."""
    if not found.dtype.is_floating_point:
        return 0.0 if torch.equal(found, truth) else float("inf")
    bound = RELATIVE[found.dtype] * truth.abs() + slack * truth.square().mean().sqrt()
    worst = ((found.double() - truth).abs() / bound).nan_to_num(nan=torch.inf).max()
    return float(worst)


def normal(*shape: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def workload(*, function: str, params: dict[str, Any], slack: float = 1e-5) -> float:
    """A side as the harness sets it up: redrawn, its outputs poisoned, stepped, held against its own reference."""
    family, name = function.split(".")
    side: Workload = getattr(importlib.import_module(f"aiperf.workloads.{family}.workload"), name)(
        Context(seed=3), **params
    )
    assert side.redraw is not None
    assert side.inputs is not None
    assert side.reference is not None
    side.redraw(7)
    before = {key: tensor.clone() for key, tensor in side.inputs().items()}
    for output in side.outputs().values():
        arrays.poison(output)
    side.step()
    assert all(torch.equal(before[key], tensor) for key, tensor in side.inputs().items()), "an input was changed"
    truth = side.reference()
    return max(error(side.outputs()[key], truth[key], slack=slack) for key in truth)


def launch(
    *,
    op: str,
    shape: list[int],
    dtype: str = "float32",
    depth: int = 1,
    scale: float = 1.0,
    shift: float = 0.0,
) -> float:
    """A kernel of tensor.op on inputs of its operation, the first of them scaled and shifted."""
    kind = getattr(torch, dtype)
    shapes = {"all": tuple(shape), "row": (shape[-1],)}
    inputs: dict[str, torch.Tensor] = {}
    for name, given in ops.OPERATIONS[op].inputs.items():
        tensor = torch.empty(shapes[given.layout], dtype=kind)
        ops.drawn(given, tensor, inputs, seed=5, name=name)
        inputs[name] = tensor if inputs else tensor * scale + shift
    out = torch.full(tuple(shape), torch.nan, dtype=kind)
    elementwise.launcher(op, depth=depth, block=64, warps=4)(inputs, out)
    truth = ops.OPERATIONS[op].make(depth, out.numel())(*(tensor.double() for tensor in inputs.values()))
    return error(out, truth)


def product(
    *,
    shape: list[int],
    dtype: str,
    blocks: list[int],
    result: str = "",
    group_m: int = 1,
    column_major: bool = False,
    **kernel: Any,
) -> float:
    """A product by the kernel that ``kernel`` describes, operands row by row or column by column."""
    (m, n, k), kind = shape, GEMM_DTYPES[dtype]
    a, b = normal(m, k, dtype=kind, seed=1), normal(k, n, dtype=kind, seed=2)
    if column_major:
        a, b = (tensor.t().contiguous().t() for tensor in (a, b))
    bias = normal(n, dtype=kind, seed=3)
    c = torch.full((m, n), torch.nan, dtype=GEMM_DTYPES[result or dtype])
    request = gemm.Kernel(gemm.Config(*blocks, group_m=group_m), **kernel)
    gemm.product(a, b, c, bias, kernel=request)()
    truth = a.double() @ b.double()
    if request.epilogue == "scale":
        truth = truth * gemm.SCALE
    if request.epilogue == "bias_gelu":
        truth = torch.nn.functional.gelu(truth + bias.double())
    return error(c, truth)


@gemm.jit
def walk(out, m, n, block_m: tl.constexpr, block_n: tl.constexpr, group_m: tl.constexpr):  # type: ignore[no-untyped-def]
    tile = tl.program_id(0)
    row, column = gemm._place(tile, m, n, block_m, block_n, group_m)
    tl.store(out + 2 * tile, row)
    tl.store(out + 2 * tile + 1, column)


def order(*, shape: list[int], blocks: list[int], group_m: int) -> float:
    """The order in which programs take tiles: column by column within as many rows of tiles as are walked together."""
    rows, columns = (-(-size // block) for size, block in zip(shape, blocks, strict=True))
    out = torch.full((rows * columns, 2), -1, dtype=torch.int32)
    walk[(rows * columns,)](out, *shape, *blocks, group_m)
    wanted = [
        [row, column]
        for first in range(0, rows, group_m)
        for column in range(columns)
        for row in range(first, min(first + group_m, rows))
    ]
    return 0.0 if out.tolist() == wanted else float("inf")


def attend(
    *, shape: list[int], dtype: str, kind: str, tile: list[int], kept: str = "whole", slope: float = 0.0
) -> float:
    """Attention by tiles, held against float64 over keys and values as they are kept."""
    batch, heads, kv_heads, q_len, kv_len, head_dim = shape
    given = GEMM_DTYPES[dtype]
    q = normal(batch, heads, q_len, head_dim, dtype=given, seed=1)
    k, v = (normal(batch, kv_heads, kv_len, head_dim, dtype=given, seed=seed) for seed in (2, 3))
    keeping = Keeping(kept, k, v, page=4, seed=5)
    keeping.hold()
    mask = Mask(kind, q_len, kv_len, slope=slope)
    found = Tiled(q, lambda: keeping.now, mask=mask, tile=AttentionTile(*tile))()
    truth = composed(q.double(), *restored(keeping.now, torch.double), mask=mask)()
    return error(found, truth, slack=1e-5 if given == torch.float32 else 2**-6)


def over_latents(*, heads: int, kv_len: int, dtype: str, splits: int = 1) -> float:
    """Latent attention by the kernel, as the workload sets it up."""
    params: dict[str, Any] = {"batch": 2, "heads": heads, "latent_dim": 32, "rope_dim": 16, "kv_len": kv_len}
    params |= {"page_tokens": 4, "block_h": 16, "block_kv": 16, "splits": splits, "dtype": dtype, "backend": "triton"}
    return workload(function="attention.latent", params=params, slack=1e-5 if dtype == "float32" else 2**-6)


def one_token(*, heads: int, kv_heads: int, place: int, dtype: str, batch: int = 2) -> float:
    """What a layer makes of one new token, and what it keeps of it, held against float64 calls."""
    given, width = getattr(torch, dtype), 16 * heads
    shape = Shape(layers=2, width=width, heads=heads, kv_heads=kv_heads, inner=16, vocab=8)
    room = Room(layers=2, batch=batch, kv_heads=kv_heads, head_dim=16, tokens=place + 3, dtype=given)
    qkv = normal(batch, 1, width + 32 * kv_heads, dtype=given, seed=1)
    kept = normal(2, 2, batch, kv_heads, place + 3, 16, dtype=given, seed=2)
    found = []
    for wide in (given, torch.double):
        model = Decoder(shape, torch.zeros(8, width, dtype=wide), (), None, None, max_tokens=place + 1)
        cache = Static(replace(room, dtype=wide))
        cache.kv.copy_(kept)
        cache.truncate(place)
        spot, keep = model.spot(cache, 1), cache.at(1)
        if wide is given:
            out = hand_written.attended(qkv[:, 0], spot, keep, heads=heads)[:, None]
        else:
            out = model.attend(qkv.double(), spot, keep)
        found.append((out, cache.kv))
    return max(error(*pair, slack=1e-5 if dtype == "float32" else 2**-5) for pair in zip(*found, strict=True))


def token_product(*, rows: int, columns: int, dtype: str) -> float:
    """A normalised token times a weight, plus what is added, held against torch in double precision."""
    x, gain, weight, added = _token(rows, columns, dtype)
    normed = F.rms_norm(x.double(), (columns,), gain.double(), hand_written.EPS)
    return error(
        hand_written.product(x, weight, gain=gain, added=added),
        weight.double() @ normed + added.double(),
        slack=1e-5 if dtype == "float32" else 2**-6,
    )


def token_product_alone(*, rows: int, columns: int, dtype: str) -> float:
    """A token times a weight, not normalised, nothing added."""
    x, _, weight, _ = _token(rows, columns, dtype)
    slack = 1e-5 if dtype == "float32" else 2**-6
    return error(hand_written.product(x, weight), weight.double() @ x.double(), slack=slack)


def token_gated(*, rows: int, columns: int, dtype: str) -> float:
    """The gated pair of products of a normalised token."""
    x, gain, weight, _ = _token(2 * rows, columns, dtype)
    normed = F.rms_norm(x.double(), (columns,), gain.double(), hand_written.EPS)
    gate, up = (weight.double() @ normed).chunk(2)
    slack = 1e-5 if dtype == "float32" else 2**-6
    return error(hand_written.gated(x, weight, gain=gain), F.silu(gate) * up, slack=slack)


def _token(rows: int, columns: int, dtype: str) -> tuple[torch.Tensor, ...]:
    """One token's values, a norm's weight, a weight [rows, columns], and values to be added."""
    kind = getattr(torch, dtype)
    weight = normal(rows, columns, dtype=torch.float32, seed=3) / columns**0.5
    values = [normal(size, dtype=kind, seed=seed) for size, seed in ((columns, 1), (columns, 2), (rows, 4))]
    return values[0], values[1], weight.to(kind), values[2]


def generated(**params: Any) -> float:
    """Logits of a side of llm.generate, held against those of the side that takes the library's kernels."""
    sides = [generate(Context(seed=3), **params | own) for own in ({}, {"kernels": "library"})]
    for side in sides:
        side.step()
    return error(sides[0].outputs()["logits"], sides[1].outputs()["logits"].double())


def unequal(*, lengths: list[int], heads: int, dtype: str, **cut: Any) -> float:
    """A decoding step over caches of unequal lengths, as the workload sets it up, whose second step begins anew."""
    params = {"lengths": lengths, "heads": heads, "kv_heads": 2, "head_dim": 32, "block_kv": 16, "programs": 1}
    slack = 1e-5 if dtype == "float32" else 2**-6
    return workload(function="attention.ragged", params={**params, "dtype": dtype, **cut}, slack=slack)


def mixed_batch(*, heads: int, dtype: str, backend: str, **sizes: int) -> float:
    """A chunk of a prompt and decoding sequences, as the workload sets them up, whose second step begins anew."""
    params = {"q_len": 48, "kv_len": 64, "sequences": 3, "decode_kv": 96, "kv_heads": 2, "head_dim": 32, "block_q": 16}
    params |= {"block_kv": 32, "decode_block_kv": 32, "heads": heads, **sizes}
    slack = 1e-5 if dtype == "float32" else 2**-6
    return workload(function="attention.hybrid", params={**params, "dtype": dtype, "backend": backend}, slack=slack)


def few_bits(*, shape: list[int], activations: str = "fp8") -> float:
    """Activations in fp8 or as computed times 4-bit weights, held against the numbers that the codes stand for."""
    m, n, k = shape
    codes, scale = quantised.packed(normal(n, k, dtype=torch.float32, seed=1))
    x, step = normal(m, k, dtype=torch.float32, seed=2), None
    if activations == "fp8":
        x, step = x.to(torch.float8_e4m3fn), torch.tensor(0.5)
    truth = (1.0 if step is None else 0.5) * x.double() @ quantised.unpacked(codes, scale, torch.double).t()
    return error(quantised.product(x, step, codes, scale, dtype=torch.float32), truth)


def cast(*, rows: int, cols: int, dtype: str, delayed: bool) -> float:
    """Three batches that grow, in fp8, held against what they are clipped to: a sixteenth is rounding. Left out is what
    rounds up to a power of two, which the interpreter halves: it drops the carry."""
    kind = getattr(torch, dtype)
    worst, kept = 0.0, torch.tensor(1.5 / casts.LIMIT["fp8"])
    kernels = casts.Casts(torch.empty(rows, cols, dtype=kind), delayed=delayed)
    kernels.begin(kept)
    for seed in (1, 2, 3):
        x = normal(rows, cols, dtype=kind, seed=seed) * seed
        own = x.abs().amax().float() / casts.LIMIT["fp8"]
        wanted = kept if delayed else own
        codes, scale = kernels(x)
        assert scale.data_ptr() % 16 == 0  # else cuBLASLt refuses it
        exact = (x.double() / wanted.double()).clamp(-casts.LIMIT["fp8"], casts.LIMIT["fp8"])
        nearest = exact.float().to(torch.float8_e4m3fn).double()
        carried = (nearest.abs() > exact.abs()) & (torch.frexp(nearest.abs()).mantissa == 0.5)
        off = (codes.double() - exact).abs() / (exact.abs() / 16 + 2.0**-10)
        worst = max(worst, error(scale, wanted.double()[None]), float(off.masked_fill(carried, 0.0).max()))
        kept = torch.maximum(kept, own)
    return worst


def operator(*, transparent: bool, n: int, block: int) -> float:
    """The registered addition, called as it is: no compiler around it."""
    a, b = normal(n, dtype=torch.float32, seed=1), normal(n, dtype=torch.float32, seed=2)
    return error(elementwise.registered_add(transparent, block)(a, b), a.double() + b.double())


def gate(*, rows: int, cols: int) -> float:
    """The registered router, called as it is, over rows that fill no block."""
    x = torch.empty(rows, cols)
    ops.drawn(ops.OPERATIONS["top_k_gate"].inputs["x"], x, {}, seed=5, name="x")
    wanted = ops.OPERATIONS["top_k_gate"].make(1, x.numel())(x.double())
    return max(error(*pair) for pair in zip(elementwise.registered_gate()(x), wanted, strict=True))


@gemm.jit
def faulty(x, out, n, fault: tl.constexpr, block: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, block)
    value = tl.load(x + at, mask=at <= n if fault == "read" else at < n)
    if fault == "undefined":
        value += 0.0 * tl.sum(value, axis=0)
    tl.store(out + at, value, mask=at <= n if fault == "write" else at < n)
    if fault == "twice":
        tl.store(out + at, value, mask=at < 1)


def copy(*, fault: str) -> float:
    """A copy with a fault of its own, which must not go unseen."""
    x = normal(13, dtype=torch.float32, seed=1)
    out = torch.full((13,), torch.nan)
    faulty[(1,)](x[:12], out[:12], 12, fault, 16)
    return error(out[:12], x[:12].double())


ATTENTION = (attend, over_latents, one_token, generated, unequal, mixed_batch)
BY_HAND = (token_product, token_product_alone, token_gated)
KINDS = {
    f.__name__: f
    for f in (workload, launch, product, order, *ATTENTION, *BY_HAND, few_bits, cast, operator, gate, copy)
}


def outcome(guard: Guard, kind: str, params: dict[str, Any]) -> dict[str, Any]:
    guard.ran = set()
    told: dict[str, Any] = {}
    try:
        told["error"] = KINDS[kind](**params)
    except SkipSide as skipped:
        told["skipped"] = str(skipped)
    except Exception:
        told["failed"] = traceback.format_exc()
    return told | {"ran": sorted(guard.ran)}


def main(source: Path, target: Path) -> None:
    assert os.environ.get("TRITON_INTERPRET") == "1", "the interpreter is chosen before Triton is imported"
    # The backend that only captures: generating code takes half a minute and is not what is tested here.
    torch.compile = functools.partial(torch.compile, backend="eager")
    guard = Guard()
    install(guard)
    cases = json.loads(source.read_text(encoding="utf-8"))
    # What the interpreter of the day gets wrong is asked before it is corrected.
    plain = {name: outcome(guard, *case) for name, case in cases["uncorrected"].items()}
    multiply_bfloat16_as_numbers()
    told = {name: outcome(guard, *case) for name, case in cases["corrected"].items()}
    target.write_text(json.dumps(plain | told), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
    os._exit(0)  # taking the interpreter down takes half a second
