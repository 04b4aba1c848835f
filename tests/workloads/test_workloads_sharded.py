"""parallel.sharded: two Gloo ranks have the shares of the whole batch's gradients, whoever gathers the weights."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from gang_of_two import run_gang

from aiperf.workloads.contract import Context
from aiperf.workloads.parallel import sharded
from aiperf.workloads.parallel import workload as parallel
from aiperf.workloads.shared import models

pytestmark = pytest.mark.long  # another's compiler
_TINY = {"workload": "parallel.sharded", "model": "tiny", "batch": 2, "seq": 4}
_HOW = ("eager", "compiled_blocks", "traced")


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """found[rank][how] -> outputs, and counts as count.NAME."""
    both = run_gang([{**_TINY, "how": how} for how in _HOW], tmp_path_factory.mktemp("gang"))
    return [dict(zip(_HOW, sides, strict=True)) for sides in both]


def _truth():
    task = models.build("tiny", seed=3, device="cpu", batch=4, seq=4)
    task.redraw(9)
    task.loss(task.module(task.batch), task.targets).backward()
    return {name: grad.chunk(2) for name, grad in models.gradients(task.module).items()}


@pytest.mark.parametrize("how", ["eager", "compiled_blocks"])
def test_what_lies_outside_the_blocks_stays_gathered_as_fully_shards_default_has_it(monkeypatch, how):
    told = []
    root = SimpleNamespace(set_reshard_after_forward=lambda again, recurse: told.append((again, recurse)))
    monkeypatch.setattr("aiperf.workloads.parallel.gradient_exchange.shard", lambda *_, **__: root)
    assert (
        sharded._module(models.build("tiny", seed=3, device="cpu", batch=2, seq=4), how, device="cpu", ranks=2) is root
    )
    assert told == [(False, False)]


@pytest.mark.parametrize("how", _HOW)
def test_each_rank_has_its_share_of_the_whole_batchs_gradients(found, how):
    truth = _truth()
    for rank in (0, 1):
        own = {name: array for name, array in found[rank][how].items() if not name.startswith("count.")}
        assert set(own) == set(truth)
        for name, halves in truth.items():
            assert np.allclose(own[name], halves[rank].numpy(), rtol=1e-3, atol=1e-6), name


def test_one_graph_is_compiled_of_the_blocks_code_and_one_of_the_whole_model(found):
    assert [float(found[0][how]["count.graphs"]) for how in _HOW] == [0, 1, 1]
    assert [float(found[0][how]["count.graph_breaks"]) for how in _HOW] == [0, 0, 0]


def test_what_is_scheduled_is_traced_whole_with_settings_that_inductor_has(monkeypatch):
    from torch._inductor import config

    assert set(sharded._SCHEDULED) <= set(config.get_config_copy())
    asked = []
    monkeypatch.setattr(sharded, "_trace", lambda module, **_: asked.append(module))
    monkeypatch.setattr("torch.compile", lambda module, **how: asked.append(how) or module)
    module = torch.nn.Linear(1, 1)
    for how in ("traced", "traced_scheduled"):
        assert sharded._module(SimpleNamespace(module=module), how, device="cpu", ranks=2) is module
    assert asked == [module, {"fullgraph": True}, module, {"fullgraph": True, "options": sharded._SCHEDULED}]


@pytest.mark.parametrize(
    ("ranks", "asked", "fault"), [(1, {}, "ranks: 2"), (2, {"model": "mlp:small"}, "not a transformer")]
)
def test_what_cannot_be_sharded_is_refused(ranks, asked, fault):
    with pytest.raises(ValueError, match=fault):
        parallel.sharded(Context(world_size=ranks), **asked)
