// The ITEMS elements of a thread, a block's width apart, of the N that the grid covers.
#pragma once

// Calls use(i) for each. A block that lies inside as a whole asks nothing of the single elements, so that the compiler
// can start all loads of a thread before its first store, where no pointer forbids it.
template <class Use>
__device__ __forceinline__ void for_items(Use use) {
  const unsigned from = blockIdx.x * (blockDim.x * ITEMS), first = from + threadIdx.x;
  if (from + blockDim.x * ITEMS <= N) {
#pragma unroll
    for (int e = 0; e < ITEMS; ++e) use(first + e * blockDim.x);
  } else {
    for (int e = 0; e < ITEMS; ++e)
      if (first + e * blockDim.x < N) use(first + e * blockDim.x);
  }
}
