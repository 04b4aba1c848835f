// One sum for every block of 256 of N floats, and the softmax and the normalisation of rows.
// Defines: N (elements, a multiple of 256).

constexpr unsigned THREADS = 256;
static_assert(N % THREADS == 0, "whole blocks");

// The tree of the textbooks: every step goes through shared memory and a barrier of the whole block.
extern "C" __global__ void sum_shared(const float* __restrict__ values, float* __restrict__ out) {
  __shared__ float sums[THREADS];
  sums[threadIdx.x] = values[blockIdx.x * THREADS + threadIdx.x];
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
  float sum = sum_of_warp(values[blockIdx.x * THREADS + threadIdx.x]);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x < 32) {
    sum = sum_of_warp(threadIdx.x < THREADS / 32 ? sums[threadIdx.x] : 0.0f);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
  }
}
