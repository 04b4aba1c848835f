// out[t] = left[t] x right[t] for N pairs of 112 x 112 fp32 tiles. Resident blocks walk over them with one pair of
// buffers in dynamic shared memory (98 KiB: single_buffered, of which a multiprocessor may hold two blocks) or with two
// (196 KiB); eight warps compute in every entry, 7 x 7 outputs a thread, in the same order, so that the outputs agree
// bit by bit. Only who copies, and when, differs.
// Defines: N (pairs). Threads: 256 for single_buffered and double_buffered, 288 for warp_specialized.

#include "async.cuh"

constexpr unsigned SIDE = 112;
constexpr unsigned WORDS = SIDE * SIDE;
constexpr unsigned WORKERS = 256;
constexpr unsigned MICRO = SIDE / 16;
constexpr unsigned CHUNKS = WORDS / 4;  // 16-byte pieces of a tile

// Threads `thread` of `threads` copy one pair of tiles.
__device__ __forceinline__ void fetch(float* buffer, const float* left, const float* right, unsigned tile,
                                      unsigned thread, unsigned threads) {
  const float* a = left + (unsigned long long)tile * WORDS;
  const float* b = right + (unsigned long long)tile * WORDS;
  for (unsigned i = thread; i < CHUNKS; i += threads) {
    copy_async<16>(buffer + 4 * i, a + 4 * i);
    copy_async<16>(buffer + WORDS + 4 * i, b + 4 * i);
  }
}

// Thread (y, x) of 16 x 16 computes rows y, y + 16, ... and columns x, x + 16, ...
__device__ __forceinline__ void multiply(const float* buffer, float* __restrict__ out, unsigned tile) {
  const unsigned y = threadIdx.x / 16, x = threadIdx.x % 16;
  const float* a = buffer + y * SIDE;
  const float* b = buffer + WORDS + x;
  float sums[MICRO][MICRO] = {};
#pragma unroll 4
  for (unsigned k = 0; k < SIDE; ++k) {
    float from_a[MICRO], from_b[MICRO];
#pragma unroll
    for (unsigned i = 0; i < MICRO; ++i) from_a[i] = a[i * 16 * SIDE + k];
#pragma unroll
    for (unsigned j = 0; j < MICRO; ++j) from_b[j] = b[k * SIDE + j * 16];
#pragma unroll
    for (unsigned i = 0; i < MICRO; ++i)
#pragma unroll
      for (unsigned j = 0; j < MICRO; ++j) sums[i][j] = fmaf(from_a[i], from_b[j], sums[i][j]);
  }
  float* target = out + (unsigned long long)tile * WORDS + y * SIDE + x;
#pragma unroll
  for (unsigned i = 0; i < MICRO; ++i)
#pragma unroll
    for (unsigned j = 0; j < MICRO; ++j) target[i * 16 * SIDE + j * 16] = sums[i][j];
}

// Load, wait, compute: the copies of the next pair start when this one is done.
extern "C" __global__ void __launch_bounds__(WORKERS, 2)
    single_buffered(const float* __restrict__ left, const float* __restrict__ right, float* __restrict__ out) {
  extern __shared__ __align__(128) float buffers[];
  for (unsigned tile = blockIdx.x; tile < N; tile += gridDim.x) {
    fetch(buffers, left, right, tile, threadIdx.x, WORKERS);
    commit_copies();
    wait_for_copies<0>();
    __syncthreads();
    multiply(buffers, out, tile);
    __syncthreads();
  }
}

// All warps copy and compute: the next pair comes in while this one is used, with one barrier of the block for each.
extern "C" __global__ void __launch_bounds__(WORKERS, 1)
    double_buffered(const float* __restrict__ left, const float* __restrict__ right, float* __restrict__ out) {
  extern __shared__ __align__(128) float buffers[];
  if (blockIdx.x < N) fetch(buffers, left, right, blockIdx.x, threadIdx.x, WORKERS);
  commit_copies();
  unsigned slot = 0;
  for (unsigned tile = blockIdx.x; tile < N; tile += gridDim.x) {
    wait_for_copies<0>();
    // Everybody has left the pair before, whose buffers are filled next.
    __syncthreads();
    const unsigned next = tile + gridDim.x;
    if (next < N) fetch(buffers + (slot ^ 1) * 2 * WORDS, left, right, next, threadIdx.x, WORKERS);
    commit_copies();
    multiply(buffers + slot * 2 * WORDS, out, tile);
    slot ^= 1;
  }
}

// A ninth warp does nothing but copy; the others never wait for each other, only for the pair that they need.
extern "C" __global__ void __launch_bounds__(WORKERS + 32, 1)
    warp_specialized(const float* __restrict__ left, const float* __restrict__ right, float* __restrict__ out) {
  extern __shared__ __align__(128) float buffers[];
  __shared__ Barrier full[2], empty[2];
  if (threadIdx.x == 0) {
    for (unsigned b = 0; b < 2; ++b) {
      barrier_init(&full[b], 32);
      barrier_init(&empty[b], WORKERS / 32 * ARRIVALS);
    }
  }
  __syncthreads();
  unsigned slot = 0, phase = 0;
  const bool loader = threadIdx.x >= WORKERS;
  for (unsigned tile = blockIdx.x; tile < N; tile += gridDim.x) {
    float* buffer = buffers + slot * 2 * WORDS;
    if (loader) {
      // The phase before the first counts as over: the first two buffers are free at once.
      wait_for(&empty[slot], phase ^ 1);
      fetch(buffer, left, right, tile, threadIdx.x - WORKERS, 32);
      arrive_after_copies(&full[slot]);
    } else {
      wait_for(&full[slot], phase);
      multiply(buffer, out, tile);
      __syncwarp();
      if (threadIdx.x % 32 < ARRIVALS) arrive(&empty[slot]);
    }
    if (slot == 1) phase ^= 1;
    slot ^= 1;
  }
  // A copy must not land in the shared memory of a block that has gone.
  if (loader) wait_for_copies<0>();
}
