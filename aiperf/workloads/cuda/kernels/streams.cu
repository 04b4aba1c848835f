// out = a + 2.5 b over N floats, ITEMS per thread: the compiler's own schedule beside inline PTX, and cache hints.
// Defines: N (elements, below 2^30), ITEMS (elements per thread), AHEAD (for stream_l2_prefetch: sweeps of the grid).

#ifndef ITEMS
#define ITEMS 4
#endif
#ifndef AHEAD
#define AHEAD 0
#endif
#include "items.cuh"

extern "C" __global__ void two_streams_cpp(const float* __restrict__ a, const float* __restrict__ b,
                                           float* __restrict__ out) {
  for_items([&](unsigned i) { out[i] = fmaf(2.5f, b[i], a[i]); });
}

// ptx: begin
// One mad.wide for each address, which ptxas for sm_90 splits into several instructions, and loads that bypass the L1.
__device__ __forceinline__ float load_streaming(const float* base, unsigned i) {
  float value;
  asm volatile(
      "{ .reg .u64 address;\n"
      "  mad.wide.u32 address, %1, 4, %2;\n"
      "  ld.global.cg.f32 %0, [address]; }"
      : "=f"(value)
      : "r"(i), "l"(base));
  return value;
}
__device__ __forceinline__ void prefetch_l2(const float* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}
// ptx: end

// volatile keeps the order of the text: all loads of both streams come before the first use. In the last block, where
// elements may lie outside, one by one, as for_items does it.
extern "C" __global__ void two_streams_ptx(const float* __restrict__ a, const float* __restrict__ b,
                                           float* __restrict__ out) {
  const unsigned from = blockIdx.x * (blockDim.x * ITEMS), first = from + threadIdx.x;
  if (from + blockDim.x * ITEMS > N) {
    for (unsigned i = first; i < N; i += blockDim.x) out[i] = fmaf(2.5f, load_streaming(b, i), load_streaming(a, i));
    return;
  }
  float left[ITEMS], right[ITEMS];
#pragma unroll
  for (int e = 0; e < ITEMS; ++e) {
    left[e] = load_streaming(a, first + e * blockDim.x);
    right[e] = load_streaming(b, first + e * blockDim.x);
  }
#pragma unroll
  for (int e = 0; e < ITEMS; ++e) out[first + e * blockDim.x] = fmaf(2.5f, right[e], left[e]);
}

// Blocks walk over the array with the whole grid's stride; AHEAD asks the L2 for
// what comes that many sweeps later.
extern "C" __global__ void stream_l2_prefetch(const float* __restrict__ a, const float* __restrict__ b,
                                              float* __restrict__ out) {
  const unsigned stride = gridDim.x * blockDim.x;
#pragma unroll 1
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < N; i += stride) {
    if (AHEAD > 0) {
      // One lane in eight asks for the 32-byte sector that eight lanes will read.
      const unsigned later = i + AHEAD * stride;
      if (threadIdx.x % 8 == 0 && later < N && later > i) {
        prefetch_l2(a + later);
        prefetch_l2(b + later);
      }
    }
    out[i] = fmaf(2.5f, b[i], a[i]);
  }
}
