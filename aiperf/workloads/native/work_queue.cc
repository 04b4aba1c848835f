// work_queue: threads that share a list of items, by atomic counters or by a fixed split.
//
// entry claim_all: every item is taken exactly once and out[i] += in[i] + 1, from zero; a second visit would show.
//   args[0]  items per claim
//   args[1]  levels: 1, all threads count on one shared head; 2, a thread takes SLICE items from the shared head and
//            claims from a head of its own, on a cache line of its own
// entry uneven_sincos: item i is sin(v) * cos(v), summed over rounds[i] turns of v.
//   args[0]  items per claim
//   args[1]  schedule: 0, thread t takes the t-th part of the list; 1, threads claim from a shared head
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#ifndef SLICE
#define SLICE 8192
#endif

namespace {

struct alignas(128) Head {
  std::atomic<int64_t> next{0};
};

// f(t) on `threads` threads, the caller being the first.
void together(int64_t threads, const std::function<void(int64_t)> &f) {
  std::vector<std::thread> others;
  for (int64_t t = 1; t < threads; ++t) others.emplace_back(f, t);
  f(0);
  for (auto &other : others) other.join();
}

}  // namespace

extern "C" void claim_all(const void *const *in, void *const *out, int64_t n, int64_t threads, const int64_t *args) {
  const auto *values = static_cast<const int32_t *>(in[0]);
  auto *seen = static_cast<int32_t *>(out[0]);
  const int64_t claim = args[0];
  std::memset(seen, 0, n * sizeof(int32_t));
  Head head;
  auto take = [=](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) seen[i] += values[i] + 1;
  };
  together(threads, [&](int64_t) {
    if (args[1] == 1) {
      for (int64_t i; (i = head.next.fetch_add(claim, std::memory_order_relaxed)) < n;)
        take(i, std::min(i + claim, n));
      return;
    }
    Head own;
    for (int64_t base; (base = head.next.fetch_add(SLICE, std::memory_order_relaxed)) < n;) {
      const int64_t end = std::min<int64_t>(base + SLICE, n);
      own.next.store(base, std::memory_order_relaxed);
      for (int64_t i; (i = own.next.fetch_add(claim, std::memory_order_relaxed)) < end;)
        take(i, std::min(i + claim, end));
    }
  });
}

extern "C" void uneven_sincos(const void *const *in, void *const *out, int64_t n, int64_t threads,
                              const int64_t *args) {
  const auto *values = static_cast<const double *>(in[0]);
  const auto *rounds = static_cast<const int32_t *>(in[1]);
  auto *results = static_cast<double *>(out[0]);
  const int64_t claim = args[0];
  Head head;
  auto take = [=](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      double v = values[i], sum = 0;
      for (int32_t k = 0; k < rounds[i]; ++k, v += 0.5) sum += std::sin(v) * std::cos(v);
      results[i] = sum;
    }
  };
  together(threads, [&](int64_t t) {
    if (args[1] == 0) {
      take(n * t / threads, n * (t + 1) / threads);
      return;
    }
    for (int64_t i; (i = head.next.fetch_add(claim, std::memory_order_relaxed)) < n;) take(i, std::min(i + claim, n));
  });
}
