// out = left x right in fp32 on the CUDA cores, in tiles of 128 x 128 outputs, 8 x 8 of them a thread. The tiles, in
// the order of the rows, are a block each of one launch or several, or the work of resident blocks of one launch.
// Every entry adds the products of an output in the order of k, so that all of them agree bit by bit.
// Defines: ROWS and COLS (of out, multiples of 128), DEPTH (inner size, a multiple of 16).
// Threads of a block: 256.

constexpr unsigned TILE = 128;
constexpr unsigned SLICE = 16;
constexpr unsigned THREADS = 256;
constexpr unsigned ACROSS = COLS / TILE;
constexpr unsigned TILES = ROWS / TILE * ACROSS;
static_assert(ROWS % TILE == 0 && COLS % TILE == 0 && DEPTH % SLICE == 0, "whole tiles and slices");

__device__ __forceinline__ void run_tile(unsigned tile, const float* __restrict__ left,
                                         const float* __restrict__ right, float* __restrict__ out) {
  // Padded by 16 bytes: what is stored by columns is then read in whole float4.
  __shared__ __align__(16) float a[SLICE][TILE + 4];
  __shared__ __align__(16) float b[SLICE][TILE];
  const unsigned row = tile / ACROSS * TILE, column = tile % ACROSS * TILE;
  const unsigned y = threadIdx.x / 16 * 4, x = threadIdx.x % 16 * 4;
  float sums[8][8] = {};
  for (unsigned first = 0; first < DEPTH; first += SLICE) {
#pragma unroll
    for (unsigned i = threadIdx.x; i < TILE * SLICE / 4; i += THREADS) {
      const unsigned ay = i / (SLICE / 4), ak = i % (SLICE / 4) * 4, bk = i / (TILE / 4), bx = i % (TILE / 4) * 4;
      const float4 from_left =
          *reinterpret_cast<const float4*>(left + (unsigned long long)(row + ay) * DEPTH + first + ak);
      a[ak][ay] = from_left.x, a[ak + 1][ay] = from_left.y, a[ak + 2][ay] = from_left.z, a[ak + 3][ay] = from_left.w;
      *reinterpret_cast<float4*>(&b[bk][bx]) =
          *reinterpret_cast<const float4*>(right + (unsigned long long)(first + bk) * COLS + column + bx);
    }
    __syncthreads();
#pragma unroll
    for (unsigned k = 0; k < SLICE; ++k) {
      float from_a[8], from_b[8];
#pragma unroll
      for (unsigned half = 0; half < 2; ++half) {
        *reinterpret_cast<float4*>(from_a + 4 * half) = *reinterpret_cast<const float4*>(&a[k][y + 64 * half]);
        *reinterpret_cast<float4*>(from_b + 4 * half) = *reinterpret_cast<const float4*>(&b[k][x + 64 * half]);
      }
#pragma unroll
      for (unsigned i = 0; i < 8; ++i)
#pragma unroll
        for (unsigned j = 0; j < 8; ++j) sums[i][j] = fmaf(from_a[i], from_b[j], sums[i][j]);
    }
    __syncthreads();
  }
#pragma unroll
  for (unsigned i = 0; i < 8; ++i) {
    float* to = out + (unsigned long long)(row + y + i % 4 + i / 4 * 64) * COLS + column + x;
    *reinterpret_cast<float4*>(to) = float4{sums[i][0], sums[i][1], sums[i][2], sums[i][3]};
    *reinterpret_cast<float4*>(to + 64) = float4{sums[i][4], sums[i][5], sums[i][6], sums[i][7]};
  }
}

// The turn-th of launches that have as many blocks each.
extern "C" __global__ void __launch_bounds__(THREADS, 2)
    tile_each(const float* __restrict__ left, const float* __restrict__ right, float* __restrict__ out,
              long long turn) {
  run_tile((unsigned)turn * gridDim.x + blockIdx.x, left, right, out);
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    persistent_tiles(const float* __restrict__ left, const float* __restrict__ right, float* __restrict__ out) {
  for (unsigned tile = blockIdx.x; tile < TILES; tile += gridDim.x) run_tile(tile, left, right, out);
}
