// One pass over N floats. Defines: N (elements, below 2^31), ITEMS (elements per thread), SCALE (for triad).

#ifndef ITEMS
#define ITEMS 1
#endif
#ifndef SCALE
#define SCALE 3.0f
#endif

extern "C" __global__ void add(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ out) {
  const unsigned first = blockIdx.x * (blockDim.x * ITEMS) + threadIdx.x;
#pragma unroll
  for (int e = 0; e < ITEMS; ++e) {
    const unsigned i = first + e * blockDim.x;
    if (i < N) out[i] = a[i] + b[i];
  }
}

extern "C" __global__ void triad(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ out) {
  const unsigned first = blockIdx.x * (blockDim.x * ITEMS) + threadIdx.x;
#pragma unroll
  for (int e = 0; e < ITEMS; ++e) {
    const unsigned i = first + e * blockDim.x;
    if (i < N) out[i] = a[i] + SCALE * b[i];
  }
}
