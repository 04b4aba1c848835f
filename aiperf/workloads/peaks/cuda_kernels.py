"""The kernels behind two peaks of a GPU, its L2 cache and its shared memory: they read the same bytes again and again.

What must not live here: timing, choosing sizes, and the peaks that a product or a copy of torch measures.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from aiperf.workloads.contract import SkipSide
from aiperf.workloads.shared.cupy_kernels import Kernels

BLOCK = 512
"""Threads of a block."""
BLOCKS_EACH = 2
"""Blocks a multiprocessor: what registers and shared memory leave room for on every architecture since Volta."""
VECTOR = 16
"""Bytes of a load."""
BATCH = 8
"""Loads that a thread has under way at once."""
TILE = 2 * BLOCK
"""Vectors of a block's shared memory."""
SOURCE = r"""
// ptx: begin
// Past the first-level cache, and volatile: every load happens, however often it was done before.
__device__ __forceinline__ uint4 load_l2(const uint4* from) {
  uint4 v;
  asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
    : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from) : "memory");
  return v;
}
__device__ __forceinline__ void store_l2(uint4* to, uint4 v) {
  asm volatile("st.global.cg.v4.u32 [%0], {%1, %2, %3, %4};"
    :: "l"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
__device__ __forceinline__ uint4 load_shared(const uint4* from) {
  uint4 v;
  asm volatile("ld.volatile.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
    : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"((unsigned)__cvta_generic_to_shared(from)));
  return v;
}
// ptx: end

// Each thread walks through the buffer in steps of all threads, from its own number on, and around its end.
// vectors >= the number of threads.
extern "C" __global__ void __launch_bounds__(512, 2)
l2_read(const uint4* from, unsigned* sums, int vectors, int batches) {
  const int threads = gridDim.x * blockDim.x, first = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned sum = 0;
  int at = first;
  for (int batch = 0; batch < batches; ++batch) {
    uint4 v[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      v[i] = load_l2(from + at);
      at += threads;
      if (at >= vectors) at -= vectors;
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) sum += v[i].x + v[i].y + v[i].z + v[i].w;
  }
  sums[first] = sum;
}

extern "C" __global__ void __launch_bounds__(512, 2)
l2_copy(const uint4* from, uint4* to, int vectors, int batches) {
  const int threads = gridDim.x * blockDim.x, first = blockIdx.x * blockDim.x + threadIdx.x;
  int at = first;
  for (int batch = 0; batch < batches; ++batch) {
    uint4 v[8];
    int next = at;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      v[i] = load_l2(from + next);
      next += threads;
      if (next >= vectors) next -= vectors;
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      store_l2(to + at, v[i]);
      at += threads;
      if (at >= vectors) at -= vectors;
    }
  }
}

// Neighbours read neighbouring vectors: no two of a quarter warp meet in a bank.
extern "C" __global__ void __launch_bounds__(512, 2)
shared_read(const uint4* from, unsigned* sums, int batches) {
  __shared__ uint4 tile[1024];
  const int thread = threadIdx.x, first = blockIdx.x * blockDim.x + thread;
  tile[thread] = from[thread];
  tile[thread + 512] = from[thread + 512];
  __syncthreads();
  unsigned sum = 0;
  for (int batch = 0; batch < batches; ++batch) {
    uint4 v[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = load_shared(&tile[thread + i % 2 * 512]);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum += v[i].x + v[i].y + v[i].z + v[i].w;
  }
  sums[first] = sum;
}
"""
ENTRIES = ("l2_read", "l2_copy", "shared_read")
_PPEAK_BATCHES = 3


def batches_for(size: int, *, threads: int) -> int:
    """Batches after which all threads together have read at least ``size`` bytes."""
    return -(-size // bytes_of(1, threads=threads))


def bytes_of(batches: int, *, threads: int) -> int:
    """What all threads together read in so many batches."""
    return batches * BATCH * VECTOR * threads


def threads_of(multiprocessors: int) -> int:
    """Threads of a launch that fills a GPU."""
    return multiprocessors * BLOCKS_EACH * BLOCK


def vectors_of(cache: int, *, part: int, buffers: int, threads: int) -> int:
    """Vectors of each buffer, so that all of them are one ``part``-th of the cache, but never fewer than there are
    threads. Raises SkipSide where they would take more than half of the cache."""
    vectors = max(cache // part // VECTOR // buffers, threads)
    if cache <= 0:
        raise SkipSide("torch does not report the size of this GPU's L2 cache")
    if vectors * VECTOR * buffers > cache // 2:
        raise SkipSide(f"a buffer that every thread reads from does not fit into half of {cache} bytes of L2 cache")
    return vectors


def sums_of(words: Any, *, threads: int, batches: int, within: int = 0) -> Any:
    """What ``l2_read`` (``within`` 0) or ``shared_read`` (``within`` TILE) leaves of ``words``, uint32, four a vector:
    a uint32 a thread."""
    each = words.reshape(-1, 4).astype(np.uint64).sum(axis=1)
    step, length = (BLOCK, within) if within else (threads, len(each))
    first = np.arange(threads) % BLOCK if within else np.arange(threads)
    total = np.zeros(threads, dtype=np.uint64)
    for load in range(batches * BATCH):
        total += each[(first + load * step) % length]
    return (total % 2**32).astype(np.uint32)


def l2_step(source: Any, target: Any, *, batches: int) -> Callable[[], object]:
    """A function that reads ``source`` through the L2 cache, and writes it to ``target`` where that is as long.

    Both are int32 tensors of one GPU; a ``target`` of one number a thread takes the sums. Raises SkipSide, or
    RuntimeError when the kernel does not do what it is charged for.
    """
    threads, vectors = _threads(source), source.numel() // 4
    copies = target.numel() == source.numel()
    launch = _launcher(source, "l2_copy" if copies else "l2_read")
    if copies:
        target.zero_()
        launch(source, target, vectors, max(1, -(-vectors // (threads * BATCH))))
        right = bool((target == source).all().item())
    else:
        launch(source, target, vectors, _PPEAK_BATCHES)
        right = _equal(target, sums_of(_words(source), threads=threads, batches=_PPEAK_BATCHES))
    if not right:
        raise RuntimeError("the kernel that measures the L2 cache did not read what it should have read")
    return lambda: launch(source, target, vectors, batches)


def shared_step(source: Any, sums: Any, *, batches: int) -> Callable[[], object]:
    """A function that reads a tile in the shared memory of every multiprocessor. Raises as ``l2_step``."""
    launch = _launcher(source, "shared_read")
    launch(source, sums, _PPEAK_BATCHES)
    wanted = sums_of(_words(source)[: 4 * TILE], threads=_threads(source), batches=_PPEAK_BATCHES, within=TILE)
    if not _equal(sums, wanted):
        raise RuntimeError("the kernel that measures shared memory did not read what it should have read")
    return lambda: launch(source, sums, batches)


def _threads(source: Any) -> int:
    return threads_of(torch.cuda.get_device_properties(source.device).multi_processor_count)


def _words(source: Any) -> Any:
    return source.cpu().numpy().view(np.uint32)


def _equal(sums: Any, wanted: Any) -> bool:
    return bool(np.array_equal(_words(sums), wanted))


def _launcher(source: Any, entry: str) -> Callable[..., None]:
    """Launches a kernel on torch's current stream; tensors become addresses, numbers become ints."""
    kernels, grid = Kernels(SOURCE, source.device), (_threads(source) // BLOCK,)
    return lambda *arguments: kernels.launcher(entry, grid, (BLOCK,), *arguments)()
