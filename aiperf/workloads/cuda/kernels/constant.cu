// Every thread combines all ENTRIES of a small table with its element. Defines: N (elements), PER_LANE (each lane starts
// at another entry) or not (all lanes read the same one), and where the table lies: SHARED, GLOBAL or else constant.
// Sums of integers do not depend on the order, so all of them give the same.

#define ENTRIES 64

struct Table {
  unsigned values[ENTRIES];
  __host__ __device__ constexpr Table() : values{} {
    unsigned value = 1;
    for (int k = 0; k < ENTRIES; ++k) values[k] = value = value * 1664525u + 1013904223u;
  }
};
__constant__ Table in_constant = Table();
__device__ Table in_global = Table();

extern "C" __global__ void table_lookup(const int* __restrict__ x, int* __restrict__ out) {
#ifdef SHARED
  __shared__ unsigned table[ENTRIES];
  if (threadIdx.x < ENTRIES) table[threadIdx.x] = in_constant.values[threadIdx.x];
  __syncthreads();
#elif defined(GLOBAL)
  const unsigned* table = in_global.values;
#else
  const unsigned* table = in_constant.values;
#endif
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= N) return;
#ifdef PER_LANE
  const unsigned start = threadIdx.x;
#else
  const unsigned start = 0;
#endif
  const unsigned value = (unsigned)x[i];
  unsigned sum = 0;
#pragma unroll 8
  for (unsigned k = 0; k < ENTRIES; ++k) sum += (table[(start + k) % ENTRIES] ^ value) >> 7;
  out[i] = (int)sum;
}
