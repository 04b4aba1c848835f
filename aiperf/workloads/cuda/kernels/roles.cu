// Tiles of TILE floats in a ring of STAGES buffers: PRODUCERS of the twelve warps of a block copy, the others use what
// came, each element with its mirror image in STEPS multiply-adds. Barriers of each buffer say when it is full or free.
// Defines: N (elements, a multiple of TILE), TILE (a multiple of 4), STAGES, PRODUCERS (warps), STEPS.
// Threads of a block: 384.

#include "async.cuh"

constexpr unsigned WARPS = 12;
constexpr unsigned COPYING = 32 * PRODUCERS, USING = 32 * WARPS - COPYING;
constexpr unsigned TILES = N / TILE;
static_assert(PRODUCERS >= 1 && PRODUCERS < WARPS, "warps for each role");
static_assert(N % TILE == 0 && TILE % 4 == 0, "whole tiles, of whole copies of 16 bytes");

__device__ __forceinline__ void use(const float* tile, float* __restrict__ out, unsigned thread) {
#pragma unroll 4
  for (unsigned i = thread; i < TILE; i += USING) {
    float value = tile[i];
    const float mirrored = tile[TILE - 1 - i];
#pragma unroll 8
    for (int step = 0; step < STEPS; ++step) value = fmaf(value, 0.5f, mirrored);
    out[i] = value;
  }
}

extern "C" __global__ void __launch_bounds__(32 * WARPS)
    role_tiles(const float* __restrict__ values, float* __restrict__ out) {
  __shared__ __align__(16) float buffers[STAGES][TILE];
  __shared__ Barrier full[STAGES], empty[STAGES];
  if (threadIdx.x == 0) {
    for (unsigned b = 0; b < STAGES; ++b) {
      barrier_init(&full[b], COPYING);
      barrier_init(&empty[b], USING / 32 * ARRIVALS);
    }
  }
  __syncthreads();
  const bool copies = threadIdx.x < COPYING;
  unsigned slot = 0, phase = 0;
  for (unsigned tile = blockIdx.x; tile < TILES; tile += gridDim.x) {
    float* buffer = buffers[slot];
    if (copies) {
      // On fresh barriers the phase before the first counts as over: all buffers are free at once.
      wait_for(&empty[slot], phase ^ 1);
      const float* from = values + (unsigned long long)tile * TILE;
      for (unsigned i = 4 * threadIdx.x; i < TILE; i += 4 * COPYING) copy_async<16>(buffer + i, from + i);
      arrive_after_copies(&full[slot]);
    } else {
      wait_for(&full[slot], phase);
      use(buffer, out + (unsigned long long)tile * TILE, threadIdx.x - COPYING);
      __syncwarp();
      if (threadIdx.x % 32 < ARRIVALS) arrive(&empty[slot]);
    }
    if (++slot == STAGES) {
      slot = 0;
      phase ^= 1;
    }
  }
  // A copy must not land in the shared memory of a block that has gone.
  if (copies) wait_for_copies<0>();
}
