// out = weights x vector, one warp a row: 32-bit floats and multiply-adds, or bytes and DP4A, four products at a time.
// The numbers are small whole ones, so that both sums are exact.
// Defines: ROWS, COLS (a multiple of 512 * AHEAD), AHEAD (16-byte loads of a lane that are under way at once).

#ifndef AHEAD
#define AHEAD 4
#endif

static_assert(COLS % (512 * AHEAD) == 0, "whole loads of 16 bytes by every lane");

// What the floats are made from, untimed.
extern "C" __global__ void widen(const signed char* __restrict__ weights, const signed char* __restrict__ vector,
                                 float* __restrict__ wide_weights, float* __restrict__ wide_vector) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < N) wide_weights[i] = (float)weights[i];
  if (i < COLS) wide_vector[i] = (float)vector[i];
}

template <class Sum>
__device__ __forceinline__ Sum sum_of_warp(Sum sum) {
#pragma unroll
  for (int apart = 16; apart > 0; apart /= 2) sum += __shfl_down_sync(0xffffffffu, sum, apart);
  return sum;
}

extern "C" __global__ void gemv_fp32(const float* __restrict__ weights, const float* __restrict__ vector,
                                     float* __restrict__ out) {
  const unsigned row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (row >= ROWS) return;
  const float4* left = reinterpret_cast<const float4*>(weights + (unsigned long long)row * COLS) + lane;
  const float4* right = reinterpret_cast<const float4*>(vector) + lane;
  float sum = 0.0f;
  for (unsigned first = 0; first < COLS / 4; first += 32 * AHEAD) {
    float4 held[AHEAD];
#pragma unroll
    for (unsigned e = 0; e < AHEAD; ++e) held[e] = left[first + 32 * e];
#pragma unroll
    for (unsigned e = 0; e < AHEAD; ++e) {
      const float4 by = right[first + 32 * e];
      sum = fmaf(held[e].x, by.x, sum);
      sum = fmaf(held[e].y, by.y, sum);
      sum = fmaf(held[e].z, by.z, sum);
      sum = fmaf(held[e].w, by.w, sum);
    }
  }
  sum = sum_of_warp(sum);
  if (lane == 0) out[row] = sum;
}

extern "C" __global__ void gemv_dp4a(const signed char* __restrict__ weights, const signed char* __restrict__ vector,
                                     float* __restrict__ out) {
  const unsigned row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (row >= ROWS) return;
  const int4* left = reinterpret_cast<const int4*>(weights + (unsigned long long)row * COLS) + lane;
  const int4* right = reinterpret_cast<const int4*>(vector) + lane;
  int sum = 0;
  for (unsigned first = 0; first < COLS / 16; first += 32 * AHEAD) {
    int4 held[AHEAD];
#pragma unroll
    for (unsigned e = 0; e < AHEAD; ++e) held[e] = left[first + 32 * e];
#pragma unroll
    for (unsigned e = 0; e < AHEAD; ++e) {
      const int4 by = right[first + 32 * e];
      sum = __dp4a(held[e].x, by.x, sum);
      sum = __dp4a(held[e].y, by.y, sum);
      sum = __dp4a(held[e].z, by.z, sum);
      sum = __dp4a(held[e].w, by.w, sum);
    }
  }
  sum = sum_of_warp(sum);
  if (lane == 0) out[row] = (float)sum;
}
