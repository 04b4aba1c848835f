// out = left x right, ROWS x COLS from a long DEPTH, in fp32 on the CUDA cores: eight blocks share a tile of 64 x 64
// outputs, each adding up an eighth of the depth. The parts meet in global memory, where a second kernel adds them, or
// in the shared memory of a cluster; they are added in the same order.
// Defines: ROWS, COLS (multiples of 64), DEPTH (a multiple of 128), N (ROWS * COLS). Threads of a block: 256.
// Blocks of split_to_global and split_in_cluster: N / 4096 * 8.

#include "async.cuh"

constexpr unsigned THREADS = 256, TILE = 64, SLICE = 16, SPLITS = 8;
constexpr unsigned SHARE = DEPTH / SPLITS;
// Blocks that a multiprocessor must hold: both ways of adding up run in as many waves.
constexpr unsigned RESIDENT = 4;
static_assert(ROWS % TILE == 0 && COLS % TILE == 0 && DEPTH % (SLICE * SPLITS) == 0 && N == ROWS * COLS,
              "whole tiles and slices");

// Thread (y, x) of 16 x 16 gets rows 4y .. 4y + 3 and columns 4x .. 4x + 3 of the tile, over its block's part of the depth.
__device__ __forceinline__ void multiply(const float* __restrict__ left, const float* __restrict__ right,
                                         float (&sums)[4][4]) {
  __shared__ __align__(16) float a[SLICE][TILE + 4], b[SLICE][TILE];
  const unsigned tile = blockIdx.x / SPLITS, from = blockIdx.x % SPLITS * SHARE;
  const unsigned row = tile / (COLS / TILE) * TILE, column = tile % (COLS / TILE) * TILE;
  const unsigned y = threadIdx.x / 16, x = threadIdx.x % 16;
  const unsigned a_row = threadIdx.x / 4, a_k = threadIdx.x % 4 * 4;
  const float* a_from = left + (unsigned long long)(row + a_row) * DEPTH + from + a_k;
  const float* b_from = right + (unsigned long long)(from + y) * COLS + column + 4 * x;
  float4 next_a = *reinterpret_cast<const float4*>(a_from), next_b = *reinterpret_cast<const float4*>(b_from);
  for (unsigned k = 0; k < SHARE; k += SLICE) {
    a[a_k][a_row] = next_a.x;
    a[a_k + 1][a_row] = next_a.y;
    a[a_k + 2][a_row] = next_a.z;
    a[a_k + 3][a_row] = next_a.w;
    *reinterpret_cast<float4*>(&b[y][4 * x]) = next_b;
    __syncthreads();
    // The next slice is under way while this one is used.
    if (k + SLICE < SHARE) {
      next_a = *reinterpret_cast<const float4*>(a_from + k + SLICE);
      next_b = *reinterpret_cast<const float4*>(b_from + (unsigned long long)(k + SLICE) * COLS);
    }
#pragma unroll
    for (unsigned s = 0; s < SLICE; ++s) {
      const float4 four_a = *reinterpret_cast<const float4*>(&a[s][4 * y]);
      const float4 four_b = *reinterpret_cast<const float4*>(&b[s][4 * x]);
      const float from_a[4] = {four_a.x, four_a.y, four_a.z, four_a.w};
      const float from_b[4] = {four_b.x, four_b.y, four_b.z, four_b.w};
#pragma unroll
      for (unsigned i = 0; i < 4; ++i)
#pragma unroll
        for (unsigned j = 0; j < 4; ++j) sums[i][j] = fmaf(from_a[i], from_b[j], sums[i][j]);
    }
    __syncthreads();
  }
}

// Part p of a tile lies at (tile * SPLITS + p) * TILE * TILE, row by row.
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    split_to_global(const float* __restrict__ left, const float* __restrict__ right, float* __restrict__ parts) {
  float sums[4][4] = {};
  multiply(left, right, sums);
  const unsigned y = threadIdx.x / 16, x = threadIdx.x % 16;
  float* to = parts + (unsigned long long)blockIdx.x * TILE * TILE + 4 * y * TILE + 4 * x;
#pragma unroll
  for (unsigned i = 0; i < 4; ++i)
    *reinterpret_cast<float4*>(to + i * TILE) = {sums[i][0], sums[i][1], sums[i][2], sums[i][3]};
}

// Where element e of a tile belongs.
__device__ __forceinline__ unsigned place_of(unsigned tile, unsigned e) {
  return (tile / (COLS / TILE) * TILE + e / TILE) * COLS + tile % (COLS / TILE) * TILE + e % TILE;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    combine(const float* __restrict__ parts, float* __restrict__ out) {
  const unsigned i = blockIdx.x * THREADS + threadIdx.x, tile = i / (TILE * TILE), e = i % (TILE * TILE);
  if (i >= N) return;
  float sum = 0.0f;
#pragma unroll
  for (unsigned p = 0; p < SPLITS; ++p) sum += parts[(unsigned long long)(tile * SPLITS + p) * TILE * TILE + e];
  out[place_of(tile, e)] = sum;
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
// Each block adds up an eighth of the tile, from its own shared memory and that of the others.
extern "C" __global__ void __cluster_dims__(SPLITS, 1, 1) __launch_bounds__(THREADS, RESIDENT)
    split_in_cluster(const float* __restrict__ left, const float* __restrict__ right, float* __restrict__ out) {
  __shared__ __align__(16) float part[TILE * TILE];
  float sums[4][4] = {};
  multiply(left, right, sums);
  const unsigned y = threadIdx.x / 16, x = threadIdx.x % 16;
#pragma unroll
  for (unsigned i = 0; i < 4; ++i)
    *reinterpret_cast<float4*>(part + (4 * y + i) * TILE + 4 * x) = {sums[i][0], sums[i][1], sums[i][2], sums[i][3]};
  cluster_barrier();
  constexpr unsigned EACH = TILE * TILE / SPLITS;
#pragma unroll
  for (unsigned k = 0; k < EACH; k += THREADS) {
    const unsigned e = rank_in_cluster() * EACH + k + threadIdx.x;
    float sum = 0.0f;
#pragma unroll
    for (unsigned p = 0; p < SPLITS; ++p) sum += __int_as_float(load_remote(address_in(p, part + e)));
    out[place_of(blockIdx.x / SPLITS, e)] = sum;
  }
  // Nobody leaves while another still reads.
  cluster_meeting();
}
#endif
