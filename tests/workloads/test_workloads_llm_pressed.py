"""Keys and values that grow by chunks of tokens, and lose bits when their budget is nearly used."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
import yaml
from cpu_pairs import audit

from aiperf.paths import scenario_folder
from aiperf.workloads.contract import Context
from aiperf.workloads.decoder import caches
from aiperf.workloads.llm import agreement, pressed
from aiperf.workloads.llm import workload as llm

pytestmark = pytest.mark.usefixtures("one_thread")

_ROOM = caches.Room(layers=2, batch=2, kv_heads=2, head_dim=16, tokens=32)
_HOW = {"bits": 8, "group": 16, "chunk": 4}


def _grown(*kept: caches.Cache, tokens: int = 32) -> list[list[torch.Tensor]]:
    """What each cache gives after ``tokens`` of the same text, 9 of them first, then one by one."""
    source, found = torch.Generator().manual_seed(1), []
    for count in (9, *[1] * (tokens - 9)):
        parts = torch.randn(2, 2, 2, 2, count, 16, generator=source)
        for each in kept:
            each.rows(count)
        found = [[torch.stack(each.extend(i, *parts[i])) for i in range(2)] for each in kept]
        for each in kept:
            each.advance(count)
    return found


def test_a_growing_cache_gives_what_one_of_full_size_gives_and_takes_what_its_tokens_need():
    growing, whole = pressed.GrowingKv(_ROOM, **_HOW, budget=0), caches.Quantised(_ROOM, bits=8, group=16)
    assert growing.nbytes == 0
    # The last of two layers has its former room, too, while it is copied.
    for tokens, room in ((10, 12), (13, 16 + 12 / 2), (32, 32 + 28 / 2)):
        growing.truncate(0)
        whole.truncate(0)
        ours, theirs = _grown(growing, whole, tokens=tokens)
        assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))
        assert growing.nbytes == whole.nbytes * room / 32


def test_bits_are_dropped_once_where_the_budget_is_nearly_used():
    room = dataclasses.replace(_ROOM, tokens=64)
    how = {"bits": 8, "group": 16, "chunk": 16}
    growing, exact, coarse = (
        pressed.GrowingKv(room, **how, budget=1.0),
        caches.Contiguous(room),
        caches.Quantised(room, bits=4, group=16),
    )
    ours, truth, fewest = _grown(growing, exact, coarse, tokens=64)
    assert growing.dropped_at == 48, "with the copy of one of two layers, 32 of 64 tokens take 0.75 of the budget"
    # Codes and two numbers for 16 values: 1.5 bytes a value, then 1. One of two layers has both forms at a time.
    whole = caches.Quantised(room, bits=8, group=16).nbytes
    assert growing.nbytes == whole * (48 + 64 / 1.5 / 2) / 64
    for one, other, most in zip(ours, truth, fewest, strict=True):
        assert 0 < (one - other).norm() <= 1.1 * (most - other).norm()
    free = pressed.GrowingKv(room, **how, budget=0)
    _grown(free, tokens=64)
    assert free.dropped_at == 0


def test_what_was_lost_does_not_come_back_but_a_text_begins_anew_with_all_bits():
    growing = pressed.GrowingKv(_ROOM, **_HOW, budget=0.6)
    _grown(growing)
    assert growing.dropped_at > 9
    with pytest.raises(ValueError, match="not at 9"):
        growing.truncate(9)
    growing.truncate(32)
    growing.truncate(0)
    assert (growing.nbytes, growing.length, growing.dropped_at) == (0, 0, 0)


@pytest.mark.long
def test_a_side_under_pressure_takes_less_and_chooses_as_before_up_to_there():
    shared = {"model": "small", "phase": "both", "feed": "forced", "prompt_tokens": 64, "new_tokens": 64}
    eight, fewer, four = (
        llm.generate(Context(seed=3), **shared, kv_chunk=8, **own)
        for own in ({"kv_bits": 8}, {"kv_bits": 8, "kv_budget": 0.75}, {"kv_bits": 4})
    )
    for seed in (11, 12):
        before, after, coarse = (audit(side, seed=seed) for side in (eight, fewer, four))
        at = int(fewer.counters()["bits_dropped_at"]) - 64
        assert 0 < at < 64
        assert np.array_equal(before["logits"][:, :at], after["logits"][:, :at])
        assert not np.array_equal(before["logits"][:, at], after["logits"][:, at])
        assert agreement.rounded_disagreement(before, after).passed
        off, most = (np.linalg.norm(x["logits"] - before["logits"]) for x in (after, coarse))
        assert 0 < off < most
    assert fewer.counters()["kv_bytes"] < 0.85 * eight.counters()["kv_bytes"]
    assert eight.counters()["bits_dropped_at"] == 0
    assert eight.work.bytes > fewer.work.bytes


@pytest.mark.long
def test_the_shipped_side_under_pressure_keeps_its_budget_with_the_copies_that_growing_makes():
    shipped = yaml.safe_load((scenario_folder() / "cpu" / "kv-8-bits-vs-fewer-under-pressure.yaml").read_text())
    side = llm.generate(Context(seed=3), **shipped["params"], **shipped["after"])
    side.step()
    counted = side.counters()
    whole = counted["kv_budget_bytes"] / shipped["after"]["kv_budget"]
    assert 256 < counted["bits_dropped_at"] < 512
    assert 0.75 * whole < counted["kv_bytes"] <= counted["kv_budget_bytes"]
