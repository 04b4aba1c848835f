// C = A + B over tiles of TILE floats by blocks of three warps: one copies a tile of A and of B into shared memory, one
// adds them there, one stores the sums. BUFFERS sets [A | B | C] go round. The loader takes a set again when its sums
// have been stored, or with SEPARATE when its A and B have been added, while the sums are handed on by barriers of
// their own.
// Defines: N (elements, a multiple of TILE), TILE (a multiple of 4), BUFFERS, SEPARATE (0 or 1).
// Threads of a block: 96.

#include "async.cuh"

constexpr unsigned LANES = 32;
constexpr unsigned TILES = N / TILE;
static_assert(N % TILE == 0 && TILE % 4 == 0, "whole tiles, of whole copies of 16 bytes");

__device__ __forceinline__ float4 sum_of(const float4 a, const float4 b) {
  float4 sum;
  sum.x = a.x + b.x;
  sum.y = a.y + b.y;
  sum.z = a.z + b.z;
  sum.w = a.w + b.w;
  return sum;
}

extern "C" __global__ void __launch_bounds__(3 * LANES)
    add_tiles(const float* __restrict__ left, const float* __restrict__ right, float* __restrict__ out) {
  __shared__ __align__(16) float sets[BUFFERS][3][TILE];
  __shared__ Barrier loaded[BUFFERS], added[BUFFERS], taken[BUFFERS], stored[BUFFERS];
  if (threadIdx.x == 0) {
    for (unsigned b = 0; b < BUFFERS; ++b) {
      barrier_init(&loaded[b], LANES);
      barrier_init(&added[b], ARRIVALS);
      barrier_init(&taken[b], ARRIVALS);
      barrier_init(&stored[b], ARRIVALS);
    }
  }
  __syncthreads();
  const unsigned role = threadIdx.x / LANES, lane = threadIdx.x % LANES;
  unsigned set = 0, phase = 0;
  for (unsigned tile = blockIdx.x; tile < TILES; tile += gridDim.x) {
    float* a = sets[set][0];
    float* b = sets[set][1];
    float* c = sets[set][2];
    const unsigned long long first = (unsigned long long)tile * TILE;
    // On fresh barriers the phase before the first counts as over: all sets are free at once.
    if (role == 0) {
      wait_for(SEPARATE ? &taken[set] : &stored[set], phase ^ 1);
      for (unsigned i = 4 * lane; i < TILE; i += 4 * LANES) {
        copy_async<16>(a + i, left + first + i);
        copy_async<16>(b + i, right + first + i);
      }
      arrive_after_copies(&loaded[set]);
    } else if (role == 1) {
      wait_for(&loaded[set], phase);
      if (SEPARATE) wait_for(&stored[set], phase ^ 1);
      for (unsigned i = 4 * lane; i < TILE; i += 4 * LANES)
        *(float4*)(c + i) = sum_of(*(const float4*)(a + i), *(const float4*)(b + i));
      __syncwarp();
      if (lane < ARRIVALS) {
        if (SEPARATE) arrive(&taken[set]);
        arrive(&added[set]);
      }
    } else {
      wait_for(&added[set], phase);
      for (unsigned i = 4 * lane; i < TILE; i += 4 * LANES) *(float4*)(out + first + i) = *(const float4*)(c + i);
      __syncwarp();
      if (lane < ARRIVALS) arrive(&stored[set]);
    }
    if (++set == BUFFERS) {
      set = 0;
      phase ^= 1;
    }
  }
  // A copy must not land in the shared memory of a block that has gone.
  if (role == 0) wait_for_copies<0>();
}
