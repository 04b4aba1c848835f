// out = item x weights with a thin item: ROWS rows of DEPTH whole numbers, against so many columns of weights that reading
// these sets the time. Each block computes a strip of 128 columns; four warps take eight steps of the sum each of every
// tile of 32, and add their shares at the end, in the same order in every entry. Only who copies, and whence, differs.
// double_buffered: all warps copy the next tile while they use this one. specialised: a fifth warp does nothing but copy;
// with CLUSTER blocks (1 or 4), each of which fetches a part of the item's piece for all.
// weights [strip, DEPTH, 128], item [DEPTH, ROWS], out [ROWS, strips * 128].
// Defines: DEPTH (a multiple of 32), CLUSTER. Threads: 128 for double_buffered, 160 for specialised. Blocks: strips.

#if defined(CLUSTER) && CLUSTER > 1 && defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#error "clusters of thin_product.cu need compute capability 9.0"
#endif
#include "async.cuh"

#ifndef DEPTH
#define DEPTH 1024
#endif
#ifndef CLUSTER
#define CLUSTER 1
#endif

constexpr unsigned ROWS = 8, STRIP = 128, TILE = 32, WARPS = 4;
constexpr unsigned TILES = DEPTH / TILE, EACH = TILE / WARPS, WORKERS = 32 * WARPS;
constexpr unsigned WORDS = TILE * STRIP, PIECE = TILE * ROWS, SLOT = WORDS + PIECE;
constexpr unsigned PER_SM = 6;  // blocks whose buffers fit a multiprocessor, so that registers must fit too
static_assert(DEPTH % TILE == 0 && TILES >= 2, "whole tiles");
static_assert(WORKERS == STRIP && WARPS * ROWS * STRIP <= 2 * SLOT, "shares fit into the buffers, a thread a column");
static_assert(CLUSTER == 1 || CLUSTER == 4, "a block alone or four");

// Threads `thread` of `threads` copy so many words.
__device__ __forceinline__ void fetch(float* to, const float* from, unsigned words, unsigned thread, unsigned threads) {
  for (unsigned i = 4 * thread; i < words; i += 4 * threads) copy_async<16>(to + i, from + i);
}

// A lane computes all rows of four columns, over the steps of the sum that are its warp's.
__device__ __forceinline__ void multiply(const float* slot, float (&sums)[ROWS][4]) {
  const unsigned first = threadIdx.x / 32 * EACH, lane = threadIdx.x % 32;
#pragma unroll
  for (unsigned k = first; k < first + EACH; ++k) {
    const float4 by = *reinterpret_cast<const float4*>(slot + k * STRIP + 4 * lane);
    const float4* given = reinterpret_cast<const float4*>(slot + WORDS + k * ROWS);
    const float4 low = given[0], high = given[1];
    const float from[ROWS] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (unsigned r = 0; r < ROWS; ++r) {
      sums[r][0] = fmaf(from[r], by.x, sums[r][0]);
      sums[r][1] = fmaf(from[r], by.y, sums[r][1]);
      sums[r][2] = fmaf(from[r], by.z, sums[r][2]);
      sums[r][3] = fmaf(from[r], by.w, sums[r][3]);
    }
  }
}

// Adds the shares of the warps where the tiles were.
__device__ __forceinline__ void finish(float* shares, const float (&sums)[ROWS][4], float* out) {
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  __syncthreads();
  for (unsigned r = 0; r < ROWS && warp < WARPS; ++r) {
    float* to = shares + (warp * ROWS + r) * STRIP + 4 * lane;
    for (unsigned c = 0; c < 4; ++c) to[c] = sums[r][c];
  }
  __syncthreads();
  for (unsigned r = 0; r < ROWS && threadIdx.x < STRIP; ++r) {
    float sum = 0.0f;
    for (unsigned w = 0; w < WARPS; ++w) sum += shares[(w * ROWS + r) * STRIP + threadIdx.x];
    out[((unsigned long long)r * gridDim.x + blockIdx.x) * STRIP + threadIdx.x] = sum;
  }
}

extern "C" __global__ void __launch_bounds__(WORKERS, PER_SM)
    double_buffered(const float* __restrict__ weights, const float* __restrict__ item, float* __restrict__ out) {
  __shared__ __align__(128) float slots[2 * SLOT];
  const float* strip = weights + (unsigned long long)blockIdx.x * DEPTH * STRIP;
  float sums[ROWS][4] = {};
  fetch(slots, strip, WORDS, threadIdx.x, WORKERS);
  fetch(slots + WORDS, item, PIECE, threadIdx.x, WORKERS);
  commit_copies();
  for (unsigned tile = 0; tile < TILES; ++tile) {
    float *slot = slots + tile % 2 * SLOT, *other = slots + (tile + 1) % 2 * SLOT;
    wait_for_copies<0>();
    // Everybody has left the tile before, whose buffer is filled next.
    __syncthreads();
    if (tile + 1 < TILES) {
      fetch(other, strip + (tile + 1) * WORDS, WORDS, threadIdx.x, WORKERS);
      fetch(other + WORDS, item + (tile + 1) * PIECE, PIECE, threadIdx.x, WORKERS);
    }
    commit_copies();
    multiply(slot, sums);
  }
  finish(slots, sums, out);
}

#if CLUSTER > 1
#define GROUPED __cluster_dims__(CLUSTER, 1, 1)
// Every copying lane, and the first once more for the item's piece.
constexpr unsigned COPIERS = 33;
// Each block fetches a part of the item's piece, which the copy engine writes into the buffers of all.
__device__ __forceinline__ void fetch_piece(float* to, const float* piece, Barrier* full) {
  constexpr unsigned PART = PIECE / CLUSTER;
  if (threadIdx.x % 32 > 0) return;
  const unsigned from = rank_in_cluster() * PART;
  expect_bytes(full, PIECE * 4);
  bulk_multicast(to + from, piece + from, PART * 4, full, (1 << CLUSTER) - 1);
}
// What a neighbour fetches comes into this buffer, too: all blocks must have left theirs.
__device__ __forceinline__ void leave(Barrier* empty) {
#ifdef EVERY_LANE_ARRIVES
  for (unsigned block = 0; block < CLUSTER; ++block) arrive_in(block, empty);
#else
  if (threadIdx.x % 32 < CLUSTER) arrive_in(threadIdx.x % 32, empty);
#endif
}
__device__ __forceinline__ void meet() {
  if (threadIdx.x == 0) barriers_are_visible();
  __syncthreads();
  cluster_meeting();
}
#else
#define GROUPED
constexpr unsigned COPIERS = 32;
__device__ __forceinline__ void fetch_piece(float* to, const float* piece, Barrier*) {
  fetch(to, piece, PIECE, threadIdx.x % 32, 32);
}
__device__ __forceinline__ void leave(Barrier* empty) {
  if (threadIdx.x % 32 < ARRIVALS) arrive(empty);
}
__device__ __forceinline__ void meet() { __syncthreads(); }
#endif

extern "C" __global__ void GROUPED __launch_bounds__(WORKERS + 32, PER_SM)
    specialised(const float* __restrict__ weights, const float* __restrict__ item, float* __restrict__ out) {
  __shared__ __align__(128) float slots[2 * SLOT];
  __shared__ Barrier full[2], empty[2];
  const float* strip = weights + (unsigned long long)blockIdx.x * DEPTH * STRIP;
  float sums[ROWS][4] = {};
  if (threadIdx.x == 0) {
    for (unsigned s = 0; s < 2; ++s) {
      barrier_init(&full[s], COPIERS);
      barrier_init(&empty[s], WARPS * CLUSTER * ARRIVALS);
    }
  }
  meet();
  const bool loader = threadIdx.x >= WORKERS;
  for (unsigned tile = 0; tile < TILES; ++tile) {
    const unsigned s = tile % 2, phase = tile / 2 % 2;
    float* slot = slots + s * SLOT;
    if (loader) {
      // The phase before the first counts as over: both buffers are free at once.
      wait_for(&empty[s], phase ^ 1);
      fetch_piece(slot + WORDS, item + tile * PIECE, &full[s]);
      fetch(slot, strip + tile * WORDS, WORDS, threadIdx.x % 32, 32);
      arrive_after_copies(&full[s]);
    } else {
      wait_for(&full[s], phase);
      multiply(slot, sums);
      __syncwarp();
      leave(&empty[s]);
    }
  }
  if (loader) {
    wait_for_copies<0>();
    // Nobody leaves while a neighbour may still count here; what it writes here has been waited for.
    for (unsigned tile = TILES; CLUSTER > 1 && tile < TILES + 2; ++tile) wait_for(&empty[tile % 2], tile / 2 % 2 ^ 1);
  }
  finish(slots, sums, out);
}
