// One token through DEPTH layers: hidden += weights x (hidden / rms(hidden)) / sqrt(COLS), the weights in bf16 and the
// rest in fp32. A launch for each layer, or one cooperative launch of resident blocks that meet at a barrier of the
// whole grid after each. A warp computes a row of a layer in the same way in both. What other blocks wrote is read
// through the L2.
// Defines: ROWS and COLS (width of a layer, both the same, a multiple of 256), DEPTH (layers), AHEAD (1: all_layers
// asks for the first weights of the next layer before the barrier, since they depend on no other block).
// Threads of a block: at most 1024, whole warps.

#include "grid.cuh"

#ifndef AHEAD
#define AHEAD 0
#endif

static_assert(ROWS == COLS && COLS % 256 == 0, "whole loads of 16 bytes by every lane, as many rows as columns");

constexpr unsigned WIDTH = COLS;
constexpr unsigned WORDS = WIDTH / 8;
// Loads of 16 bytes of a lane for a row, and those of them that are under way while the vector is normalised.
constexpr unsigned EACH = WORDS / 32;
constexpr unsigned HELD = EACH < 4 ? EACH : 4;

// Eight weights against eight floats: a bf16 is the upper half of the float that it stands for.
__device__ __forceinline__ float dot8(uint4 weights, float4 low, float4 high, float sum) {
  sum = fmaf(__uint_as_float(weights.x << 16), low.x, sum);
  sum = fmaf(__uint_as_float(weights.x & 0xffff0000u), low.y, sum);
  sum = fmaf(__uint_as_float(weights.y << 16), low.z, sum);
  sum = fmaf(__uint_as_float(weights.y & 0xffff0000u), low.w, sum);
  sum = fmaf(__uint_as_float(weights.z << 16), high.x, sum);
  sum = fmaf(__uint_as_float(weights.z & 0xffff0000u), high.y, sum);
  sum = fmaf(__uint_as_float(weights.w << 16), high.z, sum);
  return fmaf(__uint_as_float(weights.w & 0xffff0000u), high.w, sum);
}

__device__ __forceinline__ float sum_of_warp(float sum) {
#pragma unroll
  for (int apart = 16; apart > 0; apart /= 2) sum += __shfl_down_sync(0xffffffffu, sum, apart);
  return sum;
}

// The first weights of this warp's first row of a layer.
__device__ __forceinline__ void load_first(const uint4* __restrict__ weights, unsigned layer, uint4 (&held)[HELD]) {
  const unsigned row = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
  if (row >= WIDTH) return;
  const uint4* mine = weights + ((unsigned long long)layer * WIDTH + row) * WORDS + threadIdx.x % 32;
#pragma unroll
  for (unsigned e = 0; e < HELD; ++e) held[e] = mine[32 * e];
}

// The whole vector of a layer into shared memory, in halves of eight, so that neighbouring lanes read neighbouring 16
// bytes of them. Gives 1 / (rms * sqrt(WIDTH)).
__device__ __forceinline__ float read_vector(const float* from, float4 (*halves)[WORDS]) {
  __shared__ float sums[32];
  float sum = 0.0f;
  for (unsigned c = threadIdx.x; c < WIDTH / 4; c += blockDim.x) {
    const float4 four = __ldcg(reinterpret_cast<const float4*>(from) + c);
    halves[c % 2][c / 2] = four;
    sum = fmaf(four.x, four.x, fmaf(four.y, four.y, fmaf(four.z, four.z, fmaf(four.w, four.w, sum))));
  }
  sum = sum_of_warp(sum);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
  __syncthreads();
  float total = 0.0f;
  for (unsigned w = 0; w < blockDim.x / 32; ++w) total += sums[w];
  return rsqrtf(total + 1e-6f * WIDTH);
}

// held: the first weights of this warp's first row.
__device__ __forceinline__ void run_layer(const uint4* __restrict__ weights, const float* x, float* hidden, float* out,
                                          unsigned layer, uint4 (&held)[HELD]) {
  __shared__ float4 halves[2][WORDS];
  const float* from = layer == 0 ? x : hidden + (layer - 1) % 2 * WIDTH;
  float* to = layer == DEPTH - 1 ? out : hidden + layer % 2 * WIDTH;
  const float scale = read_vector(from, halves);
  const unsigned first = (blockIdx.x * blockDim.x + threadIdx.x) / 32, warps = gridDim.x * blockDim.x / 32;
  const unsigned lane = threadIdx.x % 32;
  for (unsigned row = first; row < WIDTH; row += warps) {
    const uint4* mine = weights + ((unsigned long long)layer * WIDTH + row) * WORDS + lane;
    float sum = 0.0f;
#pragma unroll
    for (unsigned e = 0; e < HELD; ++e) {
      const uint4 eight = row == first ? held[e] : mine[32 * e];
      sum = dot8(eight, halves[0][lane + 32 * e], halves[1][lane + 32 * e], sum);
    }
#pragma unroll 4
    for (unsigned e = HELD; e < EACH; ++e)
      sum = dot8(mine[32 * e], halves[0][lane + 32 * e], halves[1][lane + 32 * e], sum);
    sum = sum_of_warp(sum);
    if (lane == 0) to[row] = fmaf(sum, scale, __ldcg(from + row));
  }
}

extern "C" __global__ void __launch_bounds__(1024)
    one_layer(const uint4* __restrict__ weights, const float* x, float* hidden, float* out, long long layer) {
  uint4 held[HELD];
  load_first(weights, (unsigned)layer, held);
  run_layer(weights, x, hidden, out, (unsigned)layer, held);
}

// state: the grid's barrier, whose top bit flips each time that all have come.
extern "C" __global__ void __launch_bounds__(1024)
    all_layers(const uint4* __restrict__ weights, const float* x, float* hidden, float* out, unsigned* state) {
  uint4 held[HELD];
  load_first(weights, 0, held);
  for (unsigned layer = 0; layer < DEPTH; ++layer) {
    run_layer(weights, x, hidden, out, layer, held);
    if (layer + 1 == DEPTH) break;
#if AHEAD
    load_first(weights, layer + 1, held);
    grid_barrier(state);
#else
    grid_barrier(state);
    load_first(weights, layer + 1, held);
#endif
  }
}
