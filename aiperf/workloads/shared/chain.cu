// y[i] = x[i] after `rounds` steps of x <- mul * x + inc (mod 2^32), in several shapes of kernel; the length of a launch is
// set by `rounds`, and every word of the input decides its word of the output. mul and inc are arguments, so that the
// compiler cannot fold steps together. Define: TILE (words per tile of the tiled entries, a multiple of 128).

#ifndef TILE
#define TILE 1024
#endif
#define CLUSTER 4

typedef unsigned int word;

__device__ __forceinline__ word chained(word v, int rounds, word mul, word inc) {
#pragma unroll 8
  for (int r = 0; r < rounds; ++r) v = v * mul + inc;
  return v;
}

extern "C" __global__ void chain(const word* __restrict__ x, word* __restrict__ y, long long n, int rounds, word mul,
                                 word inc) {
  const long long stride = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride)
    y[i] = chained(x[i], rounds, mul, inc);
}

// The sum of all words, for reading a buffer as fast as its memory allows; *y is zeroed by the caller.
extern "C" __global__ void total(const uint4* __restrict__ x, unsigned long long* __restrict__ y, long long n) {
  const long long stride = (long long)gridDim.x * blockDim.x;
  unsigned long long sum = 0;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
    const uint4 v = x[i];
    sum += (unsigned long long)v.x + v.y + v.z + v.w;
  }
  for (int step = 16; step; step /= 2) sum += __shfl_down_sync(0xffffffffu, sum, step);
  if (threadIdx.x % 32 == 0) atomicAdd(y, sum);
}

// The same sum with each 16 bytes taken from a scattered place: i * odd (mod n) visits every place once; n is a power of 2.
extern "C" __global__ void total_scattered(const uint4* __restrict__ x, unsigned long long* __restrict__ y, long long n) {
  const long long stride = (long long)gridDim.x * blockDim.x;
  unsigned long long sum = 0;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
    const uint4 v = x[((unsigned long long)i * 2654435761ull) & (unsigned long long)(n - 1)];
    sum += (unsigned long long)v.x + v.y + v.z + v.w;
  }
  for (int step = 16; step; step /= 2) sum += __shfl_down_sync(0xffffffffu, sum, step);
  if (threadIdx.x % 32 == 0) atomicAdd(y, sum);
}

// The same sum as the first, and every word replaced by its complement: the next time puts it back.
extern "C" __global__ void total_complemented(uint4* __restrict__ x, unsigned long long* __restrict__ y, long long n) {
  const long long stride = (long long)gridDim.x * blockDim.x;
  unsigned long long sum = 0;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
    uint4 v = x[i];
    sum += (unsigned long long)v.x + v.y + v.z + v.w;
    v.x = ~v.x, v.y = ~v.y, v.z = ~v.z, v.w = ~v.w;
    x[i] = v;
  }
  for (int step = 16; step; step /= 2) sum += __shfl_down_sync(0xffffffffu, sum, step);
  if (threadIdx.x % 32 == 0) atomicAdd(y, sum);
}

#ifdef __CUDACC__
// One warp computes a whole tile from shared memory; four words at a time hide the latency of the multiply-add.
__device__ __forceinline__ void compute_tile(const word* from, word* to, int lane, int lanes, int rounds, word mul,
                                             word inc) {
  for (int e = lane; e < TILE; e += 4 * lanes) {
    word v[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) v[k] = from[e + k * lanes];
#pragma unroll 4
    for (int r = 0; r < rounds; ++r) {
#pragma unroll
      for (int k = 0; k < 4; ++k) v[k] = v[k] * mul + inc;
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) to[e + k * lanes] = v[k];
  }
}

// All threads load the next tile into one buffer while they compute the one before from the other.
extern "C" __global__ void chain_double_buffer(const word* __restrict__ x, word* __restrict__ y, long long n, int rounds,
                                               word mul, word inc) {
  __shared__ word in[2][TILE];
  const long long tiles = (n + TILE - 1) / TILE;
  int phase = 0;
  for (long long tile = blockIdx.x; tile < tiles + gridDim.x; tile += gridDim.x, phase ^= 1) {
    for (int e = threadIdx.x; e < TILE; e += blockDim.x) {
      const long long i = tile * TILE + e;
      if (tile < tiles && i < n) in[phase][e] = x[i];
    }
    const long long past = tile - gridDim.x;
    for (int e = threadIdx.x; past >= 0 && e < TILE; e += blockDim.x) {
      const long long i = past * TILE + e;
      if (i < n) y[i] = chained(in[phase ^ 1][e], rounds, mul, inc);
    }
    __syncthreads();
  }
}

// Three warps, three jobs: while the first loads tile k, the second computes tile k - 1 and the third stores tile k - 2.
extern "C" __global__ void chain_warp_specialized(const word* __restrict__ x, word* __restrict__ y, long long n,
                                                  int rounds, word mul, word inc) {
  __shared__ word in[2][TILE];
  __shared__ word out[2][TILE];
  const int role = threadIdx.x / 32, lane = threadIdx.x % 32;
  const long long tiles = (n + TILE - 1) / TILE;
  const long long mine = blockIdx.x < tiles ? (tiles - blockIdx.x + gridDim.x - 1) / gridDim.x : 0;
  for (long long k = 0; k < mine + 2; ++k) {
    if (role == 0 && k < mine) {
      const long long first = (blockIdx.x + k * gridDim.x) * TILE;
      for (int e = lane; e < TILE; e += 32) in[k % 2][e] = first + e < n ? x[first + e] : 0;
    } else if (role == 1 && k >= 1 && k <= mine) {
      compute_tile(in[(k - 1) % 2], out[(k - 1) % 2], lane, 32, rounds, mul, inc);
    } else if (role == 2 && k >= 2) {
      const long long first = (blockIdx.x + (k - 2) * gridDim.x) * TILE;
      for (int e = lane; e < TILE; e += 32)
        if (first + e < n) y[first + e] = out[k % 2][e];
    }
    __syncthreads();
  }
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
__device__ __forceinline__ word neighbours(const word* mine, unsigned rank) {
  word value;
  unsigned local = (unsigned)__cvta_generic_to_shared(mine), remote;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(local), "r"(rank));
  asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(remote) : "memory");
  return value;
}

__device__ __forceinline__ void meet_cluster() {
  asm volatile("barrier.cluster.arrive.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
}

// The same three jobs in a cluster of four blocks: each block loads its quarter of a group of tiles, and computes and stores
// the quarter that its neighbour loaded, read from the neighbour's shared memory.
extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1)
    chain_warp_specialized_cluster(const word* __restrict__ x, word* __restrict__ y, long long n, int rounds, word mul,
                                   word inc) {
  __shared__ word in[2][TILE];
  __shared__ word out[2][TILE];
  const int role = threadIdx.x / 32, lane = threadIdx.x % 32;
  const unsigned rank = blockIdx.x % CLUSTER, other = (rank + 1) % CLUSTER;
  const long long cluster = blockIdx.x / CLUSTER, clusters = gridDim.x / CLUSTER;
  const long long groups = (n + CLUSTER * TILE - 1) / (CLUSTER * TILE);
  const long long mine = cluster < groups ? (groups - cluster + clusters - 1) / clusters : 0;
  for (long long k = 0; k < mine + 2; ++k) {
    if (role == 0 && k < mine) {
      const long long first = ((cluster + k * clusters) * CLUSTER + rank) * TILE;
      for (int e = lane; e < TILE; e += 32) in[k % 2][e] = first + e < n ? x[first + e] : 0;
    } else if (role == 1 && k >= 1 && k <= mine) {
      word* to = out[(k - 1) % 2];
      for (int e = lane; e < TILE; e += 32) to[e] = neighbours(in[(k - 1) % 2] + e, other);
      __syncwarp();
      compute_tile(to, to, lane, 32, rounds, mul, inc);
    } else if (role == 2 && k >= 2) {
      const long long first = ((cluster + (k - 2) * clusters) * CLUSTER + other) * TILE;
      for (int e = lane; e < TILE; e += 32)
        if (first + e < n) y[first + e] = out[k % 2][e];
    }
    __syncwarp();
    meet_cluster();
  }
}
#endif
#endif
