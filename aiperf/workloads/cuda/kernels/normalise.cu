// Rows divided by their length: a block of 256 threads a row, EACH elements a thread, held in registers between the sum
// of squares and the last step. Defines: ROWS, COLS (256 * EACH; EACH a multiple of 4).

constexpr unsigned THREADS = 256;
constexpr unsigned EACH = COLS / THREADS;
constexpr unsigned FOURS = EACH / 4;
static_assert(COLS % (4 * THREADS) == 0, "whole loads of 16 bytes by every thread");
// The length of a row of zeros is not 0.
constexpr float SMALL = 1e-12f;

__device__ __forceinline__ float sum_of_warp(float sum) {
#pragma unroll
  for (int apart = 16; apart > 0; apart /= 2) sum += __shfl_down_sync(0xffffffffu, sum, apart);
  return sum;
}

// Every thread gets the sum of the block's squares.
__device__ __forceinline__ float squares_of_block(const float* __restrict__ x, float4* held) {
  __shared__ float sums[THREADS / 32];
  const float4* from = reinterpret_cast<const float4*>(x + (unsigned long long)blockIdx.x * COLS) + threadIdx.x;
#pragma unroll
  for (unsigned v = 0; v < FOURS; ++v) held[v] = from[v * THREADS];
  float sum = 0.0f;
#pragma unroll
  for (unsigned v = 0; v < FOURS; ++v) {
    const float4 four = held[v];
    sum += (four.x * four.x + four.y * four.y) + (four.z * four.z + four.w * four.w);
  }
  sum = sum_of_warp(sum);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
  __syncthreads();
  float total = 0.0f;
#pragma unroll
  for (unsigned w = 0; w < THREADS / 32; ++w) total += sums[w];
  return total + SMALL;
}

template <class Last>
__device__ __forceinline__ void write_row(float* __restrict__ out, const float4* held, Last last) {
  float4* to = reinterpret_cast<float4*>(out + (unsigned long long)blockIdx.x * COLS) + threadIdx.x;
#pragma unroll
  for (unsigned v = 0; v < FOURS; ++v) {
    const float4 four = held[v];
    to[v * THREADS] = {last(four.x), last(four.y), last(four.z), last(four.w)};
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    divide_by_root(const float* __restrict__ x, float* __restrict__ out) {
  float4 held[FOURS];
  const float squares = squares_of_block(x, held);
  write_row(out, held, [&](float value) { return value / sqrtf(squares); });
}

extern "C" __global__ void __launch_bounds__(THREADS)
    multiply_by_rsqrt(const float* __restrict__ x, float* __restrict__ out) {
  float4 held[FOURS];
  const float squares = squares_of_block(x, held);
  write_row(out, held, [&](float value) { return value * rsqrtf(squares); });
}

// One thread takes the root for all, who wait for it at a second barrier.
extern "C" __global__ void __launch_bounds__(THREADS)
    multiply_by_shared_rsqrt(const float* __restrict__ x, float* __restrict__ out) {
  __shared__ float root;
  float4 held[FOURS];
  const float squares = squares_of_block(x, held);
  if (threadIdx.x == 0) root = rsqrtf(squares);
  __syncthreads();
  const float by = root;
  write_row(out, held, [&](float value) { return value * by; });
}
