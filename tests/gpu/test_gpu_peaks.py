"""The peaks of L2 cache, shared memory and fp8 on a GPU: their kernels do what they charge, and in a sensible order."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cupy
import numpy as np
import pytest
import torch
from gpu_cases import gpu_context

from aiperf.workloads.contract import Context, Workload
from aiperf.workloads.peaks import cuda_kernels as kernels
from aiperf.workloads.peaks import workload as peaks


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return gpu_context(tmp_path)


def inputs_of(workload: Workload) -> Mapping[str, Any]:
    """The arrays that a peak's step reads."""
    assert workload.inputs is not None
    return workload.inputs()


def rate(workload: Workload, peak_name: str) -> float:
    """Amount per second of the fastest of ten steps."""
    seconds: list[float] = []
    for _ in range(12):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        workload.step()
        end.record()
        torch.cuda.synchronize()
        seconds.append(begin.elapsed_time(end) / 1000)
    return workload.work.peaks[peak_name] / min(seconds[2:])


def test_a_whole_step_of_the_reading_kernels_leaves_the_sums_of_all_that_it_charges(context: Context) -> None:
    read, tile = peaks.l2(context), peaks.shared(context)
    for workload, peak_name, within in ((read, "l2", 0), (tile, "shared", kernels.TILE)):
        workload.step()
        sums = workload.outputs()["target"].cpu().numpy().view(np.uint32)
        words = inputs_of(workload)["source"].cpu().numpy().view(np.uint32)
        batches = round(workload.work.peaks[peak_name] / kernels.bytes_of(1, threads=len(sums)))
        assert np.array_equal(sums, kernels.sums_of(words, threads=len(sums), batches=batches, within=within))


def test_the_copying_kernel_copies_all_of_its_half(context: Context) -> None:
    workload = peaks.l2(context, way="copy")
    workload.outputs()["target"].zero_()
    workload.step()
    assert torch.equal(workload.outputs()["target"], inputs_of(workload)["source"])


def test_each_level_of_memory_is_faster_than_the_one_below_it(context: Context) -> None:
    dram = rate(peaks.dram(context, size=1 << 28), "dram")
    l2 = max(rate(peaks.l2(context, part=part), "l2") for part in (8, 4, 2))
    shared = rate(peaks.shared(context), "shared")
    print(f"dram {dram:.3g}, l2 {l2:.3g}, l2 copy {rate(peaks.l2(context, way='copy'), 'l2'):.3g}, shared {shared:.3g}")
    assert dram < l2 < shared
    told = cupy.cuda.Device(0).attributes
    # 128 bytes a clock and multiprocessor is what shared memory has had since Volta; the clock is told in kHz.
    assert shared < 1.02 * 128 * told["MultiProcessorCount"] * 1000 * told["ClockRate"]


def test_the_fp8_product_is_near_its_reference_and_faster_than_bf16(context: Context) -> None:
    if torch.cuda.get_device_capability() < (8, 9):
        print("this GPU has no fp8 tensor cores, so nothing is multiplied here")
        return
    small = peaks.gemm_fp8(context, n=512)
    small.step()
    assert small.reference is not None
    product = small.reference()["product"]
    torch.testing.assert_close(small.outputs()["product"].double(), product, rtol=0.02, atol=0.5)
    assert rate(peaks.gemm_fp8(context), "gemm_fp8") > 1.2 * rate(peaks.gemm_bf16(context), "gemm_bf16")
