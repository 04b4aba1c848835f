// Even elements need one task, odd ones another, STEPS long each; who shares a warp is all that differs.
// Defines: N (elements, a multiple of 256), STEPS, UNIFORM (else neighbours in a warp take different branches).

#ifndef STEPS
#define STEPS 128
#endif
static_assert(N % 256 == 0, "whole blocks");

extern "C" __global__ void two_tasks(const float* __restrict__ values, float* __restrict__ out) {
  const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
#ifdef UNIFORM
  // Of 64 elements the first warp takes the even ones, the second the odd ones.
  const unsigned i = thread / 64 * 64 + 2 * (thread % 32) + thread / 32 % 2;
#else
  const unsigned i = thread;
#endif
  float x = values[i];
  if (i % 2 == 0) {
#pragma unroll 8
    for (int step = 0; step < STEPS; ++step) x = fmaf(x, 0.999f, 0.001f);
  } else {
#pragma unroll 8
    for (int step = 0; step < STEPS; ++step) x = fabsf(x - 0.37f);
  }
  out[i] = x;
}
