// out = left x right, squares of side N in fp32 on the CUDA cores. Every entry adds the products of an output in the
// order of k, one fused multiply-add each, so that all of them agree bit by bit.
// Blocks are one-dimensional; block b works on tile (b / tiles, b % tiles) of the output.
// Defines: N (side, below 32768), TILE (side of the output tile), MICRO (for microtiled: outputs of a thread are
// MICRO x MICRO), STAGES (for pipelined: buffers; 1 loads, waits, computes).
// Threads of a block: TILE * TILE for naive, tiled and pipelined, (TILE / MICRO)^2 for microtiled.

#include "async.cuh"

#ifndef TILE
#define TILE 32
#endif
#ifndef MICRO
#define MICRO 1
#endif
#ifndef STAGES
#define STAGES 1
#endif

constexpr unsigned SIDE = N;
constexpr unsigned TILES = (SIDE + TILE - 1) / TILE;

extern "C" __global__ void naive(const float* __restrict__ left, const float* __restrict__ right,
                                 float* __restrict__ out) {
  const unsigned row = blockIdx.x / TILES * TILE + threadIdx.x / TILE;
  const unsigned column = blockIdx.x % TILES * TILE + threadIdx.x % TILE;
  if (row >= SIDE || column >= SIDE) return;
  float sum = 0.0f;
  for (unsigned k = 0; k < SIDE; ++k) sum = fmaf(left[row * SIDE + k], right[k * SIDE + column], sum);
  out[row * SIDE + column] = sum;
}

#if TILE <= 32
extern "C" __global__ void __launch_bounds__(TILE * TILE)
    tiled(const float* __restrict__ left, const float* __restrict__ right, float* __restrict__ out) {
  __shared__ float a[TILE][TILE], b[TILE][TILE];
  const unsigned y = threadIdx.x / TILE, x = threadIdx.x % TILE;
  const unsigned row = blockIdx.x / TILES * TILE + y, column = blockIdx.x % TILES * TILE + x;
  float sum = 0.0f;
  for (unsigned first = 0; first < SIDE; first += TILE) {
    a[y][x] = row < SIDE && first + x < SIDE ? left[row * SIDE + first + x] : 0.0f;
    b[y][x] = first + y < SIDE && column < SIDE ? right[(first + y) * SIDE + column] : 0.0f;
    __syncthreads();
#pragma unroll
    for (unsigned k = 0; k < TILE; ++k) sum = fmaf(a[y][k], b[k][x], sum);
    __syncthreads();
  }
  if (row < SIDE && column < SIDE) out[row * SIDE + column] = sum;
}

// A ring of STAGES pairs of tiles: while one is used, the copies into the others are under way.
extern "C" __global__ void __launch_bounds__(TILE * TILE)
    pipelined(const float* __restrict__ left, const float* __restrict__ right, float* __restrict__ out) {
  __shared__ float a[STAGES][TILE][TILE], b[STAGES][TILE][TILE];
  const unsigned y = threadIdx.x / TILE, x = threadIdx.x % TILE;
  const unsigned row = blockIdx.x / TILES * TILE + y, column = blockIdx.x % TILES * TILE + x;
  auto fetch = [&](unsigned step) {
    const unsigned k = step * TILE;
    if (step < TILES) {
      const bool has_a = row < SIDE && k + x < SIDE, has_b = k + y < SIDE && column < SIDE;
      copy_async<4>(&a[step % STAGES][y][x], has_a ? left + row * SIDE + k + x : left, has_a);
      copy_async<4>(&b[step % STAGES][y][x], has_b ? right + (k + y) * SIDE + column : right, has_b);
    }
    // An empty group keeps the count of groups equal to the count of steps.
    commit_copies();
  };
  float sum = 0.0f;
  for (unsigned step = 0; step + 1 < STAGES; ++step) fetch(step);
  for (unsigned step = 0; step < TILES; ++step) {
    if (STAGES == 1) fetch(step);
    wait_for_copies<(STAGES > 2 ? STAGES - 2 : 0)>();
    __syncthreads();
    // The buffer filled here was last read in the step before, which every thread has left.
    if (STAGES > 1) fetch(step + STAGES - 1);
    const unsigned held = step % STAGES;
#pragma unroll
    for (unsigned k = 0; k < TILE; ++k) sum = fmaf(a[held][y][k], b[held][k][x], sum);
    if (STAGES == 1) __syncthreads();
  }
  if (row < SIDE && column < SIDE) out[row * SIDE + column] = sum;
}
#endif

// MICRO x MICRO outputs of a thread reuse each word that it reads from shared memory MICRO times.
constexpr unsigned SLICE = 16;
constexpr unsigned ACROSS = TILE / MICRO;
#if (TILE / MICRO) * (TILE / MICRO) <= 1024
extern "C" __global__ void __launch_bounds__(ACROSS * ACROSS)
    microtiled(const float* __restrict__ left, const float* __restrict__ right, float* __restrict__ out) {
  __shared__ float a[TILE][SLICE + 1], b[SLICE][TILE];
  const unsigned y = threadIdx.x / ACROSS, x = threadIdx.x % ACROSS;
  const unsigned row = blockIdx.x / TILES * TILE, column = blockIdx.x % TILES * TILE;
  float sums[MICRO][MICRO] = {};
  for (unsigned first = 0; first < SIDE; first += SLICE) {
    for (unsigned i = threadIdx.x; i < TILE * SLICE; i += ACROSS * ACROSS) {
      const unsigned ay = i / SLICE, ax = i % SLICE, by = i / TILE, bx = i % TILE;
      const bool has_a = row + ay < SIDE && first + ax < SIDE, has_b = first + by < SIDE && column + bx < SIDE;
      a[ay][ax] = has_a ? left[(row + ay) * SIDE + first + ax] : 0.0f;
      b[by][bx] = has_b ? right[(first + by) * SIDE + column + bx] : 0.0f;
    }
    __syncthreads();
#pragma unroll
    for (unsigned k = 0; k < SLICE; ++k) {
      float from_a[MICRO], from_b[MICRO];
#pragma unroll
      for (unsigned i = 0; i < MICRO; ++i) from_a[i] = a[y + i * ACROSS][k];
#pragma unroll
      for (unsigned j = 0; j < MICRO; ++j) from_b[j] = b[k][x + j * ACROSS];
#pragma unroll
      for (unsigned i = 0; i < MICRO; ++i)
#pragma unroll
        for (unsigned j = 0; j < MICRO; ++j) sums[i][j] = fmaf(from_a[i], from_b[j], sums[i][j]);
    }
    __syncthreads();
  }
  for (unsigned i = 0; i < MICRO; ++i)
    for (unsigned j = 0; j < MICRO; ++j) {
      const unsigned r = row + y + i * ACROSS, c = column + x + j * ACROSS;
      if (r < SIDE && c < SIDE) out[r * SIDE + c] = sums[i][j];
    }
}
#endif
