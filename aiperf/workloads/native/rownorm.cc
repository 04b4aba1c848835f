// rownorm: scale each row of a float32 matrix to unit length, as a plain loop that leaves all choices to the compiler.
//
// entry l2norm_rows: out[r, c] = x[r, c] / sqrt(sum over c of x[r, c]^2), n elements in rows of args[0].
#include <cmath>
#include <cstdint>
#include <thread>
#include <vector>

extern "C" void l2norm_rows(const void *const *in, void *const *out, int64_t n, int64_t threads,
                            const int64_t *args) {
  const auto *x = static_cast<const float *>(in[0]);
  auto *y = static_cast<float *>(out[0]);
  const int64_t width = args[0], rows = n / width;
  auto part = [=](int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r) {
      const float *from = x + r * width;
      float *to = y + r * width;
      float sum = 0;
      for (int64_t c = 0; c < width; ++c) sum += from[c] * from[c];
      const float scale = 1.0f / std::sqrt(sum);
      for (int64_t c = 0; c < width; ++c) to[c] = from[c] * scale;
    }
  };
  std::vector<std::thread> others;
  for (int64_t t = 1; t < threads; ++t) others.emplace_back(part, rows * t / threads, rows * (t + 1) / threads);
  part(0, rows / threads);
  for (auto &other : others) other.join();
}
