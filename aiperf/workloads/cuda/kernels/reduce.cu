// One sum for each block of 256 threads, of EACH floats a thread.
// Defines: N (elements, a multiple of 256 * EACH), EACH (1, or a multiple of 4: loaded 16 bytes at a time).

#ifndef EACH
#define EACH 1
#endif

constexpr unsigned THREADS = 256;
static_assert(N % (THREADS * EACH) == 0 && (EACH == 1 || EACH % 4 == 0), "whole blocks, whole loads");

// The sum of a thread's own values; all of its loads are under way at once.
__device__ __forceinline__ float sum_of_thread(const float* __restrict__ values) {
#if EACH == 1
  return values[blockIdx.x * THREADS + threadIdx.x];
#else
  const float4* from = reinterpret_cast<const float4*>(values) + blockIdx.x * (THREADS * (EACH / 4)) + threadIdx.x;
  float4 fours[EACH / 4];
#pragma unroll
  for (unsigned v = 0; v < EACH / 4; ++v) fours[v] = from[v * THREADS];
  float sum = 0.0f;
#pragma unroll
  for (unsigned v = 0; v < EACH / 4; ++v) sum += (fours[v].x + fours[v].y) + (fours[v].z + fours[v].w);
  return sum;
#endif
}

// The tree of the textbooks: every step goes through shared memory and a barrier of the whole block.
extern "C" __global__ void sum_shared(const float* __restrict__ values, float* __restrict__ out) {
  __shared__ float sums[THREADS];
  sums[threadIdx.x] = sum_of_thread(values);
  __syncthreads();
  for (unsigned half = THREADS / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) out[blockIdx.x] = sums[0];
}

__device__ __forceinline__ float sum_of_warp(float sum) {
#pragma unroll
  for (int apart = 16; apart > 0; apart /= 2) sum += __shfl_down_sync(0xffffffffu, sum, apart);
  return sum;
}

// Registers within a warp; one word of shared memory for each warp and one barrier.
extern "C" __global__ void sum_shuffle(const float* __restrict__ values, float* __restrict__ out) {
  __shared__ float sums[THREADS / 32];
  float sum = sum_of_warp(sum_of_thread(values));
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x < 32) {
    sum = sum_of_warp(threadIdx.x < THREADS / 32 ? sums[threadIdx.x] : 0.0f);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
  }
}
