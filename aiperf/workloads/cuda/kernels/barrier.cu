// Rounds of a three-point mean within a block's shared memory. Defines: N (elements, a multiple of the block), ROUNDS,
// BARRIERS (of a round: 2 are needed, one before values are overwritten and one before they are read).

extern "C" __global__ void shared_stencil(const float* __restrict__ x, float* __restrict__ out) {
  extern __shared__ float tile[];
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x, last = blockDim.x - 1;
  tile[threadIdx.x] = x[i];
  __syncthreads();
  for (int round = 0; round < ROUNDS; ++round) {
    const float left = tile[threadIdx.x ? threadIdx.x - 1 : 0];
    const float right = tile[threadIdx.x < last ? threadIdx.x + 1 : last];
    const float mean = (left + tile[threadIdx.x] + right) * (1.0f / 3.0f);
    __syncthreads();
    tile[threadIdx.x] = mean;
    __syncthreads();
#pragma unroll
    for (int more = 2; more < BARRIERS; ++more) __syncthreads();
  }
  out[i] = tile[threadIdx.x];
}
