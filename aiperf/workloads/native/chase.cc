// chase: reads whose addresses are known only when the read before has arrived.
//
// entry chase_lines: from line 0 along the cycle through all n lines of 64 bytes, in args[0] equal parts.
//   out[0][p]  the line at which part p ended
//   out[1][p]  the sum of the payloads of its lines
#include <cstdint>

namespace {

struct alignas(64) Line {
  int32_t next;
  int32_t payload;
  int32_t rest[14];
};
static_assert(sizeof(Line) == 64, "a line is one cache line");

}  // namespace

extern "C" void chase_lines(const void *const *in, void *const *out, int64_t n, int64_t /*threads*/,
                            const int64_t *args) {
  const auto *lines = static_cast<const Line *>(in[0]);
  auto *where = static_cast<int64_t *>(out[0]);
  auto *sums = static_cast<int64_t *>(out[1]);
  const int64_t parts = args[0];
  int64_t at = 0;
  for (int64_t part = 0; part < parts; ++part) {
    int64_t sum = 0;
    for (int64_t i = 0; i < n / parts; ++i) {
      const Line &line = lines[at];
      sum += line.payload;
      at = line.next;
    }
    where[part] = at;
    sums[part] = sum;
  }
}
