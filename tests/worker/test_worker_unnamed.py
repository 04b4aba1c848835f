"""Of the arrays that a step uses, those that nobody names and that stay the same are told, and no others."""

import mmap

import numpy as np
import pytest
import torch

from aiperf.worker.unnamed import UnnamedArrays, _sum, fingerprint_of


def unchanged(step, *, named=(), between=lambda: None):
    """What two looks find, with ``between`` happening meanwhile."""
    arrays = UnnamedArrays(step)
    arrays.look(named)
    between()
    arrays.look(named)
    return arrays.unchanged()


def using(*held):
    return lambda: held


@pytest.fixture
def x():
    return np.random.default_rng(0).standard_normal((64, 8))


def test_an_array_that_nobody_names_is_told_with_its_type_and_shape_from_the_largest_on(x):
    small, bits = np.ones(3, np.int32), torch.ones(4, dtype=torch.bfloat16)
    assert unchanged(using(small, x, bits)) == ["float64 [64, 8]", "int32 [3]", "bfloat16 [4]"]
    assert unchanged(using(x[:32], x.T, x[60:])) == ["float64 [8, 64]"]


def test_what_shares_memory_with_a_named_array_is_not_told(x):
    tensor, other = torch.from_numpy(x), x.copy()
    for named in (x, x[3:5], x.T, tensor, tensor[:1], x[::-1]):
        assert unchanged(using(x, tensor.t(), x[:4], other), named=[other, named]) == []
    assert unchanged(using(x[4:]), named=[x, x[1:2]]) == []
    assert unchanged(using(x[:4], x[4:]), named=[x[:4]]) == ["float64 [60, 8]"]


def test_what_changes_is_not_told_however_little_of_it(x):
    large, order = np.zeros(1 << 20, np.uint8), np.arange(1 << 15)

    def write():
        x[5, 1] += 1e-12
        large[600_001] = 1
        order[:] = order[::-1].copy()

    assert unchanged(using(x, large, order, torch.from_numpy(x)), between=write) == []


def test_one_number_and_masks_and_what_is_no_numbers_are_not_told():
    assert unchanged(using(np.ones(9, bool), torch.ones(9, dtype=torch.bool))) == []
    assert unchanged(using(np.ones(()), np.ones(1), torch.ones(1), np.array(["a", "b"]), np.array([None, 1]))) == []


def test_what_lies_in_a_file_or_with_another_process_or_with_gaps_is_not_read(tmp_path, x):
    (tmp_path / "file").write_bytes(bytes(800))
    mapped = np.memmap(tmp_path / "file", np.uint8)
    shared = np.frombuffer(mmap.mmap(-1, 4096), np.uint8)
    assert unchanged(using(mapped, np.asarray(mapped)[3:], shared, x[:, ::2], torch.from_numpy(x)[:, ::2])) == []
    assert unchanged(using(torch.ones(3, 3).to_sparse(), torch.ones(3, device="meta"))) == []
    assert unchanged(using(torch.ones(8).numpy())) == ["float32 [8]"]


def test_equal_contents_have_equal_fingerprints_in_any_library_and_others_have_others(x):
    assert fingerprint_of(x) == fingerprint_of(torch.from_numpy(x)) == fingerprint_of(x.copy())
    assert fingerprint_of(x) != fingerprint_of(x + 1e-9)
    assert fingerprint_of(np.arange(9, dtype=np.int8)) != fingerprint_of(np.arange(1, 10, dtype=np.int8))
    assert fingerprint_of(torch.ones(3, dtype=torch.bool)) == fingerprint_of(np.ones(3, bool))
    weights = torch.nn.Parameter(torch.ones(3, 2))
    assert fingerprint_of(weights) == fingerprint_of(np.ones((3, 2), np.float32))


def test_torch_adds_up_the_same_words_as_numpy_and_bytes_where_they_do_not_begin_at_a_word():
    octets = np.random.default_rng(0).integers(0, 256, 4096, dtype=np.uint8)
    assert _sum(torch.from_numpy(octets)) == _sum(octets) == sum(octets.view(np.uint64).tolist()) % 2**64
    assert _sum(torch.full((16,), 255, dtype=torch.uint8)) == _sum(np.full(16, 255, np.uint8)) == 2**64 - 2
    assert _sum(torch.from_numpy(octets)[1:41]) == octets[1:41].sum()
    assert fingerprint_of(torch.from_numpy(octets)[1:41]) == fingerprint_of(octets[1:41].copy())


def test_a_look_reads_the_smallest_arrays_and_leaves_the_rest_out(x, monkeypatch):
    monkeypatch.setattr("aiperf.worker.unnamed._MOST_ON_HOST", 200)
    assert unchanged(using(x, np.ones(8), np.ones(9))) == ["float64 [9]", "float64 [8]"]


def test_odd_objects_break_no_look(x):
    class Fails:
        @property
        def __class__(self):
            raise RuntimeError("no")

    assert unchanged(using(Fails(), x), named=[Fails(), "no array"]) == ["float64 [64, 8]"]
    assert UnnamedArrays(using(x)).unchanged() == []
