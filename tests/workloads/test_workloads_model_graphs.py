"""model.graphs: a variant for each batch size, which differ in their memory pools only."""

from __future__ import annotations

import pytest
import torch
from cpu_pairs import Pair, audit, differences, set_up

from aiperf.workloads.contract import Context, SkipSide
from aiperf.workloads.model import variants
from aiperf.workloads.shared import models

_SMALL = {"sizes": [1, 3], "seq": 5}


def test_every_size_predicts_what_follows_its_samples(tmp_path):
    workload = set_up(Pair("model.graphs", {}, {"pool": "none"}, _SMALL), "after", tmp_path)
    found = audit(workload, seed=5)
    task = models.build("tiny", seed=3, device="cpu", batch=3, seq=5)
    task.redraw(5)
    with torch.no_grad():
        truth = {f"prediction_{n}": task.module(task.batch[:n])[:, -1].numpy() for n in (1, 3)}
    assert differences(found, truth, rtol=1e-4, atol=1e-6) == []
    assert (workload.work.items, workload.counters()["passes"]) == (20, 2)
    assert workload.work.flops == pytest.approx(task.forward_flops * 4 / 3)


def test_smaller_batches_padded_into_the_pass_of_the_largest_predict_the_same(tmp_path):
    own, padded = (
        set_up(Pair("model.graphs", {}, {"pool": "none", "padded": padded}, _SMALL), "after", tmp_path)
        for padded in (False, True)
    )
    for seed in (5, 6):
        assert differences(audit(padded, seed=seed), audit(own, seed=seed), rtol=1e-4, atol=1e-5) == []
    assert (own.facts["passes_made"], padded.facts["passes_made"]) == (2, 1)
    assert own.work == padded.work


class Cuda:
    """torch.cuda as far as a capture uses it: a graph's replay calls again what ran inside."""

    def __init__(self) -> None:
        self.pools, self.log = [], []

    def install(self, patch) -> None:
        nothing = type("Nothing", (), {"wait_stream": lambda *_: None})
        patch.setattr(torch.cuda, "Stream", nothing)
        patch.setattr(torch.cuda, "current_stream", nothing)
        patch.setattr(torch.cuda, "stream", lambda stream: torch.no_grad())
        patch.setattr(torch.cuda, "synchronize", lambda: None)
        patch.setattr(torch.cuda, "empty_cache", lambda: self.log.append("emptied"))
        patch.setattr(torch.cuda, "graph_pool_handle", lambda: "one pool")
        patch.setattr(torch.cuda, "CUDAGraph", lambda: type("Graph", (), {"replay": lambda *_: None})())
        patch.setattr(torch.cuda, "graph", self._graph)

    def _graph(self, graph, *, pool, stream):
        self.pools.append(pool)
        return torch.no_grad()


@pytest.mark.parametrize(("shared", "pools"), [(True, ["one pool"] * 2), (False, [None] * 2)])
def test_graphs_share_a_pool_only_where_asked_and_are_captured_in_order_after_the_cache_is_emptied(
    shared, pools, monkeypatch
):
    cuda = Cuda()
    cuda.install(monkeypatch)
    replays = variants.captured([lambda n=n: cuda.log.append(n) for n in (8, 1)], shared=shared)
    assert cuda.pools == pools
    assert cuda.log == ["emptied", 8, 1, 8, 1, "emptied", 8, 1]
    assert len(replays) == 2


def test_sizes_that_repeat_and_other_models_are_refused_and_a_capture_needs_a_gpu():
    with pytest.raises(ValueError, match="different"):
        variants.graphs(Context(), sizes=[2, 2])
    with pytest.raises(ValueError, match="not a transformer"):
        variants.graphs(Context(), model="mlp:small")
    with pytest.raises(SkipSide, match="GPU"):
        variants.graphs(Context())
