// A barrier of a whole resident grid, as cooperative groups have it. A cooperative launch makes sure that it ends.
#pragma once

// Block 0 adds what is missing to half the range, the others one each: the top bit flips with the last to come. The
// count starts at 0.
__device__ __forceinline__ void grid_barrier(unsigned* state) {
  __syncthreads();
  if (threadIdx.x == 0) {
    constexpr unsigned flip = 0x80000000u;
    __threadfence();
    const unsigned before = atomicAdd(state, blockIdx.x == 0 ? flip - (gridDim.x - 1) : 1u);
    while (((before ^ *(volatile unsigned*)state) & flip) == 0) {
    }
    __threadfence();
  }
  __syncthreads();
}
