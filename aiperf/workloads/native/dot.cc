// dot: many dot products of float32 vectors, with a stated number of independent running sums.
//
// entry dot_windows: out[r] = sum over i < n of x[r % WINDOWS + i] * y[i], for r < args[0].
//   UNROLL        elements per turn of the loop
//   ACCUMULATORS  running sums, 1 or UNROLL: with 1, the UNROLL products are added together before the sum takes them
// The first element of each window differs, so that no product can be kept from one r to the next.
#include <cstdint>

#ifndef UNROLL
#define UNROLL 1
#endif
#ifndef ACCUMULATORS
#define ACCUMULATORS 1
#endif
static_assert(ACCUMULATORS == 1 || ACCUMULATORS == UNROLL, "ACCUMULATORS is 1 or UNROLL");

namespace {

constexpr int64_t kWindows = 64;

float dot(const float *x, const float *y, int64_t n) {
  float sums[ACCUMULATORS] = {};
  int64_t i = 0;
#pragma GCC unroll 1
  for (; i + UNROLL <= n; i += UNROLL) {
    float products[UNROLL];
#pragma GCC unroll 16
    for (int k = 0; k < UNROLL; ++k) products[k] = x[i + k] * y[i + k];
    if (ACCUMULATORS == 1) {
      float together = products[0];
#pragma GCC unroll 16
      for (int k = 1; k < UNROLL; ++k) together += products[k];
      sums[0] += together;
    } else {
#pragma GCC unroll 16
      for (int k = 0; k < UNROLL; ++k) sums[k % ACCUMULATORS] += products[k];
    }
  }
  float total = 0;
  for (float sum : sums) total += sum;
  for (; i < n; ++i) total += x[i] * y[i];
  return total;
}

}  // namespace

extern "C" void dot_windows(const void *const *in, void *const *out, int64_t n, int64_t /*threads*/,
                            const int64_t *args) {
  const auto *x = static_cast<const float *>(in[0]);
  const auto *y = static_cast<const float *>(in[1]);
  auto *results = static_cast<float *>(out[0]);
  for (int64_t r = 0; r < args[0]; ++r) results[r] = dot(x + r % kWindows, y, n);
}
