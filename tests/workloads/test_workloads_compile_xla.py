"""compile.xla: both sides give the truth, and each shape compiles a program; with JAX where it is installed, else
with a stand-in that has torch compute."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from cpu_pairs import Pair, audit, differences, set_up

from aiperf.workloads.compile import workload as family
from aiperf.workloads.contract import Context, SkipSide

LENGTHS = [5, 64, 65, 100, 5]
PAIR = Pair("compile.xla", {"pad": "none"}, {"pad": "bucket"}, {"lengths": LENGTHS, "iterations": 2})


def stand_in() -> dict[str, ModuleType]:
    """Modules with what of JAX the workload uses; the first call of a shape reports a compilation."""
    heard: list[Any] = []
    shapes: set[Any] = set()
    jax, nn, monitoring = (ModuleType(name) for name in ("jax", "jax.nn", "jax.monitoring"))

    def jit(function: Any) -> Any:
        def call(weights: Any, x: np.ndarray, factor: float) -> Any:
            if x.shape not in shapes:
                for hear in heard:
                    hear("/jax/core/compile/backend_compile_duration", 0.1, fun_name="f")
            for hear in heard:
                hear("/jax/core/compile/jaxpr_trace_duration", 0.1)
            shapes.add(x.shape)
            return function(weights, torch.from_numpy(x), factor)

        return call

    jax.__dict__.update(
        __version__="0", jit=jit, device_put=torch.as_tensor, clear_caches=shapes.clear,
        config=SimpleNamespace(update=lambda name, value: None),
    )  # fmt: skip
    nn.__dict__.update(
        gelu=lambda x, approximate: torch.nn.functional.gelu(x, approximate="tanh" if approximate else "none"),
        sigmoid=torch.sigmoid,
    )
    monitoring.__dict__["register_event_duration_secs_listener"] = heard.append
    return {"jax": jax, "jax.nn": nn, "jax.monitoring": monitoring}


@pytest.fixture
def jax(monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("jax") is None:
        for name, module in stand_in().items():
            monkeypatch.setitem(sys.modules, name, module)


@pytest.mark.usefixtures("jax")
def test_both_sides_give_the_truth_and_compile_once_for_each_shape(tmp_path) -> None:
    found = []
    for which in ("before", "after"):
        workload = set_up(PAIR, which, tmp_path)
        for _ in range(2):
            workload.step()
        found.append(audit(workload, seed=5))
        truth = {key: value.numpy() for key, value in workload.reference().items()}
        assert differences(found[-1], truth, rtol=1e-4, atol=1e-5) == []
        assert workload.counters() == {"compiles": {"before": 4.0, "after": 2.0}[which]}
        assert workload.work.items == 2 * sum(LENGTHS)
    assert differences(*found, rtol=1e-4, atol=1e-5) == []
    assert [len(array) for array in found[0].values()] == LENGTHS


@pytest.mark.usefixtures("jax")
def test_each_call_passes_another_factor_and_the_last_one_s_result_stays(tmp_path) -> None:
    last = []
    for iterations in (2, 3):
        workload = family.xla(Context(seed=3, scratch=tmp_path), lengths=[7], iterations=iterations)
        workload.step()
        last.append(workload.outputs()["0-7"].clone())
    assert not torch.allclose(*last, rtol=1e-3)


def test_without_jax_the_side_is_skipped_and_a_length_below_one_is_a_fault(monkeypatch, tmp_path) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(SkipSide, match="JAX, which compiles with XLA, is not installed"):
        family.xla(Context(scratch=tmp_path))
    for wrong in ({"lengths": []}, {"lengths": [0]}, {"iterations": 0}):
        with pytest.raises(ValueError, match="must be 1 or more"):
            family.xla(Context(scratch=tmp_path), **wrong)
    with pytest.raises(SkipSide, match="runs only on a CPU"):
        family.xla(Context(device="cuda:0", scratch=tmp_path))
