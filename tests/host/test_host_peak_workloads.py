import inspect
import multiprocessing
import os

import pytest
import torch
from patience import PATIENCE_S

from aiperf.host.peaks import PEAK_SPECS
from aiperf.workloads.contract import Context, SkipSide
from aiperf.workloads.peaks import workload as peaks

MIB = 1024**2


@pytest.fixture
def context(tmp_path):
    return Context(scratch=tmp_path, shared_scratch=tmp_path, seed=5, pad=64)


def gang(rank, port, results):
    context = Context(rank=rank, world_size=2, seed=5, store_port=port)
    workload = peaks.all_reduce_gloo(context, size=MIB)
    before = workload.outputs()["target"].clone()
    workload.step()
    results.put((rank, before[:8].tolist(), workload.outputs()["target"][:8].tolist(), dict(workload.work.peaks)))
    torch.distributed.destroy_process_group()


def test_every_roof_names_a_workload_that_takes_its_parameters():
    for peak_name in PEAK_SPECS:
        function = getattr(peaks, peak_name.workload.removeprefix("peaks."))
        for variant in peak_name.variants:
            inspect.signature(function).bind(Context(), **variant)


@pytest.mark.parametrize(("way", "moved"), [("copy", 2 * MIB), ("sum", MIB), ("dot", 2 * MIB)])
def test_cpu_stream_does_what_it_charges(context, way, moved):
    workload = peaks.cpu_stream(context, way=way, size=MIB)
    workload.step()
    assert workload.work.peaks == {"cpu_stream": moved}
    assert workload.facts["threads"] == len(os.sched_getaffinity(0))
    inputs, target = workload.inputs(), workload.outputs()["target"]
    first = inputs["first"].double()
    expected = {"copy": first, "sum": first.sum(), "dot": (first * inputs.get("second", first).double()).sum()}[way]
    torch.testing.assert_close(target.double().squeeze(), expected, rtol=1e-4, atol=0)


def test_equal_seeds_give_equal_inputs_and_others_do_not(context):
    first = peaks.cpu_stream(context, size=MIB).inputs()["first"]
    again = peaks.cpu_stream(context, size=MIB).inputs()["first"]
    context.seed = 6
    other = peaks.cpu_stream(context, size=MIB).inputs()["first"]
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert first.data_ptr() % 4 == 0


def test_host_buffers_larger_than_the_random_block_are_filled_to_the_end(context):
    first = peaks.cpu_stream(context, size=40 * MIB).inputs()["first"]
    assert first.numel() == 10 * MIB
    assert bool(((first >= 0.5) & (first <= 1.5)).all())


def test_the_cpu_matrix_multiply_matches_its_float64_reference(context):
    workload = peaks.cpu_gemm_fp32(context, n=96)
    workload.step()
    assert workload.work.peaks == {"cpu_gemm_fp32": 2.0 * 96**3}
    torch.testing.assert_close(
        workload.outputs()["product"].double(), workload.reference()["product"], rtol=1e-4, atol=1e-3
    )


def test_the_cpu_product_of_bf16_matches_its_reference_where_the_cpu_has_one(context, monkeypatch):
    monkeypatch.setattr(peaks, "_cpu_has_bf16", lambda: True)
    workload = peaks.cpu_gemm_bf16(context, n=96)
    workload.step()
    assert workload.work.peaks == {"cpu_gemm_bf16": 2.0 * 96**3}
    assert workload.outputs()["product"].dtype == torch.bfloat16
    torch.testing.assert_close(
        workload.outputs()["product"].double(), workload.reference()["product"], rtol=0.01, atol=0.1
    )
    monkeypatch.setattr(peaks, "_cpu_has_bf16", lambda: False)
    with pytest.raises(SkipSide, match="no instructions that multiply bf16"):
        peaks.cpu_gemm_bf16(context, n=96)


@pytest.mark.parametrize(
    ("line", "has"),
    [("flags : fpu avx512f amx_bf16", True), ("Features : fp asimd bf16", True), ("flags : fpu avx512f avx2", False)],
)
def test_instructions_for_bf16_are_read_from_what_the_kernel_says_of_a_cpu(tmp_path, line, has):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(f"processor : 0\n{line}\n")
    assert peaks._cpu_has_bf16(tmp_path) == has


@pytest.mark.parametrize("fast", [True, False])
def test_the_fp8_product_matches_its_float64_reference(context, monkeypatch, fast):
    monkeypatch.setattr(peaks, "_gpu", lambda ctx: "cpu")
    monkeypatch.setattr(peaks.torch.cuda, "get_device_name", lambda: "a GPU")
    workload = peaks.gemm_fp8(context, n=64, fast_sums=fast)
    workload.outputs()["product"].zero_()
    workload.step()
    assert workload.work.peaks == {"gemm_fp8": 2.0 * 64**3}
    torch.testing.assert_close(
        workload.outputs()["product"].double(), workload.reference()["product"], rtol=0.01, atol=0.1
    )


@pytest.mark.parametrize(("threads", "direct"), [(1, True), (3, True), (2, False)])
def test_a_disk_read_reads_every_block_of_its_file(context, threads, direct):
    workload = peaks.disk_read(context, size=4 * MIB, block=MIB, threads=threads, direct=direct)
    workload.prepare()
    workload.step()
    data = (context.shared_scratch / f"peak-{4 * MIB}.bin").read_bytes()
    last = (3 // threads) * threads  # the block that thread 0 read last
    assert workload.outputs()["block"].tobytes() == data[last * MIB : (last + 1) * MIB]
    assert len(set(data[:4096])) > 200
    assert workload.facts["direct"] in ((True, False) if direct else (False,))
    workload.close()


def test_a_ranks_own_file_is_a_new_one_before_every_step_and_the_one_that_is_read(context, monkeypatch):
    workload = peaks.disk_read(context, size=2 * MIB, block=MIB, threads=1, own=True)
    path, seen = context.scratch / f"peak-{2 * MIB}.bin", list[tuple[int, bytes]]()
    monkeypatch.setattr(peaks, "_PLACES", 3)
    for turn in range(6):
        workload.prepare()
        path.write_bytes(bytes([turn]) * 2 * MIB)
        workload.step()
        seen.append((path.stat().st_ino, workload.outputs()["block"].tobytes()[:2]))
    assert [block for _, block in seen] == [bytes([turn] * 2) for turn in range(6)]
    assert len({number for number, _ in seen[:4]}) == 4
    assert len(list(context.scratch.iterdir())) == 4
    workload.close()


def test_a_disk_read_on_memory_is_skipped_with_the_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(peaks, "_file_system", lambda folder: "tmpfs")
    with pytest.raises(SkipSide, match="on tmpfs: memory, not a disk"):
        peaks.disk_read(Context(scratch=tmp_path, shared_scratch=tmp_path), size=MIB)


def test_a_file_that_shrank_is_an_error_and_not_a_fast_read(context):
    workload = peaks.page_cache_read(context, size=4 * MIB, block=MIB)
    os.truncate(context.shared_scratch / f"peak-{4 * MIB}.bin", MIB)
    with pytest.raises(RuntimeError, match=f"read {MIB} of {4 * MIB} bytes"):
        workload.step()
    workload.close()


def test_gpu_workloads_without_a_gpu_skip_with_the_reason(context):
    gpu = (peaks.dram, peaks.h2d, peaks.d2h, peaks.p2p, peaks.gemm_bf16, peaks.gemm_fp8, peaks.l2, peaks.shared)
    for function in (*gpu, peaks.launch):
        with pytest.raises(SkipSide, match="no GPU was given"):
            function(context)


@pytest.mark.long
def test_a_gloo_all_reduce_takes_the_maximum_and_charges_bus_bytes():
    import torch.distributed as dist

    store = dist.TCPStore("127.0.0.1", 0, 2, is_master=True, wait_for_workers=False)
    # Both are forked from a process that has loaded torch, and has not computed with threads.
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(["torch.distributed"])
    results = server.SimpleQueue()
    ranks = [server.Process(target=gang, args=(rank, store.port, results)) for rank in range(2)]
    for process in ranks:
        process.start()
    first, second = sorted(results.get() for _ in ranks)
    for process in ranks:
        process.join(PATIENCE_S)
    assert first[1] != second[1]
    assert first[2] == second[2] == [max(pair) for pair in zip(first[1], second[1], strict=True)]
    assert first[3] == {"all_reduce_gloo": MIB}


def test_two_products_in_one_process_keep_their_own_precision(context, monkeypatch):
    monkeypatch.setattr(peaks, "_gpu", lambda ctx: "cpu")
    monkeypatch.setattr(peaks.torch.cuda, "get_device_name", lambda: "a GPU")
    plain, tensor_cores = peaks.gemm_fp32(context, n=8), peaks.gemm_tf32(context, n=8)
    for workload, mode in ((plain, "highest"), (tensor_cores, "high"), (plain, "highest")):
        workload.step()
        assert peaks.torch.get_float32_matmul_precision() == mode
