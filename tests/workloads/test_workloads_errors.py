"""The named checks of sides that differ by design: how far outputs lie apart, and what is no comparison at all."""

from __future__ import annotations

import numpy as np
import pytest

from aiperf.workloads.shared import parts
from aiperf.workloads.shared.agreement import relative_frobenius

LONG = 5 * (1 << 16) + 3


@pytest.fixture(params=["cpus", "gpu"], autouse=True)
def _looked_at_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """On all CPUs, or by torch on the GPU in use, whose part is played by torch on the CPU."""
    monkeypatch.setattr(parts, "device_in_use", lambda: "cpu" if request.param == "gpu" else "")
    monkeypatch.setattr(parts, "_GPU_PART", 1 << 16)
    monkeypatch.setattr(parts, "_FEW_FOR_GPU", 1 << 16)


def test_the_error_is_the_length_of_the_difference_over_the_length_of_the_first():
    draw = np.random.default_rng(0)
    before = {"a": draw.standard_normal(LONG).astype(np.float32), "b": draw.standard_normal((3, 4))}
    ours = {name: array * 1.01 for name, array in before.items()}
    found = relative_frobenius(before, ours)
    assert found.passed
    assert found.value == pytest.approx(0.01, rel=1e-4)


def test_an_imaginary_part_on_one_side_counts():
    ones = np.ones(8)
    assert relative_frobenius({"a": ones}, {"a": ones + 5j}).value == pytest.approx(5)
    assert relative_frobenius({"a": ones + 0j}, {"a": ones}).value == 0


@pytest.mark.parametrize(
    ("before", "ours", "said"),
    [
        ({"a": np.ones(1)}, {"a": np.ones(1000)}, "a has shape (1000,) against before's (1,)"),
        ({"a": np.ones(2)}, {"b": np.ones(2)}, "one side gives ['a'], the other ['b']"),
        ({}, {}, "one side gives [], the other []"),
        ({"a": np.zeros(2)}, {"a": np.zeros(2)}, "not finite, or only zeros"),
        ({"a": np.ones(2)}, {"a": np.array([1, np.nan])}, "not finite"),
    ],
)
def test_what_cannot_be_held_against_each_other_fails(before, ours, said):
    found = relative_frobenius(before, ours)
    assert not found.passed
    assert said in found.detail
