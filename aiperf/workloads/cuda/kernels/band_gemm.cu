// out[t] = left[t] x right[t] for N pairs of 128 x 128 fp32 tiles; four blocks share a pair, 32 rows of out each.
// A loader warp brings a block its band of left and the whole of right with the bulk copy engine, two pairs ahead of
// eight warps that compute. Defines: N (pairs, a multiple of PAIRS), CLUSTER (blocks that fetch right together: each
// fetches a part of it once and the copy engine writes it into the shared memory of all; 1: every block fetches all of
// it), PAIRS (that a block works on in turn). Threads: 288. Dynamic shared memory: 160 KiB. Blocks: 4 * N / PAIRS.
// Needs compute capability 9.0.

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#error "band_gemm.cu needs compute capability 9.0"
#endif
#include "async.cuh"

#ifndef CLUSTER
#define CLUSTER 1
#endif
#ifndef PAIRS
#define PAIRS 8
#endif

constexpr unsigned SIDE = 128;
constexpr unsigned WORDS = SIDE * SIDE;
constexpr unsigned BANDS = 4;
constexpr unsigned ROWS_EACH = SIDE / BANDS;
constexpr unsigned BAND = ROWS_EACH * SIDE;
constexpr unsigned WARPS = 8;
constexpr unsigned SLOT = BAND + WORDS;
constexpr unsigned PART = WORDS / CLUSTER;
static_assert(CLUSTER == 1 || CLUSTER == 2 || CLUSTER == 4, "four blocks share a pair");
static_assert(N % PAIRS == 0, "whole turns");

// Thread (y, x) of 8 x 32 computes rows y, y + 8, ... of the band and columns x, x + 32, ...
__device__ __forceinline__ void multiply(const float* slot, float* __restrict__ out) {
  const unsigned y = threadIdx.x / 32, x = threadIdx.x % 32;
  float sums[4][4] = {};
#pragma unroll 2
  for (unsigned k = 0; k < SIDE; k += 4) {
    float4 a[4];
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) a[i] = *reinterpret_cast<const float4*>(slot + (y + 8 * i) * SIDE + k);
#pragma unroll
    for (unsigned step = 0; step < 4; ++step) {
      float b[4];
#pragma unroll
      for (unsigned j = 0; j < 4; ++j) b[j] = slot[BAND + (k + step) * SIDE + x + 32 * j];
#pragma unroll
      for (unsigned i = 0; i < 4; ++i) {
        const float from_a = step == 0 ? a[i].x : step == 1 ? a[i].y : step == 2 ? a[i].z : a[i].w;
#pragma unroll
        for (unsigned j = 0; j < 4; ++j) sums[i][j] = fmaf(from_a, b[j], sums[i][j]);
      }
    }
  }
#pragma unroll
  for (unsigned i = 0; i < 4; ++i)
#pragma unroll
    for (unsigned j = 0; j < 4; ++j) out[(y + 8 * i) * SIDE + x + 32 * j] = sums[i][j];
}

extern "C" __global__ void
#if CLUSTER > 1
__cluster_dims__(CLUSTER, 1, 1)
#endif
    __launch_bounds__(32 * WARPS + 32, 1)
        banded(const float* __restrict__ left, const float* __restrict__ right, float* __restrict__ out) {
  extern __shared__ __align__(128) float slots[];
  __shared__ Barrier full[2], empty[2];
  const unsigned rank = CLUSTER > 1 ? rank_in_cluster() : 0;
  const unsigned band = blockIdx.x % BANDS, first = blockIdx.x / BANDS * PAIRS;
  if (threadIdx.x == 0) {
    for (unsigned s = 0; s < 2; ++s) {
      barrier_init(&full[s], 1);
      // A part of right goes to every block of the cluster: all of them must have left the slot.
      barrier_init(&empty[s], WARPS * CLUSTER * ARRIVALS);
    }
    barriers_are_visible();
  }
  __syncthreads();
  if (CLUSTER > 1) cluster_meeting();
  const bool loader = threadIdx.x >= 32 * WARPS;
  if (!loader || threadIdx.x == 32 * WARPS) {
    for (unsigned pair = 0; pair < PAIRS; ++pair) {
      const unsigned s = pair % 2, phase = pair / 2 % 2;
      const unsigned long long at = (unsigned long long)(first + pair) * WORDS;
      float* slot = slots + s * SLOT;
      if (loader) {
        // The phase before the first counts as over: both slots are free at once.
        wait_for(&empty[s], phase ^ 1);
        expect_bytes(&full[s], SLOT * 4);
        bulk_copy(slot, left + at + band * BAND, BAND * 4, &full[s]);
        if (CLUSTER > 1) {
          bulk_multicast(slot + BAND + rank * PART, right + at + rank * PART, PART * 4, &full[s], (1 << CLUSTER) - 1);
        } else {
          bulk_copy(slot + BAND, right + at, WORDS * 4, &full[s]);
        }
      } else {
        wait_for(&full[s], phase);
        multiply(slot, out + at + band * BAND);
        __syncwarp();
        if (CLUSTER == 1 && threadIdx.x % 32 < ARRIVALS) arrive(&empty[s]);
#ifdef EVERY_LANE_ARRIVES
        for (unsigned block = 0; CLUSTER > 1 && block < CLUSTER; ++block) arrive_in(block, &empty[s]);
#else
        if (CLUSTER > 1 && threadIdx.x % 32 < CLUSTER) arrive_in(threadIdx.x % 32, &empty[s]);
#endif
      }
    }
  }
  // Nobody leaves while a neighbour may still count here; what it writes here has been waited for.
  if (CLUSTER > 1 && threadIdx.x == 32 * WARPS)
    for (unsigned pair = PAIRS; pair < PAIRS + 2; ++pair) wait_for(&empty[pair % 2], pair / 2 % 2 ^ 1);
}
