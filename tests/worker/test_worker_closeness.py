"""Closeness of long arrays: part by part it says what one look at the whole would say."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from aiperf.worker import closeness
from aiperf.workloads.shared import parts as _parts
from aiperf.workloads.shared.parts import PART, by_parts, by_wide_parts

LONG = 6 * PART + 5


def within(want, got, rtol, atol):
    return closeness.within(want, got, rtol, atol, whose="before")


@pytest.fixture(params=["cpus", "gpu"], autouse=True)
def looked_at_by(request, monkeypatch):
    """On all CPUs, or by torch on the GPU in use, whose part is played by torch on the CPU."""
    monkeypatch.setattr(_parts, "device_in_use", lambda: "cpu" if request.param == "gpu" else "")
    monkeypatch.setattr(_parts, "_GPU_PART", PART)
    monkeypatch.setattr(_parts, "_FEW_FOR_GPU", PART)
    return request.param


def test_long_arrays_are_looked_at_where_they_should_be(looked_at_by):
    said = by_wide_parts(lambda library, start, part: (library.__name__, start, str(part.dtype)), np.ones(LONG, "f4"))
    library, dtype = ("torch", "torch.float64") if looked_at_by == "gpu" else ("numpy", "float64")
    assert said == [(library, start, dtype) for start in range(0, LONG, PART)]
    assert {name for name, *_ in by_wide_parts(lambda lib, *_: (lib.__name__,), np.ones(PART))} == {"numpy"}


def test_a_gpu_without_room_and_types_it_lacks_are_left_to_the_cpus():
    def look(library, start, part):
        if library is torch:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        return float(part.sum())

    assert sum(by_wide_parts(look, np.ones(LONG))) == LONG
    for lacking in (np.ones(LONG, np.longdouble), np.ones(LONG, ">f4"), np.ones(LONG)[::-1]):
        assert within(lacking, np.ones(LONG), 0.1, None) == ("", 0.0)


def test_a_gpu_is_in_use_when_this_process_computes_on_it_and_not_when_it_could(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.current_device", lambda: 1)
    monkeypatch.setattr("torch.cuda.is_initialized", lambda: False)
    assert _parts.device_in_use() == ""
    monkeypatch.setattr("torch.cuda.is_initialized", lambda: True)
    assert _parts.device_in_use() == "cuda:1"


def at_once(want, got, rtol, atol):
    """Largest relative error, how many are wrong, and where the worst is, of whole arrays in one look."""
    want, got = want.astype(np.complex128), got.astype(np.complex128)
    scale = np.sqrt(np.mean(np.abs(want) ** 2))
    error, allowed = np.abs(got - want), (rtol * scale if atol is None else atol) + rtol * np.abs(want)
    relative = (error / np.maximum(np.abs(want), scale)).max()
    return relative, int((error > allowed).sum()), np.unravel_index(int(np.argmax(error - allowed)), want.shape)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
@pytest.mark.parametrize("atol", [None, pytest.param(0.0, marks=pytest.mark.long), 1e-3])
def test_parts_say_what_the_whole_says(dtype, atol):
    draw = np.random.default_rng(1)
    want = (draw.standard_normal(LONG) + (1j * draw.standard_normal(LONG) if dtype == "complex64" else 0)).astype(dtype)
    got = want * (1 + 3e-4 * draw.standard_normal(LONG)).astype(np.float32)
    detail, worst = within(want, got, 1e-4, atol)
    relative, wrong, where = at_once(want, got, 1e-4, atol)
    assert worst == pytest.approx(relative, rel=1e-12)
    assert 0 < wrong < LONG
    assert detail.startswith(f"differs in {wrong} of {LONG} elements, worst at ({where[0]},): ")


@pytest.mark.parametrize("place", [0, PART - 1, PART, 5 * PART, LONG - 1])
def test_one_wrong_element_is_found_wherever_it_is(place):
    want = np.ones(LONG, np.float32)
    got = want.copy()
    got[place] = 3
    told = f"differs in 1 of {LONG} elements, worst at ({place},): 3 against before's 1"
    assert within(want, got, 0.1, None) == (told, 2.0)
    assert within(want, want.copy(), 0.1, None) == ("", 0.0)


def test_the_place_is_told_in_the_arrays_own_shape():
    want = np.zeros((3, PART, 2))
    got = want.copy()
    got[2, 7, 1] = 1
    assert "worst at (2, 7, 1): 1 against before's 0" in within(want, got, 1e-3, 1e-3)[0]


def test_values_that_are_not_finite_count_on_both_sides():
    want, got = np.ones(LONG), np.ones(LONG)
    want[3], got[LONG - 2], got[5] = np.nan, np.inf, np.nan
    assert within(want, got, 1.0, 1.0) == ("has 3 non-finite values (poison counts)", float("inf"))


def test_arrays_without_elements_are_close():
    assert within(np.empty((0, 3)), np.empty((0, 3)), 0.0, None) == ("", 0.0)


@pytest.mark.parametrize("size", [0, 1, PART, PART + 1, LONG])
def test_parts_cover_everything_once_and_in_order(size):
    parts = by_parts(lambda part: list(range(part.start, part.stop)), size)
    assert [index for part in parts for index in part] == list(range(size))


def test_what_goes_wrong_in_a_part_is_not_lost():
    def look(part):
        return 1 / (part.start - 5 * PART)

    with pytest.raises(ZeroDivisionError):
        by_parts(look, LONG)


def test_an_imaginary_part_on_one_side_alone_counts():
    want = np.ones(LONG)
    assert within(want, want + 5j, 0.1, None)[0].startswith(f"differs in {LONG} of {LONG}")
    assert within(want + 5j, want, 0.1, None)[0].startswith(f"differs in {LONG} of {LONG}")


def test_a_scale_that_overflows_is_no_licence():
    assert within(np.array([1e200, 1e200]), np.array([-1e200, 0.0]), 1e-9, None)[0].startswith("holds values too large")
