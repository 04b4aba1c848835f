// ITERATIONS times two dependent sweeps over N floats: a launch for each sweep, or one cooperative launch that meets at
// a barrier of the whole grid between them. Both read what other blocks wrote through the L2 (__ldcg).
// Defines: N (elements), ITERATIONS.

#include "grid.cuh"

#ifndef ITERATIONS
#define ITERATIONS 1000
#endif

// state[0]: rounds of launches done so far, 0 between steps.
// state[1]: the grid's barrier, whose top bit flips each time that all have come.

__device__ __forceinline__ void sweep_a(unsigned i, const float* from, float* middle) {
  middle[i] = 0.5f * (__ldcg(from + i) + __ldcg(from + (i + 1 < N ? i + 1 : 0)));
}

// Bounded: the weights of the two neighbours and of the first values add up to one.
__device__ __forceinline__ void sweep_b(unsigned i, const float* values, const float* middle, float* out) {
  const float near = __ldcg(middle + i) + __ldcg(middle + (i > 0 ? i - 1 : N - 1));
  out[i] = fmaf(0.25f, values[i], 0.375f * near);
}

extern "C" __global__ void phase_a(const float* values, float* middle, float* out, unsigned* state) {
  const float* from = state[0] == 0 ? values : out;
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < N) sweep_a(i, from, middle);
}

extern "C" __global__ void phase_b(const float* values, float* middle, float* out, unsigned* state) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < N) sweep_b(i, values, middle, out);
  // Only the next launch reads it, and launches of a stream follow one another: no atomic is needed.
  if (blockIdx.x == 0 && threadIdx.x == 0) state[0] = (state[0] + 1) % ITERATIONS;
}

extern "C" __global__ void both_phases_loop(const float* values, float* middle, float* out, unsigned* state) {
  const unsigned first = blockIdx.x * blockDim.x + threadIdx.x, stride = gridDim.x * blockDim.x;
  for (int round = 0; round < ITERATIONS; ++round) {
    const float* from = round == 0 ? values : out;
    for (unsigned i = first; i < N; i += stride) sweep_a(i, from, middle);
    grid_barrier(state + 1);
    for (unsigned i = first; i < N; i += stride) sweep_b(i, values, middle, out);
    grid_barrier(state + 1);
  }
}
