// A tile that every block of a cluster needs, REUSE times: in the shared memory of the first block, from which the others
// read it each time or copy it once, loaded by each block for itself, or multicast by the copy engine into each block.
// Sums of whole numbers, weighted by rank.
// Defines: N (words, a multiple of WORDS), WORDS (of a tile, a power of two of 1024 or more), CLUSTER (blocks of a
// cluster), REUSE. Blocks of 256 threads, CLUSTER for each tile. Needs compute capability 9.0.

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#error "shared_tile.cu needs compute capability 9.0"
#endif
#include "async.cuh"

constexpr unsigned THREADS = 256;
constexpr unsigned FOURS = WORDS / 4;
static_assert((WORDS & (WORDS - 1)) == 0 && WORDS >= 4 * THREADS && N % WORDS == 0, "whole tiles for all threads");

template <bool REMOTE>
__device__ __forceinline__ int4 load_four(unsigned address) {
  int4 four;
  // volatile: what was read once is read again.
  if (REMOTE) {
    asm volatile("ld.shared::cluster.v4.s32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(four.x), "=r"(four.y), "=r"(four.z), "=r"(four.w)
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ld.shared.v4.s32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(four.x), "=r"(four.y), "=r"(four.z), "=r"(four.w)
                 : "r"(address)
                 : "memory");
  }
  return four;
}

// Every pass starts at another place; a warp always reads 512 bytes in a row, or two ends of the tile.
template <bool REMOTE>
__device__ __forceinline__ void sum_up(unsigned tile, unsigned rank, int* __restrict__ out) {
  unsigned sum = 0;
#pragma unroll 1
  for (unsigned pass = 0; pass < REUSE; ++pass) {
#pragma unroll
    for (unsigned k = 0; k < FOURS; k += THREADS) {
      const int4 four = load_four<REMOTE>(tile + 16 * ((threadIdx.x + 8 * pass + k) % FOURS));
      sum += (unsigned)four.x + 3 * (unsigned)four.y + 5 * (unsigned)four.z + 7 * (unsigned)four.w;
    }
  }
#pragma unroll
  for (int apart = 16; apart > 0; apart /= 2) sum += __shfl_down_sync(0xffffffffu, sum, apart);
  if (threadIdx.x % 32 == 0) out[blockIdx.x * (THREADS / 32) + threadIdx.x / 32] = (int)(sum * (rank + 1));
}

// All threads of the block call it, once.
__device__ __forceinline__ void load_tile(int* tile, Barrier* here, const int* __restrict__ values) {
  if (threadIdx.x == 0) {
    barrier_init(here, 1);
    barriers_are_visible();
    expect_bytes(here, WORDS * sizeof(int));
    bulk_copy(tile, values + (unsigned long long)(blockIdx.x / CLUSTER) * WORDS, WORDS * sizeof(int), here);
  }
  __syncthreads();
  wait_for(here, 0);
}

extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS)
    read_from_leader(const int* __restrict__ values, int* __restrict__ out) {
  __shared__ __align__(128) int tile[WORDS];
  __shared__ Barrier here;
  const unsigned rank = rank_in_cluster();
  if (rank == 0) load_tile(tile, &here, values);
  // The tile is there for all.
  cluster_barrier();
  sum_up<true>(address_in(0, tile), rank, out);
  // The first block stays while others read.
  cluster_meeting();
}

// As above, but the others read the leader's tile once, into their own shared memory.
extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS)
    read_fetched_copy(const int* __restrict__ values, int* __restrict__ out) {
  __shared__ __align__(128) int tile[WORDS];
  __shared__ Barrier here;
  const unsigned rank = rank_in_cluster();
  if (rank == 0) load_tile(tile, &here, values);
  cluster_barrier();
  if (rank != 0) {
    const unsigned leaders = address_in(0, tile);
    int4 fetched[FOURS / THREADS];  // all on their way before the first is stored
#pragma unroll
    for (unsigned k = 0; k < FOURS / THREADS; ++k)
      fetched[k] = load_four<true>(leaders + 16 * (threadIdx.x + k * THREADS));
#pragma unroll
    for (unsigned k = 0; k < FOURS / THREADS; ++k)
      reinterpret_cast<int4*>(tile)[threadIdx.x + k * THREADS] = fetched[k];
    __syncthreads();
  }
  sum_up<false>(shared_address(tile), rank, out);
  cluster_meeting();
}

// No cluster: every block loads the tile itself, CLUSTER blocks in a row the same one.
extern "C" __global__ void __launch_bounds__(THREADS)
    read_loaded_copy(const int* __restrict__ values, int* __restrict__ out) {
  __shared__ __align__(128) int tile[WORDS];
  __shared__ Barrier here;
  load_tile(tile, &here, values);
  sum_up<false>(shared_address(tile), blockIdx.x % CLUSTER, out);
}

extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS)
    read_own_copy(const int* __restrict__ values, int* __restrict__ out) {
  __shared__ __align__(128) int tile[WORDS];
  __shared__ Barrier here;
  const unsigned rank = rank_in_cluster();
  if (threadIdx.x == 0) {
    barrier_init(&here, 1);
    barriers_are_visible();
    expect_bytes(&here, sizeof tile);
  }
  __syncthreads();
  // All barriers are ready for the bytes.
  cluster_meeting();
  if (rank == 0 && threadIdx.x == 0)
    bulk_multicast(tile, values + (unsigned long long)(blockIdx.x / CLUSTER) * WORDS, sizeof tile, &here,
                   (1u << CLUSTER) - 1);
  wait_for(&here, 0);
  sum_up<false>(shared_address(tile), rank, out);
  cluster_meeting();
}
