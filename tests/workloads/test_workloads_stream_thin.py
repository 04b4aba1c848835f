"""The thin product of stream.pipeline without a GPU: its numbers, its sizes, what a stage says of itself."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from aiperf.workloads.contract import Context
from aiperf.workloads.stream import schedule, stages, thin
from aiperf.workloads.stream import workload as stream


def test_the_expected_results_are_the_exact_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thin, "_STRIPS_AT_ONCE", 2)
    weights = thin.draw_weights(3, "cpu", seed=4)
    items = torch.empty(2, thin.DEPTH, thin.ROWS)
    thin.fill_items(items, seed=5)
    assert int(items.abs().max()) == int(weights.abs().max()) == thin.LARGEST
    whole = weights.permute(1, 0, 2).reshape(thin.DEPTH, 3 * thin.STRIP).long()
    truth = torch.einsum("ikr,kn->irn", items.long(), whole)
    assert np.array_equal(thin.expected(items.numpy().reshape(-1), weights), truth.reshape(-1).numpy())


def test_sums_are_exact_in_any_order() -> None:
    assert thin.DEPTH * thin.LARGEST**2 < 2**24


def test_equal_seeds_draw_equal_numbers_and_others_do_not() -> None:
    one, same, other = (torch.empty(1, thin.DEPTH, thin.ROWS) for _ in range(3))
    for items, seed in ((one, 1), (same, 1), (other, 2)):
        thin.fill_items(items, seed=seed)
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert torch.equal(thin.draw_weights(1, "cpu", seed=1), thin.draw_weights(1, "cpu", seed=1))


def test_a_result_is_cut_into_whole_clusters() -> None:
    assert thin.strips_of(8 << 20) == 2048
    with pytest.raises(ValueError, match="clusters of 16384 bytes"):
        thin.strips_of((8 << 20) + 4096)


@pytest.mark.parametrize("kernel", thin.ENTRIES)
def test_a_thin_product_copies_in_and_out_and_has_no_scratch(kernel: Any) -> None:
    with pytest.raises(ValueError, match="stages are h2d, kernel, d2h"):
        stream.pipeline(Context(), kernel=kernel, stages=["kernel", "d2h"])
    with pytest.raises(ValueError, match="scratch cuda_malloc is for"):
        stages.compute(Context(), kernel=kernel, each=1 << 20, rounds=2, scratch="cuda_malloc")


class Pretended(thin.ThinProduct):
    """Computes on the CPU what the kernel would."""

    def __init__(self, shape: str, device: Any) -> None:
        self._entry, self.block, self.cluster = thin.ENTRIES[shape]

    def queue(self, weights: Any, item: Any, out: Any) -> None:
        out.copy_(torch.from_numpy(thin.expected(item.numpy().reshape(-1), weights)).view(out.shape))


def test_a_pipeline_is_charged_for_the_weights_that_each_item_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thin, "ThinProduct", Pretended)
    stage = stages.compute(Context(), kernel="thin_warp_specialized", each=16384, rounds=2, scratch="none")
    lane = SimpleNamespace(streams=lambda count: [None] * count, queue=lambda lane, call: call())
    monkeypatch.setattr(stream, "Queues", lambda device: lane)
    monkeypatch.setattr(schedule, "fork", lambda queues, lanes: None)
    monkeypatch.setattr(schedule, "join", lambda queues, lanes: None)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    plan = schedule.PipelinePlan(3, schedule.CHAINS[0], streams=2)
    workload = stream._Pipeline(Context(), plan, stage, pinned=False).workload(3 * 16384, graph=False)
    workload.step()
    assert workload.reference is not None
    assert np.array_equal(workload.outputs()["results"].numpy(), workload.reference()["results"])
    item, weights = thin.DEPTH * thin.ROWS * 4, 4 * thin.DEPTH * thin.STRIP * 4
    assert workload.work.peaks == {"h2d": 3 * item, "d2h": 3 * 16384, "dram": 3 * weights}
    assert workload.facts["weight_bytes"] == weights


@pytest.mark.long
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on PATH")
@pytest.mark.parametrize("cluster", [1, thin.CLUSTER])
def test_the_source_with_its_header_compiles(cluster: int, tmp_path: Path) -> None:
    source = tmp_path / thin.SOURCE
    source.write_text(thin.source_text(), encoding="utf-8")
    flags = ["-std=c++17", "-arch=sm_90a", "-Werror", "all-warnings", f"-DDEPTH={thin.DEPTH}", f"-DCLUSTER={cluster}"]
    subprocess.run(["nvcc", "-cubin", *flags, "-o", tmp_path / "out", source], check=True, capture_output=True)
