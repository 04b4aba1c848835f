// Rounds of a three-point mean within a block's shared memory, or within small groups of its threads.
// Defines: N (elements, a multiple of the block), ROUNDS, and per entry: shared_stencil BARRIERS (of a round, 2 to 7: 2
// are needed, one before values are overwritten and one before they are read; each other follows a load or a step of
// arithmetic, where nobody waits for anybody); group_stencil GROUP (threads that share; a
// power of two up to 32), WORK (most multiply-adds of a group between two rounds), BY_GROUP (only the group waits, not
// the block).

#ifdef BARRIERS
static_assert(BARRIERS >= 2 && BARRIERS <= 7, "two are needed, and five have a place");

template <int NUMBER>
__device__ __forceinline__ void needless() {
  if (NUMBER <= BARRIERS) __syncthreads();
}

extern "C" __global__ void shared_stencil(const float* __restrict__ x, float* __restrict__ out) {
  extern __shared__ float tile[];
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x, last = blockDim.x - 1;
  tile[threadIdx.x] = x[i];
  __syncthreads();
  for (int round = 0; round < ROUNDS; ++round) {
    const float left = tile[threadIdx.x ? threadIdx.x - 1 : 0];
    needless<3>();
    const float own = tile[threadIdx.x];
    needless<4>();
    const float right = tile[threadIdx.x < last ? threadIdx.x + 1 : last];
    needless<5>();
    const float sum = left + own + right;
    needless<6>();
    const float mean = sum * (1.0f / 3.0f);
    needless<7>();
    __syncthreads();
    tile[threadIdx.x] = mean;
    __syncthreads();
  }
  out[i] = tile[threadIdx.x];
}
#endif

#ifdef GROUP
static_assert(GROUP <= 32 && (GROUP & (GROUP - 1)) == 0, "a group lies within a warp");

__device__ __forceinline__ void wait_for_those_who_share() {
#ifdef BY_GROUP
  // What cooperative_groups::tiled_partition<GROUP>(block).sync() comes to.
  constexpr unsigned members = GROUP == 32 ? 0xffffffffu : (1u << GROUP) - 1;
  __syncwarp(members << (threadIdx.x % 32 / GROUP * GROUP));
#else
  __syncthreads();
#endif
}

// Multiply-adds of a warp in a round: 0 to WORK, never the same for all warps of a block.
__device__ __forceinline__ unsigned work_of(unsigned round) {
  return WORK ? (blockIdx.x * 7 + threadIdx.x / 32 * 5 + round * 3) % 8 * (WORK / 8) : 0;
}

extern "C" __global__ void group_stencil(const float* __restrict__ x, float* __restrict__ out) {
  extern __shared__ float tile[];
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  const unsigned first = threadIdx.x / GROUP * GROUP, last = first + GROUP - 1;
  tile[threadIdx.x] = x[i];
  wait_for_those_who_share();
  for (unsigned round = 0; round < ROUNDS; ++round) {
    const float left = tile[threadIdx.x > first ? threadIdx.x - 1 : first];
    const float right = tile[threadIdx.x < last ? threadIdx.x + 1 : last];
    float mean = (left + tile[threadIdx.x] + right) * (1.0f / 3.0f);
    const unsigned work = work_of(round);
#pragma unroll 1
    for (unsigned k = 0; k < work; ++k) mean = fmaf(mean, 0.9990234375f, 0.0009765625f);
    wait_for_those_who_share();
    tile[threadIdx.x] = mean;
    wait_for_those_who_share();
  }
  out[i] = tile[threadIdx.x];
}
#endif
