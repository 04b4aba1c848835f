"""Matrix products as Triton kernels: tiled, persistent, with TMA descriptors; and how each is launched.

What must not live here: products by a library, epilogues outside the kernel, timing.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from aiperf.workloads.contract import SkipSide

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = tl = None

EPILOGUES = {"none": 0, "scale": 1, "bias_gelu": 2}
SCALE = 0.125


def jit(function: Any) -> Any:
    """``triton.jit`` where Triton is installed; elsewhere the function as it is, never called."""
    return function if triton is None else triton.jit(function)


def need_triton(device: str) -> None:
    """Raises SkipSide where Triton kernels cannot run: it is missing, or there is no GPU and no interpreter."""
    if triton is None:
        raise SkipSide("Triton is not installed")
    if not device.startswith("cuda") and os.environ.get("TRITON_INTERPRET") != "1":
        raise SkipSide("Triton kernels need a GPU")


@dataclass(frozen=True)
class Config:
    """Shape of one tile and how the compiler lays the kernel out."""

    block_m: int = 128
    block_n: int = 128
    block_k: int = 64
    num_warps: int = 8
    num_stages: int = 3
    group_m: int = 8
    """Rows of tiles that are walked together; 1 is row by row."""

    def meta(self) -> dict[str, int]:
        """As the kernels and their launches name them."""
        return asdict(self)


SEARCHED = (
    Config(128, 256, 64, 8, 3),
    Config(128, 128, 64, 8, 3),
    Config(64, 128, 64, 4, 4),
    Config(64, 64, 32, 4, 2),
    Config(16, 128, 128, 4, 4),
    Config(16, 64, 256, 4, 3),
)
"""What the autotuner tries."""


@jit
def _place(tile, m, n, block_m: tl.constexpr, block_n: tl.constexpr, group_m: tl.constexpr):  # type: ignore[no-untyped-def]
    rows = tl.cdiv(m, block_m)
    columns = tl.cdiv(n, block_n)
    first = tile // (group_m * columns) * group_m
    height = min(rows - first, group_m)
    within = tile % (group_m * columns)
    return first + within % height, within // height


@jit
def _one_tile(  # type: ignore[no-untyped-def]
    tile, a, b, c, bias, scale, m, n, k, am, ak, bk, bn, cm, cn,
    block_m: tl.constexpr, block_n: tl.constexpr, block_k: tl.constexpr, group_m: tl.constexpr,
    epilogue: tl.constexpr, precision: tl.constexpr, add: tl.constexpr,
):  # fmt: skip
    tile_m, tile_n = _place(tile, m, n, block_m, block_n, group_m)
    rows = tile_m * block_m + tl.arange(0, block_m)
    columns = tile_n * block_n + tl.arange(0, block_n)
    inner = tl.arange(0, block_k)
    a_at = a + (rows % m)[:, None] * am + inner[None, :] * ak
    b_at = b + inner[:, None] * bk + (columns % n)[None, :] * bn
    total = tl.zeros((block_m, block_n), dtype=tl.float32)
    for start in range(0, k, block_k):
        x = tl.load(a_at, mask=inner[None, :] < k - start, other=0.0)
        y = tl.load(b_at, mask=inner[:, None] < k - start, other=0.0)
        total = tl.dot(x, y, total, input_precision=precision)
        a_at += block_k * ak
        b_at += block_k * bk
    c_at = c + rows[:, None] * cm + columns[None, :] * cn
    inside = (rows[:, None] < m) & (columns[None, :] < n)
    if epilogue == 1:
        total = total * scale
    if epilogue == 2:
        total += tl.load(bias + columns % n).to(tl.float32)[None, :]
        total = 0.5 * total * (1.0 + tl.erf(total * 0.7071067811865476))
    if add:
        total += tl.load(c_at, mask=inside, other=0.0).to(tl.float32)
    tl.store(c_at, total.to(c.dtype.element_ty), mask=inside)


@jit
def _tiled(  # type: ignore[no-untyped-def]
    a, b, c, bias, scale, m, n, k, am, ak, bk, bn, cm, cn,
    block_m: tl.constexpr, block_n: tl.constexpr, block_k: tl.constexpr, group_m: tl.constexpr,
    epilogue: tl.constexpr, precision: tl.constexpr, add: tl.constexpr,
):  # fmt: skip
    _one_tile(
        tl.program_id(0), a, b, c, bias, scale, m, n, k, am, ak, bk, bn, cm, cn,
        block_m, block_n, block_k, group_m, epilogue, precision, add,
    )  # fmt: skip


@jit
def _persistent(  # type: ignore[no-untyped-def]
    a, b, c, bias, scale, m, n, k, am, ak, bk, bn, cm, cn,
    block_m: tl.constexpr, block_n: tl.constexpr, block_k: tl.constexpr, group_m: tl.constexpr,
    epilogue: tl.constexpr, precision: tl.constexpr, add: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(m, block_m) * tl.cdiv(n, block_n)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=True):
        _one_tile(
            tile, a, b, c, bias, scale, m, n, k, am, ak, bk, bn, cm, cn,
            block_m, block_n, block_k, group_m, epilogue, precision, add,
        )  # fmt: skip


@jit
def _tile_of(at, inside):  # type: ignore[no-untyped-def]
    return tl.load(at, mask=inside, other=0.0)


@jit
def _carried(  # type: ignore[no-untyped-def]
    a, b, c, m, n, k, am, ak, bk, bn, cm, cn,
    block_m: tl.constexpr, block_n: tl.constexpr, block_k: tl.constexpr, group_m: tl.constexpr,
    precision: tl.constexpr, prefetch: tl.constexpr,
):  # fmt: skip
    tile_m, tile_n = _place(tl.program_id(0), m, n, block_m, block_n, group_m)
    rows = tile_m * block_m + tl.arange(0, block_m)
    columns = tile_n * block_n + tl.arange(0, block_n)
    inner = tl.arange(0, block_k)
    a_at = a + (rows % m)[:, None] * am + inner[None, :] * ak
    b_at = b + inner[:, None] * bk + (columns % n)[None, :] * bn
    x = _tile_of(a_at, inner[None, :] < k)
    y = _tile_of(b_at, inner[:, None] < k)
    total = tl.zeros((block_m, block_n), dtype=tl.float32)
    for done in range(block_k, k + block_k, block_k):
        a_at += block_k * ak
        b_at += block_k * bk
        if prefetch:
            next_x = _tile_of(a_at, inner[None, :] < k - done)
            next_y = _tile_of(b_at, inner[:, None] < k - done)
            total = tl.dot(x, y, total, input_precision=precision)
            x, y = next_x, next_y
        else:
            total = tl.dot(x, y, total, input_precision=precision)
            x = _tile_of(a_at, inner[None, :] < k - done)
            y = _tile_of(b_at, inner[:, None] < k - done)
    inside = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(c + rows[:, None] * cm + columns[None, :] * cn, total.to(c.dtype.element_ty), mask=inside)


@jit
def _by_descriptors(  # type: ignore[no-untyped-def]
    a, b, c, m, n, k, cm,
    block_m: tl.constexpr, block_n: tl.constexpr, block_k: tl.constexpr, group_m: tl.constexpr,
    specialise: tl.constexpr,
):  # fmt: skip
    tile_m, tile_n = _place(tl.program_id(0), m, n, block_m, block_n, group_m)
    total = tl.zeros((block_m, block_n), dtype=tl.float32)
    for step in tl.range(0, tl.cdiv(k, block_k), warp_specialize=specialise):
        x = a.load([tile_m * block_m, step * block_k])
        y = b.load([step * block_k, tile_n * block_n])
        total = tl.dot(x, y, total)
    # Stored through pointers: the pass that specialises warps splits the sums, which a descriptor store does not take.
    rows = tile_m * block_m + tl.arange(0, block_m)
    columns = tile_n * block_n + tl.arange(0, block_n)
    inside = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(c + rows[:, None] * cm + columns[None, :], total.to(c.dtype.element_ty), mask=inside)


@jit
def _described(  # type: ignore[no-untyped-def]
    a, b, c, m, n, k, cm,
    block_m: tl.constexpr, block_n: tl.constexpr, block_k: tl.constexpr, group_m: tl.constexpr,
):  # fmt: skip
    _by_descriptors(a, b, c, m, n, k, cm, block_m, block_n, block_k, group_m, False)


# Specialised warps share a tile of a by halves. The compiler halves the boxes of descriptors that a kernel makes
# itself; one that the host made still copies whole tiles, more bytes than the barriers expect (Triton 3.6).
@jit
def _describing(  # type: ignore[no-untyped-def]
    a, b, c, m, n, k, am, bk, cm,
    block_m: tl.constexpr, block_n: tl.constexpr, block_k: tl.constexpr, group_m: tl.constexpr,
    specialise: tl.constexpr,
):  # fmt: skip
    a_at = tl.make_tensor_descriptor(a, [m, k], [am, 1], [block_m, block_k])
    b_at = tl.make_tensor_descriptor(b, [k, n], [bk, 1], [block_k, block_n])
    _by_descriptors(a_at, b_at, c, m, n, k, cm, block_m, block_n, block_k, group_m, specialise)


@dataclass(frozen=True)
class Kernel:
    """Which kernel computes, and what it does besides the product."""

    config: Config
    persistent: bool = False
    descriptors: bool = False
    own_descriptors: bool = False
    """Made by every program of the kernel instead of by the host."""
    specialise: bool = False
    epilogue: str = "none"
    precision: str = "ieee"
    k_per_launch: int = 0
    """Inner elements a launch sums up, adding to what the launch before wrote; 0 takes them all in one launch."""
    k_loop: str = "load_first"
    """Its turns: load a tile, then multiply it; or multiply the tile that was loaded before and load the next one over
    it (``overwrite``), or load the next one beside it first (``prefetch``)."""


def _grid(m: int, n: int, *, persistent: bool) -> Callable[[dict[str, Any]], tuple[int]]:
    import torch

    most = 2**31 - 1
    if persistent:
        most = torch.cuda.get_device_properties().multi_processor_count if torch.cuda.is_available() else 2
    return lambda meta: (min(most, triton.cdiv(m, meta["block_m"]) * triton.cdiv(n, meta["block_n"])),)


def _arguments(a: Any, b: Any, c: Any, bias: Any) -> tuple[Any, ...]:
    shape = (a.shape[0], b.shape[1], a.shape[1])
    return a, b, c, c if bias is None else bias, SCALE, *shape, *a.stride(), *b.stride(), *c.stride()


def tuned(a: Any, b: Any, c: Any, bias: Any, *, kernel: Kernel) -> Config:
    """The fastest of SEARCHED for these operands, as Triton's own autotuner finds it."""
    names = ("block_m", "block_n", "block_k", "group_m")
    configs = [triton.Config({name: getattr(c, name) for name in names}, c.num_warps, c.num_stages) for c in SEARCHED]
    tuner = triton.autotune(configs=configs, key=["m", "n", "k"])(_tiled)
    grid = _grid(a.shape[0], b.shape[1], persistent=False)
    extra = {"epilogue": EPILOGUES[kernel.epilogue], "precision": kernel.precision, "add": False}
    tuner[grid](*_arguments(a, b, c, bias), **extra)
    best = tuner.best_config
    return Config(**best.kwargs, num_warps=best.num_warps, num_stages=best.num_stages)


def product(a: Any, b: Any, c: Any, bias: Any, *, kernel: Kernel) -> Callable[[], Any]:
    """A function that launches the kernel (or one launch a k chunk) and gives the last compiled kernel. a is [m, k], b
    [k, n], c [m, n], all strided; descriptors take contiguous ones with rows of 16-byte multiples."""
    if kernel.descriptors:
        return (_describing_product if kernel.own_descriptors else _descriptor_product)(a, b, c, kernel=kernel)
    if kernel.k_loop != "load_first":
        return _carried_product(a, b, c, kernel=kernel)
    body = _persistent if kernel.persistent else _tiled
    grid = _grid(a.shape[0], b.shape[1], persistent=kernel.persistent)
    chunk = kernel.k_per_launch or a.shape[1]
    parts = [(a[:, at : at + chunk], b[at : at + chunk], at > 0) for at in range(0, a.shape[1], chunk)]
    shared = {**kernel.config.meta(), "epilogue": EPILOGUES[kernel.epilogue], "precision": kernel.precision}

    def run() -> Any:
        compiled = None
        for left, right, add in parts:
            compiled = body[grid](*_arguments(left, right, c, bias), **shared, add=add)
        return compiled

    return run


def median_ms(run: Callable[[], Any]) -> float:
    """The median time of a call on the GPU, with cold caches, as Triton's benchmark takes it."""
    return float(triton.testing.do_bench(run, return_mode="median"))


def interpreter_lacks(kernel: Kernel, *, dtype: str, tune: str) -> str:
    """What of this product Triton's interpreter leaves out or gets wrong, as a sentence; empty when it does it all."""
    if tune != "none":
        return "the autotuner times kernels on a GPU, which Triton's interpreter does not have"
    if kernel.specialise:
        return "warps are specialised by Triton's compiler, which its interpreter leaves out"
    if dtype == "bf16" and not _interpreter_multiplies_bf16():
        return "Triton's interpreter multiplies bfloat16 operands as if their bits were whole numbers"
    return ""


def _interpreter_multiplies_bf16() -> bool:
    import torch

    ones = torch.ones((16, 16), dtype=torch.bfloat16)
    out = torch.empty((16, 16))
    product(ones, ones, out, None, kernel=Kernel(Config(16, 16, 16)))()
    return bool((out == ones.shape[1]).all())


def _carried_product(a: Any, b: Any, c: Any, *, kernel: Kernel) -> Callable[[], Any]:
    grid = _grid(a.shape[0], b.shape[1], persistent=False)
    shape = (a.shape[0], b.shape[1], a.shape[1], *a.stride(), *b.stride(), *c.stride())
    how = {"precision": kernel.precision, "prefetch": kernel.k_loop == "prefetch"}
    return lambda: _carried[grid](a, b, c, *shape, **kernel.config.meta(), **how)


def _descriptor_product(a: Any, b: Any, c: Any, *, kernel: Kernel) -> Callable[[], Any]:
    from triton.tools.tensor_descriptor import TensorDescriptor

    size = kernel.config
    descriptors = (
        TensorDescriptor.from_tensor(a, [size.block_m, size.block_k]),
        TensorDescriptor.from_tensor(b, [size.block_k, size.block_n]),
    )
    shape = (a.shape[0], b.shape[1], a.shape[1], c.stride(0))
    grid = _grid(a.shape[0], b.shape[1], persistent=False)
    return lambda: _described[grid](*descriptors, c, *shape, **size.meta())


def _describing_product(a: Any, b: Any, c: Any, *, kernel: Kernel) -> Callable[[], Any]:
    import torch

    sizes = (a.shape[0], b.shape[1], a.shape[1], a.stride(0), b.stride(0), c.stride(0))
    grid = _grid(a.shape[0], b.shape[1], persistent=False)

    def room(size: int, alignment: int, stream: int | None) -> Any:
        return torch.empty(size, dtype=torch.int8, device=a.device)

    def run() -> Any:
        # Descriptors made in a kernel lie in memory that Triton asks for at each launch.
        triton.set_allocator(room)
        return _describing[grid](a, b, c, *sizes, **kernel.config.meta(), specialise=kernel.specialise)

    return run


def compiled_facts(launch: Callable[[], Any], *, specialise: bool) -> dict[str, Any]:
    """Launch once; registers, spills and shared memory of what was compiled, nothing in the interpreter. Raises
    SkipSide when warp specialisation was asked for and the compiler failed, or left the kernel as it was."""
    try:
        compiled = launch()
    except RuntimeError as error:
        if not specialise:
            raise
        raise SkipSide(f"Triton's compiler cannot specialise the warps of this kernel: {error}") from error
    if not hasattr(compiled, "asm"):
        return {}
    specialised = "ttg.warp_specialize" in compiled.asm.get("ttgir", "")
    if specialise and not specialised:
        raise SkipSide("Triton's compiler did not specialise the warps of this kernel on this GPU")
    return {
        "registers": compiled.n_regs,
        "spills": compiled.n_spills,
        "shared_bytes": compiled.metadata.shared,
        "warp_specialised": specialised,
        "warps": compiled.metadata.num_warps,
    }
