"""Two Gloo ranks: every strategy yields the gradient of the whole batch, and collectives what they promise."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cpu_pairs import differences
from torch.distributed import TCPStore

import aiperf
from aiperf.workloads.shared import models
from aiperf.workloads.shared.seeded import draw_normal, own_seed

_TRAIN = {"workload": "parallel.train", "model": "mlp:small", "batch": 4}
_WORDS = {**_TRAIN, "model": "tiny", "seq": 4}
_SIDES = [
    {**_TRAIN, "strategy": "after_backward", "bucket_mb": 0.5},
    {**_TRAIN, "strategy": "after_backward", "bucket_mb": 0},
    {**_TRAIN, "strategy": "ddp", "bucket_mb": 0.5},
    {"workload": "comm.collective", "size": 4096, "calls": 3},
    {"workload": "comm.collective", "size": 4096, "op": "all_gather"},
    {"workload": "comm.collective", "size": 4096, "op": "broadcast", "backend": "gloo"},
    {**_WORDS, "bucket_mb": 1},
    {**_WORDS, "bucket_mb": 1, "compile": "default"},
]


@pytest.fixture(scope="module")
def gang(tmp_path_factory):
    """Outputs of rank 0 for each side, by number."""
    target = tmp_path_factory.mktemp("gang") / "out.npz"
    store = TCPStore("127.0.0.1", 0, 2, is_master=True, wait_for_workers=False)
    script = str(Path(__file__).with_name("gang_rank.py"))
    env = {**os.environ, "PYTHONPATH": str(Path(aiperf.__file__).parents[1])}
    rest = [str(store.port), str(target), json.dumps(_SIDES)]
    ranks = [subprocess.Popen([sys.executable, script, str(rank), *rest], env=env) for rank in (0, 1)]
    assert [rank.wait(timeout=100) for rank in ranks] == [0, 0]
    found: dict[int, dict[str, np.ndarray]] = {number: {} for number in range(len(_SIDES))}
    with np.load(target) as stored:
        for key in stored:
            number, _, name = key.partition(":")
            found[int(number)][name] = stored[key]
    return found


def _of_one_process(*, part: int, parts: int) -> dict[str, np.ndarray]:
    task = models.build("mlp:small", seed=3, device="cpu", batch=8, seq=1, part=part, parts=parts)
    task.redraw(9)
    task.loss(task.module(task.batch), task.targets).backward()
    return {name: grad.numpy() for name, grad in models.gradients(task.module).items()}


def _gradients(side: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {k: v for k, v in side.items() if k.endswith(("weight", "bias"))}


@pytest.mark.parametrize("side", [0, 1, 2])
def test_every_strategy_yields_the_gradient_of_one_process_with_the_whole_batch(gang, side):
    found = _gradients(gang[side])
    assert differences(found, _of_one_process(part=0, parts=1), rtol=1e-5, atol=1e-7) == []


def test_gradients_that_were_never_averaged_would_be_noticed(gang):
    alone = _of_one_process(part=0, parts=2)
    assert differences(_gradients(gang[2]), alone, rtol=1e-5, atol=1e-7) == sorted(alone)


def test_a_compiled_model_is_cut_into_a_graph_for_each_bucket_and_yields_the_same_gradient(gang):
    eager, compiled = gang[6], gang[7]
    assert [float(side["count.graphs"]) for side in (eager, compiled)] == [0, 3]
    assert [float(side["count.exchanges"]) for side in (eager, compiled)] == [1, 1]
    assert differences(_gradients(eager), _gradients(compiled), rtol=1e-3, atol=1e-6) == []


def test_both_strategies_report_equal_work(gang):
    names = ("work.bytes", "work.flops", "work.items")
    assert [float(gang[0][n]) for n in names] == [float(gang[2][n]) for n in names]
    assert float(gang[0]["work.items"]) == 8


def _payload(rank: int | None) -> np.ndarray:
    name = "payload" if rank is None else f"payload-{rank}"
    drawn = np.empty(1024, np.float32)
    draw_normal(drawn, seed=own_seed(9, name))
    return drawn


def test_three_all_reduces_sum_the_ranks_and_then_double_twice(gang):
    expected = 4 * (_payload(0) + _payload(1))
    assert np.allclose(gang[3]["out"][0], expected, rtol=1e-6)
    assert str(gang[3]["backend"]) == "gloo"


def test_bus_bytes_of_an_all_reduce_are_twice_n_minus_one_nths(gang):
    assert float(gang[3]["peak.all_reduce_gloo"]) == 3 * 4096 * 2 * 1 / 2
    assert "peak.all_reduce_gloo" not in gang[4]


def test_all_gather_brings_every_rank_and_broadcast_the_first(gang):
    assert np.array_equal(gang[4]["out"], np.stack([_payload(0), _payload(1)]))
    assert np.array_equal(gang[5]["out"][0], _payload(None))
