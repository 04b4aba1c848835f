// Independent work within a thread. Defines: N (elements), ITEMS (elements of a thread), and per entry: fma_chains FMAS
// (of a chain) and AROUND (multiply-adds of a thread between two looks at the loop's end, alike on all sides);
// gather_two IN_FLIGHT (elements whose loads are issued together); dot_unrolled UNROLL (accumulators) and STEPS
// (multiply-adds of an element ahead of its product).

#ifndef ITEMS
#define ITEMS 1
#endif

#ifdef FMAS
// ITEMS chains of FMAS dependent multiply-adds, advanced side by side.
extern "C" __global__ void fma_chains(const float* __restrict__ x, float* __restrict__ out) {
  const unsigned first = blockIdx.x * (blockDim.x * ITEMS) + threadIdx.x;
  float held[ITEMS];
#pragma unroll
  for (int e = 0; e < ITEMS; ++e) held[e] = first + e * blockDim.x < N ? x[first + e * blockDim.x] : 0.0f;
  constexpr int steps = AROUND / ITEMS;
#pragma unroll steps
  for (int k = 0; k < FMAS; ++k) {
#pragma unroll
    for (int e = 0; e < ITEMS; ++e) held[e] = fmaf(held[e], 0.9990234375f, 0.0009765625f);
  }
#pragma unroll
  for (int e = 0; e < ITEMS; ++e)
    if (first + e * blockDim.x < N) out[first + e * blockDim.x] = held[e];
}
#endif

#ifdef IN_FLIGHT
// Pointers that may alias, as they are mostly written: no load can be moved ahead of a store that stands before it.
extern "C" __global__ void gather_two(const float* a, const float* b, float* out) {
  static_assert(ITEMS % IN_FLIGHT == 0 && N % ITEMS == 0, "whole groups of loads");
  const unsigned first = blockIdx.x * (blockDim.x * ITEMS) + threadIdx.x;
  if (first + (ITEMS - 1) * blockDim.x >= N) return;
#pragma unroll
  for (int e = 0; e < ITEMS; e += IN_FLIGHT) {
    float left[IN_FLIGHT], right[IN_FLIGHT];
#pragma unroll
    for (int k = 0; k < IN_FLIGHT; ++k) {
      left[k] = a[first + (e + k) * blockDim.x];
      right[k] = b[first + (e + k) * blockDim.x];
    }
#pragma unroll
    for (int k = 0; k < IN_FLIGHT; ++k) out[first + (e + k) * blockDim.x] = fmaf(3.0f, left[k], right[k]);
  }
}
#endif

extern "C" __global__ void hypot_serial(const float* __restrict__ x, const float* __restrict__ y,
                                        float* __restrict__ out) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= N) return;
  float sum = x[i] * x[i];
  sum = sum + 1.0f;
  const float v = y[i] * y[i];
  out[i] = sqrtf(sum + v);
}

extern "C" __global__ void hypot_interleaved(const float* __restrict__ x, const float* __restrict__ y,
                                             float* __restrict__ out) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= N) return;
  const float u = x[i] * x[i];
  const float v = y[i] * y[i];
  const float sum = u + 1.0f;
  out[i] = sqrtf(sum + v);
}

extern "C" __global__ void four_tap_loop(const float* __restrict__ a, const float* __restrict__ w,
                                         float* __restrict__ out) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= N) return;
  float sum = 0.0f;
  for (int k = 0; k < 4; ++k) sum += a[4 * i + k] * w[k];
  out[i] = sum;
}

extern "C" __global__ void four_tap_pragma(const float* __restrict__ a, const float* __restrict__ w,
                                           float* __restrict__ out) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= N) return;
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < 4; ++k) sum += a[4 * i + k] * w[k];
  out[i] = sum;
}

extern "C" __global__ void four_tap_unrolled(const float* __restrict__ a, const float* __restrict__ w,
                                             float* __restrict__ out) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= N) return;
  const float a0 = a[4 * i], a1 = a[4 * i + 1], a2 = a[4 * i + 2], a3 = a[4 * i + 3];
  const float p0 = a0 * w[0], p1 = a1 * w[1], p2 = a2 * w[2], p3 = a3 * w[3];
  out[i] = (p0 + p1) + (p2 + p3);
}

extern "C" __global__ void four_tap_float4(const float4* __restrict__ a, const float* __restrict__ w,
                                           float* __restrict__ out) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= N) return;
  const float4 v = a[i];
  out[i] = (v.x * w[0] + v.y * w[1]) + (v.z * w[2] + v.w * w[3]);
}

#ifdef UNROLL
__device__ __forceinline__ float stepped(float x) {
#pragma unroll
  for (int step = 0; step < STEPS; ++step) x = fmaf(x, 0.9990234375f, 0.0009765625f);
  return x;
}

// Each block's part of a dot product; a thread keeps UNROLL sums, one for each element that it reads at a time.
extern "C" __global__ void dot_unrolled(const float* __restrict__ a, const float* __restrict__ b,
                                        float* __restrict__ out) {
  __shared__ float warps[32];
  const unsigned step = gridDim.x * blockDim.x;
  float sums[UNROLL] = {};
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  for (; i + (UNROLL - 1) * step < N; i += UNROLL * step) {
#pragma unroll
    for (int k = 0; k < UNROLL; ++k) sums[k] = fmaf(stepped(a[i + k * step]), b[i + k * step], sums[k]);
  }
  for (; i < N; i += step) sums[0] = fmaf(stepped(a[i]), b[i], sums[0]);
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < UNROLL; ++k) sum += sums[k];
  for (int d = 16; d; d /= 2) sum += __shfl_down_sync(0xFFFFFFFFu, sum, d);
  if ((threadIdx.x & 31) == 0) warps[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  sum = threadIdx.x < blockDim.x / 32 ? warps[threadIdx.x] : 0.0f;
  for (int d = 16; d; d /= 2) sum += __shfl_down_sync(0xFFFFFFFFu, sum, d);
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}
#endif
