"""linalg.matmul: C = A @ B at a stated shape, precision and backend, on a GPU or a CPU.

What must not live here: the products themselves (products.py, triton_gemm.py), quantised layers, timing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple

import torch

from aiperf.workloads.contract import Context, SkipSide, Work, Workload
from aiperf.workloads.linalg import cutlass_gemm as cutlass
from aiperf.workloads.linalg import hand_gemm as hand
from aiperf.workloads.linalg import hand_wgmma, products
from aiperf.workloads.shared import triton_gemm as kernels
from aiperf.workloads.shared.agreement import relative_frobenius
from aiperf.workloads.shared.seeded import empty

_TORCH_DTYPE = {
    "fp32": "float32",
    "tf32": "float32",
    "bf16": "bfloat16",
    "fp16": "float16",
    "fp8": "float8_e4m3fn",
    "int8": "int8",
}
_RESULT_DTYPE = {**_TORCH_DTYPE, "fp8": "bfloat16", "int8": "int32"}
_PEAKS = ("fp32", "tf32", "bf16", "fp16", "fp8")
_BY_COLUMN = ("fp8", "int8")
_OWN_DTYPE = {**hand.DTYPES, "hand_wgmma": hand_wgmma.DTYPE, "cutlass": cutlass.DTYPE}
_TOY = 256
_SPREAD, _LARGEST = 40.0, 127.0
"""Whole numbers are normal draws times the first, held within the second."""


class _Operands(NamedTuple):
    """The arrays of a side: ``a``, ``b`` and ``out`` are what is useful of the padded ones beside them."""

    a: Any
    b: Any
    out: Any
    whole: tuple[Any, Any, Any]
    bias: Any


def matmul(
    context: Context,
    *,
    m: int,
    n: int,
    k: int,
    dtype: Literal["fp32", "tf32", "bf16", "fp16", "fp8", "int8"] = "bf16",
    full_precision: bool = False,
    integers: bool = False,
    sparsity: Literal["none", "pruned", "2:4"] = "none",
    backend: Literal[
        "torch",
        "triton",
        "fastest",
        "strassen",
        "hand_tiled",
        "hand_mma",
        "hand_wgmma",
        "cutlass",
        "python_loops",
        "python_tiles",
    ] = "torch",
    pad_to: int = 1,
    rows_per_call: int = 0,
    leaf: int = 1024,
    epilogue: Literal["none", "scale", "bias_gelu"] = "none",
    fused_epilogue: bool = False,
    result_dtype: Literal["own", "fp32"] = "own",
    tune: Literal["none", "autotune", "toy_shape", "in_step"] = "none",
    block_m: int = 128,
    block_n: int = 128,
    block_k: int = 64,
    num_warps: int = 8,
    num_stages: int = 3,
    group_m: int = 8,
    k_per_launch: int = 0,
    k_loop: Literal["load_first", "overwrite", "prefetch"] = "load_first",
    schedule: Literal["tiled", "persistent"] = "tiled",
    loads: Literal["pointer", "descriptor", "own_descriptor"] = "pointer",
    warp_specialize: bool = False,
    warp_schedule: Literal["auto", "cooperative", "pingpong"] = "auto",
    cluster: int = 2,
) -> Workload:
    """One product of A [m, k] and B [k, n]. ``fp32`` keeps TF32 off, ``tf32`` asks for it (book, chapters 9 and 14).

    Inputs are drawn in float32 and then rounded, so that two precisions multiply the same numbers; ``integers``
    (implied by ``int8``) draws whole numbers within 127; for GELU, B is divided by sqrt(k). ``full_precision`` means
    fp32 whatever ``dtype`` says. fp8 is e4m3 with scales of one and a bf16 result; int8 gives int32; both store B by
    columns.

    ``sparsity``: ``pruned`` zeroes two of four neighbours in B's columns and multiplies densely, ``2:4`` compresses the
    same numbers. ``pad_to`` stores rows up to the next multiple, the rest zero. ``rows_per_call``: rows of A in
    each call. ``leaf`` ends Strassen's recursion. ``epilogue`` scales C by 1/8, or adds a bias to each row and
    takes GELU, in passes after the product or (``fused_epilogue``) inside Triton's kernel; with backend torch, bias
    and GELU (in the form that it has) by the library's own epilogue. ``hand_tiled`` and ``hand_mma`` are plain
    kernels in CUDA C++, ``hand_wgmma`` one tuned for Hopper in PTX (m and n in multiples of 256, k of 64),
    ``cutlass`` one that nvcc makes of CUTLASS's templates for Hopper; by ``warp_schedule`` its warp groups share
    each tile (``cooperative``) or compute a tile each and store it in turn (``pingpong``), and ``cluster`` blocks, one
    above the other, fetch B together; ``block_m`` and ``block_n`` are its tile, too. ``tune``: Triton's autotuner
    chooses the tile in set-up, for this shape or for one of 256 cubed, or anew in each step; the rest is the Triton
    kernel's. ``k_loop``: each turn multiplies the tile that the one before loaded, and loads the next one over it
    (``overwrite``) or, before it multiplies, beside it (``prefetch``). ``fastest``: set-up times the library's product,
    too, and keeps whichever is faster.

    FLOPs: 2mnk of the unpadded dense product; bytes: A, B and C once, as stored. The named check
    ``relative_frobenius`` is ||C - C_before|| / ||C_before||.
    """
    if min(m, n, k, pad_to, block_m, block_n, block_k, group_m) < 1 or min(rows_per_call, k_per_launch) < 0:
        raise ValueError(f"m, n, k are {m}, {n}, {k}, pad_to and the blocks beside them; each must be 1 or more")
    asked = SimpleNamespace(**locals())
    asked.used = used = "fp32" if full_precision else dtype
    asked.integers = integers or dtype == "int8"
    asked.result_dtype = _RESULT_DTYPE["fp32" if result_dtype == "fp32" else used]
    asked.kernel = kernels.Kernel(
        kernels.Config(block_m, block_n, block_k, num_warps, num_stages, group_m),
        persistent=schedule == "persistent",
        descriptors=loads != "pointer",
        own_descriptors=loads == "own_descriptor",
        specialise=warp_specialize,
        epilogue=epilogue if fused_epilogue else "none",
        precision="tf32" if used == "tf32" else "ieee",
        k_per_launch=k_per_launch,
        k_loop=k_loop,
    )
    _refuse_contradictions(asked)
    return _workload(asked)


def _refuse_contradictions(asked: SimpleNamespace) -> None:
    """Raises ValueError for parameters that no code of this family could honour together."""
    kernel, m, n, k = asked.kernel, asked.m, asked.n, asked.k
    on_triton = asked.backend in ("triton", "fastest")
    odd = asked.used in _BY_COLUMN
    dtypes_differ = asked.result_dtype != _RESULT_DTYPE[asked.used]
    carried = kernel.k_loop != "load_first"
    other = kernel.persistent or kernel.descriptors or kernel.specialise or kernel.k_per_launch or asked.tune != "none"
    rules = {
        "schedule, loads, warp_specialize, k_per_launch, k_loop and tune are the Triton kernel's": not on_triton
        and bool(other or carried),
        "a fused epilogue needs backend triton, or bias_gelu of a whole dense product on backend torch": (
            asked.fused_epilogue and not (on_triton or _fused_by_library(asked))
        ),
        "fused_epilogue needs an epilogue": asked.fused_epilogue and asked.epilogue == "none",
        "warp_specialize needs loads: own_descriptor": kernel.specialise and not kernel.own_descriptors,
        "descriptors go with neither persistent, a fused epilogue nor k_per_launch": kernel.descriptors
        and bool(kernel.persistent or asked.fused_epilogue or kernel.k_per_launch),
        "k_loop is of the tiled kernel alone: no schedule, loads, k_per_launch, tune, fused epilogue": carried
        and bool(other or asked.fused_epilogue),
        "k_per_launch goes with no epilogue": kernel.k_per_launch > 0 and asked.epilogue != "none",
        "fp8 and int8 run on backend torch": odd and asked.backend != "torch",
        "backend fastest needs tune: autotune and no epilogue": asked.backend == "fastest"
        and (asked.tune != "autotune" or asked.epilogue != "none"),
        "result_dtype fp32 of 16-bit operands needs backend triton": dtypes_differ and not on_triton,
        "hand_tiled multiplies fp32, hand_mma, hand_wgmma and cutlass fp16, unpadded": asked.backend in _OWN_DTYPE
        and (asked.used != _OWN_DTYPE[asked.backend] or asked.pad_to > 1),
        "warp_schedule and cluster are of backend cutlass": asked.backend != "cutlass"
        and (asked.warp_schedule, asked.cluster) != ("auto", 2),
        "cutlass takes block_m and block_n of 128 or 256, block_k 64, a cluster of 1 or 2; pingpong 128 alone": (
            asked.backend == "cutlass" and not _made_by_cutlass(asked)
        ),
        "sparsity needs backend torch and 16-bit operands": asked.sparsity != "none"
        and (asked.backend != "torch" or asked.used not in ("fp16", "bf16")),
        "2 of 4 needs k in fours, unpadded": asked.sparsity != "none" and (k % 4 > 0 or asked.pad_to > 1),
        "rows_per_call needs backend torch and no sparsity": asked.rows_per_call > 0
        and (asked.backend != "torch" or asked.sparsity != "none" or asked.used == "int8"),
    }
    for sentence, broken in rules.items():
        if broken:
            raise ValueError(f"{sentence} (backend {asked.backend}, dtype {asked.used}, m, n, k {m}, {n}, {k})")


def _made_by_cutlass(asked: SimpleNamespace) -> bool:
    """Whether CUTLASS's templates are known to take the tile and the cluster."""
    sides = (128,) if asked.warp_schedule == "pingpong" else (128, 256)
    return asked.block_m in sides and asked.block_n in sides and asked.block_k == 64 and asked.cluster in (1, 2)


def _fused_by_library(asked: SimpleNamespace) -> bool:
    """Whether torch's matrix library adds the bias and takes GELU within its product."""
    plain = asked.sparsity == "none" and (asked.rows_per_call, asked.pad_to) == (0, 1) and asked.used not in _BY_COLUMN
    return asked.fused_epilogue and asked.backend == "torch" and asked.epilogue == "bias_gelu" and plain


def _refuse_host(asked: SimpleNamespace) -> None:
    """Raises SkipSide for what this device or its libraries do not do."""
    device, on_gpu = asked.context.device, asked.context.on_gpu
    if asked.used == "tf32" and not on_gpu:
        raise SkipSide("TF32 is a mode of NVIDIA tensor cores and needs a GPU")
    if asked.used == "fp8" and not on_gpu:
        raise SkipSide("the product of float8 operands needs a GPU")
    if asked.backend in ("triton", "fastest"):
        kernels.need_triton(device)
        lacks = "" if on_gpu else kernels.interpreter_lacks(asked.kernel, dtype=asked.used, tune=asked.tune)
        if lacks:
            raise SkipSide(lacks)


def _workload(asked: SimpleNamespace) -> Workload:
    _refuse_host(asked)
    context = asked.context
    on_gpu = context.on_gpu
    device = torch.device(context.device)
    if on_gpu:
        torch.cuda.set_device(device)
    held = _operands(asked)
    generator = torch.Generator(device=device)
    compressed = products.TwoOfFour()

    def redraw(seed: int) -> None:
        generator.manual_seed(seed)
        # As a layer's weights: sums far from zero would take GELU for ReLU.
        narrow = asked.k**-0.5 if asked.epilogue == "bias_gelu" and not asked.integers else 1.0
        for matrix, scale in ((held.a, 1.0), (held.b, narrow)):
            drawn = torch.randn(matrix.shape, generator=generator, device=device, dtype=torch.float32).mul_(scale)
            matrix.copy_(drawn.mul_(_SPREAD).round_().clamp_(-_LARGEST, _LARGEST) if asked.integers else drawn)
        held.bias.copy_(torch.randn(held.bias.shape, generator=generator, device=device, dtype=torch.float32))
        if asked.sparsity != "none":
            products.keep_two_of_four(held.b.t())
        if asked.sparsity == "2:4":
            compressed.take(held.b.t())

    redraw(context.seed)
    mode = "high" if asked.used == "tf32" else "highest"
    torch.set_float32_matmul_precision(mode)
    multiply, facts = _multiplier(asked, held, compressed)
    passes = asked.epilogue if not asked.fused_epilogue else "none"
    latest: dict[str, Any] = {}

    def step() -> None:
        # The mode belongs to the process, and the other side may live in it too.
        torch.set_float32_matmul_precision(mode)
        latest["c"] = _finished(multiply(), held.bias, passes)

    step()
    flops = 2.0 * asked.m * asked.n * asked.k
    inputs = {"a": held.a, "b": held.b} | ({"bias": held.bias} if asked.epilogue == "bias_gelu" else {})
    return Workload(
        step=step,
        work=Work(
            bytes=float(sum(t.nbytes for t in (held.a, held.b, held.out))), flops=flops, peaks=_peak(asked, on_gpu)
        ),
        outputs=lambda: dict(latest),
        inputs=lambda: dict(inputs),
        redraw=redraw,
        reference=lambda: {"c": _finished(held.a.double() @ held.b.double(), held.bias.double(), asked.epilogue)},
        counters=lambda: {"products": float(_products_per_step(asked))},
        checks={"relative_frobenius": relative_frobenius},
        facts={
            "float32_matmul_precision": torch.get_float32_matmul_precision(),
            "torch_dtype": str(latest["c"].dtype),
            **facts,
        },
    )


def _operands(asked: SimpleNamespace) -> _Operands:
    context, m, n, k, multiple = asked.context, asked.m, asked.n, asked.k, asked.pad_to
    wide_n, wide_k = (-(-size // multiple) * multiple for size in (n, k))
    kind, result = (getattr(torch, name) for name in (_TORCH_DTYPE[asked.used], asked.result_dtype))
    by_column = asked.used in _BY_COLUMN or asked.sparsity != "none"
    a = empty(context, (m, wide_k), kind)
    b = empty(context, (wide_n, wide_k), kind).t() if by_column else empty(context, (wide_k, wide_n), kind)
    out = empty(context, (m, wide_n), result)
    for matrix in (a, b) if multiple > 1 else ():
        matrix.zero_()
    bias = torch.empty(n, dtype=torch.float32 if asked.used in _BY_COLUMN else kind, device=context.device)
    return _Operands(a[:, :k], b[:k, :n], out[:, :n], (a, b, out), bias)


def _multiplier(
    asked: SimpleNamespace, held: _Operands, compressed: products.TwoOfFour
) -> tuple[products.Product, dict[str, Any]]:
    """What computes a side's product, and what is to be known of it. May raise SkipSide."""
    if asked.backend == "triton":
        return _by_triton(asked, held)
    if asked.backend == "fastest":
        return _fastest(asked, held)
    if asked.sparsity == "2:4":
        kind = type(compressed.weight).__name__
        return products.linear(held.a, lambda: compressed.weight), {"weight": kind}
    if asked.sparsity == "pruned":
        weight = held.b.t()
        return products.linear(held.a, lambda: weight), {"weight": "dense"}
    a, b, out = held.whole
    if asked.backend in hand.DTYPES:
        return hand.product(a, b, out, backend=asked.backend)
    if asked.backend == "hand_wgmma":
        return hand_wgmma.product(a, b, out, folder=asked.context.shared_scratch)
    if asked.backend == "cutlass":
        choice = cutlass.Choice(asked.warp_schedule, asked.block_m, asked.block_n, asked.cluster)
        return cutlass.product(a, b, out, folder=asked.context.shared_scratch, choice=choice)
    if _fused_by_library(asked):
        return products.with_bias_and_gelu(a, b, held.bias, out), {"stored": [list(a.shape), list(b.shape)]}
    rows = asked.rows_per_call
    makers: dict[str, Callable[[], products.Product]] = {
        "fp8": lambda: products.scaled_fp8(a, b, out, rows=rows),
        "int8": lambda: products.integers(a, b, out),
        "strassen": lambda: products.strassen(a, b, out, leaf=asked.leaf),
        "python_loops": lambda: products.python_loops(a, b, out),
        "python_tiles": lambda: products.python_tiles(a, b, out),
        "torch": lambda: products.plain(a, b, out, rows=rows),
    }
    multiply = makers[asked.used if asked.used in _BY_COLUMN else asked.backend]()

    def useful() -> Any:
        multiply()
        return held.out

    return useful, {"stored": [list(a.shape), list(b.shape)]}


def _by_triton(asked: SimpleNamespace, held: _Operands) -> tuple[products.Product, dict[str, Any]]:
    a, b, out = held.whole
    kernel = asked.kernel
    if asked.tune == "autotune":
        kernel = dataclasses.replace(kernel, config=kernels.tuned(a, b, out, held.bias, kernel=kernel))
    if asked.tune == "toy_shape":
        toys = [empty(asked.context, (_TOY, _TOY), x.dtype).normal_() for x in (a, b, out)]
        found = kernels.tuned(toys[0], toys[1], toys[2], held.bias.new_zeros(_TOY), kernel=kernel)
        kernel = dataclasses.replace(kernel, config=found)
    launch = kernels.product(a, b, out, held.bias, kernel=kernel)

    def run() -> Any:
        launch()
        return held.out

    def tune_and_run() -> Any:
        found = kernels.tuned(a, b, out, held.bias, kernel=kernel)
        kernels.product(a, b, out, held.bias, kernel=dataclasses.replace(kernel, config=found))()
        return held.out

    if asked.tune == "in_step":
        tune_and_run()
        return tune_and_run, {}
    facts = kernels.compiled_facts(launch, specialise=kernel.specialise)
    return run, {**facts, "config": dataclasses.asdict(kernel.config)}


def _fastest(asked: SimpleNamespace, held: _Operands) -> tuple[products.Product, dict[str, Any]]:
    """The library's product or the tuned Triton kernel, by the median of their times here with cold caches."""
    by_library = products.plain(*held.whole, rows=0)
    by_triton, facts = _by_triton(asked, held)

    def library() -> Any:
        by_library()
        return held.out

    ways = {"library": library, "triton": by_triton}
    took = {name: kernels.median_ms(run) for name, run in ways.items()}
    chosen = min(took, key=lambda name: took[name])
    return ways[chosen], {**facts, "chosen": chosen, **{f"{name}_ms": ms for name, ms in took.items()}}


def _finished(c: Any, bias: Any, epilogue: str) -> Any:
    """The product after its epilogue."""
    if epilogue == "scale":
        return c * kernels.SCALE
    return torch.nn.functional.gelu(c + bias) if epilogue == "bias_gelu" else c


def _products_per_step(asked: SimpleNamespace) -> int:
    """Calls or launches that multiply: row parts, launches over k, elements, tiles or Strassen's leaves."""
    m, n, k = asked.m, asked.n, asked.k
    if asked.backend == "python_loops":
        return m * n
    if asked.backend == "python_tiles":
        return -(-m // products.TILE) * -(-n // products.TILE) * -(-k // products.TILE)
    if asked.backend == "strassen":
        return int(7 ** ((m // asked.leaf).bit_length() - 1))
    if asked.kernel.k_per_launch:
        return -(-k // asked.kernel.k_per_launch)
    return -(-m // (asked.rows_per_call or m))


def _peak(asked: SimpleNamespace, on_gpu: bool) -> dict[str, float]:
    """The product's own peak; none for types without one, nor for fewer multiplications than 2mnk says."""
    if asked.used not in _PEAKS or asked.sparsity == "2:4" or asked.backend == "strassen":
        return {}
    if not on_gpu and asked.used != "fp32":
        return {}
    return {f"gemm_{asked.used}" if on_gpu else "cpu_gemm_fp32": 2.0 * asked.m * asked.n * asked.k}
