"""The GPU workloads on a GPU: both sides of every case agree, broken sides are caught, streams and modes hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from gpu_cases import OneCase, check_case, gpu_context, one_gpu_cases

from aiperf.worker.usage import gpu_peak
from aiperf.workloads.contract import Context, Workload
from aiperf.workloads.cuda import workload as cuda
from aiperf.workloads.launch import workload as launch
from aiperf.workloads.linalg import workload as linalg
from aiperf.workloads.moe.experts import Seats
from aiperf.workloads.transfer import workload as transfer

CASES = [
    *one_gpu_cases(),
    *one_gpu_cases("strided-vs-coalesced-access", "pageable-vs-pinned-copy", "eager-vs-cuda-graph-elementwise"),
]


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return gpu_context(tmp_path)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_both_sides_of_a_case_agree_and_a_side_that_does_nothing_is_caught(case: OneCase, context: Context) -> None:
    check_case(case, context)


def add(context: Context, n: int) -> Workload:
    arrays = {"a": {"role": "input"}, "b": {"role": "input"}, "out": {"role": "output"}}
    given: dict[str, Any] = {"source": "elementwise.cu", "args": ["a", "b", "out"], "arrays": arrays, "n": n}
    return cuda.kernel(context, entry="add", reference={"out": "a + b"}, **given)


@pytest.mark.parametrize("n", [1, 255, 1024, 100_003])
def test_a_kernel_of_any_size_writes_all_of_its_output(n: int, context: Context) -> None:
    workload = add(context, n)
    workload.outputs()["out"].fill_(float("nan"))
    workload.step()
    assert workload.reference is not None
    assert torch.allclose(workload.outputs()["out"].double(), workload.reference()["out"], rtol=1e-6)


def test_the_compiled_kernel_tells_its_registers_and_spills_nothing(context: Context) -> None:
    facts = add(context, 1024).facts
    assert facts["registers"] > 0
    assert facts["local_bytes"] == 0
    assert facts["grid"] == 4


def test_a_source_that_does_not_compile_names_the_line(context: Context, tmp_path: Path) -> None:
    source = tmp_path / "broken.cu"
    source.write_text('extern "C" __global__ void broken(float* out) { out[0] = nothing; }', encoding="utf-8")
    arrays: dict[str, dict[str, int | float | str | list[int | str]]] = {"out": {"role": "output"}}
    with pytest.raises(Exception, match="nothing"):
        cuda.kernel(context, source=str(source), entry="broken", args=["out"], arrays=arrays, n=1)


@pytest.mark.parametrize("variant", ["STRIDE=2", "STRIDE=33", "RANDOM"])
def test_scattered_reads_give_the_values_in_order(variant: str, context: Context) -> None:
    arrays = {"values": {"role": "input"}, "stored": {"role": "stored"}, "out": {"role": "output"}}
    given: dict[str, Any] = {"source": "access.cu", "entry": "gather", "args": ["stored", "out"], "arrays": arrays}
    given |= {"layout": "lay_out", "layout_args": ["values", "stored"], "n": 1 << 20, "items": 8}
    workload = cuda.kernel(context, variant=variant, reference={"out": "values"}, **given)
    workload.outputs()["out"].fill_(float("nan"))
    workload.step()
    assert workload.reference is not None
    assert workload.inputs is not None
    assert torch.equal(workload.outputs()["out"].double(), workload.reference()["out"])
    assert not torch.equal(workload.outputs()["out"], workload.inputs()["stored"])


def queued_steps(context: Context) -> dict[str, Workload]:
    return {
        "cuda.kernel": add(context, 1024),
        "linalg.matmul": linalg.matmul(context, m=64, n=64, k=64, dtype="fp32"),
        "transfer.copy d2d": transfer.copy(context, direction="d2d", size=1 << 20),
        "launch.graph": launch.graph(context, issue="graph", n=1024),
        "launch.stream": launch.graph(context, issue="stream", n=1024),
    }


@pytest.mark.parametrize("name", ["cuda.kernel", "linalg.matmul", "transfer.copy d2d", "launch.graph", "launch.stream"])
def test_a_step_queues_on_the_current_stream_and_does_not_wait(name: str, context: Context) -> None:
    workload = queued_steps(context)[name]
    mine, other = torch.cuda.Stream(), torch.cuda.Stream()
    with torch.cuda.stream(mine):
        workload.step()
    torch.cuda.synchronize()
    (array,) = workload.outputs().values()
    want = array.clone()
    early = torch.empty_like(array)
    array.fill_(float("nan"))
    torch.cuda.synchronize()
    with torch.cuda.stream(mine):
        torch.cuda._sleep(400_000_000)
        workload.step()
    with torch.cuda.stream(other):
        early.copy_(array)
    other.synchronize()
    assert not mine.query(), "the step waited for the stream"
    assert torch.isnan(early).all(), "the step ran on another stream than the current one"
    mine.synchronize()
    assert torch.equal(array, want)


def test_the_seats_of_copied_experts_are_found_without_waiting_for_the_gpu(context: Context) -> None:
    chosen = torch.tensor([0, 0, 4, 1, 0, 2, 7, 1], device=context.device)
    torch.cuda.set_sync_debug_mode("error")
    try:
        seats = Seats(8, 2, 2).of(chosen)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert seats.tolist() == [0, 10, 6, 1, 0, 2, 9, 11]


def test_a_replayed_graph_sees_redrawn_inputs(context: Context) -> None:
    workload = launch.graph(context, issue="graph", nodes=5, n=1000)
    assert workload.redraw is not None
    assert workload.reference is not None
    workload.step()
    first = workload.outputs()["y"].clone()
    workload.redraw(99)
    workload.step()
    assert torch.allclose(workload.outputs()["y"].double(), workload.reference()["y"], rtol=1e-6)
    assert not torch.equal(workload.outputs()["y"], first)


def test_tf32_is_off_for_fp32_and_on_for_tf32(context: Context) -> None:
    errors = {}
    sides = {d: linalg.matmul(context, m=1024, n=1024, k=1024, dtype=d) for d in ("tf32", "fp32", "bf16")}
    for dtype, workload in sides.items():
        workload.step()
        assert workload.reference is not None
        truth = workload.reference()["c"]
        errors[dtype] = float((workload.outputs()["c"].double() - truth).norm() / truth.norm())
    assert errors["fp32"] < 5e-6
    assert 2e-5 < errors["tf32"] < 1e-3
    assert 5e-4 < errors["bf16"] < 1e-2


@pytest.mark.parametrize("direction", ["h2d", "d2h"])
@pytest.mark.parametrize("pinned", [False, True])
def test_host_memory_is_what_the_side_says(direction: Any, pinned: bool, context: Context) -> None:
    workload = transfer.copy(context, direction=direction, size=1 << 20, pinned=pinned)
    assert workload.facts["host_memory"] == ("pinned" if pinned else "pageable")
    assert workload.work.peaks == {direction: float(1 << 20)}


def test_a_working_set_within_the_l2_is_not_charged_to_dram(context: Context) -> None:
    assert add(context, 1024).work.peaks == {}
    assert transfer.copy(context, direction="d2d", size=1 << 20).work.peaks == {}
    assert transfer.copy(context, direction="d2d", size=1 << 28).work.peaks == {"dram": 2.0 * (1 << 28)}


def test_a_peak_of_gpu_memory_holds_what_cupy_and_the_drivers_pool_took(context: Context) -> None:
    cupy = pytest.importorskip("cupy")
    torch.zeros(1, device=context.device)
    runtime, size = cupy.cuda.runtime, 4 << 30
    before = gpu_peak() or 0
    array = cupy.empty(size, dtype=cupy.uint8)
    with_array = gpu_peak() or 0
    assert with_array >= before + size
    del array
    cupy.get_default_memory_pool().free_all_blocks()
    runtime.freeAsync(runtime.mallocAsync(size, 0), 0)
    assert (gpu_peak() or 0) >= before + size
