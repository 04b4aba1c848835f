// The GEMM of CUTLASS 3 for Hopper, from its templates: C = A B, A [m, k], B [k, n] and C [m, n] row by row, fp16 in, fp32
// sums, fp16 out, alpha 1, beta 0. A block's tile is TILE_M x TILE_N x 64; CLUSTER blocks, one above the other, share
// their piece of B: each fetches a part and the TMA unit writes it into all of them. The rest is what the library
// chooses, the schedule of the warps too unless SCHEDULE names it: Cooperative or Pingpong.
#include <cutlass/cutlass.h>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/device/gemm_universal_adapter.h>
#include <cutlass/gemm/kernel/gemm_universal.hpp>
#include <cutlass/util/packed_stride.hpp>

#ifndef TILE_M
#define TILE_M 128
#endif
#ifndef TILE_N
#define TILE_N 128
#endif
#ifndef CLUSTER
#define CLUSTER 2
#endif

namespace {

using Half = cutlass::half_t;
using Row = cutlass::layout::RowMajor;
using Tile = cute::Shape<cute::Int<TILE_M>, cute::Int<TILE_N>, cute::_64>;
using Cluster = cute::Shape<cute::Int<CLUSTER>, cute::_1, cute::_1>;
constexpr int ALIGNED = 8;
#ifdef SCHEDULE
#define JOINED(first, second) first##second
#define NAMED(schedule) JOINED(KernelTmaWarpSpecialized, schedule)
using Schedule = cutlass::gemm::NAMED(SCHEDULE);
using Storing = cute::conditional_t<cute::is_same_v<Schedule, cutlass::gemm::KernelTmaWarpSpecializedCooperative>,
                                    cutlass::epilogue::TmaWarpSpecializedCooperative,
                                    cutlass::epilogue::TmaWarpSpecialized>;
#else
using Schedule = cutlass::gemm::collective::KernelScheduleAuto;
using Storing = cutlass::epilogue::collective::EpilogueScheduleAuto;
#endif

using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Tile, Cluster,
    cutlass::epilogue::collective::EpilogueTileAuto, float, float, void, Row, ALIGNED, Half, Row, ALIGNED,
    Storing>::CollectiveOp;
using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Half, Row, ALIGNED, Half, Row, ALIGNED, float, Tile, Cluster,
    cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(sizeof(typename Epilogue::SharedStorage))>,
    Schedule>::CollectiveOp;
using Gemm = cutlass::gemm::device::GemmUniversalAdapter<
    cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, Mainloop, Epilogue>>;

typename Gemm::Arguments arguments(const void* a, const void* b, void* c, int m, int n, int k) {
  const auto strided = [](auto stride, int rows, int columns) {
    return cutlass::make_cute_packed_stride(stride, cute::make_shape(rows, columns, 1));
  };
  typename Gemm::Arguments found{
      cutlass::gemm::GemmUniversalMode::kGemm,
      {m, n, k, 1},
      {static_cast<const Half*>(a), strided(typename Gemm::GemmKernel::StrideA{}, m, k), static_cast<const Half*>(b),
       strided(typename Gemm::GemmKernel::StrideB{}, n, k)},
      {{1.0f, 0.0f}, nullptr, {}, static_cast<Half*>(c), strided(typename Gemm::GemmKernel::StrideD{}, m, n)}};
  return found;
}

cudaError_t attributes(cudaFuncAttributes* found) {
  return cudaFuncGetAttributes(found, reinterpret_cast<const void*>(&cutlass::device_kernel<typename Gemm::GemmKernel>));
}

}  // namespace

extern "C" size_t workspace_bytes(const void* a, const void* b, void* c, int m, int n, int k) {
  return Gemm::get_workspace_size(arguments(a, b, c, m, n, k));
}

// A product that is ready to run, or null; what is the matter is written to said.
extern "C" void* prepare(const void* a, const void* b, void* c, int m, int n, int k, void* workspace,
                         const char** said) {
  const auto asked = arguments(a, b, c, m, n, k);
  auto* gemm = new Gemm;
  cutlass::Status status = gemm->can_implement(asked);
  if (status == cutlass::Status::kSuccess) status = gemm->initialize(asked, workspace);
  *said = cutlassGetStatusString(status);
  if (status == cutlass::Status::kSuccess) return gemm;
  delete gemm;
  return nullptr;
}

extern "C" int run(void* gemm, void* stream) {
  return static_cast<int>(static_cast<Gemm*>(gemm)->run(static_cast<cudaStream_t>(stream)));
}

// Registers of a thread, and the bytes that it keeps in local memory for want of more; -1 where CUDA cannot say.
extern "C" int registers() {
  cudaFuncAttributes found{};
  return attributes(&found) == cudaSuccess ? found.numRegs : -1;
}
extern "C" int local_bytes() {
  cudaFuncAttributes found{};
  return attributes(&found) == cudaSuccess ? static_cast<int>(found.localSizeBytes) : -1;
}

extern "C" int shared_bytes() { return static_cast<int>(Gemm::GemmKernel::SharedStorageSize); }
extern "C" int stages() { return Mainloop::DispatchPolicy::Stages; }
