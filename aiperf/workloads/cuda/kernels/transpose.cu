// out = transposed values, a square of side N, through a square tile of shared memory; 256 threads, a tile per block.
// Defines: N (side, below 32768), SIDE_OF_TILE (32 or 64), PAD (words added to each row of the tile: 0 or 1), STRIP
// (blocks go through strips of so many tiles, row by row in each; default: one strip, as wide as the square).

#ifndef PAD
#define PAD 1
#endif
#ifndef SIDE_OF_TILE
#define SIDE_OF_TILE 32
#endif

constexpr unsigned TILE = SIDE_OF_TILE;
constexpr unsigned SIDE = N;
constexpr unsigned TILES = (SIDE + TILE - 1) / TILE;
constexpr unsigned SWEEP = 256 / TILE;  // rows that 256 threads cover at a time
constexpr bool WHOLE = SIDE % TILE == 0;

#ifndef STRIP
#define STRIP TILES
#endif

// Where the tile of this block begins. In strips, blocks that run at the same time write long pieces of few rows, and
// read short pieces of many; without them it is the other way round.
__device__ void tile_of_block(unsigned& row, unsigned& column) {
  const unsigned first = blockIdx.x / (STRIP * TILES) * STRIP, at = blockIdx.x - first * TILES;
  const unsigned wide = TILES % STRIP == 0 || TILES - first >= STRIP ? STRIP : TILES - first;
  row = at / wide * TILE;
  column = (first + at % wide) * TILE;
}

// Reads and writes of global memory are coalesced on every side; only the column reads of the tile differ.
extern "C" __global__ void transpose_tile(const float* __restrict__ values, float* __restrict__ out) {
  __shared__ float tile[TILE][TILE + PAD];
  const unsigned x = threadIdx.x % TILE, y = threadIdx.x / TILE;
  unsigned row, column;
  tile_of_block(row, column);
#pragma unroll
  for (unsigned k = 0; k < TILE; k += SWEEP)
    if (WHOLE || (row + y + k < SIDE && column + x < SIDE)) tile[y + k][x] = values[(row + y + k) * SIDE + column + x];
  __syncthreads();
#pragma unroll
  for (unsigned k = 0; k < TILE; k += SWEEP)
    if (WHOLE || (column + y + k < SIDE && row + x < SIDE)) out[(column + y + k) * SIDE + row + x] = tile[x][y + k];
}

// No padding: word x of row y lies at x ^ y, so that a row and a column both touch 32 banks.
extern "C" __global__ void transpose_swizzled(const float* __restrict__ values, float* __restrict__ out) {
  __shared__ float tile[TILE][TILE];
  const unsigned x = threadIdx.x % TILE, y = threadIdx.x / TILE;
  unsigned row, column;
  tile_of_block(row, column);
#pragma unroll
  for (unsigned k = 0; k < TILE; k += SWEEP)
    if (WHOLE || (row + y + k < SIDE && column + x < SIDE)) tile[y + k][x ^ (y + k)] = values[(row + y + k) * SIDE + column + x];
  __syncthreads();
#pragma unroll
  for (unsigned k = 0; k < TILE; k += SWEEP)
    if (WHOLE || (column + y + k < SIDE && row + x < SIDE)) out[(column + y + k) * SIDE + row + x] = tile[x][(y + k) ^ x];
}
