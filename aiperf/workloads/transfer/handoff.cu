// One GPU makes a payload of words and another adds it to a total, round after round. A payload differs in every word from
// those of other rounds, and the total depends on their order, so that a stale or torn payload shows in it.
//
// produce and consume are launched once a round by the host. produce_and_put and consume_when_told are launched once for
// all rounds: each block of the first writes its share of the payload straight into one of two slots on the other GPU and
// then a number beside it; the same block there waits for that number, takes the share and says so by a number on the
// first GPU, which allows the slot to be written again. Numbers go on from launch to launch, `base` being the first.
// No more blocks than fit on both GPUs at once: a waiting block holds its place.

typedef unsigned int word;

// Cycles after which a block stops waiting and ends its launch, whose total is then wrong: two seconds or so.
#define PATIENCE (1ll << 32)

__device__ __forceinline__ word made(word source, word round) { return (source + round) * 1664525u + round; }

__device__ __forceinline__ uint4 made(uint4 source, word round) {
  return make_uint4(made(source.x, round), made(source.y, round), made(source.z, round), made(source.w, round));
}

// The total starts anew in round 0.
__device__ __forceinline__ void take(const uint4* payload, uint4* total, word i, word round) {
  const uint4 got = __ldcg(payload + i), had = round ? total[i] : make_uint4(0, 0, 0, 0);
  total[i] = make_uint4(had.x * 5 + got.x, had.y * 5 + got.y, had.z * 5 + got.z, had.w * 5 + got.w);
}

extern "C" __global__ void produce(const uint4* source, uint4* payload, word n, word round) {
  for (word i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    payload[i] = made(source[i], round);
}

extern "C" __global__ void consume(const uint4* payload, uint4* total, word n, word round) {
  for (word i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    take(payload, total, i, round);
}

// Whether the number at `at` came, for the whole block; what the other GPU wrote before it can then be read.
__device__ __forceinline__ bool came(const volatile word* at, word number) {
  __shared__ int late;
  if (threadIdx.x == 0) {
    const long long began = clock64();
    late = 0;
    while ((int)(*at - number) < 0 && !late) late = clock64() - began > PATIENCE;
    __threadfence_system();
  }
  __syncthreads();
  return !late;
}

// Write a number once all threads of the block have come here, after all that they have written.
__device__ __forceinline__ void tell(volatile word* at, word number) {
  __threadfence_system();
  __syncthreads();
  if (threadIdx.x == 0) *at = number;
}

extern "C" __global__ void produce_and_put(const uint4* source, uint4* slots, volatile word* arrived,
                                           const volatile word* taken, word n, word rounds, word base) {
  const word share = (n + gridDim.x - 1) / gridDim.x, first = blockIdx.x * share;
  const word last = first + share < n ? first + share : n;
  for (word round = 0; round < rounds; ++round) {
    const word number = base + round;
    // The slot's last payload was that of two rounds ago.
    if (!came(taken + blockIdx.x, number - 2)) return;
    for (word i = first + threadIdx.x; i < last; i += blockDim.x) slots[number % 2 * n + i] = made(source[i], round);
    tell(arrived + blockIdx.x, number);
  }
}

extern "C" __global__ void consume_when_told(const uint4* slots, uint4* total, const volatile word* arrived,
                                             volatile word* taken, word n, word rounds, word base) {
  const word share = (n + gridDim.x - 1) / gridDim.x, first = blockIdx.x * share;
  const word last = first + share < n ? first + share : n;
  for (word round = 0; round < rounds; ++round) {
    const word number = base + round;
    if (!came(arrived + blockIdx.x, number)) return;
    for (word i = first + threadIdx.x; i < last; i += blockDim.x) take(slots + number % 2 * n, total, i, round);
    tell(taken + blockIdx.x, number);
  }
}
