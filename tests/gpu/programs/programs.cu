// Small programs of known GPU work, one by each name: programs NAME. Each makes a context of some 300 ms for kernels of
// microseconds to milliseconds. Where a program can, it prints what CUDA events say of its kernels, so that another
// clock than CUPTI's stands beside it.
#include <cooperative_groups.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_fp16.h>
#include <mma.h>
#include <nvtx3/nvToolsExt.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#define MUST(call) do { cudaError_t e = (call); if (e != cudaSuccess) { \
  fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(e)); exit(2); } } while (0)

constexpr int N = 1024, REPEATS = 20;

__global__ void matmul_naive(const float *a, const float *b, float *c) {
  int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
  float sum = 0;
  for (int k = 0; k < N; k++) sum += a[row * N + k] * b[k * N + col];
  c[row * N + col] = sum;
}

__global__ void matmul_tensor(const half *a, const half *b, float *c) {
  using namespace nvcuda::wmma;
  int warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32, row = warp / (N / 16) * 16, col = warp % (N / 16) * 16;
  fragment<matrix_a, 16, 16, 16, half, row_major> x;
  fragment<matrix_b, 16, 16, 16, half, row_major> y;
  fragment<accumulator, 16, 16, 16, float> sum;
  fill_fragment(sum, 0.0f);
  for (int k = 0; k < N; k += 16) {
    load_matrix_sync(x, a + row * N + k, N);
    load_matrix_sync(y, b + k * N + col, N);
    mma_sync(sum, x, y, sum);
  }
  store_matrix_sync(c + row * N + col, sum, N, mem_row_major);
}

__global__ void spin(long long cycles, int *out) {
  long long began = clock64();
  while (clock64() - began < cycles) {}
  if (out) out[blockIdx.x] = 1;
}

__global__ void add_one(float *x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] += 1.0f;
}

__global__ void uneven(float *x, int *next, int items, int dynamic) {
  // Item i costs i: dealt in blocks the last block has all of the long ones, taken one by one they spread.
  int worker = blockIdx.x, workers = gridDim.x;
  if (threadIdx.x) return;
  for (int n = 0, i = worker * (items / workers); dynamic || n < items / workers; n++, i++) {
    if (dynamic && (i = atomicAdd(next, 1)) >= items) return;
    float sum = 0;
    for (int k = 0; k < i; k++) sum += sinf(sum + k);
    x[i] = sum;
  }
}

__global__ void out_of_bounds(int *x) { x[(size_t)1 << 40] = 1; }

__global__ void grid_barrier(int *x) {
  cooperative_groups::this_grid().sync();
  x[0] = 1;
}

__global__ void cluster_rank(int *x) {
#if __CUDA_ARCH__ >= 900
  if (threadIdx.x == 0) x[blockIdx.x] = cooperative_groups::this_cluster().block_rank();
#endif
}

// The first launch of a kernel loads it, which events would count: each kernel was launched once before.
template <class Work> void timed(Work work, cudaStream_t stream = 0) {
  cudaEvent_t began, ended;
  float ms;
  MUST(cudaEventCreate(&began));
  MUST(cudaEventCreate(&ended));
  MUST(cudaEventRecord(began, stream));
  nvtxRangePushA("timed");
  work();
  nvtxRangePop();
  MUST(cudaEventRecord(ended, stream));
  MUST(cudaEventSynchronize(ended));
  MUST(cudaEventElapsedTime(&ms, began, ended));
  printf("events: %.2f us\n", 1000 * ms);
}

template <class T> T *room(size_t count) {
  T *found;
  MUST(cudaMalloc(&found, count * sizeof(T)));
  MUST(cudaMemset(found, 0, count * sizeof(T)));
  return found;
}

static int is(const char *name, const char *other) { return !strcmp(name, other); }

static void matmul(bool tensor) {
  float *c = room<float>(N * N);
  if (tensor) {
    half *a = room<half>(N * N), *b = room<half>(N * N);
    auto product = [&] { matmul_tensor<<<N / 16 * (N / 16) / 4, 128>>>(a, b, c); };
    product();
    timed([&] { for (int i = 0; i < REPEATS; i++) product(); });
  } else {
    float *a = room<float>(N * N), *b = room<float>(N * N);
    auto product = [&] { matmul_naive<<<dim3(N / 16, N / 16), dim3(16, 16)>>>(a, b, c); };
    product();
    timed([&] { for (int i = 0; i < REPEATS; i++) product(); });
  }
}

static void streams(int count, int kernels) {
  std::vector<cudaStream_t> each(count);
  for (auto &stream : each) MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  for (int i = 0; i < kernels; i++) spin<<<1, 32, 0, each[i % count]>>>(20000, nullptr);
  MUST(cudaDeviceSynchronize());
}

static void spins(int kernels) {
  for (int i = 0; i < kernels; i++) spin<<<1, 32>>>(20000, nullptr);
  MUST(cudaDeviceSynchronize());
}

// 10 kernels on the first GPU and 20 on the second: by this process, or by one process for each that sees no other.
static int two_gpus(const char *program, bool processes) {
  int bad = 0, status;
  for (int gpu = 0; gpu < 2; gpu++) {
    if (!processes) {
      MUST(cudaSetDevice(gpu));
      spins(10 * (gpu + 1));
    } else if (!fork()) {
      const char *all = getenv("CUDA_VISIBLE_DEVICES"), *rest = all ? strchr(all, ',') : nullptr;
      if (all && !rest) exit(3);
      std::string one = !all ? std::to_string(gpu) : gpu ? rest + 1 : std::string(all, rest);
      setenv("CUDA_VISIBLE_DEVICES", one.c_str(), 1);
      execl(program, program, gpu ? "spin-20" : "spin-10", (char *)0);
    }
  }
  while (processes && wait(&status) > 0) bad |= status;
  return bad != 0;
}

static void elementwise(bool graph) {
  const int n = 1 << 16, launches = 500;
  float *x = room<float>(n);
  cudaStream_t stream;
  MUST(cudaStreamCreate(&stream));
  if (!graph) {
    for (int i = 0; i < launches; i++) add_one<<<n / 256, 256, 0, stream>>>(x, n);
  } else {
    cudaGraph_t captured;
    cudaGraphExec_t ready;
    MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    for (int i = 0; i < launches / 10; i++) add_one<<<n / 256, 256, 0, stream>>>(x, n);
    MUST(cudaStreamEndCapture(stream, &captured));
    MUST(cudaGraphInstantiate(&ready, captured, 0));
    for (int i = 0; i < 10; i++) MUST(cudaGraphLaunch(ready, stream));
  }
  MUST(cudaStreamSynchronize(stream));
}

static void pipeline(bool overlapped) {
  // 16 chunks to the GPU, worked on, back; one stream with pageable memory, or four with pinned memory.
  const int chunks = 16, n = 1 << 20;
  float *host, *device = room<float>((size_t)chunks * n);
  if (overlapped) MUST(cudaMallocHost(&host, (size_t)chunks * n * 4));
  else host = (float *)calloc((size_t)chunks * n, 4);
  cudaStream_t each[4];
  for (auto &stream : each) MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  for (int i = 0; i < chunks; i++) {
    cudaStream_t stream = each[overlapped ? i % 4 : 0];
    float *from = host + (size_t)i * n, *to = device + (size_t)i * n;
    MUST(cudaMemcpyAsync(to, from, n * 4, cudaMemcpyHostToDevice, stream));
    add_one<<<n / 256, 256, 0, stream>>>(to, n);
    MUST(cudaMemcpyAsync(from, to, n * 4, cudaMemcpyDeviceToHost, stream));
    if (!overlapped) MUST(cudaStreamSynchronize(stream));
  }
  MUST(cudaDeviceSynchronize());
}

int main(int count, char **words) {
  const char *name = count > 1 ? words[1] : "";
  if (is(name, "children")) {
    for (int i = 0; i < 2; i++)
      if (!fork()) execl(words[0], words[0], "tensor", (char *)0);
    int status, bad = 0;
    while (wait(&status) > 0) bad |= status;
    return bad != 0;
  }
  if (is(name, "two-gpus") || is(name, "two-gpus-apart")) return two_gpus(words[0], is(name, "two-gpus-apart"));
  if (is(name, "spin-10") || is(name, "spin-20") || is(name, "spin-30")) spins(atoi(name + 5));
  else if (is(name, "naive") || is(name, "tensor")) matmul(is(name, "tensor"));
  else if (is(name, "sequential")) streams(1, 100);
  else if (is(name, "concurrent")) streams(8, 100);
  else if (is(name, "concurrent-more")) streams(8, 200);
  else if (is(name, "launches") || is(name, "graph")) elementwise(is(name, "graph"));
  else if (is(name, "copies") || is(name, "pipelined")) pipeline(is(name, "pipelined"));
  else if (is(name, "uneven-static") || is(name, "uneven-dynamic")) {
    float *x = room<float>(4096);
    int *next = room<int>(1);
    uneven<<<128, 32>>>(x, next, 0, 0);
    timed([&] { uneven<<<128, 32>>>(x, next, 4096, is(name, "uneven-dynamic")); });
  } else if (is(name, "cluster")) {
    cudaLaunchConfig_t how = {};
    cudaLaunchAttribute size[1];
    size[0].id = cudaLaunchAttributeClusterDimension;
    size[0].val.clusterDim.x = 4; size[0].val.clusterDim.y = 1; size[0].val.clusterDim.z = 1;
    how.gridDim = dim3(64); how.blockDim = dim3(128); how.attrs = size; how.numAttrs = 1;
    int *x = room<int>(64);
    for (int i = 0; i < 10; i++) MUST(cudaLaunchKernelEx(&how, cluster_rank, x));
    MUST(cudaDeviceSynchronize());
  } else if (is(name, "too-large")) {
    // A grid that does not fit at once, and nobody looks at the error.
    int *x = room<int>(1);
    void *arguments[] = {&x};
    cudaLaunchCooperativeKernel((void *)grid_barrier, dim3(100000), dim3(1024), arguments, 0, 0);
    cudaDeviceSynchronize();
  } else if (is(name, "illegal")) {
    int *x = room<int>(1);
    out_of_bounds<<<1, 1>>>(x);
    cudaDeviceSynchronize();
  } else if (is(name, "unfinished")) {
    int *x = room<int>(1);
    spin<<<1, 32>>>(20000, x);
    MUST(cudaDeviceSynchronize());
    spin<<<1, 32>>>(10000000000LL, x);
  } else if (is(name, "quick-exit")) {
    spin<<<1, 32>>>(20000, nullptr);
    MUST(cudaDeviceSynchronize());
    _exit(0);
  } else if (is(name, "no-kernel")) {
    room<int>(1 << 20);
  } else if (!is(name, "no-gpu")) {
    fprintf(stderr, "no program is called \"%s\"\n", name);
    return 2;
  }
  return 0;
}
