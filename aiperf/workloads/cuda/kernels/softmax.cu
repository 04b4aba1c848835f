// Softmax of one vector of N floats by a resident grid of blocks of 256 threads: two kernels, the second of which reads
// the vector again, or one that meets at a barrier of the grid and keeps the first HELD values of a thread in registers.
// Defines: N (elements), HELD.

#include "grid.cuh"

#ifndef HELD
#define HELD 16
#endif

constexpr unsigned THREADS = 256;
constexpr unsigned WARPS = THREADS / 32;

// The largest value so far, and the sum of exp(value - largest).
struct Part {
  float largest, sum;
};

__device__ __forceinline__ Part joined(Part a, Part b) {
  const float largest = fmaxf(a.largest, b.largest);
  return {largest, a.sum * expf(a.largest - largest) + b.sum * expf(b.largest - largest)};
}

// Low enough for any value, and no infinity: a difference of two would be no number.
__device__ __forceinline__ Part nothing() { return {-3.0e38f, 0.0f}; }

// Thread 0 gets the part of the block.
__device__ __forceinline__ Part part_of_block(Part part) {
  __shared__ Part parts[WARPS];
#pragma unroll
  for (int apart = 16; apart > 0; apart /= 2) {
    const Part other = {__shfl_down_sync(0xffffffffu, part.largest, apart),
                        __shfl_down_sync(0xffffffffu, part.sum, apart)};
    part = joined(part, other);
  }
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = part;
  __syncthreads();
  if (threadIdx.x == 0)
    for (unsigned w = 1; w < WARPS; ++w) part = joined(part, parts[w]);
  // The next use may overwrite the parts.
  __syncthreads();
  return part;
}

// All threads get the part of the vector; parts of blocks were written by other blocks, so they are read from the L2.
__device__ __forceinline__ Part part_of_all(const float* parts) {
  __shared__ Part all;
  Part part = nothing();
  for (unsigned b = threadIdx.x; b < gridDim.x; b += THREADS)
    part = joined(part, {__ldcg(parts + 2 * b), __ldcg(parts + 2 * b + 1)});
  part = part_of_block(part);
  if (threadIdx.x == 0) all = part;
  __syncthreads();
  return all;
}

// A group of HELD values has its own largest one first, so that one exponential is due for each value.
__device__ __forceinline__ Part part_of_held(const float* held) {
  float largest = held[0];
#pragma unroll
  for (unsigned k = 1; k < HELD; ++k) largest = fmaxf(largest, held[k]);
  float sum = 0.0f;
#pragma unroll
  for (unsigned k = 0; k < HELD; ++k) sum += expf(held[k] - largest);
  return {largest, sum};
}

// The grid takes stripes of HELD * gridDim.x * THREADS values; what lies behind the end counts as nothing.
__device__ __forceinline__ void read_stripe(const float* __restrict__ x, float* held, unsigned first) {
  const unsigned apart = gridDim.x * THREADS;
#pragma unroll
  for (unsigned k = 0; k < HELD; ++k) held[k] = first + k * apart < N ? x[first + k * apart] : -3.0e38f;
}
__device__ __forceinline__ void write_stripe(float* __restrict__ out, const float* held, unsigned first, Part all) {
  const unsigned apart = gridDim.x * THREADS;
  const float by = 1.0f / all.sum;
#pragma unroll
  for (unsigned k = 0; k < HELD; ++k)
    if (first + k * apart < N) out[first + k * apart] = expf(held[k] - all.largest) * by;
}

extern "C" __global__ void __launch_bounds__(THREADS, 4)
    max_and_sum(const float* __restrict__ x, float* __restrict__ parts) {
  Part part = nothing();
  for (unsigned first = blockIdx.x * THREADS + threadIdx.x; first < N; first += HELD * gridDim.x * THREADS) {
    float held[HELD];
    read_stripe(x, held, first);
    part = joined(part, part_of_held(held));
  }
  part = part_of_block(part);
  if (threadIdx.x == 0) {
    parts[2 * blockIdx.x] = part.largest;
    parts[2 * blockIdx.x + 1] = part.sum;
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 4)
    normalise(const float* __restrict__ x, const float* __restrict__ parts, float* __restrict__ out) {
  const Part all = part_of_all(parts);
  for (unsigned first = blockIdx.x * THREADS + threadIdx.x; first < N; first += HELD * gridDim.x * THREADS) {
    float held[HELD];
    read_stripe(x, held, first);
    write_stripe(out, held, first, all);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 4)
    softmax_grid(const float* __restrict__ x, float* parts, float* __restrict__ out, unsigned* state) {
  const unsigned mine = blockIdx.x * THREADS + threadIdx.x, stripe = HELD * gridDim.x * THREADS;
  float kept[HELD];
  read_stripe(x, kept, mine);
  Part part = joined(nothing(), part_of_held(kept));
  for (unsigned first = mine + stripe; first < N; first += stripe) {
    float held[HELD];
    read_stripe(x, held, first);
    part = joined(part, part_of_held(held));
  }
  part = part_of_block(part);
  if (threadIdx.x == 0) {
    parts[2 * blockIdx.x] = part.largest;
    parts[2 * blockIdx.x + 1] = part.sum;
  }
  grid_barrier(state);
  const Part all = part_of_all(parts);
  write_stripe(out, kept, mine, all);
  for (unsigned first = mine + stripe; first < N; first += stripe) {
    float held[HELD];
    read_stripe(x, held, first);
    write_stripe(out, held, first, all);
  }
}
