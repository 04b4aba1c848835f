"""Handing outputs over: what one worker writes, another reads as it was, and no more than somebody needs."""

import numpy as np
import pytest
import torch

from aiperf.worker import arrays, output_exchange
from aiperf.worker.audit import Snapshot


def shot(*, reference=None, **given):
    snapshot = Snapshot(reference=reference or {})
    for name, array in given.items():
        snapshot.arrays[name], snapshot.dtypes[name] = arrays.to_numpy(array)
        snapshot.digests[name] = arrays.digest(array)
        snapshot.values[name] = arrays.worst_value(array)
    return snapshot


@pytest.fixture
def x():
    return np.random.default_rng(0).standard_normal(100)


def test_everything_that_is_handed_over_is_read_as_it_was(x, tmp_path):
    half = torch.from_numpy(x).bfloat16()
    ours = [shot(**{"out": x + i, "half/1": half}, reference={"out": x - i}) for i in range(12)]
    output_exchange.describe(ours, tmp_path)
    output_exchange.hand_over(ours, tmp_path)
    for got, want in zip(output_exchange.load(tmp_path), ours, strict=True):
        assert (got.digests, got.values) == (want.digests, want.values)
        assert got.dtypes == {"out": "float64", "half/1": "bfloat16"}
        assert all(np.array_equal(got.arrays[name], want.arrays[name]) for name in want.arrays)
        assert np.array_equal(got.reference["out"], want.reference["out"])


def test_a_description_alone_tells_all_but_the_values(x, tmp_path):
    x[3] = np.inf
    output_exchange.describe([shot(out=x)], tmp_path)
    (read,) = output_exchange.load(tmp_path)
    assert (read.digests, read.arrays) == ({"out": arrays.digest(x)}, {})
    assert (read.dtypes, read.values) == ({"out": "float64"}, {"out": "infinite"})


def test_only_what_another_side_has_otherwise_is_handed_over(x, tmp_path):
    base = [shot(same=x, other=x, alone=x), shot(same=x, other=x, alone=x)]
    for name, theirs in (
        ("a", [shot(same=x, other=x), shot(same=x, other=x)]),
        ("b", [shot(same=x, other=x + 1, alone=x)]),
    ):
        output_exchange.describe(theirs, tmp_path / name)
    output_exchange.describe(base, tmp_path / "base")
    wanted = output_exchange.differing(base, [tmp_path / "a", tmp_path / "b"])
    output_exchange.hand_over(base, tmp_path / "base", wanted=wanted)
    # The second audit is one that the last side has not.
    assert [sorted(s.arrays) for s in output_exchange.load(tmp_path / "base")] == [
        ["alone", "other"], ["alone", "other", "same"],
    ]  # fmt: skip


def test_a_check_may_write_into_what_it_is_given_whatever_its_size(tmp_path):
    large = np.arange(1 << 16, dtype=np.float64)[::-1].copy()
    output_exchange.describe([shot(out=large)], tmp_path)
    output_exchange.hand_over([shot(out=large)], tmp_path)
    (read,) = output_exchange.load(tmp_path)
    read.arrays["out"].sort()
    assert read.arrays["out"][0] == 0
    assert output_exchange.load(tmp_path)[0].arrays["out"][0] == large[0] == 65535
