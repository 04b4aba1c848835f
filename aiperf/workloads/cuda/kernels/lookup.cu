// out[i] = table[index(i)], with and without the promise that out does not overlap the table.
// Defines: N (elements, below 2^31), ITEMS (elements per thread), TABLE (entries, a power of two), RANDOM (else the
// index is i % TABLE).

#ifndef ITEMS
#define ITEMS 1
#endif
#ifndef TABLE
#define TABLE 1024
#endif
#include "items.cuh"

static_assert((TABLE & (TABLE - 1)) == 0, "TABLE must be a power of two");

#ifdef RANDOM
__device__ __forceinline__ unsigned place(unsigned i) {
  i ^= i >> 16;
  i *= 0x7feb352du;
  i ^= i >> 15;
  i *= 0x846ca68bu;
  i ^= i >> 16;
  return i & (TABLE - 1);
}
#else
__device__ __forceinline__ unsigned place(unsigned i) { return i & (TABLE - 1); }
#endif

// A store to out might change the table: each load waits for the store before it.
extern "C" __global__ void lookup_plain(const float* table, float* out) {
  for_items([&](unsigned i) { out[i] = table[place(i)]; });
}

extern "C" __global__ void lookup_restrict(const float* __restrict__ table, float* __restrict__ out) {
  for_items([&](unsigned i) { out[i] = table[place(i)]; });
}
