// A chain of two kernels: the producer writes what the consumer needs and then has a tail of its own; the consumer has
// a prologue that needs nothing of the producer. With programmatic dependent launch tail and prologue overlap.
// Each round of both writes other values than the one before, so that a consumer that does not wait is seen.
// Defines: N (threads, a multiple of the block), TAIL and PROLOGUE (dependent multiply-adds of each), ROUNDS (of the two
// kernels in a step, after which values repeat).

#include "async.cuh"

#ifndef TAIL
#define TAIL 2000
#endif
#ifndef PROLOGUE
#define PROLOGUE 2000
#endif
#ifndef ROUNDS
#define ROUNDS 1
#endif

// How many rounds of a step each thread of the producer has done; 0 between steps.
__device__ unsigned rounds_done[N];

template <int STEPS>
__device__ __forceinline__ float chain(float x) {
#pragma unroll 8
  for (int step = 0; step < STEPS; ++step) x = fmaf(x, 0.999f, 0.001f);
  return x;
}

// The consumer ahead of this launch may still read middle: wait before writing.
extern "C" __global__ void producer(const float* __restrict__ values, float* middle, float* tail) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  const float x = i < N ? values[i] : 0.0f;
  wait_for_previous();
  const unsigned round = i < N ? rounds_done[i] : 0;
  if (i < N) middle[i] = 2.0f * x + 1.0f + round;
  let_next_start();
  if (i >= N) return;
  tail[i] = chain<TAIL>(x + round);
  rounds_done[i] = round + 1 < ROUNDS ? round + 1 : 0;
}

extern "C" __global__ void consumer(const float* __restrict__ weights, const float* middle, const float* tail,
                                    float* out) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  const float weight = i < N ? chain<PROLOGUE>(weights[i]) : 0.0f;
  wait_for_previous();
  let_next_start();
  // Another thread's element: what was written by the whole grid ahead must be there, not just by this thread's twin.
  const unsigned other = N - 1 - i;
  if (i < N) out[i] = fmaf(weight, middle[other], tail[other]);
}
