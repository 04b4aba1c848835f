// Tasks of 256 elements, STEPS dependent multiply-adds long: a launch for each, a block for each, or resident blocks
// that draw from a queue. And a queue of short elements, drawn thread by thread or block by block.
// And tasks of uneven length, dealt out beforehand or drawn from the queue. And items of uneven length, one for each
// thread or drawn by warps.
// Defines: N (elements, a multiple of 256), STEPS, POP (THREAD, WARP or BLOCK) and CHUNK (elements for each thread of
// the one who draws) for task_queue_short, SHORTEST (steps) and LONGEST (times as many) for the uneven tasks,
// SKEW (LISTING, BLOCKS or EVEN) for the uneven items.
// Every result is added to out, zero before, so that what is done twice shows.
// Threads of a block: 256.

#ifndef STEPS
#define STEPS 2000
#endif
#ifndef CHUNK
#define CHUNK 1
#endif
#define THREAD 1
#define WARP 2
#define BLOCK 3
#define LISTING 1
#define BLOCKS 2
#define EVEN 3
#ifndef POP
#define POP BLOCK
#endif

constexpr unsigned THREADS = 256;
constexpr unsigned TASKS = N / THREADS;
static_assert(N % THREADS == 0, "whole tasks");

// Both are 0 between launches: the first wraps around or is put back by the last block to finish, the second wraps.
__device__ unsigned next_task = 0;
__device__ unsigned finished_blocks = 0;
// How many launches of a round each thread of one_task has seen; 0 between rounds.
__device__ unsigned launches_seen[THREADS];

__device__ __forceinline__ float work(float x) {
#pragma unroll 8
  for (int step = 0; step < STEPS; ++step) x = fmaf(x, 0.999f, 0.001f);
  return x;
}

// ptx: begin
// Atomic, since two who do one task at one time would both store the same sum. In PTX: nvcc turns atomicAdd into a
// reduction, except in kernels with a fence (only the queues have one), where it returns the old value; the sides would
// differ.
__device__ __forceinline__ void add_result(float* __restrict__ out, unsigned i, float result) {
  asm volatile("red.global.add.f32 [%0], %1;" ::"l"(out + i), "f"(result));
}
// ptx: end

__device__ __forceinline__ void run_task(unsigned task, const float* __restrict__ values, float* __restrict__ out) {
  const unsigned i = task * THREADS + threadIdx.x;
  add_result(out, i, work(values[i]));
}

// Every block passes here after it has seen that nothing is left.
__device__ __forceinline__ void last_block_resets() {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    if (atomicInc(&finished_blocks, gridDim.x - 1) == gridDim.x - 1) atomicExch(&next_task, 0u);
  }
}

// One launch, one task: each thread counts the launches of a round for itself. They follow one another in a stream, so
// that it takes neither an atomic nor a barrier, which a launch that is told its task would not have either.
extern "C" __global__ void __launch_bounds__(THREADS)
    one_task(const float* __restrict__ values, float* __restrict__ out) {
  const unsigned task = launches_seen[threadIdx.x];
  launches_seen[threadIdx.x] = (task + 1) % TASKS;
  run_task(task, values, out);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    block_each(const float* __restrict__ values, float* __restrict__ out) {
  run_task(blockIdx.x, values, out);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    task_queue(const float* __restrict__ values, float* __restrict__ out) {
  __shared__ unsigned task;
  while (true) {
    if (threadIdx.x == 0) task = atomicAdd(&next_task, 1u);
    __syncthreads();
    const unsigned mine = task;
    // Nobody may overwrite task before everybody has read it.
    __syncthreads();
    if (mine >= TASKS) break;
    run_task(mine, values, out);
  }
  last_block_resets();
}

extern "C" __global__ void __launch_bounds__(THREADS)
    task_queue_short(const float* __restrict__ values, float* __restrict__ out) {
#if POP == THREAD
  for (unsigned i = atomicAdd(&next_task, (unsigned)CHUNK); i < N; i = atomicAdd(&next_task, (unsigned)CHUNK))
    for (unsigned e = 0; e < CHUNK && i + e < N; ++e) add_result(out, i + e, work(values[i + e]));
#elif POP == WARP
  while (true) {
    unsigned first = 0;
    if (threadIdx.x % 32 == 0) first = atomicAdd(&next_task, 32u * CHUNK);
    first = __shfl_sync(0xffffffffu, first, 0);
    if (first >= N) break;
    for (unsigned e = 0; e < CHUNK; ++e) {
      const unsigned i = first + e * 32 + threadIdx.x % 32;
      if (i < N) add_result(out, i, work(values[i]));
    }
  }
#else
  __shared__ unsigned drawn;
  while (true) {
    if (threadIdx.x == 0) drawn = atomicAdd(&next_task, THREADS * CHUNK);
    __syncthreads();
    const unsigned first = drawn;
    __syncthreads();
    if (first >= N) break;
    for (unsigned e = 0; e < CHUNK; ++e) {
      const unsigned i = first + e * THREADS + threadIdx.x;
      if (i < N) add_result(out, i, work(values[i]));
    }
  }
#endif
  last_block_resets();
}

#ifdef SHORTEST
// Steps of a task: SHORTEST / spread, but at most LONGEST times as many: a heavy tail of a spread drawn evenly from 0 to
// 1, or tasks that are alike where LONGEST is 1.
__device__ __forceinline__ unsigned steps_of(float spread) {
  return (unsigned)(SHORTEST / fmaxf(spread, 1.0f / LONGEST));
}

__device__ __forceinline__ void run_uneven(unsigned task, const float* __restrict__ spread,
                                           const float* __restrict__ values, float* __restrict__ out) {
  const unsigned i = task * THREADS + threadIdx.x, steps = steps_of(spread[task]);
  float x = values[i];
#pragma unroll 8
  for (unsigned step = 0; step < steps; ++step) x = fmaf(x, 0.999f, 0.001f);
  add_result(out, i, x);
}

// Block b takes the tasks b, b + gridDim.x, ...: as many as any other block, or one less.
extern "C" __global__ void __launch_bounds__(THREADS)
    uneven_static(const float* __restrict__ spread, const float* __restrict__ values, float* __restrict__ out) {
  for (unsigned task = blockIdx.x; task < TASKS; task += gridDim.x) run_uneven(task, spread, values, out);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    uneven_queue(const float* __restrict__ spread, const float* __restrict__ values, float* __restrict__ out) {
  __shared__ unsigned task;
  while (true) {
    if (threadIdx.x == 0) task = atomicAdd(&next_task, 1u);
    __syncthreads();
    const unsigned mine = task;
    // Nobody may overwrite task before everybody has read it.
    __syncthreads();
    if (mine >= TASKS) break;
    run_uneven(mine, spread, values, out);
  }
  last_block_resets();
}
#endif

#ifdef SKEW
// The turns of item i: as many as its place among 256, which the warps of a block share out unevenly; alike in a block
// and uneven from block to block; or the same for all.
__device__ __forceinline__ unsigned turns_of(unsigned i) {
#if SKEW == LISTING
  return i % 256;
#elif SKEW == BLOCKS
  return i / 256 * 97 % 256;
#else
  return 127;
#endif
}

// Its value and, turn by turn, the sine and cosine of another angle. A call, so that both kernels run the same code.
__device__ __noinline__ float item(float value, unsigned turns) {
  float angle = value, sum = value;
  for (unsigned turn = 0; turn < turns; ++turn, angle += 0.5f) sum += sinf(angle) * cosf(angle);
  return sum;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    items_static(const float* __restrict__ values, float* __restrict__ out) {
  const unsigned i = blockIdx.x * THREADS + threadIdx.x;
  add_result(out, i, item(values[i], turns_of(i)));
}

extern "C" __global__ void __launch_bounds__(THREADS)
    items_queue(const float* __restrict__ values, float* __restrict__ out) {
  while (true) {
    unsigned first = 0;
    if (threadIdx.x % 32 == 0) first = atomicAdd(&next_task, 32u);
    first = __shfl_sync(0xffffffffu, first, 0);
    if (first >= N) break;
    const unsigned i = first + threadIdx.x % 32;
    add_result(out, i, item(values[i], turns_of(i)));
  }
  last_block_resets();
}
#endif
