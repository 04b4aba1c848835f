"""Arrays: what poison writes, and digests that agree across libraries and catch permutations."""

import numpy as np
import pytest
import torch

from aiperf.worker import arrays

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn]
WHOLE = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16]


@pytest.mark.parametrize("dtype", FLOATS)
def test_poison_makes_every_float_nan(dtype):
    array = torch.zeros(7, 3).to(dtype)
    assert not arrays.is_poisoned(array)
    arrays.poison(array)
    assert torch.isnan(array.float()).all()
    assert arrays.is_poisoned(array)
    array[6, 2] = 0.0
    assert not arrays.is_poisoned(array)


@pytest.mark.parametrize("dtype", WHOLE)
def test_poison_writes_a_pattern_over_integers(dtype):
    array = torch.zeros(5, dtype=dtype)
    arrays.poison(array)
    assert array.tolist() == [0x5A] * 5
    assert arrays.is_poisoned(array)
    array[3] = 1
    assert not arrays.is_poisoned(array)


@pytest.fixture(params=["cpus", "gpu"])
def _looked_at_by(request, monkeypatch):
    """By numpy, or by torch on the GPU in use, whose part is played by torch on the CPU."""
    if request.param == "gpu":
        monkeypatch.setattr(arrays, "_on_gpu", lambda tensor: "cpu")
        monkeypatch.setattr(arrays, "_CHUNK", 1 << 16)


@pytest.mark.usefixtures("_looked_at_by")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.int32, torch.bool])
@pytest.mark.parametrize("place", [0, 3 << 17, -1])
def test_one_element_without_poison_is_seen_in_a_long_array_too(dtype, place):
    array = torch.zeros(6 << 16).to(dtype)
    array = torch.cat([array, array[:3]])
    arrays.poison(array)
    assert arrays.is_poisoned(array)
    array[place] = 0
    assert not arrays.is_poisoned(array)
    if dtype in (torch.float32, torch.int32, torch.bool):
        assert not arrays.is_poisoned(array.numpy())


def test_much_memory_of_the_host_is_looked_at_by_the_gpu_in_use_and_little_is_not(monkeypatch):
    little, much = torch.zeros(1000), torch.zeros(1 << 18)
    assert arrays._on_gpu(much) == ""
    monkeypatch.setattr(arrays, "device_in_use", lambda: "cuda:1")
    assert arrays._on_gpu(much) == "cuda:1"
    assert arrays._on_gpu(little) == ""


@pytest.mark.parametrize("dtype", [np.float64, np.complex64, np.float32])
@pytest.mark.parametrize("apart", [1, 2, 1000])
@pytest.mark.parametrize("count", [4, pytest.param(8, marks=pytest.mark.long)])
@pytest.mark.usefixtures("_looked_at_by")
def test_the_signs_of_a_few_elements_at_equal_distances_are_seen(dtype, apart, count):
    draw = np.random.default_rng(11)
    array = draw.standard_normal(150_000).astype(dtype) + (1j if dtype == np.complex64 else 0)
    array = np.concatenate([array, array]) if dtype == np.float32 else array
    assert array.nbytes > arrays._SMALL
    whole = arrays.digest(array)
    for start in draw.integers(0, len(array) - 10_000, 60):
        there = slice(start, start + count * apart, apart)
        array[there] = array[there].conj() if dtype == np.complex64 else -array[there]
        assert arrays.digest(array) != whole
        array[there] = array[there].conj() if dtype == np.complex64 else -array[there]


@pytest.mark.usefixtures("_looked_at_by")
def test_poison_after_an_infinity_is_seen():
    array = torch.ones(5 << 16)
    array[7], array[-7] = float("inf"), float("nan")
    assert arrays.worst_value(array) == arrays.worst_value(array.numpy()) == "nan"


@pytest.mark.parametrize("writeable", [True, False])
def test_numpy_is_looked_at_by_the_gpu_in_use_where_torch_takes_it(monkeypatch, writeable):
    array = np.random.default_rng(3).standard_normal(1 << 18)
    alone, seen = arrays.digest(array), []
    monkeypatch.setattr(arrays, "device_in_use", lambda: "cpu")
    by_torch = arrays._weighted_sum_by_torch
    monkeypatch.setattr(arrays, "_weighted_sum_by_torch", lambda *given: seen.append(given) or by_torch(*given))
    array.flags.writeable = writeable
    assert arrays.digest(array) == alone
    assert len(seen) == writeable


@pytest.mark.usefixtures("_looked_at_by")
def test_the_worst_value_of_an_array_is_told():
    for dtype in (torch.float32, torch.bfloat16, torch.float8_e5m2, torch.complex64):
        array = torch.ones(3 << 16).to(dtype)
        for place, value, worst in ((-1, 1.0, "finite"), (70_000, float("inf"), "infinite"), (5, float("nan"), "nan")):
            array[place] = value
            assert arrays.worst_value(array) == worst
            if dtype in (torch.float32, torch.complex64):
                assert arrays.worst_value(array.numpy()) == worst
    assert arrays.worst_value(np.arange(3)) == arrays.worst_value(torch.empty(0)) == "finite"
    assert arrays.worst_value(np.empty(0)) == "finite"


@pytest.mark.parametrize("near", ["the host's", "on the GPU"])
def test_a_gpu_without_room_leaves_the_hosts_memory_to_the_cpus_and_is_told_of_its_own(monkeypatch, near):
    def full(*_, **__):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    array = torch.full((6 << 20,), float("nan"))
    whole = arrays.digest(array)
    monkeypatch.setattr(arrays, "_on_gpu", lambda tensor: "cuda:0")
    monkeypatch.setattr(torch.Tensor, "to", full)
    if near == "on the GPU":
        monkeypatch.setattr(torch.Tensor, "is_cuda", True)
        for look in (arrays.digest, arrays.is_poisoned):
            with pytest.raises(torch.cuda.OutOfMemoryError):
                look(array)
        return
    assert arrays.digest(array) == whole
    assert arrays.is_poisoned(array)
    array[7] = 1
    assert not arrays.is_poisoned(array)


def test_views_that_conjugate_or_negate_are_seen_as_what_they_show():
    waves = torch.randn(3, 5, dtype=torch.complex64)
    for view in (waves.conj(), waves.conj().imag, waves[0].conj(), waves[0, 0].conj().imag):
        shown = arrays.to_numpy(view)[0]
        assert arrays.digest(view) == arrays.digest(shown.copy())
        assert not arrays.is_poisoned(view)
    arrays.poison(waves)
    assert arrays.is_poisoned(waves.conj())


@pytest.mark.parametrize("name", ["float64", "float32", "bfloat16", "float8_e5m2", "int64", "bool", "complex64"])
@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (7, 5), (300,)])
def test_what_is_brought_from_a_gpu_part_by_part_is_what_was_there(monkeypatch, name, shape):
    monkeypatch.setattr(arrays, "_CHUNK", 3)
    there = (torch.randn(shape) * 9).to(getattr(torch, name))
    wide = name.startswith(("bfloat16", "float8"))
    for view in (there, there.mT if there.dim() > 1 else there):
        brought = arrays._brought(view, "float32" if wide else name)
        assert brought.shape == tuple(view.shape)
        assert np.array_equal(brought, (view.float() if wide else view).numpy())


@pytest.mark.usefixtures("_looked_at_by")
def test_a_digest_of_a_long_array_is_the_same_in_every_library_and_sees_two_far_words_change_places():
    words = np.random.default_rng(0).integers(2**63, size=(20 << 17) + 1)
    octets = words.view(np.uint8)[:-3].copy()
    kept = arrays.digest(octets)
    assert arrays.digest(torch.from_numpy(octets)) == kept
    moved = octets.copy()
    moved[:8], moved[(19 << 20) : (19 << 20) + 8] = octets[(19 << 20) : (19 << 20) + 8], octets[:8]
    assert arrays.digest(moved) != kept
    last = octets.copy()
    last[-1] ^= 1
    assert arrays.digest(last) != kept


def test_poison_fills_bools_and_complex_numbers():
    flags, waves = torch.zeros(3, dtype=torch.bool), torch.zeros(3, dtype=torch.complex64)
    arrays.poison(flags)
    arrays.poison(waves)
    assert flags.all()
    assert torch.isnan(waves).all()
    assert arrays.is_poisoned(flags)
    assert arrays.is_poisoned(waves)


def test_poison_reaches_tensors_of_inference_mode_and_parameters():
    with torch.inference_mode():
        born_there = torch.zeros(3)
    weight = torch.nn.Parameter(torch.zeros(3))
    for array in (born_there, weight):
        arrays.poison(array)
        assert torch.isnan(array).all()
    assert weight.requires_grad
    assert not weight.is_inference()


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "uint8", "bool", "complex64"])
def test_poison_works_on_numpy(dtype):
    array = np.zeros((2, 3), dtype=dtype)
    assert not arrays.is_poisoned(array)
    arrays.poison(array)
    assert arrays.is_poisoned(array)
    assert np.isnan(array).all() if array.dtype.kind in "fc" else (array != 0).all()


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "int8", "bool", "complex64"])
def test_numpy_and_torch_give_one_digest_for_equal_arrays(dtype):
    array = (np.random.default_rng(0).standard_normal((33, 5)) * 50).astype(dtype)
    assert arrays.digest(array) == arrays.digest(torch.from_numpy(array))
    assert arrays.digest(np.asfortranarray(array)) == arrays.digest(array)
    changed = array.copy()
    changed[32, 4] = not changed[32, 4]
    assert arrays.digest(changed) != arrays.digest(array)


def test_a_digest_tells_shapes_dtypes_and_single_values_apart():
    base = np.arange(12, dtype=np.int32)
    same = [base, base.reshape(3, 4), base.view(np.uint32), base.view(np.float32), base[:0], base[:1], base[0:1][0:1]]
    digests = [arrays.digest(a) for a in same]
    assert len(set(digests)) == 6
    assert arrays.digest(torch.tensor(3.0)) == arrays.digest(np.array(3.0, np.float32))
    assert arrays.digest(torch.empty(0)) == arrays.digest(np.empty(0, np.float32))


@pytest.fixture(scope="module")
def large():
    array = np.random.default_rng(1).standard_normal(5_000_003, dtype=np.float32)
    assert array.nbytes > arrays._SMALL
    assert array.nbytes % 8
    return array


def test_large_arrays_have_one_digest_in_numpy_and_torch(large):
    assert arrays.digest(large) == arrays.digest(torch.from_numpy(large))
    assert arrays.digest(large) == arrays.digest(large.copy())


@pytest.mark.parametrize("change", ["reversed", "swapped", "rolled", "far swap", "first", "last", "sign"])
def test_a_large_array_that_was_permuted_or_touched_has_another_digest(large, change):
    other = large.copy()
    if change == "reversed":
        other = other[::-1].copy()
    elif change == "swapped":
        other[[0, 1]] = other[[1, 0]]
    elif change == "rolled":
        other = np.roll(other, 2)
    elif change == "far swap":
        other[[10, 4_600_010]] = other[[4_600_010, 10]]
    elif change == "first":
        other[0] = np.nextafter(other[0], np.float32(9))
    elif change == "last":
        other[-1] = np.nextafter(other[-1], np.float32(9))
    else:
        other[2_500_000] *= -1
    assert arrays.digest(other) != arrays.digest(large)


@pytest.mark.parametrize(("first", "step"), [(0, 1), (1, 2), (0, 2), (0, 4), (3, 1_000_000)])
def test_changed_signs_of_a_large_array_do_not_cancel_however_many_they_are(large, first, step):
    other = large.copy()
    other[first::step] *= -1
    assert arrays.digest(other) != arrays.digest(large)
    wide = large[: large.size // 2].astype(np.float64)
    turned = wide.copy()
    turned[first::step] *= -1
    assert arrays.digest(turned) != arrays.digest(wide)


@pytest.mark.parametrize("pattern", [[1.0, -1.0, -1.0, 1.0], [1.0, 1.0, -1.0, -1.0, -1.0, -1.0, 1.0, 1.0]])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_patterns_that_cancel_in_weights_do_not_cancel_in_a_digest(pattern, dtype):
    array = np.tile(np.array(pattern, dtype), 1 << 20)
    assert arrays.digest(array) != arrays.digest(-array)


def test_rows_that_change_places_in_a_pattern_are_seen():
    a, b = np.random.default_rng(4).standard_normal((2, 1 << 20))
    assert arrays.digest(np.stack([a, b, b, a])) != arrays.digest(np.stack([b, a, a, b]))


def test_a_tensor_that_begins_amid_a_word_is_summed_as_its_copy(large):
    octets = torch.from_numpy(large.view(np.uint8).copy())[4:]
    words = len(octets) // 8
    whole = arrays._weighted_sum_by_torch(octets.clone(), words, "cpu")
    assert arrays._weighted_sum_by_torch(octets, words, "cpu") == whole


def test_the_sum_that_a_gpu_takes_is_the_one_of_numpy(large):
    octets = large.view(np.uint8)
    words = len(octets) // 8
    whole = arrays._weighted_sum(octets[: words * 8])
    assert arrays._weighted_sum_by_torch(torch.from_numpy(octets), words, "cpu") % 2**64 == whole


def test_what_numpy_lacks_widens_without_loss_and_keeps_its_name():
    for dtype in (torch.bfloat16, torch.float8_e5m2):
        array = torch.randn(20).to(dtype)
        wide, name = arrays.to_numpy(array)
        assert wide.dtype == np.float32
        assert f"torch.{name}" == str(dtype)
        assert torch.equal(torch.from_numpy(wide), array.float())


def test_a_clone_shares_no_memory():
    for array in (torch.zeros(3, requires_grad=True), np.zeros(3)):
        copy = arrays.clone(array)
        copy[0] = 1.0
        assert array[0].item() == 0.0


def test_only_exact_array_types_are_arrays():
    class Sub(torch.Tensor):
        pass

    masked = np.ma.zeros(3)
    assert arrays.kind(torch.nn.Parameter(torch.zeros(1))) == "torch"
    assert arrays.kind(np.zeros(1)) == "numpy"
    for lazy in (torch.zeros(1).as_subclass(Sub), masked, [1.0], 3.0, np.float32(1)):
        with pytest.raises(arrays.LazyOutput, match=r"is not a torch\.Tensor"):
            arrays.kind(lazy)


@pytest.mark.parametrize("array", [np.arange(12.0), torch.arange(12.0)], ids=["numpy", "torch"])
def test_arrays_of_one_memory_are_told_from_copies_and_parts(array):
    assert arrays.same_memory(array, array)
    assert arrays.same_memory(array, array[:])
    assert not any(arrays.same_memory(array, other) for other in (arrays.clone(array), array[:6], array[6:], None))
