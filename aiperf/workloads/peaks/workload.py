"""The workloads that measure the peaks of a host: how fast can memory, links, disks and matrix units go at best?

What must not live here: timing, and choosing which peak a scenario is held against.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.distributed as dist

from aiperf.workloads.contract import Context, Size, SkipSide, Work, Workload
from aiperf.workloads.peaks import cuda_kernels as kernels
from aiperf.workloads.shared.page_cache import random_file
from aiperf.workloads.shared.tried import tried

_FLOAT = 4
_L2_STEP = 1 << 29
"""Bytes that one step reads through the L2 cache: tenths of a millisecond, so that its launch is none of it."""
_SHARED_STEP = 1 << 33
_HOST_BLOCK = 1 << 22


def cpu_stream(ctx: Context, *, way: Literal["copy", "sum", "dot"] = "copy", size: Size = 1073741824) -> Workload:
    """Walk through buffers of ``size`` bytes with every allowed CPU: copy one, sum one, or multiply two and add up."""
    threads = _all_cpus()
    first, second = _random(ctx, size, stream=0), _random(ctx, size, stream=1)
    moved = size if way == "sum" else 2 * size
    target = second if way == "copy" else torch.empty(1)
    steps: dict[str, Callable[[], object]] = {
        "copy": lambda: second.copy_(first),
        "sum": lambda: target.copy_(first.sum()),
        "dot": lambda: target.copy_(torch.dot(first, second)),
    }
    inputs = {"first": first} if way != "dot" else {"first": first, "second": second}
    return Workload(
        step=steps[way],
        work=Work(bytes=moved, peaks={"cpu_stream": moved}),
        outputs=lambda: {"target": target},
        inputs=lambda: inputs,
        facts={"threads": threads},
    )


def cpu_gemm_fp32(ctx: Context, *, n: int = 2048) -> Workload:
    """Multiply two random n x n fp32 matrices with every allowed CPU."""
    threads = _all_cpus()
    return _gemm(ctx, n, torch.float32, peak="cpu_gemm_fp32", device="cpu", facts={"threads": threads})


def cpu_gemm_bf16(ctx: Context, *, n: int = 2048) -> Workload:
    """Multiply two random n x n bf16 matrices with every allowed CPU, where those have instructions for it."""
    if not _cpu_has_bf16():
        raise SkipSide("these CPUs have no instructions that multiply bf16 numbers")
    threads = _all_cpus()
    return _gemm(ctx, n, torch.bfloat16, peak="cpu_gemm_bf16", device="cpu", facts={"threads": threads})


def gemm_fp32(ctx: Context, *, n: int = 8192) -> Workload:
    """Multiply two random n x n fp32 matrices on the GPU, TF32 off."""
    return _gemm(ctx, n, torch.float32, peak="gemm_fp32", device=_gpu(ctx))


def gemm_tf32(ctx: Context, *, n: int = 8192) -> Workload:
    """Multiply two random n x n fp32 matrices on the GPU, TF32 allowed."""
    return _gemm(ctx, n, torch.float32, peak="gemm_tf32", device=_gpu(ctx))


def gemm_bf16(ctx: Context, *, n: int = 8192) -> Workload:
    """Multiply two random n x n bf16 matrices on the GPU."""
    return _gemm(ctx, n, torch.bfloat16, peak="gemm_bf16", device=_gpu(ctx))


def gemm_fp16(ctx: Context, *, n: int = 8192) -> Workload:
    """Multiply two random n x n fp16 matrices on the GPU."""
    return _gemm(ctx, n, torch.float16, peak="gemm_fp16", device=_gpu(ctx))


def gemm_fp8(ctx: Context, *, n: int = 8192, fast_sums: bool = True) -> Workload:
    """Multiply two random n x n matrices of float8_e4m3fn on the GPU, into bf16, the right one stored column by column;
    ``fast_sums`` lets the tensor cores add up with fewer bits."""
    device = _gpu(ctx)
    generator = torch.Generator(device=device).manual_seed(ctx.seed)
    left, stored = (torch.randn(n, n, device=device, generator=generator).to(torch.float8_e4m3fn) for _ in range(2))
    right, one = stored.t(), torch.ones((), device=device)
    product = torch.empty(n, n, device=device, dtype=torch.bfloat16)

    def multiply() -> object:
        return torch._scaled_mm(
            left, right, scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=fast_sums, out=product
        )

    flops = 2.0 * n**3
    return Workload(
        step=tried(multiply, "torch._scaled_mm does not take float8 operands here"),
        work=Work(flops=flops, peaks={"gemm_fp8": flops}),
        outputs=lambda: {"product": product},
        inputs=lambda: {"left": left, "right": stored},
        reference=lambda: {"product": left.double() @ right.double()},
        facts={"device": torch.cuda.get_device_name()},
    )


def l2(ctx: Context, *, way: Literal["read", "copy"] = "read", part: int = 4) -> Workload:
    """Read one ``part``-th of the GPU's L2 cache from it, again and again; or copy half of such a part to the other.
    Bytes are those that the multiprocessors get from the cache and give it."""
    device = _gpu(ctx)
    facts = torch.cuda.get_device_properties(device)
    threads, buffers = kernels.threads_of(facts.multi_processor_count), 1 if way == "read" else 2
    cache = int(getattr(facts, "L2_cache_size", 0))
    vectors = kernels.vectors_of(cache, part=part, buffers=buffers, threads=threads)
    source = _random(ctx, vectors * kernels.VECTOR, stream=0, device=device).view(torch.int32)
    target = torch.zeros(threads if way == "read" else source.numel(), dtype=torch.int32, device=device)
    batches = kernels.batches_for(_L2_STEP, threads=threads)
    moved = buffers * kernels.bytes_of(batches, threads=threads)
    return _transfer(kernels.l2_step(source, target, batches=batches), source, target, "l2", moved)


def shared(ctx: Context) -> Workload:
    """Read a tile in the shared memory of every multiprocessor, again and again, without a conflict of banks."""
    device = _gpu(ctx)
    threads = kernels.threads_of(torch.cuda.get_device_properties(device).multi_processor_count)
    source = _random(ctx, kernels.TILE * kernels.VECTOR, stream=0, device=device).view(torch.int32)
    sums = torch.zeros(threads, dtype=torch.int32, device=device)
    batches = kernels.batches_for(_SHARED_STEP, threads=threads)
    moved = kernels.bytes_of(batches, threads=threads)
    return _transfer(kernels.shared_step(source, sums, batches=batches), source, sums, "shared", moved)


def dram(ctx: Context, *, way: Literal["copy", "scale", "sum"] = "copy", size: Size = 1073741824) -> Workload:
    """Walk through ``size`` bytes of GPU memory: the driver's copy, a kernel that scales, or one that only reads."""
    device = _gpu(ctx)
    source = _random(ctx, size, stream=0, device=device)
    target = torch.empty(1, device=device) if way == "sum" else _random(ctx, size, stream=1, device=device)
    steps: dict[str, Callable[[], object]] = {
        "copy": lambda: target.copy_(source),
        "scale": lambda: torch.mul(source, 0.5, out=target),
        "sum": lambda: torch.sum(source, dim=0, keepdim=True, out=target),
    }
    moved = size if way == "sum" else 2 * size
    return _transfer(steps[way], source, target, "dram", moved)


def h2d(ctx: Context, *, size: Size = 268435456) -> Workload:
    """Copy ``size`` bytes from page-locked host memory to the GPU."""
    device = _gpu(ctx)
    source = _random(ctx, size, stream=0, pinned=True)
    target = _random(ctx, size, stream=1, device=device)
    return _transfer(lambda: target.copy_(source, non_blocking=True), source, target, "h2d", size)


def d2h(ctx: Context, *, size: Size = 268435456) -> Workload:
    """Copy ``size`` bytes from the GPU to page-locked host memory."""
    device = _gpu(ctx)
    source = _random(ctx, size, stream=0, device=device)
    target = _random(ctx, size, stream=1, pinned=True)
    return _transfer(lambda: target.copy_(source, non_blocking=True), source, target, "d2h", size)


def p2p(ctx: Context, *, size: Size = 268435456) -> Workload:
    """Copy ``size`` bytes from this GPU to the next one."""
    device = torch.device(_gpu(ctx))
    here = device.index or 0
    there = (here + 1) % max(1, torch.cuda.device_count())
    if here == there:
        raise SkipSide("a peer copy needs two GPUs, but only one is visible")
    if not torch.cuda.can_device_access_peer(here, there):
        raise SkipSide(f"GPU {here} has no peer access to GPU {there}")
    source = _random(ctx, size, stream=0, device=f"cuda:{here}")
    target = _random(ctx, size, stream=1, device=f"cuda:{there}")
    return _transfer(lambda: target.copy_(source, non_blocking=True), source, target, "p2p", size)


def all_reduce_nccl(ctx: Context, *, size: Size = 268435456) -> Workload:
    """All-reduce ``size`` bytes of GPU memory over NCCL; bus bytes count (nccl-tests PERFORMANCE.md)."""
    ctx.process_group("nccl")
    return _all_reduce(ctx, size, "all_reduce_nccl", _gpu(ctx))


def all_reduce_gloo(ctx: Context, *, size: Size = 268435456) -> Workload:
    """All-reduce ``size`` bytes of host memory over Gloo; bus bytes count."""
    ctx.process_group("gloo")
    return _all_reduce(ctx, size, "all_reduce_gloo", "cpu")


def launch(ctx: Context) -> Workload:
    """Write one number on the GPU: the shortest kernel that does something."""
    target = torch.empty(1, device=_gpu(ctx))
    return Workload(
        step=lambda: target.fill_(1.0), work=Work(items=1, item="launches"), outputs=lambda: {"target": target}
    )


_PLACES = 32
"""Files of a rank that lie elsewhere than its next one."""


def disk_read(
    ctx: Context,
    *,
    size: Size = 268435456,
    block: Size = 8388608,
    threads: int = 8,
    direct: bool = True,
    own: bool = False,
) -> Workload:
    """Read a file of random bytes from disk, its pages dropped from the page cache before every step, with O_DIRECT
    where the file system allows it (facts: ``direct``); ``own``: of each rank a file of its own, on its node's disk,
    and before every step a new one: where a file lies can matter more than which disk it is."""
    folder = ctx.scratch if own else ctx.shared_scratch
    kind = _file_system(folder)
    if kind in ("tmpfs", "ramfs"):
        raise SkipSide(f"the scratch folder is on {kind}: memory, not a disk")
    path = _random_file(ctx, size, folder)
    handle, really = _open(path, direct=direct)
    step, outputs, close = _reader(handle, size, block, threads)

    turns = count()

    def renew() -> None:
        # The last ones stay, so that the new one gets other blocks than theirs.
        path.replace(path.with_suffix(f".{next(turns) % _PLACES}"))
        new, _ = _open(_random_file(ctx, size, folder), direct=direct)
        os.dup2(new, handle)
        os.close(new)

    def prepare() -> None:
        if own:
            renew()
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)

    return Workload(
        step=step,
        work=Work(bytes=size, peaks={"disk_read": size}),
        outputs=outputs,
        prepare=prepare,
        facts={"direct": really, "file_system": kind, "threads": threads},
        close=close,
    )


def page_cache_read(ctx: Context, *, size: Size = 268435456, block: Size = 1048576, threads: int = 0) -> Workload:
    """Read a file that lies in the page cache, a block at a time per thread; 0 threads: one per allowed CPU."""
    workers = threads or len(os.sched_getaffinity(0))
    handle, _ = _open(_random_file(ctx, size, ctx.shared_scratch), direct=False)
    step, outputs, close = _reader(handle, size, block, workers)
    step()
    work = Work(bytes=size, peaks={"page_cache_read": size})
    return Workload(step=step, work=work, outputs=outputs, facts={"threads": workers}, close=close)


def _all_cpus() -> int:
    threads = len(os.sched_getaffinity(0))
    torch.set_num_threads(threads)
    return int(torch.get_num_threads())


def _cpu_has_bf16(root: Path = Path("/")) -> bool:
    """Whether a line of /proc/cpuinfo names such instructions: x86's AVX-512 or AMX, or Arm's."""
    words = set((root / "proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split())
    return bool(words & {"avx512_bf16", "amx_bf16", "bf16"})


def _gpu(ctx: Context) -> str:
    if not ctx.on_gpu:
        raise SkipSide("no GPU was given to this side")
    return ctx.device


def _random(ctx: Context, size: int, *, stream: int, device: str = "cpu", pinned: bool = False) -> torch.Tensor:
    """``size`` bytes of uniform fp32, offset by the launch's pad, equal for equal seed, rank and stream; host memory
    repeats a random block."""
    count, offset = size // _FLOAT, ctx.pad // _FLOAT
    generator = torch.Generator(device=device).manual_seed(1_000_003 * ctx.seed + 1009 * ctx.rank + stream)
    buffer = torch.empty(count + offset, device=device, pin_memory=pinned)[offset:]
    block = buffer[:_HOST_BLOCK] if device == "cpu" else buffer
    block.uniform_(0.5, 1.5, generator=generator)
    for begin in range(block.numel(), count, _HOST_BLOCK):
        part = buffer[begin : begin + _HOST_BLOCK]
        part.copy_(block[: part.numel()])
    return buffer


def _transfer(
    step: Callable[[], object], source: torch.Tensor, target: torch.Tensor, peak: str, moved: int
) -> Workload:
    return Workload(
        step=step,
        work=Work(bytes=moved, peaks={peak: moved}),
        outputs=lambda: {"target": target},
        inputs=lambda: {"source": source},
        facts={"device": torch.cuda.get_device_name()},
    )


def _gemm(
    ctx: Context, n: int, dtype: torch.dtype, *, peak: str, device: str, facts: dict[str, Any] | None = None
) -> Workload:
    generator = torch.Generator(device=device).manual_seed(ctx.seed)
    left, right = (torch.randn(n, n, device=device, generator=generator).to(dtype) for _ in range(2))
    product = torch.empty(n, n, device=device, dtype=dtype)
    flops = 2.0 * n**3
    mode = "high" if peak == "gemm_tf32" else "highest"

    def step() -> None:
        # The mode belongs to the process, and another peak may live in it too.
        torch.set_float32_matmul_precision(mode)
        torch.mm(left, right, out=product)

    return Workload(
        step=step,
        work=Work(flops=flops, peaks={peak: flops}),
        outputs=lambda: {"product": product},
        inputs=lambda: {"left": left, "right": right},
        reference=lambda: {"product": left.double() @ right.double()},
        facts=facts or {"device": torch.cuda.get_device_name()},
    )


def _all_reduce(ctx: Context, size: int, peak: str, device: str) -> Workload:
    target = _random(ctx, size, stream=0, device=device)
    bus = size * 2 * (ctx.world_size - 1) / ctx.world_size

    # The maximum stays what it is however often it is taken; a sum would run away.
    def step() -> None:
        dist.all_reduce(target, op=dist.ReduceOp.MAX)

    return Workload(
        step=step,
        # Work is the gang's, a peak is charged with what its busiest link carries: the same for every rank.
        work=Work(bytes=size, peaks={peak: bus}),
        outputs=lambda: {"target": target},
        poison=False,
        kept_outputs="reduced in place: the output is the state",
        facts={"ranks": ctx.world_size, "backend": dist.get_backend()},
    )


def _random_file(ctx: Context, size: int, folder: Path) -> Path:
    """A file of random bytes in ``folder``, on disk before it gets its name."""
    source = np.random.default_rng(ctx.seed)
    return random_file(folder / f"peak-{size}.bin", size, source, piece=1 << 23)


def _open(path: Path, *, direct: bool) -> tuple[int, bool]:
    if direct:
        try:
            return os.open(path, os.O_RDONLY | os.O_DIRECT), True
        except OSError:
            pass  # some file systems refuse O_DIRECT; the caller learns it from the second value
    return os.open(path, os.O_RDONLY), False


def _reader(
    handle: int, size: int, block: int, threads: int
) -> tuple[Callable[[], object], Callable[[], dict[str, Any]], Callable[[], None]]:
    """step, outputs and close of a striped read: thread t reads blocks t, t + threads, ... into its own buffer."""
    buffers = [mmap.mmap(-1, block) for _ in range(threads)]  # page-aligned, as O_DIRECT asks
    pool = ThreadPoolExecutor(threads)

    def stripe(thread: int) -> int:
        starts = range(thread * block, size, threads * block)
        return sum(os.preadv(handle, [buffers[thread]], start) for start in starts)

    def step() -> None:
        read = sum(pool.map(stripe, range(threads))) if threads > 1 else stripe(0)
        if read != size:
            raise RuntimeError(f"read {read} of {size} bytes")

    def close() -> None:
        pool.shutdown()
        os.close(handle)

    return step, lambda: {"block": np.frombuffer(buffers[0], np.uint8)}, close


def _file_system(folder: Path) -> str:
    """The type of the file system that holds ``folder``, from /proc/self/mounts; empty when unknown."""
    best, kind = "", ""
    target = str(folder.resolve())
    for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines():
        point, name = line.split()[1:3]
        inside = target == point or target.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, name
    return kind
