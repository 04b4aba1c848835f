// matmul: C = A B of n x n float32, row-major, ROWS x WIDTH elements of C at a time in registers.
//
// entry matmul: every element of C is written anew.
//   ROWS, WIDTH  rows and columns of a block of C, columns by eights
//   DEPTH        products that a pass over C adds; 0, all of them in one pass
//   EDGES        1, what does not fill a whole block or pass is computed too; 0, it is forgotten
#include <cstdint>

#ifndef ROWS
#define ROWS 1
#endif
#ifndef WIDTH
#define WIDTH 8
#endif
#ifndef DEPTH
#define DEPTH 0
#endif
#ifndef EDGES
#define EDGES 1
#endif

static_assert(WIDTH % 8 == 0, "WIDTH is a multiple of 8");

namespace {

// As many floats as fill a vector register: told, because compilers choose badly among the loops of a block.
#ifdef __AVX__
constexpr int LANES = 8;
#else
constexpr int LANES = 4;
#endif
typedef float lanes __attribute__((vector_size(4 * LANES)));
// The same at any address of an array of floats.
typedef float unaligned_lanes __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

// C[0:ROWS, 0:WIDTH] (+)= A[0:ROWS, first:last] B[first:last, 0:WIDTH]
void block(const float *__restrict a, const float *__restrict b, float *__restrict c, int64_t n, int64_t first,
           int64_t last) {
  constexpr int vectors = WIDTH / LANES;
  lanes sums[ROWS][vectors] = {};
  for (int64_t k = first; k < last; ++k) {
    const unaligned_lanes *row = reinterpret_cast<const unaligned_lanes *>(b + k * n);
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < vectors; ++v) sums[r][v] += a[r * n + k] * row[v];
  }
  for (int r = 0; r < ROWS; ++r) {
    unaligned_lanes *row = reinterpret_cast<unaligned_lanes *>(c + r * n);
    for (int v = 0; v < vectors; ++v) row[v] = first ? row[v] + sums[r][v] : sums[r][v];
  }
}

// The same for a part of any size, row by row.
void rest(const float *__restrict a, const float *__restrict b, float *__restrict c, int64_t n, int64_t rows,
          int64_t width, int64_t first, int64_t last) {
  for (int64_t r = 0; r < rows; ++r) {
    if (!first)
      for (int64_t w = 0; w < width; ++w) c[r * n + w] = 0;
    for (int64_t k = first; k < last; ++k)
      for (int64_t w = 0; w < width; ++w) c[r * n + w] += a[r * n + k] * b[k * n + w];
  }
}

}  // namespace

extern "C" void matmul(const void *const *in, void *const *out, int64_t n, int64_t /*threads*/,
                       const int64_t * /*args*/) {
  const auto *a = static_cast<const float *>(in[0]);
  const auto *b = static_cast<const float *>(in[1]);
  auto *c = static_cast<float *>(out[0]);
  const int64_t depth = DEPTH ? DEPTH : n, whole_rows = n - n % ROWS, whole_width = n - n % WIDTH;
  for (int64_t first = 0; first < n; first += depth) {
    int64_t last = first + depth;
    if (last > n) {
      if (!EDGES) break;
      last = n;
    }
    for (int64_t j = 0; j < whole_width; j += WIDTH)
      for (int64_t i = 0; i < whole_rows; i += ROWS) block(a + i * n, b + j, c + i * n + j, n, first, last);
    if (!EDGES) continue;
    rest(a, b + whole_width, c + whole_width, n, whole_rows, n - whole_width, first, last);
    rest(a + whole_rows * n, b, c + whole_rows * n, n, n - whole_rows, n, first, last);
  }
}
