// matmul: C = A B of n x n float32, row-major, ROWS x WIDTH elements of C at a time in registers.
//
// entry matmul: every element of C is written anew.
//   ROWS, WIDTH  rows and columns of a block of C
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

namespace {

// C[0:ROWS, 0:WIDTH] (+)= A[0:ROWS, first:last] B[first:last, 0:WIDTH]
void block(const float *__restrict a, const float *__restrict b, float *__restrict c, int64_t n, int64_t first,
           int64_t last) {
  float sums[ROWS][WIDTH] = {};
  for (int64_t k = first; k < last; ++k)
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) {
      const float factor = a[r * n + k];
#pragma GCC unroll 32
      for (int w = 0; w < WIDTH; ++w) sums[r][w] += factor * b[k * n + w];
    }
  for (int r = 0; r < ROWS; ++r)
    for (int w = 0; w < WIDTH; ++w) c[r * n + w] = first ? c[r * n + w] + sums[r][w] : sums[r][w];
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
