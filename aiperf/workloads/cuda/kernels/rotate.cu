// out = a picture of ROWS x COLS floats turned about its middle, zero where that lies outside, the nearest value or the
// four around mixed. By loads and arithmetic, or by the texture unit, which finds, checks and mixes by itself.
// Defines: ROWS, COLS, DEGREES (0, 37 or 90, the first as a control), LINEAR (1: mixed; else the nearest).
// Threads of a block: two-dimensional, one for each value of out.

#ifndef LINEAR
#define LINEAR 0
#endif
#if DEGREES == 0
#define COSINE 1.0f
#define SINE 0.0f
#elif DEGREES == 90
#define COSINE 0.0f
#define SINE 1.0f
#else
// Of the triangle with sides 3, 4 and 5: 36.87 degrees.
#define COSINE 0.8f
#define SINE 0.6f
#endif

struct Place {
  float x, y;
};

// Where a value of out lies in the picture, in which the middle of the first value is at 0.5, 0.5.
__device__ __forceinline__ Place place_of(unsigned column, unsigned row) {
  const float x = column + 0.5f - 0.5f * COLS, y = row + 0.5f - 0.5f * ROWS;
  return {fmaf(COSINE, x, fmaf(-SINE, y, 0.5f * COLS)), fmaf(SINE, x, fmaf(COSINE, y, 0.5f * ROWS))};
}

__device__ __forceinline__ float value_at(const float* __restrict__ picture, int x, int y) {
  return x >= 0 && x < COLS && y >= 0 && y < ROWS ? picture[(unsigned)y * COLS + x] : 0.0f;
}

extern "C" __global__ void rotate_global(const float* __restrict__ picture, float* __restrict__ out) {
  const unsigned column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
  if (column >= COLS || row >= ROWS) return;
  const Place at = place_of(column, row);
#if LINEAR
  const float left = floorf(at.x - 0.5f), top = floorf(at.y - 0.5f);
  const float across = at.x - 0.5f - left, down = at.y - 0.5f - top;
  const int x = (int)left, y = (int)top;
  const float above = fmaf(across, value_at(picture, x + 1, y), (1.0f - across) * value_at(picture, x, y));
  const float below = fmaf(across, value_at(picture, x + 1, y + 1), (1.0f - across) * value_at(picture, x, y + 1));
  out[row * COLS + column] = fmaf(down, below, (1.0f - down) * above);
#else
  out[row * COLS + column] = value_at(picture, (int)floorf(at.x), (int)floorf(at.y));
#endif
}

extern "C" __global__ void rotate_texture(cudaTextureObject_t picture, float* __restrict__ out) {
  const unsigned column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
  if (column >= COLS || row >= ROWS) return;
  const Place at = place_of(column, row);
#if LINEAR
  out[row * COLS + column] = tex2D<float>(picture, at.x, at.y);
#else
  // The middle of the value that the other entry reads: no rounding of the unit can choose its neighbour.
  out[row * COLS + column] = tex2D<float>(picture, floorf(at.x) + 0.5f, floorf(at.y) + 0.5f);
#endif
}
