// A GEMM for Hopper written by hand: C = A B, A [m, k], B [k, n] and C [m, n] row by row, fp16 in, fp32 sums, fp16 out.
// A block computes tiles of 128 x 256, one after another: one thread copies slices of 64 along k with the TMA unit into a
// ring of four buffers, two warp groups multiply them with wgmma, 64 x 256 each. Two blocks that lie above each other are
// a cluster and each copies half of B's slice to both. m must be a multiple of 256, n of 256 and k of 64.
#include <cuda.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "async.cuh"

namespace {

constexpr int CLUSTER = 2;
constexpr int ROWS = 128, COLUMNS = 256, DEPTH = 64, STAGES = 4, THREADS = 384, WARPS_THAT_MULTIPLY = 8;
// Columns of B that the TMA unit copies at once: as many as one row of the swizzle of 128 bytes holds.
constexpr int PANEL = 64, PANELS = COLUMNS / PANEL;
// Rows of cluster tiles that are worked on together, so that they find A and B in the L2.
constexpr int TOGETHER = 8;
constexpr unsigned LEFT_BYTES = ROWS * DEPTH * 2, PANEL_BYTES = PANEL * DEPTH * 2;
constexpr unsigned STAGE_BYTES = LEFT_BYTES + PANELS * PANEL_BYTES, ALIGNMENT = 1024;
constexpr unsigned SHARED_BYTES = STAGES * STAGE_BYTES + ALIGNMENT;
// Eight rows of 128 bytes, the unit of the swizzle.
constexpr unsigned EIGHT_ROWS = 1024;

// Copies the box at these coordinates (innermost first) to this block, or to the same place in each block of `mask`.
__device__ __forceinline__ void copy_box(unsigned to, const CUtensorMap* map, int x, int y, Barrier* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(to),
      "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y)
      : "memory");
}
__device__ __forceinline__ void multicast_box(unsigned to, const CUtensorMap* map, int x, int y, Barrier* barrier,
                                              unsigned short mask) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
      " [%0], [%1, {%4, %5}], [%2], %3;" ::"r"(to),
      "l"(map), "r"(shared_address(barrier)), "h"(mask), "r"(x), "r"(y)
      : "memory");
}

// How wgmma finds a matrix in shared memory that is swizzled by 128 bytes. Bits above the 18th of an address name the
// block in its cluster.
__device__ __forceinline__ unsigned long long described(unsigned address, unsigned leading, unsigned stride) {
  constexpr unsigned long long SWIZZLE_128 = 1ull << 62;
  return SWIZZLE_128 | (unsigned long long)(stride >> 4) << 32 | (unsigned long long)(leading >> 4) << 16 |
         (address & 0x3ffff) >> 4;
}

#define FOUR(i) "+f"(sum[i]), "+f"(sum[i + 1]), "+f"(sum[i + 2]), "+f"(sum[i + 3])
#define SIXTEEN(i) FOUR(i), FOUR(i + 4), FOUR(i + 8), FOUR(i + 12)
// Starts sum (+)= left right, 64 x 16 by 16 x 256, right stored row by row; without `keep` the sum begins here.
__device__ __forceinline__ void multiply(float (&sum)[128], unsigned long long left, unsigned long long right,
                                         int keep) {
  asm volatile(
      "{ .reg .pred kept;\n"
      "setp.ne.b32 kept, %130, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
      " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31,"
      " %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47,"
      " %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63,"
      " %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79,"
      " %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95,"
      " %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111,"
      " %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
      "%128, %129, kept, 1, 1, 0, 1; }"
      : SIXTEEN(0), SIXTEEN(16), SIXTEEN(32), SIXTEEN(48), SIXTEEN(64), SIXTEEN(80), SIXTEEN(96), SIXTEEN(112)
      : "l"(left), "l"(right), "r"(keep));
}
// Before the first product of a group: earlier writes to its registers are done.
__device__ __forceinline__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int LEFT>
__device__ __forceinline__ void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

// Where a block's tiles lie, in rows and columns of C.
struct Place {
  int row, column;
};
__device__ __forceinline__ Place place_of(int tile, int m, int n) {
  const int down = m / (ROWS * CLUSTER), across = n / COLUMNS;
  const int first = tile / (TOGETHER * across) * TOGETHER, height = min(TOGETHER, down - first);
  const int inside = tile % (TOGETHER * across);
  const int row = (first + inside % height) * CLUSTER + (int)rank_in_cluster();
  return {row * ROWS, inside / height * COLUMNS};
}

// A position in the ring of buffers, and the parity of its round.
struct Turn {
  int stage = 0;
  unsigned parity = 0;
  __device__ __forceinline__ void next() {
    if (++stage == STAGES) {
      stage = 0;
      parity ^= 1;
    }
  }
};

__device__ __forceinline__ void copy_tiles(unsigned buffers, Barrier* full, Barrier* empty, const CUtensorMap* left,
                                           const CUtensorMap* right, int m, int n, int k) {
  constexpr int OWN = PANELS / CLUSTER;
  const int tiles = m / (ROWS * CLUSTER) * (n / COLUMNS), first_panel = (int)rank_in_cluster() * OWN;
  Turn turn;
  for (int tile = blockIdx.x / CLUSTER; tile < tiles; tile += gridDim.x / CLUSTER) {
    const Place place = place_of(tile, m, n);
    for (int start = 0; start < k; start += DEPTH, turn.next()) {
      Barrier* copied = &full[turn.stage];
      const unsigned to = buffers + turn.stage * STAGE_BYTES;
      wait_for(&empty[turn.stage], turn.parity ^ 1);
      expect_bytes(copied, STAGE_BYTES);
      copy_box(to, left, start, place.row, copied);
      for (int panel = first_panel; panel < first_panel + OWN; ++panel) {
        const unsigned there = to + LEFT_BYTES + panel * PANEL_BYTES;
        multicast_box(there, right, place.column + panel * PANEL, start, copied, (1 << CLUSTER) - 1);
      }
    }
  }
}

// Every block of the cluster may copy into a buffer that this warp has read.
__device__ __forceinline__ void release(Barrier* empty) {
  __syncwarp();
  if (threadIdx.x % 32 < CLUSTER) arrive_in(threadIdx.x % 32, empty);
}

__device__ __forceinline__ void exchange(unsigned& low, unsigned& high, bool upper, int distance) {
  const unsigned came = __shfl_xor_sync(~0u, upper ? low : high, distance);
  (upper ? low : high) = came;
}
// Four neighbouring lanes hold two columns each of four groups of eight; afterwards each holds one group whole.
__device__ __forceinline__ uint4 gathered(unsigned (&word)[4]) {
  const bool odd = threadIdx.x & 1, upper = threadIdx.x & 2;
  exchange(word[0], word[1], odd, 1);
  exchange(word[2], word[3], odd, 1);
  exchange(word[0], word[2], upper, 2);
  exchange(word[1], word[3], upper, 2);
  return make_uint4(word[0], word[1], word[2], word[3]);
}
// A warp group's 64 x 256 sums, in the order of wgmma, to C from `place` on.
__device__ __forceinline__ void store(const float (&sum)[128], __half* c, Place place, int n) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  __half* to = c + (size_t)(place.row + warp * 16 + lane / 4) * n + place.column + lane % 4 * 8;
#pragma unroll
  for (int lower = 0; lower < 2; ++lower) {
#pragma unroll
    for (int column = 0; column < COLUMNS; column += 32) {
      unsigned word[4];
#pragma unroll
      for (int group = 0; group < 4; ++group) {
        const float* pair = &sum[(column / 8 + group) * 4 + lower * 2];
        const __half2 rounded = __floats2half2_rn(pair[0], pair[1]);
        word[group] = *reinterpret_cast<const unsigned*>(&rounded);
      }
      *reinterpret_cast<uint4*>(to + (size_t)lower * 8 * n + column) = gathered(word);
    }
  }
}

__device__ __forceinline__ void multiply_tiles(unsigned buffers, Barrier* full, Barrier* empty, __half* c, int m, int n,
                                               int k) {
  const int tiles = m / (ROWS * CLUSTER) * (n / COLUMNS), half = threadIdx.x / 128 - 1;
  float sum[128];
  Turn turn;
  for (int tile = blockIdx.x / CLUSTER; tile < tiles; tile += gridDim.x / CLUSTER) {
    int before = 0;
    for (int start = 0; start < k; start += DEPTH) {
      const unsigned from = buffers + turn.stage * STAGE_BYTES;
      const auto left = described(from + half * (LEFT_BYTES / 2), 16, EIGHT_ROWS);
      const auto right = described(from + LEFT_BYTES, PANEL_BYTES, EIGHT_ROWS);
      wait_for(&full[turn.stage], turn.parity);
      begin_products();
#pragma unroll
      for (int inner = 0; inner < DEPTH; inner += 16) {
        // In units of 16 bytes: 16 columns of A, 16 rows of a panel of B.
        multiply(sum, left + inner * 2 / 16, right + inner * PANEL * 2 / 16, start + inner);
      }
      commit_products();
      // While these are under way, those of the buffer before are done.
      wait_for_products<1>();
      if (start > 0) release(&empty[before]);
      before = turn.stage;
      turn.next();
    }
    wait_for_products<0>();
    release(&empty[before]);
    Place place = place_of(tile, m, n);
    place.row += half * ROWS / 2;
    store(sum, c, place, n);
  }
}

__global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS, 1)
    hand_wgmma(const __grid_constant__ CUtensorMap left, const __grid_constant__ CUtensorMap right, __half* c, int m,
               int n, int k) {
  extern __shared__ unsigned char storage[];
  __shared__ Barrier full[STAGES], empty[STAGES];
  const unsigned buffers = (shared_address(storage) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) {
      barrier_init(&full[stage], 1);
      barrier_init(&empty[stage], WARPS_THAT_MULTIPLY * CLUSTER);
    }
    barriers_are_visible();
  }
  __syncthreads();
  cluster_barrier();
  // Registers go from the warps that copy to those that hold the sums.
  if (threadIdx.x < 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x == 0) copy_tiles(buffers, full, empty, &left, &right, m, n, k);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    multiply_tiles(buffers, full, empty, c, m, n, k);
  }
  // The other block may still copy to this one or arrive at its barriers.
  cluster_barrier();
}

struct Product {
  CUtensorMap left, right;
  __half* c;
  int m, n, k, blocks;
};

using Encode = decltype(&cuTensorMapEncodeTiled);

Encode find_encode() {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result);
#else
  cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &found, cudaEnableDefault, &result);
#endif
  return result == cudaDriverEntryPointSuccess ? reinterpret_cast<Encode>(found) : nullptr;
}

// A matrix of rows x columns halves, row by row, that is copied in boxes of high x 64, swizzled by 128 bytes.
bool describe(Encode encode, CUtensorMap* map, const void* matrix, int rows, int columns, unsigned high) {
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(columns) * 2};
  const cuuint32_t box[] = {PANEL, high}, steps[] = {1, 1};
  return encode(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, const_cast<void*>(matrix), sizes, strides, box, steps,
                CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace

extern "C" size_t workspace_bytes(const void*, const void*, void*, int, int, int) { return 0; }

// A product that is ready to run, or null; what is the matter is written to said.
extern "C" void* prepare(const void* a, const void* b, void* c, int m, int n, int k, void*, const char** said) {
  int device = 0, processors = 0;
  Product ready{{}, {}, static_cast<__half*>(c), m, n, k, 0};
  const Encode encode = find_encode();
  *said = "the driver encodes no tensor maps";
  if (encode == nullptr) return nullptr;
  *said = "the driver refuses the tensor maps";
  if (!describe(encode, &ready.left, a, m, k, ROWS) || !describe(encode, &ready.right, b, k, n, DEPTH)) return nullptr;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  if (error == cudaSuccess) {
    error = cudaFuncSetAttribute(hand_wgmma, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES);
  }
  *said = cudaGetErrorString(error);
  ready.blocks = processors / CLUSTER * CLUSTER;
  return error == cudaSuccess ? new Product(ready) : nullptr;
}

extern "C" int run(void* prepared, void* stream) {
  const auto* ready = static_cast<const Product*>(prepared);
  hand_wgmma<<<ready->blocks, THREADS, SHARED_BYTES, static_cast<cudaStream_t>(stream)>>>(
      ready->left, ready->right, ready->c, ready->m, ready->n, ready->k);
  return static_cast<int>(cudaGetLastError());
}

extern "C" int registers() {
  cudaFuncAttributes found{};
  return cudaFuncGetAttributes(&found, hand_wgmma) == cudaSuccess ? found.numRegs : -1;
}

extern "C" int shared_bytes() { return SHARED_BYTES; }
