// One pass over N floats. Defines: N (elements, below 2^31), ITEMS (elements per thread), SCALE (for triad).

#ifndef ITEMS
#define ITEMS 1
#endif
#ifndef SCALE
#define SCALE 3.0f
#endif
#include "items.cuh"

extern "C" __global__ void add(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ out) {
  for_items([&](unsigned i) { out[i] = a[i] + b[i]; });
}

extern "C" __global__ void triad(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ out) {
  for_items([&](unsigned i) { out[i] = a[i] + SCALE * b[i]; });
}

extern "C" __global__ void scale(const float* __restrict__ x, float* __restrict__ out) {
  for_items([&](unsigned i) { out[i] = 2.0f * x[i]; });
}

// Right for every grid: a thread takes each gridDim.x * blockDim.x-th element.
extern "C" __global__ void scale_grid_stride(const float* __restrict__ x, float* __restrict__ out) {
  const unsigned step = gridDim.x * blockDim.x;
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  // Four loads under way at a time.
  for (; (unsigned long long)i + 3ull * step < N; i += 4 * step) {
#pragma unroll
    for (unsigned e = 0; e < 4; ++e) out[i + e * step] = 2.0f * x[i + e * step];
  }
  for (; i < N; i += step) out[i] = 2.0f * x[i];
}

extern "C" __global__ void add_one_thread(const float* __restrict__ a, const float* __restrict__ b,
                                          float* __restrict__ out) {
  for (unsigned i = 0; i < N; ++i) out[i] = a[i] + b[i];
}

// FMAS dependent multiply-adds for each element read. May run in place: a thread reads what only it writes, and all of
// it before it writes any.
#ifdef FMAS
template <bool WHOLE>
__device__ __forceinline__ void fma_items(const float* x, float* out, unsigned first) {
  float held[ITEMS];
#pragma unroll
  for (int e = 0; e < ITEMS; ++e)
    if (WHOLE || first + e * blockDim.x < N) held[e] = x[first + e * blockDim.x];
#pragma unroll 16
  for (int k = 0; k < FMAS; ++k) {
#pragma unroll
    for (int e = 0; e < ITEMS; ++e) held[e] = fmaf(held[e], 0.9990234375f, 0.0009765625f);
  }
#pragma unroll
  for (int e = 0; e < ITEMS; ++e)
    if (WHOLE || first + e * blockDim.x < N) out[first + e * blockDim.x] = held[e];
}

extern "C" __global__ void fma_per_load(const float* x, float* out) {
  const unsigned from = blockIdx.x * (blockDim.x * ITEMS);
  if (from + blockDim.x * ITEMS <= N) {
    fma_items<true>(x, out, from + threadIdx.x);
  } else {
    fma_items<false>(x, out, from + threadIdx.x);
  }
}
#endif
