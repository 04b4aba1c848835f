// A stream that is read once beside a table that is read again and again: where the stream may displace the table from
// the L1 (HINT), and how much of the multiprocessor's memory is L1 (carveout).
// Defines: N (elements of the stream, a multiple of 4), TABLE (entries, a power of two), and per entry:
// stream_beside_table HINT (DEFAULT, CG or NO_ALLOCATE), READS (16-byte loads of a thread in a round) and LOOKUPS
// (look-ups of a thread in a round);
// tile_beside_table TILE_KIB (shared memory of a block).

#define DEFAULT 0
#define CG 1
#define NO_ALLOCATE 2

static_assert((TABLE & (TABLE - 1)) == 0, "TABLE must be a power of two");

__device__ __forceinline__ unsigned mixed(unsigned bits) {
  bits ^= bits >> 16;
  bits *= 0x7feb352du;
  bits ^= bits >> 15;
  return bits;
}

#ifdef HINT
// ptx: begin
// No volatile: the loads of a thread may be under way together.
__device__ __forceinline__ int4 load_once(const int4* from) {
  int4 four;
#if HINT == CG
  asm("ld.global.cg.v4.s32 {%0, %1, %2, %3}, [%4];"
      : "=r"(four.x), "=r"(four.y), "=r"(four.z), "=r"(four.w)
      : "l"(from));
#elif HINT == NO_ALLOCATE
  asm("ld.global.nc.L1::no_allocate.L2::256B.v4.s32 {%0, %1, %2, %3}, [%4];"
      : "=r"(four.x), "=r"(four.y), "=r"(four.z), "=r"(four.w)
      : "l"(from));
#else
  asm("ld.global.v4.s32 {%0, %1, %2, %3}, [%4];"
      : "=r"(four.x), "=r"(four.y), "=r"(four.z), "=r"(four.w)
      : "l"(from));
#endif
  return four;
}
// ptx: end

// The look-ups wait for the loads of their round; the sum of a thread is all that it writes.
extern "C" __global__ void stream_beside_table(const int4* __restrict__ stream, const int* __restrict__ table,
                                               int* __restrict__ out) {
  const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
  unsigned sum = 0;
  for (unsigned first = thread; first < N / 4; first += READS * threads) {
    int4 fours[READS];
#pragma unroll
    for (unsigned r = 0; r < READS; ++r)
      fours[r] = first + r * threads < N / 4 ? load_once(stream + first + r * threads) : int4{0, 0, 0, 0};
    unsigned key = 0;
#pragma unroll
    for (unsigned r = 0; r < READS; ++r) key = key * 31 + (unsigned)(fours[r].x ^ fours[r].y ^ fours[r].z ^ fours[r].w);
#pragma unroll
    for (unsigned look = 0; look < LOOKUPS; ++look)
      sum += (unsigned)table[mixed(key + thread + look * 0x9e3779b9u) & (TABLE - 1)];
  }
  out[thread] = (int)sum;
}
#endif

#ifdef TILE_KIB
// A tile of the stream in shared memory; every element with its mirror image and what they find in the table.
extern "C" __global__ void tile_beside_table(const int* __restrict__ stream, const int* __restrict__ table,
                                             int* __restrict__ out) {
  extern __shared__ int held[];
  constexpr unsigned WORDS = TILE_KIB * 256;
  static_assert(N % WORDS == 0, "whole tiles");
  const unsigned long long first = (unsigned long long)blockIdx.x * WORDS;
  const int4* from = reinterpret_cast<const int4*>(stream + first);
#pragma unroll 4
  for (unsigned i = threadIdx.x; i < WORDS / 4; i += blockDim.x) reinterpret_cast<int4*>(held)[i] = from[i];
  __syncthreads();
#pragma unroll 4
  for (unsigned i = threadIdx.x; i < WORDS; i += blockDim.x) {
    const unsigned key = (unsigned)held[i] * 31 + (unsigned)held[WORDS - 1 - i];
    out[first + i] = held[i] + table[mixed(key) & (TABLE - 1)];
  }
}
#endif
