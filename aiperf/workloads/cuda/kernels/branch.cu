// What a branch costs when the lanes of a warp disagree. Defines: N (elements), FLOPS (of an element's heavy work);
// DIVERGING (percent of the warps that hold both signs) for lay_signs, DEALT or PARTITIONED for lay_pairs; ITEMS
// (elements of a thread, for the thresholds and rare_work) and SPECIAL (percent) for rare_work. The constants of the
// work are arguments, so that the compiler cannot see that both ways do the same.

#ifndef ITEMS
#define ITEMS 1
#endif
#include "items.cuh"

__device__ __forceinline__ unsigned mixed(unsigned i) {
  i = (i ^ (i >> 16)) * 0x7FEB352Du;
  i = (i ^ (i >> 15)) * 0x846CA68Bu;
  return i ^ (i >> 16);
}

extern "C" __global__ void threshold_branch(const float* __restrict__ x, float* __restrict__ out) {
  for_items([&](unsigned i) {
    if (x[i] > 0.0f) {
      out[i] = x[i];
    } else {
      out[i] = 0.0f;
    }
  });
}

extern "C" __global__ void threshold_select(const float* __restrict__ x, float* __restrict__ out) {
  for_items([&](unsigned i) {
    const float value = x[i];
    out[i] = value > 0.0f ? value : 0.0f;
  });
}

#ifdef FLOPS
// A loop of its own in each branch: the compiler merges straight-line code of two branches, but not loops.
__device__ __forceinline__ float work(float value, float a, float b) {
#pragma unroll 8
  for (int k = 0; k < FLOPS / 2; ++k) value = fmaf(value, a, b);
  return value;
}

// The first `split` lanes of each warp go one way, the others the other. Both ways are the same work.
extern "C" __global__ void split_warp(const float* __restrict__ x, float* __restrict__ out, long long split, float a,
                                      float b, float c, float d) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= N) return;
  const float value = x[i];
  if ((int)(threadIdx.x & 31) < (int)split) {
    out[i] = work(value, a, b);
  } else {
    out[i] = work(value, c, d);
  }
}

// Elements with a negative sign get one work, the others another; the branch skips the work that is not wanted.
extern "C" __global__ void f_or_g_branch(const float* __restrict__ x, float* __restrict__ out, float a, float b,
                                         float c, float d) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= N) return;
  const float value = x[i];
  if (value < 0.0f) {
    out[i] = work(value, a, b);
  } else {
    out[i] = work(value, c, d);
  }
}

// The same by computing both and keeping one.
extern "C" __global__ void f_and_g_blend(const float* __restrict__ x, float* __restrict__ out, float a, float b,
                                         float c, float d) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= N) return;
  const float value = x[i];
  const float f = work(value, a, b), g = work(value, c, d);
  out[i] = value < 0.0f ? f : g;
}

// As f_or_g_branch, over elements that may have been moved: the result goes to the element's own place.
extern "C" __global__ void f_or_g_scattered(const float* __restrict__ x, const int* __restrict__ place,
                                            float* __restrict__ out, float a, float b, float c, float d) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= N) return;
  const float value = x[i];
  const int to = place[i];
  float result;
  if (value < 0.0f) {
    result = work(value, a, b);
  } else {
    result = work(value, c, d);
  }
  out[to] = result;
}

// One of each two neighbours is negative, by chance which. DEALT puts every even element first, whatever its sign, and
// PARTITIONED every negative one, each in order: either takes one of each two, so that both are equally far apart.
extern "C" __global__ void lay_pairs(const float* __restrict__ values, float* __restrict__ stored,
                                     int* __restrict__ place) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= N) return;
  const bool negative = (mixed(i / 2) & 1) == (i & 1);
  const float size = fabsf(values[i]) + 0.5f;
#ifdef PARTITIONED
  const unsigned to = (negative ? 0 : N / 2) + i / 2;
#elif defined(DEALT)
  const unsigned to = (i & 1 ? N / 2 : 0) + i / 2;
#else
  const unsigned to = i;
#endif
  stored[to] = negative ? -size : size;
  place[to] = (int)i;
}

#ifdef DIVERGING
// DIVERGING percent of the warps hold both signs at random, the others only one.
extern "C" __global__ void lay_signs(const float* __restrict__ values, float* __restrict__ stored) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= N) return;
  const bool both = mixed(i / 32) % 100 < DIVERGING;
  const bool negative = mixed(both ? i + 0x5BD1E995u : i / 32 + 0x9E3779B9u) & 1;
  const float size = fabsf(values[i]) + 0.5f;
  stored[i] = negative ? -size : size;
}
#endif

#ifdef SPECIAL
// Few elements need the work, the others are only copied. `chosen` is uniform in 0..1.
__device__ __forceinline__ bool is_special(float chosen) { return chosen < SPECIAL * 0.01f; }

extern "C" __global__ void rare_work_inline(const float* __restrict__ chosen, const float* __restrict__ x,
                                            float* __restrict__ out, float a, float b) {
  const unsigned first = blockIdx.x * (blockDim.x * ITEMS) + threadIdx.x;
  for (int e = 0; e < ITEMS; ++e) {
    const unsigned i = first + e * blockDim.x;
    if (i >= N) break;
    float value = x[i];
    if (is_special(chosen[i])) value = work(value, a, b);
    out[i] = value;
  }
}

// Each warp votes and queues its special elements; then whole warps of the block work through the queue.
extern "C" __global__ void rare_work_compacted(const float* __restrict__ chosen, const float* __restrict__ x,
                                               float* __restrict__ out, float a, float b) {
  __shared__ unsigned queue[256 * ITEMS];
  __shared__ unsigned queued;
  if (threadIdx.x == 0) queued = 0;
  __syncthreads();
  const unsigned first = blockIdx.x * (blockDim.x * ITEMS) + threadIdx.x, lane = threadIdx.x & 31;
  for (int e = 0; e < ITEMS; ++e) {
    const unsigned i = first + e * blockDim.x;
    const bool special = i < N && is_special(chosen[i]);
    if (i < N && !special) out[i] = x[i];
    const unsigned votes = __ballot_sync(0xFFFFFFFFu, special);
    unsigned start = 0;
    if (lane == 0 && votes) start = atomicAdd(&queued, __popc(votes));
    start = __shfl_sync(0xFFFFFFFFu, start, 0);
    if (special) queue[start + __popc(votes & ((1u << lane) - 1))] = i;
  }
  __syncthreads();
  for (unsigned k = threadIdx.x; k < queued; k += blockDim.x) out[queue[k]] = work(x[queue[k]], a, b);
}
#endif
#endif
