// What the sources of this folder need of PTX: asynchronous copies into shared memory, barriers that count them
// (mbarrier), thread-block clusters, programmatic dependent launch. Copies by threads work from compute capability 8.0
// on, the rest from 9.0.
#pragma once

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
  return (unsigned)__cvta_generic_to_shared(pointer);
}

// Copies BYTES (4, 8 or 16), or writes as many zeros when the source does not exist.
template <int BYTES>
__device__ __forceinline__ void copy_async(void* to, const void* from, bool exists = true) {
  static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "cp.async copies 4, 8 or 16 bytes");
  const int given = exists ? BYTES : 0;
  if (BYTES == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(given)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(to)), "l"(from), "n"(BYTES),
                 "r"(given)
                 : "memory");
  }
}
// Ends a group of copies of this thread.
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most LEFT groups of this thread, the latest, are under way.
template <int LEFT>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

// Before compute capability 9.0 these two are left out: the kernels are the same, one after the other.
__device__ __forceinline__ void let_next_start() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
// Returns when the kernel ahead has ended and its writes can be read.
__device__ __forceinline__ void wait_for_previous() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

typedef unsigned long long Barrier;

// Lanes that arrive when their warp has read. One is enough after __syncwarp; racecheck (2025.3) does not see what
// __syncwarp orders and takes the next copy for a race, so the sanitizer's build lets every lane arrive for itself.
#ifdef EVERY_LANE_ARRIVES
constexpr unsigned ARRIVALS = 32;
#else
constexpr unsigned ARRIVALS = 1;
#endif

__device__ __forceinline__ void barrier_init(Barrier* barrier, unsigned arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void arrive(Barrier* barrier) {
  asm volatile("{ .reg .b64 state;\n  mbarrier.arrive.shared.b64 state, [%0]; }" ::"r"(shared_address(barrier))
               : "memory");
}
// Arrives once the copies that this thread has started are there.
__device__ __forceinline__ void arrive_after_copies(Barrier* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}
// Waits for the end of the barrier's phase of this parity. On a fresh barrier parity 1 counts as ended.
__device__ __forceinline__ void wait_for(Barrier* barrier, unsigned parity) {
  unsigned done = 0;
  while (!done) {
    asm volatile(
        "{ .reg .pred ready;\n"
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
        // The hardware may let the thread sleep for a while.
        "  mbarrier.try_wait.parity.shared.b64 ready, [%1], %2;\n"
#else
        "  mbarrier.test_wait.parity.shared.b64 ready, [%1], %2;\n"
#endif
        "  selp.u32 %0, 1, 0, ready; }"
        : "=r"(done)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
  }
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
// To be called by the thread that initialised the barriers, before anybody else uses them.
__device__ __forceinline__ void barriers_are_visible() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
// Arrives, and lets the phase end only when that many bytes have been copied too.
__device__ __forceinline__ void expect_bytes(Barrier* barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
}
// One thread starts the copy of a whole run of bytes (a multiple of 16, aligned to 16), counted by the barrier.
__device__ __forceinline__ void bulk_copy(void* to, const void* from, unsigned bytes, Barrier* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(to)),
               "l"(from), "r"(bytes), "r"(shared_address(barrier))
               : "memory");
}
// To the same place in every block of `mask`, counted by the barrier at the same place there.
__device__ __forceinline__ void bulk_multicast(void* to, const void* from, unsigned bytes, Barrier* barrier,
                                               unsigned short mask) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
      " [%0], [%1], %2, [%3], %4;" ::"r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(barrier)), "h"(mask)
      : "memory");
}

__device__ __forceinline__ unsigned rank_in_cluster() {
  unsigned rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
// Orders time, not memory; barriers that were made visible before it can be used after it.
__device__ __forceinline__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory"); }
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
__device__ __forceinline__ void cluster_meeting() {
  cluster_arrive();
  cluster_wait();
}
// What was written before it can be read after it; its fence is one of the whole GPU.
__device__ __forceinline__ void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
  cluster_wait();
}
// Address, for the two functions below, of what lies at the same place in the shared memory of another block.
__device__ __forceinline__ unsigned address_in(unsigned rank, const void* pointer) {
  unsigned address;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address(pointer)), "r"(rank));
  return address;
}
__device__ __forceinline__ int load_remote(unsigned address) {
  int value;
  asm volatile("ld.shared::cluster.s32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
  return value;
}
// Copies a word there and counts its bytes at a barrier of the same block, which alone says that it came: no fence.
__device__ __forceinline__ void store_async(unsigned address, int value, unsigned barrier) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.s32 [%0], %1, [%2];" ::"r"(address),
               "r"(value), "r"(barrier)
               : "memory");
}
// Tells a loader that this thread has read what it must: nothing was written, so no fence of the whole GPU is asked for
// (arrive.release.cluster would mean one for each arrival).
__device__ __forceinline__ void arrive_in(unsigned rank, Barrier* barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(address_in(rank, barrier)) : "memory");
}
#endif
