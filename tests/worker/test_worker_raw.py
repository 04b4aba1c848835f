"""Bytes as numbers: every type that torch has reads as torch reads it, and what is unknown stays bytes."""

import numpy as np
import pytest
import torch

from aiperf.worker import arrays, raw

EIGHT_BITS = ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"]


@pytest.mark.parametrize("name", EIGHT_BITS)
def test_every_code_of_an_8_bit_float_is_the_number_that_torch_makes_of_it(name):
    codes = torch.arange(256, dtype=torch.uint8).view(getattr(torch, name))
    want, found = codes.float().numpy(), raw.decode(codes.view(torch.uint8).numpy(), name, (16, 16))
    assert found.shape == (16, 16)
    assert np.array_equal(want, found.reshape(-1), equal_nan=True)
    numbers = ~np.isnan(want)
    assert np.array_equal(np.signbit(want[numbers]), np.signbit(found.reshape(-1)[numbers]))


def test_every_code_of_bfloat16_is_the_number_that_torch_makes_of_it():
    codes = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16)
    found = raw.decode(codes.view(torch.uint8).numpy(), "bfloat16")
    assert np.array_equal(codes.view(torch.bfloat16).float().numpy(), found, equal_nan=True)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6.0).reshape(2, 3), np.arange(6, dtype=">i4"), np.array([True, False]), np.array(3 + 1j),
        np.array(["a", "bcd"]), np.zeros((0, 4), np.float16), torch.arange(4, dtype=torch.uint8),
    ],
)  # fmt: skip
def test_other_arrays_come_back_as_they_were(array):
    whole, dtype, shape = arrays.host_octets(arrays.octets(array)), arrays.dtype_of(array), tuple(array.shape)
    assert raw.fits(whole.nbytes, dtype, shape)
    found = raw.decode(whole, dtype, shape)
    assert found.shape == shape
    assert found.tolist() == array.tolist()


def test_types_are_told_apart_and_more_or_fewer_bytes_than_a_shape_has_do_not_fit():
    floats = ["float32", "float64", "float16", "bfloat16", "complex64", *EIGHT_BITS]
    assert all(map(raw.is_floating, floats))
    assert not any(map(raw.is_floating, ["int32", "bool", "<U3", "no such type"]))
    assert raw.fits(12, "bfloat16", (2, 3))
    assert not raw.fits(13, "bfloat16", (2, 3))
    assert not raw.fits(8, "float32", (-1, -2))


@pytest.mark.parametrize("name", ["object", "O", "V8", "no such type", "i4,f8", "quint4x2"])
def test_bytes_of_a_type_whose_bytes_mean_nothing_here_stay_bytes(name):
    octets = np.arange(16, dtype=np.uint8)
    assert raw.itemsize(name) == 0
    assert raw.decode(octets, name, (2,)).tolist() == octets.tolist()
