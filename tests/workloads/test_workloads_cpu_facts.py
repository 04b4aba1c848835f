"""What the CPU workloads report about themselves: counts, page kinds, threads, and refusals."""

from __future__ import annotations

import os

import pytest
from cpu_pairs import run

from aiperf.workloads.attention import workload as attention
from aiperf.workloads.comm import workload as comm
from aiperf.workloads.contract import Context, SkipSide
from aiperf.workloads.data import workload as data
from aiperf.workloads.host import pages as page_kinds
from aiperf.workloads.host import workload as host
from aiperf.workloads.model import workload as model
from aiperf.workloads.parallel import workload as parallel
from aiperf.workloads.shared import models, seeded
from aiperf.workloads.tensor import workload as tensor


def test_huge_pages_are_read_back_from_the_kernel_not_assumed():
    wanted = {"work": "touch", "bytes": 8 << 20, "access": "first_touch"}
    small, huge = (host.task(Context(), **wanted, pages=kind) for kind in ("4k", "thp"))
    assert small.facts["anon_huge_bytes"] == 0
    assert huge.facts["anon_huge_bytes"] == 8 << 20


def test_huge_pages_that_are_switched_off_skip_the_side(tmp_path, monkeypatch):
    mode = tmp_path / "enabled"
    mode.write_text("always madvise [never]\n")
    monkeypatch.setattr(page_kinds, "_MODE", mode)
    with pytest.raises(SkipSide, match="never"):
        host.task(Context(), work="touch", bytes=1 << 20, pages="thp")


@pytest.mark.long
def test_matmul_workers_say_how_many_threads_they_have_one_that_died_is_an_error_and_close_ends_the_others():
    others = _children()
    workload = host.task(Context(), work="matmul", n=16, units=2, threads_each="3")
    assert workload.facts["threads_each"] == [3, 3]
    children = _children() - others
    assert len(children) == 2
    (workers,) = workload.step.args
    workers[1].kill()
    workers[1].wait()
    with pytest.raises((RuntimeError, BrokenPipeError)):
        workload.step()
    assert len(_children() & children) == 1
    workload.close()
    assert not _children() & children


def _children() -> set[int]:
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return {int(pid) for pid in file.read().split()}


def test_a_roof_is_charged_only_when_the_working_set_lies_past_the_caches(monkeypatch):
    monkeypatch.setattr(seeded, "last_level_cache", lambda device: 1 << 20)
    assert tensor.op(Context(), op="copy", n=1 << 16).work.peaks == {}
    assert tensor.op(Context(), op="copy", n=1 << 21).work.peaks == {"cpu_stream": 16 << 20}


@pytest.mark.parametrize(
    ("moved", "cache", "charged"),
    [
        (2.0e6, 1_000_000, {}),
        (2.1e6, 1_000_000, {"peaks": {"dram": 2.1e6}, "maybe_cached": {"dram": 1e6}}),
        (2.1e6, 0, {}),
    ],
)
def test_a_gpus_memory_is_charged_past_twice_its_l2_and_judged_without_what_that_may_hold(
    monkeypatch, moved, cache, charged
):
    monkeypatch.setattr(seeded, "last_level_cache", lambda device: cache)
    assert seeded.memory_charge("cuda:0", moved) == charged


def test_a_causal_mask_halves_the_flops_that_count():
    full = attention.forward(Context(), kv_len=64, mask="none").work.flops
    half = attention.forward(Context(), kv_len=64, mask="causal").work.flops
    assert full == 4 * 8 * 64 * 64 * 64
    assert half == full * 65 / 128


def test_a_training_step_counts_no_gradient_of_the_models_input():
    task = models.build("mlp:small", seed=0, device="cpu", batch=2, seq=1)
    weights = 1024 * 256 + 256
    assert task.forward_flops == 2 * 2 * weights
    assert task.train_flops == 3 * 2 * 2 * weights - 2 * 2 * 1024 * 256


def test_reset_brings_a_training_step_back_to_its_first_loss():
    workload = model.step(Context(seed=1), model="mlp:small", batch=4)
    run(workload)
    first = float(workload.outputs()["loss"])
    for _ in range(30):
        run(workload)
    assert float(workload.outputs()["loss"]) != first
    workload.reset()
    run(workload)
    assert float(workload.outputs()["loss"]) == first


def test_slices_of_a_global_batch_put_together_are_the_whole():
    whole = models.build("tiny", seed=4, device="cpu", batch=4, seq=8).batch
    halves = [models.build("tiny", seed=4, device="cpu", batch=4, seq=8, part=p, parts=2).batch for p in (0, 1)]
    assert [row.tolist() for half in halves for row in half] == whole.tolist()


def test_workers_see_redrawn_pixels_without_a_restart():
    workload = data.loader(
        Context(), num_workers=1, batches=2, batch_size=2, sample_shape=[3, 16, 16], transform="none"
    )
    run(workload)
    weight, pixels = workload.inputs()["weight"], workload.inputs()["pixels"]
    pixels.fill_(7)
    run(workload)
    expected = 7 * weight.sum(dim=0)
    assert (workload.outputs()["features"] - expected).abs().max() < 1e-2


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: comm.collective(Context(), backend="nccl"), "NCCL"),
        (lambda: parallel.train(Context(), strategy="data_parallel"), "DataParallel"),
        (lambda: attention.forward(Context(), backend="cudnn", kv_len=8), "cudnn"),
    ],
)
def test_what_this_device_cannot_do_is_a_skip_with_a_reason(make, message):
    with pytest.raises(SkipSide, match=message):
        make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tensor.op(Context(), op="add", source="gather"), "gather"),
        (lambda: parallel.train(Context(), strategy="ddp"), "ranks"),
        (lambda: host.task(Context(), work="touch", bytes=1000), "MiB"),
        (lambda: host.task(Context(), work="matmul", units=3), "equally"),
        (lambda: host.task(Context(), work="matmul", threads_each="many"), "threads_each"),
        (lambda: model.step(Context(), model="huge"), "not known"),
    ],
)
def test_parameters_that_contradict_each_other_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(("q_len", "peak_name"), [(1, "cpu_stream"), (2, "cpu_gemm_fp32")])
def test_only_decoding_is_held_against_the_memory(monkeypatch, q_len, peak_name):
    monkeypatch.setattr(seeded, "last_level_cache", lambda device: 1 << 10)
    sizes = {"batch": 1, "heads": 2, "head_dim": 16, "kv_len": 64}
    work = attention.forward(Context(), **sizes, q_len=q_len, dtype="float32", backend="composed").work
    assert set(work.peaks) == {peak_name}
