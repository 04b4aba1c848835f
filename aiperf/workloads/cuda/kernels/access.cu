// Gathers N floats that were stored at place(i): the order of the reads is all that differs between variants.
// Defines: N (elements, below 2^31), ITEMS (elements per thread), and one of LINEAR, STRIDE=s, RANDOM.
// LINEAR wins over the others, so that a side can add it to a variant that both sides share.

#ifndef ITEMS
#define ITEMS 1
#endif

#if defined(LINEAR)
__device__ __forceinline__ unsigned place(unsigned i) { return i; }
#elif defined(RANDOM)
static_assert((N & (N - 1)) == 0, "RANDOM needs a power of two for N");
__host__ __device__ constexpr unsigned bits(unsigned long long n) { return n > 1 ? 1 + bits(n / 2) : 0; }
// Every step can be undone on the low bits, so this is a permutation of 0 .. N-1.
__device__ __forceinline__ unsigned place(unsigned i) {
  constexpr unsigned shift = bits(N) / 2 > 0 ? bits(N) / 2 : 1;
  constexpr unsigned mask = (unsigned)(N - 1);
  i ^= i >> shift;
  i = (i * 0x9E3779B1u) & mask;
  i ^= i >> shift;
  i = (i * 0x85EBCA6Bu) & mask;
  i ^= i >> shift;
  return i;
}
#else
#ifndef STRIDE
#error "choose LINEAR, STRIDE=s or RANDOM"
#endif
// Threads next to each other read STRIDE apart; the tail that no whole row holds stays where it is.
__device__ __forceinline__ unsigned place(unsigned i) {
  constexpr unsigned stride = STRIDE;
  constexpr unsigned rows = (unsigned)(N / stride);
  return i < rows * stride ? (i % rows) * stride + i / rows : i;
}
#endif

extern "C" __global__ void lay_out(const float* __restrict__ values, float* __restrict__ stored) {
  const unsigned first = blockIdx.x * (blockDim.x * ITEMS) + threadIdx.x;
  for (int e = 0; e < ITEMS; ++e) {
    const unsigned i = first + e * blockDim.x;
    if (i < N) stored[place(i)] = values[i];
  }
}

// All loads of a thread are in flight before its first store: one at a time would not fill the memory pipeline.
extern "C" __global__ void gather(const float* __restrict__ stored, float* __restrict__ out) {
  const unsigned first = blockIdx.x * (blockDim.x * ITEMS) + threadIdx.x;
  float held[ITEMS];
#pragma unroll
  for (int e = 0; e < ITEMS; ++e) {
    const unsigned i = first + e * blockDim.x;
    held[e] = i < N ? stored[place(i)] : 0.0f;
  }
#pragma unroll
  for (int e = 0; e < ITEMS; ++e) {
    const unsigned i = first + e * blockDim.x;
    if (i < N) out[i] = held[e];
  }
}
