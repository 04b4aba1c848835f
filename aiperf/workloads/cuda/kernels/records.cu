// Sums the first READ of 8 fields of N records: where the fields lie is all that differs between the entries.
// Defines: N (records, below 2^28), ITEMS (records per thread), READ (1..8).

#ifndef ITEMS
#define ITEMS 1
#endif
#ifndef READ
#define READ 1
#endif
#include "items.cuh"

constexpr unsigned FIELDS = 8;
constexpr unsigned RECORDS = N;
static_assert(READ >= 1 && READ <= 8, "READ lies between 1 and 8");

struct alignas(16) Record {
  float field[FIELDS];
};

// values holds field after field, as the arrays of the struct-of-arrays side do.
extern "C" __global__ void lay_out_structs(const float* __restrict__ values, Record* __restrict__ stored) {
  const unsigned first = blockIdx.x * (blockDim.x * ITEMS) + threadIdx.x;
  for (int e = 0; e < ITEMS; ++e) {
    const unsigned i = first + e * blockDim.x;
    if (i >= RECORDS) return;
    for (unsigned f = 0; f < FIELDS; ++f) stored[i].field[f] = values[f * RECORDS + i];
  }
}

extern "C" __global__ void lay_out_arrays(const float* __restrict__ values, float* __restrict__ stored) {
  const unsigned first = blockIdx.x * (blockDim.x * ITEMS) + threadIdx.x;
  for (int e = 0; e < ITEMS; ++e) {
    const unsigned i = first + e * blockDim.x;
    if (i >= RECORDS) return;
    for (unsigned f = 0; f < FIELDS; ++f) stored[f * RECORDS + i] = values[f * RECORDS + i];
  }
}

// Both add the fields in the same order, so that the outputs are equal bit by bit.
extern "C" __global__ void sum_structs(const Record* __restrict__ stored, float* __restrict__ out) {
  for_items([&](unsigned i) {
    float sum = stored[i].field[0];
#pragma unroll
    for (unsigned f = 1; f < READ; ++f) sum += stored[i].field[f];
    out[i] = sum;
  });
}

extern "C" __global__ void sum_arrays(const float* __restrict__ stored, float* __restrict__ out) {
  for_items([&](unsigned i) {
    float sum = stored[i];
#pragma unroll
    for (unsigned f = 1; f < READ; ++f) sum += stored[f * RECORDS + i];
    out[i] = sum;
  });
}
