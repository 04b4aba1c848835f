/* Compiles only where the libraries' own declarations agree with the headers of the toolkit at hand. */
#include <stddef.h>
#include <cupti.h>
#include <nvtx3/nvToolsExt.h>

#define AIPERF_LAYOUT_ONLY
#ifdef NVTX
#include "nvtx_ranges.c"
#define SAME(ours, our, theirs, their) _Static_assert(offsetof(ours, our) == offsetof(theirs, their), #ours "." #our)
SAME(Event, message, nvtxEventAttributes_t, message);
SAME(Event, message_kind, nvtxEventAttributes_t, messageType);
SAME(Callbacks, functions, NvtxExportTableCallbacks, GetModuleFunctionTable);
_Static_assert(MESSAGE_REGISTERED == NVTX_MESSAGE_TYPE_REGISTERED && MESSAGE_WIDE == NVTX_MESSAGE_TYPE_UNICODE, "kinds");
_Static_assert(MODULE_CORE == NVTX_CB_MODULE_CORE && MODULE_CORE2 == NVTX_CB_MODULE_CORE2, "modules");
_Static_assert(NVTX_CBID_CORE_RangeStartEx == 4 && NVTX_CBID_CORE_RangePop == 11, "functions of the core");
_Static_assert(NVTX_CBID_CORE2_DomainRangeStartEx == 2 && NVTX_CBID_CORE2_DomainCreateW == 13, "functions of domains");
#else
#include "gpu_time.c"
#define SAME(ours, our, theirs, their) _Static_assert(offsetof(ours, our) == offsetof(theirs, their), #ours "." #our)
SAME(KernelRecord, start, CUpti_ActivityKernel4, start);
SAME(KernelRecord, end, CUpti_ActivityKernel4, end);
SAME(KernelRecord, device, CUpti_ActivityKernel4, deviceId);
SAME(KernelRecord, name, CUpti_ActivityKernel4, name);
SAME(KernelRecord, start, CUpti_ActivityKernel9, start);
SAME(KernelRecord, device, CUpti_ActivityKernel9, deviceId);
SAME(KernelRecord, name, CUpti_ActivityKernel9, name);
SAME(CopyRecord, copy, CUpti_ActivityMemcpy3, copyKind);
SAME(CopyRecord, bytes, CUpti_ActivityMemcpy3, bytes);
SAME(CopyRecord, start, CUpti_ActivityMemcpy3, start);
SAME(CopyRecord, device, CUpti_ActivityMemcpy3, deviceId);
SAME(CopyRecord, bytes, CUpti_ActivityMemcpyPtoP, bytes);
SAME(CopyRecord, device, CUpti_ActivityMemcpyPtoP, deviceId);
SAME(FillRecord, bytes, CUpti_ActivityMemset, bytes);
SAME(FillRecord, device, CUpti_ActivityMemset, deviceId);
SAME(Call, function, CUpti_CallbackData, functionName);
SAME(Call, result, CUpti_CallbackData, functionReturnValue);
SAME(Call, context, CUpti_CallbackData, context);
_Static_assert(KIND_KERNEL == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL && KIND_MEMCPY == CUPTI_ACTIVITY_KIND_MEMCPY, "kinds");
_Static_assert(KIND_MEMSET == CUPTI_ACTIVITY_KIND_MEMSET && KIND_MEMCPY_PEER == CUPTI_ACTIVITY_KIND_MEMCPY2, "kinds");
_Static_assert(DOMAIN_RUNTIME == CUPTI_CB_DOMAIN_RUNTIME_API && DOMAIN_DRIVER == CUPTI_CB_DOMAIN_DRIVER_API, "domains");
_Static_assert(CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000 == 211, "launches of the runtime");
_Static_assert(CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_v11060 == 430, "launches of the runtime");
_Static_assert(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx == 652, "launches of the driver");
#endif
