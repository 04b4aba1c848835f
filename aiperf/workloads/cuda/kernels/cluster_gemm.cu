// out = left x right, squares of side N: bf16 operands, fp32 sums on the tensor cores (mma.sync), tiles of 128 x 128.
// The operands are packed beforehand, on every side, so that a 128 x 64 piece lies in one run of 16 KiB in the order in
// which the lanes of a warp need it. A loader warp brings pieces in with the bulk copy engine, STAGES ahead of eight
// warps that compute. Blocks 4p .. 4p + 3 work on a 2 x 2 patch of tiles, in the same order on every side.
// Defines: N (side, a multiple of 1024), CLUSTER: 1 every block fetches both of its pieces; 2 the two blocks of a row
// fetch half of their common piece of left each, for both; 4 so do the blocks of a column with their piece of right.
// product writes fp32, product_packed bf16 in the packed order, as the left operand of the next one of a chain; with
// programmatic dependent launch that one fetches its first pieces of right while this one ends.
// Threads: 288. Dynamic shared memory: STAGES * 32 KiB. Blocks: (N / 128)^2. Needs compute capability 9.0.

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#error "cluster_gemm.cu needs compute capability 9.0"
#endif
#include "async.cuh"

#ifndef CLUSTER
#define CLUSTER 1
#endif
#ifndef STAGES
#define STAGES 4
#endif

typedef unsigned short Half;  // the bits of a bf16

constexpr unsigned SIDE = N;
constexpr unsigned TILE = 128, SLICE = 64;
constexpr unsigned TILES = SIDE / TILE, SLICES = SIDE / SLICE;
constexpr unsigned PIECE = TILE * SLICE;
constexpr unsigned WARPS = 8;
constexpr unsigned LEFT_SHARERS = CLUSTER >= 2 ? 2 : 1, RIGHT_SHARERS = CLUSTER == 4 ? 2 : 1;
constexpr unsigned SHARERS = LEFT_SHARERS + RIGHT_SHARERS - 1;  // blocks that a piece of this one goes to
constexpr unsigned PATCHES = TILES / 2;
static_assert(SIDE % 1024 == 0, "whole patches, four patch rows at a time");
static_assert(SLICES >= STAGES, "more slices than stages");
static_assert(CLUSTER == 1 || CLUSTER == 2 || CLUSTER == 4, "a cluster is a block, a row or a patch of 2 x 2");

// ptx: begin
__device__ __forceinline__ void multiply_add(float (&sum)[4], const uint4& a, unsigned b0, unsigned b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}
// ptx: end

// Where element e of a piece of left comes from: 16 x 16 squares, eight elements for each lane as mma.sync wants them.
__host__ __device__ __forceinline__ unsigned row_in_left(unsigned e) {
  return e / 256 % 8 * 16 + e % 256 / 8 / 4 + e / 2 % 2 * 8;
}
__host__ __device__ __forceinline__ unsigned column_in_left(unsigned e) {
  return e / 2048 * 16 + e % 256 / 8 % 4 * 2 + e % 2 + e / 4 % 2 * 8;
}
// And of a piece of right: 16 x 16 squares, the left half of 8 columns before the right half.
__host__ __device__ __forceinline__ unsigned row_in_right(unsigned e) {
  return e / 2048 * 16 + e % 256 / 8 % 4 * 2 + e % 2 + e / 2 % 2 * 8;
}
__host__ __device__ __forceinline__ unsigned column_in_right(unsigned e) {
  return e / 256 % 8 * 16 + e % 256 / 8 / 4 + e / 4 % 2 * 8;
}

// Piece (tile, slice) of an operand lies at (tile * SLICES + slice) * PIECE.
extern "C" __global__ void pack(const Half* __restrict__ left, const Half* __restrict__ right,
                                Half* __restrict__ left_packed, Half* __restrict__ right_packed) {
  const unsigned stride = gridDim.x * blockDim.x;
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < SIDE * SIDE; i += stride) {
    const unsigned piece = i / PIECE, e = i % PIECE;
    const unsigned tile = piece / SLICES * TILE, slice = piece % SLICES * SLICE;
    left_packed[i] = left[(tile + row_in_left(e)) * SIDE + slice + column_in_left(e)];
    right_packed[i] = right[(slice + row_in_right(e)) * SIDE + tile + column_in_right(e)];
  }
}

// Warp (y, x) of 2 x 4 computes 64 x 32 outputs from a piece of each operand.
__device__ __forceinline__ void multiply(const Half* stage, float (&sums)[4][4][4]) {
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32, y = warp / 4, x = warp % 4;
  const uint4* a = reinterpret_cast<const uint4*>(stage) + lane;
  const uint4* b = reinterpret_cast<const uint4*>(stage + PIECE) + lane;
#pragma unroll
  for (unsigned k = 0; k < SLICE / 16; ++k) {
    uint4 from_a[4], from_b[2];
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) from_a[i] = a[(k * 8 + y * 4 + i) * 32];
#pragma unroll
    for (unsigned j = 0; j < 2; ++j) from_b[j] = b[(k * 8 + x * 2 + j) * 32];
#pragma unroll
    for (unsigned i = 0; i < 4; ++i)
#pragma unroll
      for (unsigned j = 0; j < 2; ++j) {
        multiply_add(sums[i][2 * j], from_a[i], from_b[j].x, from_b[j].y);
        multiply_add(sums[i][2 * j + 1], from_a[i], from_b[j].z, from_b[j].w);
      }
  }
}

// To the nearest, ties to even.
__device__ __forceinline__ unsigned rounded(float value) {
  const unsigned bits = __float_as_uint(value);
  return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}

// Two neighbours of a row, the first in an even column.
__device__ __forceinline__ void write(float* out, unsigned row, unsigned column, float first, float second) {
  *reinterpret_cast<float2*>(out + (unsigned long long)row * SIDE + column) = make_float2(first, second);
}
__device__ __forceinline__ void write(Half* packed, unsigned row, unsigned column, float first, float second) {
  const unsigned long long piece = row / TILE * SLICES + column / SLICE;
  const unsigned square = column % SLICE / 16 * 2048 + row % TILE / 16 * 256, lane = row % 8 * 4 + column % 8 / 2;
  const unsigned e = square + lane * 8 + (row / 8 % 2 + column / 8 % 2 * 2) * 2;
  *reinterpret_cast<unsigned*>(packed + piece * PIECE + e) = rounded(first) | rounded(second) << 16;
}

// A lane's share of fetching what a block needs: its own pieces, or halves of the common ones for those who share them.
struct Loader {
  const Half *left, *right;
  Half* stages;
  Barrier* full;
  unsigned y, x;

  __device__ __forceinline__ void fetch_left(unsigned slice) const {
    const unsigned s = slice % STAGES;
    Half* stage = stages + s * 2 * PIECE;
    const Half* from = left + (unsigned long long)slice * PIECE;
    if (LEFT_SHARERS == 2) {
      const unsigned part = x * PIECE / 2;
      bulk_multicast(stage + part, from + part, PIECE, &full[s], 3u << (CLUSTER == 4 ? 2 * y : 0));
    } else {
      bulk_copy(stage, from, PIECE * 2, &full[s]);
    }
  }
  __device__ __forceinline__ void fetch_right(unsigned slice) const {
    const unsigned s = slice % STAGES;
    Half* stage = stages + s * 2 * PIECE + PIECE;
    const Half* from = right + (unsigned long long)slice * PIECE;
    expect_bytes(&full[s], 2 * PIECE * 2);
    if (RIGHT_SHARERS == 2) {
      const unsigned part = y * PIECE / 2;
      bulk_multicast(stage + part, from + part, PIECE, &full[s], 5u << x);
    } else {
      bulk_copy(stage, from, PIECE * 2, &full[s]);
    }
  }
};

template <class Out>
__device__ __forceinline__ void run_product(const Half* left_packed, const Half* right_packed, Out* out, Half* stages) {
  __shared__ Barrier full[STAGES], empty[STAGES];
  // Four patch rows at a time, column by column: what the blocks of a wave need stays in the L2.
  const unsigned patch = blockIdx.x / 4, within = patch % (4 * PATCHES);
  const unsigned y = blockIdx.x / 2 % 2, x = blockIdx.x % 2;
  const unsigned row = 2 * (patch / (4 * PATCHES) * 4 + within % 4) + y, column = 2 * (within / 4) + x;
  if (threadIdx.x == 0) {
    for (unsigned s = 0; s < STAGES; ++s) {
      barrier_init(&full[s], 1);
      // Half pieces also go to the neighbours of the row and of the column: they must have left the stage as well.
      barrier_init(&empty[s], WARPS * SHARERS * ARRIVALS);
    }
    barriers_are_visible();
  }
  __syncthreads();
  if (CLUSTER > 1) cluster_meeting();
  const unsigned rank = blockIdx.x % CLUSTER, lane = threadIdx.x % 32;
  if (threadIdx.x >= 32 * WARPS) {
    if (lane == 0) {
      const Loader loader = {left_packed + (unsigned long long)row * SLICES * PIECE,
                             right_packed + (unsigned long long)column * SLICES * PIECE, stages, full, y, x};
      // All stages are free; only left may still be being written by the kernel ahead.
      for (unsigned slice = 0; slice < STAGES; ++slice) loader.fetch_right(slice);
      wait_for_previous();
      for (unsigned slice = 0; slice < STAGES; ++slice) loader.fetch_left(slice);
      for (unsigned slice = STAGES; slice < SLICES; ++slice) {
        wait_for(&empty[slice % STAGES], (slice / STAGES + 1) % 2);
        loader.fetch_right(slice);
        loader.fetch_left(slice);
      }
      let_next_start();
      // Nobody leaves while a neighbour may still count here; what it writes here has been waited for.
      for (unsigned slice = SLICES; CLUSTER > 1 && slice < SLICES + STAGES; ++slice)
        wait_for(&empty[slice % STAGES], (slice / STAGES + 1) % 2);
    }
  } else {
    float sums[4][4][4] = {};
    for (unsigned slice = 0; slice < SLICES; ++slice) {
      const unsigned s = slice % STAGES;
      wait_for(&full[s], slice / STAGES % 2);
      // mma.sync wants the whole warp together.
      __syncwarp();
      multiply(stages + s * 2 * PIECE, sums);
      __syncwarp();
      // Lane 0 tells this block, lane 1 the neighbour of the row, lane 2 that of the column.
      if (lane < ARRIVALS) arrive(&empty[s]);
#ifdef EVERY_LANE_ARRIVES
      for (unsigned other = 1; other < SHARERS; ++other) arrive_in(rank ^ other, &empty[s]);
#else
      if (lane > 0 && lane < SHARERS) arrive_in(rank ^ lane, &empty[s]);
#endif
    }
    const unsigned warp = threadIdx.x / 32;
    const unsigned r = row * TILE + warp / 4 * 64 + lane / 4, c = column * TILE + warp % 4 * 32 + lane % 4 * 2;
#pragma unroll
    for (unsigned i = 0; i < 4; ++i)
#pragma unroll
      for (unsigned j = 0; j < 4; ++j) {
        write(out, r + 16 * i, c + 8 * j, sums[i][j][0], sums[i][j][1]);
        write(out, r + 16 * i + 8, c + 8 * j, sums[i][j][2], sums[i][j][3]);
      }
  }
}

#if CLUSTER > 1
#define GROUPED __cluster_dims__(CLUSTER, 1, 1)
#else
#define GROUPED
#endif

extern "C" __global__ void GROUPED __launch_bounds__(32 * WARPS + 32, 1)
    product(const Half* __restrict__ left_packed, const Half* __restrict__ right_packed, float* __restrict__ out) {
  extern __shared__ __align__(128) Half stages[];
  run_product(left_packed, right_packed, out, stages);
}

extern "C" __global__ void GROUPED __launch_bounds__(32 * WARPS + 32, 1)
    product_packed(const Half* __restrict__ left_packed, const Half* __restrict__ right_packed,
                   Half* __restrict__ out) {
  extern __shared__ __align__(128) Half stages[];
  run_product(left_packed, right_packed, out, stages);
}
