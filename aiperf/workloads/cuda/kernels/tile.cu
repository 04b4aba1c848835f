// Resident blocks of 256 threads walk over tiles of TILE floats, each staged in shared memory and then used: every
// output mixes its element with the mirrored one of the tile in STEPS multiply-adds.
// Defines: N (elements, a multiple of TILE), TILE (floats, a multiple of 1024), STEPS, and how a tile comes in:
//   STAGES=0 plain loads, then a barrier; STAGES=s a ring of s buffers filled by cp.async (1: no overlap);
//   COPY_BYTES bytes of one cp.async (4 or 16); STAGE_BARRIERS two barriers for each buffer instead of the block's;
//   BULK one bulk copy for each tile, by the copy engine (sm_90).

#include "async.cuh"

#ifndef TILE
#define TILE 1024
#endif
#ifndef STEPS
#define STEPS 64
#endif
#ifndef STAGES
#define STAGES 2
#endif
#ifndef COPY_BYTES
#define COPY_BYTES 16
#endif

constexpr unsigned THREADS = 256;
constexpr unsigned TILES = N / TILE;
constexpr unsigned BUFFERS = STAGES > 0 ? STAGES : 1;
static_assert(N % TILE == 0 && TILE % (4 * THREADS) == 0, "whole tiles, of 16-byte loads by every thread");
static_assert(COPY_BYTES == 4 || COPY_BYTES == 16, "cp.async copies 4 or 16 bytes here");

__device__ __forceinline__ void use(const float* tile, float* __restrict__ out) {
#pragma unroll
  for (unsigned e = 0; e < TILE / THREADS; ++e) {
    const unsigned i = threadIdx.x + e * THREADS;
    float value = tile[i];
    const float mirrored = tile[TILE - 1 - i];
#pragma unroll 8
    for (int step = 0; step < STEPS; ++step) value = fmaf(value, 0.5f, mirrored);
    out[i] = value;
  }
}

#ifndef BULK

__device__ __forceinline__ void fetch(float* buffer, const float* from) {
  constexpr unsigned FLOATS = COPY_BYTES / 4;
#pragma unroll
  for (unsigned i = threadIdx.x * FLOATS; i < TILE; i += THREADS * FLOATS) copy_async<COPY_BYTES>(buffer + i, from + i);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    stream_tiles(const float* __restrict__ values, float* __restrict__ out) {
  __shared__ __align__(16) float buffers[BUFFERS][TILE];
  const unsigned stride = gridDim.x;
#if STAGES == 0
  for (unsigned tile = blockIdx.x; tile < TILES; tile += stride) {
    const float4* from = reinterpret_cast<const float4*>(values + (unsigned long long)tile * TILE) + threadIdx.x;
#pragma unroll
    for (unsigned i = 0; i < TILE / 4; i += THREADS)
      reinterpret_cast<float4*>(buffers[0])[threadIdx.x + i] = from[i];
    __syncthreads();
    use(buffers[0], out + (unsigned long long)tile * TILE);
    __syncthreads();
  }
#elif defined(STAGE_BARRIERS)
  static_assert(STAGES >= 3, "a buffer in use, one that slower warps still use, and one to fill");
  __shared__ Barrier full[BUFFERS], empty[BUFFERS];
  if (threadIdx.x == 0) {
    for (unsigned b = 0; b < BUFFERS; ++b) {
      barrier_init(&full[b], THREADS);
      barrier_init(&empty[b], THREADS / 32 * ARRIVALS);
    }
  }
  __syncthreads();
  // On fresh barriers the phase before the first counts as over: all buffers are free at once.
  unsigned coming = blockIdx.x, slot = 0, free = 1, held = 0, phase = 0;
  auto next = [&] {
    if (coming < TILES) {
      wait_for(&empty[slot], free);
      fetch(buffers[slot], values + (unsigned long long)coming * TILE);
      arrive_after_copies(&full[slot]);
    }
    coming += stride;
    if (++slot == BUFFERS) {
      slot = 0;
      free ^= 1;
    }
  };
  for (unsigned stage = 0; stage + 1 < STAGES; ++stage) next();
  for (unsigned tile = blockIdx.x; tile < TILES; tile += stride) {
    wait_for(&full[held], phase);
    use(buffers[held], out + (unsigned long long)tile * TILE);
    __syncwarp();
    if (threadIdx.x % 32 < ARRIVALS) arrive(&empty[held]);
    if (++held == BUFFERS) {
      held = 0;
      phase ^= 1;
    }
    // Filled next is the buffer of the tile before: warps may be one tile apart.
    next();
  }
#else
  unsigned coming = blockIdx.x, slot = 0, held = 0;
  auto next = [&] {
    if (coming < TILES) fetch(buffers[slot], values + (unsigned long long)coming * TILE);
    // An empty group keeps the count of groups equal to the count of tiles.
    commit_copies();
    coming += stride;
    slot = slot + 1 == BUFFERS ? 0 : slot + 1;
  };
  for (unsigned stage = 0; stage + 1 < STAGES; ++stage) next();
  for (unsigned tile = blockIdx.x; tile < TILES; tile += stride) {
    if (STAGES == 1) next();
    wait_for_copies<(STAGES > 2 ? STAGES - 2 : 0)>();
    __syncthreads();
    // The buffer filled here was last read for the tile before, which every thread has left.
    if (STAGES > 1) next();
    use(buffers[held], out + (unsigned long long)tile * TILE);
    held = held + 1 == BUFFERS ? 0 : held + 1;
    if (STAGES == 1) __syncthreads();
  }
#endif
}

#else
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#error "BULK needs compute capability 9.0"
#endif

extern "C" __global__ void __launch_bounds__(THREADS)
    stream_tiles(const float* __restrict__ values, float* __restrict__ out) {
  static_assert(STAGES >= 2, "a bulk copy needs a buffer besides the one in use");
  __shared__ __align__(128) float buffers[BUFFERS][TILE];
  __shared__ Barrier full[BUFFERS];
  const unsigned stride = gridDim.x;
  if (threadIdx.x == 0) {
    for (unsigned b = 0; b < BUFFERS; ++b) barrier_init(&full[b], 1);
    barriers_are_visible();
  }
  __syncthreads();
  unsigned coming = blockIdx.x, slot = 0, held = 0, phase = 0;
  auto next = [&] {
    if (threadIdx.x == 0 && coming < TILES) {
      expect_bytes(&full[slot], TILE * 4);
      bulk_copy(buffers[slot], values + (unsigned long long)coming * TILE, TILE * 4, &full[slot]);
    }
    coming += stride;
    slot = slot + 1 == BUFFERS ? 0 : slot + 1;
  };
  for (unsigned stage = 0; stage + 1 < STAGES; ++stage) next();
  for (unsigned tile = blockIdx.x; tile < TILES; tile += stride) {
    wait_for(&full[held], phase);
    // The buffer filled below was last read for the tile before, which every thread has left after this barrier.
    __syncthreads();
    next();
    use(buffers[held], out + (unsigned long long)tile * TILE);
    if (++held == BUFFERS) {
      held = 0;
      phase ^= 1;
    }
  }
}
#endif
