// Kernels whose speed depends on how many warps a multiprocessor holds. Defines: N (elements), and per entry:
// register_heavy: LIVE (values kept in registers), MIN_BLOCKS (of 256 threads that must fit; 0 says nothing);
// unrolled_gather: ITEMS (gathers per thread), TABLE (entries); tile_stencil: TILE_KIB (shared memory of a block).

#ifdef LIVE
#if defined(MIN_BLOCKS) && MIN_BLOCKS > 0
#define BOUNDS __launch_bounds__(256, MIN_BLOCKS)
#else
#define BOUNDS
#endif

// Variance of the LIVE values from i on, in two passes: all of them stay in registers until the mean is known.
extern "C" __global__ void BOUNDS register_heavy(const float* __restrict__ x, float* __restrict__ out) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= N) return;
  float held[LIVE], sum = 0.0f, squares = 0.0f;
#pragma unroll
  for (int k = 0; k < LIVE; ++k) {
    held[k] = x[i + k];
    sum += held[k];
  }
  const float mean = sum * (1.0f / LIVE);
#pragma unroll
  for (int k = 0; k < LIVE; ++k) squares += (held[k] - mean) * (held[k] - mean);
  out[i] = squares * (1.0f / LIVE);
}
#endif

#ifdef TABLE
// Each thread adds up ITEMS entries of a table; all reads can be under way at once, if there is a register for each.
extern "C" __global__ void unrolled_gather(const int* __restrict__ index, const float* __restrict__ table,
                                           float* __restrict__ out) {
  constexpr unsigned threads = N / ITEMS;
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= threads) return;
  int place[ITEMS];
  float read[ITEMS];
#pragma unroll
  for (int e = 0; e < ITEMS; ++e) place[e] = index[i + e * threads];
#pragma unroll
  for (int e = 0; e < ITEMS; ++e) read[e] = table[place[e]];
  // Pairwise, so that no sum has to wait for the one before it.
#pragma unroll
  for (int width = ITEMS / 2; width; width /= 2) {
#pragma unroll
    for (int e = 0; e < ITEMS / 2; ++e)
      if (e < width) read[e] += read[e + width];
  }
  out[i] = read[0];
}
#endif

#ifdef TILE_KIB
// Sum of the 2 * RADIUS + 1 neighbours, from a tile in shared memory; the first and last RADIUS elements see zeros.
#define RADIUS 8
extern "C" __global__ void tile_stencil(const float* __restrict__ x, float* __restrict__ out) {
  extern __shared__ float tile[];
  constexpr int held = TILE_KIB * 256, written = held - 2 * RADIUS;
  const long long first = (long long)blockIdx.x * written;
  for (int k = threadIdx.x; k < held; k += 4 * blockDim.x) {
    // Four loads, wherever they end, before the first store.
    float values[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const long long i = first + k + e * blockDim.x - RADIUS;
      values[e] = x[i < 0 ? 0 : i < N ? i : N - 1];
      if (i < 0 || i >= N) values[e] = 0.0f;
    }
#pragma unroll
    for (int e = 0; e < 4; ++e)
      if (k + e * blockDim.x < held) tile[k + e * blockDim.x] = values[e];
  }
  __syncthreads();
  for (int k = threadIdx.x; k < written; k += blockDim.x) {
    if (first + k >= N) break;
    float sum = 0.0f;
#pragma unroll
    for (int d = 0; d <= 2 * RADIUS; ++d) sum += tile[k + d];
    out[first + k] = sum;
  }
}
#endif
