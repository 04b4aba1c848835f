// out = sum of sin(k x) exp(-k y) / (1 + k y) for k = 1 .. 8: software sequences, or the special-function unit.
// Defines: N (elements), INTRINSICS (the fast functions by name; -use_fast_math replaces the others' calls instead).

__device__ __forceinline__ float term(float x, float y) {
#ifdef INTRINSICS
  return __fdividef(__sinf(x) * __expf(-y), 1.0f + y);
#else
  return sinf(x) * expf(-y) / (1.0f + y);
#endif
}

extern "C" __global__ void damped_sines(const float* __restrict__ x, const float* __restrict__ y,
                                        float* __restrict__ out) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= N) return;
  const float angle = x[i], decay = y[i];
  float sum = 0.0f;
#pragma unroll
  for (int k = 1; k <= 8; ++k) sum += term(k * angle, k * decay);
  out[i] = sum;
}
