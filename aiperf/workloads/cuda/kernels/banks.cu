// Every thread adds up the same 1024 words of shared memory, one by one; where its neighbour in the warp reads at that
// moment is all that differs. Integers: the sum does not depend on the order.
// Defines: N (threads, a multiple of 256), STRIDE (words between neighbours: 0..33; ways of conflict = gcd with 32),
// CONFLICT_FREE (wins over STRIDE and sets it to 1).

#ifdef CONFLICT_FREE
constexpr unsigned APART = 1;
#else
#ifndef STRIDE
#error "choose STRIDE=s or CONFLICT_FREE"
#endif
constexpr unsigned APART = STRIDE;
#endif

constexpr unsigned THREADS = 256;
constexpr unsigned WORDS = 1024;
static_assert(N % THREADS == 0 && APART <= 33, "whole blocks, and a stride that stays inside the words");

extern "C" __global__ void shared_read_loop(const int* __restrict__ values, int* __restrict__ out) {
  // Stored twice in a row: no thread has to wrap around.
  __shared__ int words[2 * WORDS];
  for (unsigned i = threadIdx.x; i < WORDS; i += THREADS) {
    const int value = values[blockIdx.x * WORDS + i];
    words[i] = value;
    words[i + WORDS] = value;
  }
  __syncthreads();
  // volatile: the compiler may neither merge four reads into one nor share them between iterations.
  const volatile int* from = words + threadIdx.x % 32 * APART;
  int sum = 0;
#pragma unroll 32
  for (unsigned k = 0; k < WORDS; ++k) sum += from[k];
  out[blockIdx.x * THREADS + threadIdx.x] = sum + (int)threadIdx.x;
}
