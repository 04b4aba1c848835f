"""The check's own work on a GPU says what numpy says: digests, poison, closeness, and what comes to the host."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from gpu_cases import gpu_context

from aiperf.worker import arrays
from aiperf.worker.closeness import within
from aiperf.workloads.contract import Context
from aiperf.workloads.shared import parts, seeded

LONG = 3 * parts._GPU_PART + 5
DTYPES = ["float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "int64", "int32", "uint8", "bool", "complex64"]


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return gpu_context(tmp_path)


@pytest.fixture(autouse=True)
def _in_use(context: Context) -> None:
    torch.zeros(1, device=context.device)
    assert parts.device_in_use() == context.device


@pytest.mark.parametrize("pinned", [False, True])
def test_a_digest_is_the_same_on_the_gpu_in_pinned_memory_and_by_numpy(
    pinned: bool, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = torch.from_numpy(np.random.default_rng(1).standard_normal(LONG, dtype=np.float32))
    near = host.pin_memory() if pinned else host.to(context.device)
    assert near.is_pinned() == pinned
    seen = [arrays.digest(array) for array in (near, host, host.numpy())]
    near[LONG // 2] += 1
    touched = arrays.digest(near)
    monkeypatch.setattr(arrays, "device_in_use", lambda: "")
    assert seen == [arrays.digest(host.numpy())] * 3
    assert touched == arrays.digest(near.cpu().numpy()) != seen[0]


@pytest.mark.parametrize("place", [0, LONG // 2, LONG - 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32])
def test_one_element_without_poison_is_seen_in_pinned_memory(dtype: torch.dtype, place: int) -> None:
    array = torch.zeros(LONG, dtype=dtype).pin_memory()
    arrays.poison(array)
    assert arrays.is_poisoned(array)
    array[place] = 0
    assert not arrays.is_poisoned(array)


def test_closeness_is_the_same_on_the_gpu_and_on_the_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    want = np.random.default_rng(2).standard_normal(LONG, dtype=np.float32)
    got = want + np.float32(1e-4)
    got[LONG - 7] = 9
    on_gpu = within(want, got, 1e-3, None, whose="before")
    monkeypatch.setattr(parts, "device_in_use", lambda: "")
    on_cpus = within(want, got, 1e-3, None, whose="before")
    assert on_gpu[0] == on_cpus[0]
    assert f"worst at ({LONG - 7},)" in on_gpu[0]
    assert on_gpu[1] == pytest.approx(on_cpus[1], rel=1e-12)


@pytest.mark.parametrize("fill", [seeded.fill_normal, seeded.fill_uniform])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_long_inputs_are_drawn_alike_on_the_gpu_and_on_the_cpus(
    fill: Callable[..., None], dtype: torch.dtype, context: Context
) -> None:
    for shape in ((2, LONG), (LONG, 2)):
        here, there = (torch.empty(shape, dtype=dtype, device=device) for device in ("cpu", context.device))
        if shape[0] == LONG:
            here, there = here.t(), there.t()
        for tensor in (here, there):
            fill(tensor, seed=4, name="x")
        assert torch.equal(there.cpu(), here)


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float8_e4m3fn", "complex64"])
def test_the_worst_value_is_seen_on_the_gpu_and_in_host_memory(name: str, context: Context) -> None:
    values = ((-1, 1.0, "finite"), (LONG // 2, float("inf"), "infinite"), (3, float("nan"), "nan"))
    array = torch.ones(LONG).to(getattr(torch, name))
    for place, value, worst in values if "float8" not in name else (values[0], values[2]):
        array[place] = value
        assert arrays.worst_value(array) == arrays.worst_value(array.to(context.device)) == worst


@pytest.mark.parametrize("name", DTYPES)
def test_what_comes_to_the_host_is_what_was_there(name: str, context: Context) -> None:
    there = (torch.randn(37, 5, device=context.device) * 9).to(getattr(torch, name))
    host, dtype = arrays.to_numpy(there.t())
    assert dtype == name
    wide = there.float() if "float8" in name or name == "bfloat16" else there
    assert np.array_equal(host, wide.t().cpu().numpy())
    assert host.flags.writeable
