"""Inputs drawn from a seed: the same on any number of CPUs and in any shape, and what their distribution says."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from aiperf.workloads.shared import parts as _parts
from aiperf.workloads.shared import seeded

LONG = 6 * (1 << 20) + 77


@pytest.fixture(scope="module")
def noise():
    drawn = np.empty(LONG, np.float32)
    seeded.draw_normal(drawn, seed=5)
    return drawn


def test_the_values_do_not_depend_on_how_many_cpus_draw_them(noise, monkeypatch):
    monkeypatch.setattr(_parts, "_FEW", 1000)
    alone = np.empty(LONG, np.float32)
    seeded.draw_normal(alone, seed=5)
    assert np.array_equal(noise, alone)


def test_a_process_on_one_cpu_draws_the_same(noise):
    code = f"import os; os.sched_setaffinity(0, {{{min(os.sched_getaffinity(0))}}}); import hashlib, numpy as np; "
    code += (
        f"from aiperf.workloads.shared import seeded as s; a = np.empty({LONG}, np.float32); s.draw_normal(a, seed=5); "
    )
    code += "print(hashlib.sha256(a.tobytes()).hexdigest())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == hashlib.sha256(noise.tobytes()).hexdigest()


def test_no_part_repeats_another_and_no_seed_another(noise):
    parts = noise[: 6 << 20].reshape(6, -1)
    assert len({part.tobytes() for part in parts}) == 6
    assert abs(np.corrcoef(parts)[~np.eye(6, dtype=bool)]).max() < 0.01
    other = np.empty(LONG, np.float32)
    seeded.draw_normal(other, seed=6)
    assert np.mean(other == noise) < 0.001


def test_what_is_longer_than_a_block_goes_on_with_pieces_of_it_of_other_lengths_places_and_signs(monkeypatch):
    monkeypatch.setattr(seeded, "_BLOCK", 1000)
    size = 40_500
    for method, signs in (("standard_normal", {-1, 1}), ("random", {1})):
        values = np.empty(size, np.float32)
        seeded._draw(values, method, 5)
        place = {abs(value): at for at, value in enumerate(values[:1000])}
        places = np.array([place[abs(value)] for value in values])
        starts = [at for at in range(1000, size) if places[at] != places[at - 1] + 1]
        lengths = np.diff([*starts, size])
        assert 500 <= lengths[:-1].min() < lengths.max() < 1000
        assert len(set(lengths)) > 40
        assert {int(np.sign(values[at] * values[places[at]])) for at in starts} == signs
        for start, length in zip(starts, lengths, strict=True):
            drawn = values[places[start] : places[start] + length]
            assert np.array_equal(np.abs(values[start : start + length]), np.abs(drawn))
        stretches = values[:40_000].reshape(40, 1000)
        assert len({float(sum_) for sum_ in np.sort(np.abs(stretches), axis=1).sum(axis=1)}) == 40


@pytest.mark.parametrize("size", [999, 1000, 1001, 4500])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_block_is_repeated_alike_wherever_the_tensor_lies(size, dtype, monkeypatch):
    monkeypatch.setattr(seeded, "_BLOCK", 1000)
    want, wide = np.empty(2 * size, np.float32), np.empty(2 * size, np.float32)
    seeded.draw_normal(want, seed=seeded.own_seed(3, "a"))
    seeded._draw(wide, "random", seeded.own_seed(3, "a"))
    for fill, values in ((seeded.fill_normal, want), (seeded.fill_uniform, wide)):
        for tensor in (torch.empty(2, size, dtype=dtype), torch.empty(size, 2, dtype=dtype).t()):
            fill(tensor, seed=3, name="a")
            assert torch.equal(tensor, torch.from_numpy(values).view(2, size).to(dtype))


def test_words_are_drawn_part_by_part_and_no_part_repeats_another():
    words, again, other = (np.empty(2 * (1 << 20) + 3, np.uint32) for _ in range(3))
    for drawn, seed in ((words, 5), (again, 5), (other, 6)):
        seeded.draw_words(drawn, seed=seed)
    assert np.array_equal(words, again)
    first, second = words[: 2 << 20].reshape(2, -1)
    assert np.mean(first == second) < 0.001
    assert np.mean(words == other) < 0.001
    assert words.max() > 0.999 * 2**32
    assert len(set(words[-3:].tolist())) == 3


def test_normal_values_have_mean_0_and_spread_1_and_uniform_ones_fill_0_to_1(noise):
    assert abs(noise.mean()) < 0.005
    assert noise.std() == pytest.approx(1, rel=0.005)
    assert 4 < np.abs(noise).max() < 8
    uniform = torch.empty(1000, 1000)
    seeded.fill_uniform(uniform, seed=1, name="u")
    assert 0 <= float(uniform.min()) < 1e-4
    assert 1 - 1e-4 < float(uniform.max()) < 1
    assert float(uniform.var()) == pytest.approx(1 / 12, rel=0.01)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_tensor_gets_the_values_of_its_name_and_seed_in_its_own_dtype_and_layout(dtype):
    want = np.empty(12, np.float32)
    seeded.draw_normal(want, seed=seeded.own_seed(3, "a"))
    plain, turned = torch.empty(3, 4, dtype=dtype), torch.empty(4, 3, dtype=dtype).t()
    for tensor in (plain, turned):
        seeded.fill_normal(tensor, seed=3, name="a")
        assert torch.equal(tensor, torch.from_numpy(want).view(3, 4).to(dtype))
    seeded.fill_normal(turned, seed=3, name="b")
    assert not torch.equal(turned, plain)


def test_a_parameter_can_be_filled():
    weight = torch.nn.Parameter(torch.zeros(8))
    seeded.fill_normal(weight, seed=1, name="w")
    assert weight.requires_grad
    assert float(weight.detach().abs().min()) > 0
