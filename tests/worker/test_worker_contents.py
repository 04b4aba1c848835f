"""New contents of arrays: what a redraw repeats and keeps, and elements at places that are named."""

import numpy as np
import pytest
import torch

from aiperf.worker import contents


@pytest.mark.parametrize("make", [torch.zeros, np.zeros], ids=["torch", "numpy"])
def test_equal_seeds_redraw_equal_values_and_names_and_seeds_matter(make):
    a, b, c, d = (make(1000) for _ in range(4))
    contents.redraw(a, name="x", seed=3, mean=0.0, std=1.0)
    contents.redraw(b, name="x", seed=3, mean=0.0, std=1.0)
    contents.redraw(c, name="y", seed=3, mean=0.0, std=1.0)
    contents.redraw(d, name="x", seed=4, mean=0.0, std=1.0)
    assert (a == b).all()
    assert not (a == c).any()
    assert not (a == d).any()


@pytest.mark.parametrize("array", [torch.zeros(40_000, dtype=torch.float64), np.zeros(40_000, np.float16)])
def test_a_redraw_keeps_the_moments(array):
    contents.redraw(array, name="x", seed=1, mean=5.0, std=0.25)
    assert contents.moments(array) == pytest.approx((5.0, 0.25), abs=0.01)


def test_a_redraw_reaches_tensors_of_inference_mode_and_parameters():
    with torch.inference_mode():
        born_there = torch.zeros(50)
    weight = torch.nn.Parameter(torch.zeros(50))
    for array in (born_there, weight):
        contents.redraw(array, name="w", seed=1, mean=0.0, std=1.0)
        assert array.std() > 0.5
    weight.sum().backward()
    assert weight.grad is not None


@pytest.mark.parametrize("one", [torch.tensor([2.5]), np.array([2.5]), torch.tensor(2.5), np.array(2.5)])
def test_a_single_number_has_no_spread_and_stays_what_it_is(one):
    mean, std = contents.moments(one)
    assert (mean, std) == (2.5, 0.0)
    contents.redraw(one, name="scale", seed=1, mean=mean, std=std)
    assert one.item() == 2.5


@pytest.mark.parametrize("array", [torch.tensor([0.0, -np.inf]), np.array([0.0, -np.inf]), np.empty(0)])
def test_moments_say_when_there_is_nothing_to_draw_from(array):
    with np.errstate(invalid="ignore"):
        assert not np.isfinite(contents.moments(array)).all()


@pytest.mark.parametrize("kind", [torch.float8_e4m3fn, torch.float8_e5m2, torch.bfloat16, torch.float16, torch.float64])
def test_elements_are_read_of_every_type_row_by_row(kind):
    array = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]).to(kind)
    assert contents.some(array, [1, 3, 5]) == (2.0, 4.0, 6.0)
    assert contents.some(array.float().numpy(), [0, 4]) == (1.0, 5.0)
