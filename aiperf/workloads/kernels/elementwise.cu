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

extern "C" __global__ void scale(const float* __restrict__ x, float* __restrict__ out) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < N) out[i] = 2.0f * x[i];
}

// Right for every grid: a thread takes each gridDim.x * blockDim.x-th element.
extern "C" __global__ void scale_grid_stride(const float* __restrict__ x, float* __restrict__ out) {
  const unsigned step = gridDim.x * blockDim.x;
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < N; i += step) out[i] = 2.0f * x[i];
}

extern "C" __global__ void add_one_thread(const float* __restrict__ a, const float* __restrict__ b,
                                          float* __restrict__ out) {
  for (unsigned i = 0; i < N; ++i) out[i] = a[i] + b[i];
}

// FMAS dependent multiply-adds for each element read. May run in place: a thread reads what only it writes.
#ifdef FMAS
extern "C" __global__ void fma_per_load(const float* x, float* out) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= N) return;
  float value = x[i];
#pragma unroll 16
  for (int k = 0; k < FMAS; ++k) value = fmaf(value, 0.9990234375f, 0.0009765625f);
  out[i] = value;
}
#endif
