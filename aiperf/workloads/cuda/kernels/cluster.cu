// One integer sum for every GROUP blocks of 256 threads, 4 * VECTORS values a thread: partial sums meet in global
// memory, or in the shared memory of the group's first block. And reads of a neighbour's shared memory.
// Defines: N (elements, a multiple of 1024 * VECTORS * GROUP), GROUP (blocks; 2, 4 or 8), VECTORS (16-byte loads of a
// thread, all under way at once), STRIDE (for remote_read).

#include "async.cuh"

#ifndef GROUP
#define GROUP 8
#endif
#ifndef VECTORS
#define VECTORS 1
#endif
#ifndef STRIDE
#define STRIDE 1
#endif

constexpr unsigned THREADS = 256;
constexpr unsigned BLOCKS = N / (4 * VECTORS * THREADS);
static_assert(N % (4 * VECTORS * THREADS * GROUP) == 0, "whole groups of whole blocks");

__device__ int partials[BLOCKS];
// Blocks of a group that have written; wraps around to 0 with the last one.
__device__ unsigned arrived[BLOCKS / GROUP];

__device__ __forceinline__ int sum_of_warp(int sum) {
#pragma unroll
  for (int apart = 16; apart > 0; apart /= 2) sum += __shfl_down_sync(0xffffffffu, sum, apart);
  return sum;
}

// Thread 0 gets the sum of the block.
__device__ __forceinline__ int sum_of_block(const int* __restrict__ values) {
  __shared__ int sums[THREADS / 32];
  const int4* from = reinterpret_cast<const int4*>(values) + blockIdx.x * (VECTORS * THREADS) + threadIdx.x;
  int4 fours[VECTORS];
#pragma unroll
  for (unsigned v = 0; v < VECTORS; ++v) fours[v] = from[v * THREADS];
  int sum = 0;
#pragma unroll
  for (unsigned v = 0; v < VECTORS; ++v) sum += fours[v].x + fours[v].y + fours[v].z + fours[v].w;
  sum = sum_of_warp(sum);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x < 32) sum = sum_of_warp(threadIdx.x < THREADS / 32 ? sums[threadIdx.x] : 0);
  return sum;
}

// The last block of a group to arrive adds the group's partial sums: no second launch, no clearing.
extern "C" __global__ void __launch_bounds__(THREADS)
    partials_global(const int* __restrict__ values, int* __restrict__ out) {
  const int sum = sum_of_block(values);
  const unsigned group = blockIdx.x / GROUP;
  if (threadIdx.x != 0) return;
  atomicExch(&partials[blockIdx.x], sum);
  __threadfence();
  if (atomicInc(&arrived[group], GROUP - 1) != GROUP - 1) return;
  __threadfence();
  int total = 0;
  for (unsigned b = 0; b < GROUP; ++b) total += *(volatile int*)&partials[group * GROUP + b];
  out[group] = total;
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// A barrier of the first block counts the bytes that the others store there: only the thread that adds them up waits,
// and no fence is needed. The blocks meet once, while their loads are under way.
extern "C" __global__ void __cluster_dims__(GROUP, 1, 1) __launch_bounds__(THREADS)
    partials_dsmem(const int* __restrict__ values, int* __restrict__ out) {
  __shared__ int parts[GROUP];
  __shared__ Barrier all_here;
  const unsigned rank = rank_in_cluster();
  if (threadIdx.x == 0) {
    barrier_init(&all_here, 1);
    barriers_are_visible();
    expect_bytes(&all_here, sizeof parts);
  }
  // The first block must have started, and its barrier be ready, before anybody stores into it.
  __syncthreads();
  cluster_arrive();
  const int sum = sum_of_block(values);
  cluster_wait();
  if (threadIdx.x != 0) return;
  store_async(address_in(0, &parts[rank]), sum, address_in(0, &all_here));
  if (rank != 0) return;
  wait_for(&all_here, 0);
  int total = 0;
  for (unsigned b = 0; b < GROUP; ++b) total += parts[b];
  out[blockIdx.x / GROUP] = total;
}

// Every thread adds up the 1024 words of the next block of its cluster; neighbours in a warp read STRIDE words apart.
extern "C" __global__ void __cluster_dims__(GROUP, 1, 1) __launch_bounds__(THREADS)
    remote_read(const int* __restrict__ values, int* __restrict__ out) {
  constexpr unsigned WORDS = 4 * THREADS;
  static_assert(STRIDE >= 1 && STRIDE <= 33, "the stride must stay inside the words");
  // Stored twice in a row: no thread has to wrap around.
  __shared__ int words[2 * WORDS];
  for (unsigned i = threadIdx.x; i < WORDS; i += THREADS) {
    const int value = values[blockIdx.x * WORDS + i];
    words[i] = value;
    words[i + WORDS] = value;
  }
  cluster_barrier();
  const unsigned from = address_in((rank_in_cluster() + 1) % GROUP, words + threadIdx.x % 32 * STRIDE);
  int sum = 0;
#pragma unroll 16
  for (unsigned k = 0; k < WORDS; ++k) sum += load_remote(from + 4 * k);
  out[blockIdx.x * THREADS + threadIdx.x] = sum + (int)threadIdx.x;
  // Nobody leaves while a neighbour still reads.
  cluster_meeting();
}
#endif
