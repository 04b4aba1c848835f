// ROUNDS barriers of a block, of a cluster or of the whole grid, one after the other. In every EVERY-th round a block
// leaves a number and, after the barrier, reads the one that the next block of its scope left: what it adds up shows that
// each of them ordered these writes.
// Defines: N (elements: blocks of 256 threads, one each), ROUNDS, EVERY, CLUSTER (blocks of a cluster).

#include "async.cuh"
#include "grid.cuh"

#ifndef EVERY
#define EVERY 64
#endif

constexpr unsigned THREADS = 256;
static_assert(N % THREADS == 0 && ROUNDS % EVERY == 0, "whole blocks, and whole runs of rounds");

// What a block leaves in a round; a number of an earlier round is another one.
__device__ __forceinline__ int token(int key, unsigned round) { return key ^ (int)(round * 2654435761u); }

// Calls leave(slot, number), meet() and read(slot) of a scope. Two slots take turns: who writes one again has passed the
// barrier of the round between, before which everybody had read it.
template <class Leave, class Meet, class Read>
__device__ __forceinline__ unsigned rounds(int key, Leave leave, Meet meet, Read read) {
  unsigned sum = 0;
#pragma unroll 1
  for (unsigned run = 0; run < ROUNDS / EVERY; ++run) {
    const unsigned slot = run % 2;
    if (threadIdx.x == 0) leave(slot, token(key, run));
    meet();
    // The last thread of the block reads: a barrier must have ordered more than one thread's own writes.
    if (threadIdx.x == THREADS - 1) sum += read(slot);
#pragma unroll 1
    for (unsigned more = 1; more < EVERY; ++more) meet();
  }
  return sum;
}

__device__ __forceinline__ void write_out(const int* __restrict__ values, int* __restrict__ out,
                                          unsigned sum) {
  const unsigned i = blockIdx.x * THREADS + threadIdx.x;
  out[i] = (int)(values[i] + sum);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    block_barriers(const int* __restrict__ values, const int* __restrict__ key, int* __restrict__ out) {
  __shared__ int slots[2];
  const unsigned sum = rounds(
      key[0], [&](unsigned slot, int number) { *(volatile int*)&slots[slot] = number; }, [] { __syncthreads(); },
      [&](unsigned slot) { return *(volatile int*)&slots[slot]; });
  write_out(values, out, sum);
}

// Slots of the grid: two for each block.
extern "C" __global__ void __launch_bounds__(THREADS)
    grid_barriers(const int* __restrict__ values, const int* __restrict__ key, int* __restrict__ out, int* slots,
                  unsigned* state) {
  const unsigned next = (blockIdx.x + 1) % gridDim.x;
  const unsigned sum = rounds(
      key[0], [&](unsigned slot, int number) { *(volatile int*)(slots + 2 * blockIdx.x + slot) = number; },
      [&] { grid_barrier(state); }, [&](unsigned slot) { return *(volatile int*)(slots + 2 * next + slot); });
  write_out(values, out, sum);
}

#if defined(CLUSTER) && (!defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900)
extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS)
    cluster_barriers(const int* __restrict__ values, const int* __restrict__ key, int* __restrict__ out) {
  __shared__ int slots[2];
  const unsigned next = address_in((rank_in_cluster() + 1) % CLUSTER, slots);
  const unsigned sum = rounds(
      key[0], [&](unsigned slot, int number) { *(volatile int*)&slots[slot] = number; }, [] { cluster_barrier(); },
      [&](unsigned slot) { return load_remote(next + 4 * slot); });
  // Nobody leaves while a neighbour may still read.
  cluster_meeting();
  write_out(values, out, sum);
}
#endif
