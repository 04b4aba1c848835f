// Copies N floats. Defines: N (elements, below 2^31), ITEMS (elements per thread; 4 for copy_float4), OFFSET (for the
// two entries whose name ends in _offset: elements between an aligned address and the first one that is read).

#ifndef ITEMS
#define ITEMS 1
#endif
#ifndef OFFSET
#define OFFSET 0
#endif
#include "items.cuh"

extern "C" __global__ void copy(const float* __restrict__ values, float* __restrict__ out) {
  for_items([&](unsigned i) { out[i] = values[i]; });
}

// Both arrays start at a multiple of 16 bytes; the up to three elements after the last whole float4 go one by one.
extern "C" __global__ void copy_float4(const float* __restrict__ values, float* __restrict__ out) {
  const unsigned i = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
  if (i + 3 < N) {
    *reinterpret_cast<float4*>(out + i) = *reinterpret_cast<const float4*>(values + i);
  } else {
    for (unsigned j = i; j < N; ++j) out[j] = values[j];
  }
}

extern "C" __global__ void lay_out_offset(const float* __restrict__ values, float* __restrict__ stored) {
  const unsigned first = blockIdx.x * (blockDim.x * ITEMS) + threadIdx.x;
  for (int e = 0; e < ITEMS; ++e) {
    const unsigned i = first + e * blockDim.x;
    if (i < N) stored[i + OFFSET] = values[i];
  }
}

extern "C" __global__ void copy_offset(const float* __restrict__ stored, float* __restrict__ out) {
  for_items([&](unsigned i) { out[i] = stored[i + OFFSET]; });
}
