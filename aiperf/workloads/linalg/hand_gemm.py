"""Matrix products written by hand in CUDA C++: shared tiles on the CUDA cores, and tensor-core fragments in PTX.

What must not live here: the library's products, Triton kernels, timing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiperf.workloads.contract import SkipSide
from aiperf.workloads.shared.cupy_kernels import Kernels

SOURCE = r"""
// Tiles of 32 x 32 floats, each loaded once into shared memory and used 32 times from there; one result a thread.
extern "C" __global__ void __launch_bounds__(1024)
shared_tile(const float* a, const float* b, float* c, int m, int n, int k) {
  __shared__ float left[32][33];
  __shared__ float right[32][33];
  const int x = threadIdx.x, y = threadIdx.y;
  const int row = blockIdx.y * 32 + y, column = blockIdx.x * 32 + x;
  float sum = 0.0f;
  for (int start = 0; start < k; start += 32) {
    left[y][x] = row < m && start + x < k ? a[(size_t)row * k + start + x] : 0.0f;
    right[y][x] = column < n && start + y < k ? b[(size_t)(start + y) * n + column] : 0.0f;
    __syncthreads();
    for (int i = 0; i < 32; ++i) sum += left[y][i] * right[i][x];
    __syncthreads();
  }
  if (row < m && column < n) c[(size_t)row * n + column] = sum;
}

// Four warps a block of 64 x 64 results, each warp 2 x 2 fragments of 16 x 16; fp16 in, fp32 sums, fp16 out.
// m and n must be multiples of 64, k of 32.
extern "C" __global__ void __launch_bounds__(128)
mma_tile(const unsigned short* a, const unsigned short* b, unsigned short* c, int m, int n, int k) {
  __shared__ __align__(32) unsigned short left[64][48];
  __shared__ __align__(32) unsigned short right[32][80];
  __shared__ __align__(32) float out[64][72];
  const int thread = threadIdx.x, warp = thread / 32;
  const int row = blockIdx.y * 64, column = blockIdx.x * 64;
  const int warp_row = warp / 2 * 32, warp_column = warp % 2 * 32;
  float sum[2][2][8] = {};
  for (int start = 0; start < k; start += 32) {
    for (int i = thread; i < 256; i += 128) {
      const int ar = i / 4, ac = i % 4 * 8, br = i / 8, bc = i % 8 * 8;
      *(uint4*)&left[ar][ac] = *(const uint4*)&a[(size_t)(row + ar) * k + start + ac];
      *(uint4*)&right[br][bc] = *(const uint4*)&b[(size_t)(start + br) * n + column + bc];
    }
    __syncthreads();
    for (int inner = 0; inner < 32; inner += 16) {
      unsigned x[2][8], y[2][8];
      for (int i = 0; i < 2; ++i) {
        const unsigned la = (unsigned)__cvta_generic_to_shared(&left[warp_row + 16 * i][inner]);
        const unsigned ra = (unsigned)__cvta_generic_to_shared(&right[inner][warp_column + 16 * i]);
        asm volatile("wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {%0,%1,%2,%3,%4,%5,%6,%7}, [%8], %9;"
          : "=r"(x[i][0]), "=r"(x[i][1]), "=r"(x[i][2]), "=r"(x[i][3]),
            "=r"(x[i][4]), "=r"(x[i][5]), "=r"(x[i][6]), "=r"(x[i][7]) : "r"(la), "r"(48) : "memory");
        asm volatile("wmma.load.b.sync.aligned.row.m16n16k16.shared.f16 {%0,%1,%2,%3,%4,%5,%6,%7}, [%8], %9;"
          : "=r"(y[i][0]), "=r"(y[i][1]), "=r"(y[i][2]), "=r"(y[i][3]),
            "=r"(y[i][4]), "=r"(y[i][5]), "=r"(y[i][6]), "=r"(y[i][7]) : "r"(ra), "r"(80) : "memory");
      }
      for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 2; ++j) {
          float* s = sum[i][j];
          asm volatile("wmma.mma.sync.aligned.row.row.m16n16k16.f32.f32 {%0,%1,%2,%3,%4,%5,%6,%7}, "
            "{%8,%9,%10,%11,%12,%13,%14,%15}, {%16,%17,%18,%19,%20,%21,%22,%23}, {%0,%1,%2,%3,%4,%5,%6,%7};"
            : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3]), "+f"(s[4]), "+f"(s[5]), "+f"(s[6]), "+f"(s[7])
            : "r"(x[i][0]), "r"(x[i][1]), "r"(x[i][2]), "r"(x[i][3]),
              "r"(x[i][4]), "r"(x[i][5]), "r"(x[i][6]), "r"(x[i][7]),
              "r"(y[j][0]), "r"(y[j][1]), "r"(y[j][2]), "r"(y[j][3]),
              "r"(y[j][4]), "r"(y[j][5]), "r"(y[j][6]), "r"(y[j][7]));
        }
    }
    __syncthreads();
  }
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 2; ++j) {
      const float* s = sum[i][j];
      const unsigned at = (unsigned)__cvta_generic_to_shared(&out[warp_row + 16 * i][warp_column + 16 * j]);
      asm volatile("wmma.store.d.sync.aligned.row.m16n16k16.shared.f32 [%0], {%1,%2,%3,%4,%5,%6,%7,%8}, %9;"
        :: "r"(at), "f"(s[0]), "f"(s[1]), "f"(s[2]), "f"(s[3]), "f"(s[4]), "f"(s[5]), "f"(s[6]), "f"(s[7]), "r"(72)
        : "memory");
    }
  __syncthreads();
  for (int i = thread; i < 64 * 64; i += 128) {
    unsigned short half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(out[i / 64][i % 64]));
    c[(size_t)(row + i / 64) * n + column + i % 64] = half;
  }
}
"""
ENTRIES = {"hand_tiled": "shared_tile", "hand_mma": "mma_tile"}
DTYPES = {"hand_tiled": "fp32", "hand_mma": "fp16"}


def geometry(backend: str, *, m: int, n: int, k: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Grid and block of a product. Raises ValueError where mma_tile would reach over an edge."""
    if backend == "hand_tiled":
        return (-(-n // 32), -(-m // 32)), (32, 32)
    if m % 64 or n % 64 or k % 32:
        raise ValueError(f"hand_mma takes m and n in multiples of 64 and k of 32, not {m}, {n}, {k}")
    return (n // 64, m // 64), (128, 1)


def product(a: Any, b: Any, out: Any, *, backend: str) -> tuple[Callable[[], Any], dict[str, Any]]:
    """A function that launches the kernel on torch's current stream, and the kernel's registers and memory. a is [m,
    k], b [k, n] and out [m, n], row by row. Raises SkipSide without a GPU or CuPy."""
    if not a.is_cuda:
        raise SkipSide("a product in CUDA C++ needs a GPU")
    (m, k), n = a.shape, b.shape[1]
    grid, block = geometry(backend, m=m, n=n, k=k)
    kernels = Kernels(SOURCE, a.device)
    kernel, launch = (
        kernels.entry(ENTRIES[backend]),
        kernels.launcher(ENTRIES[backend], grid, block, a, b, out, m, n, k),
    )

    def run() -> Any:
        launch()
        return out

    facts = {
        "registers": kernel.num_regs,
        "local_bytes": kernel.local_size_bytes,
        "shared_bytes": kernel.shared_size_bytes,
    }
    return run, facts
