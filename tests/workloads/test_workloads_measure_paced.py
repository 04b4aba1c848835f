"""measure.instrument's batches: a pause changes nothing that is computed and is in no batch's time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from cpu_pairs import Pair, audit, differences, set_up

from aiperf.workloads.contract import Context
from aiperf.workloads.measure import paced as pacing
from aiperf.workloads.measure import workload as measure

BATCHES = {"subject": "batches", "steps": 3, "n": 16}


def test_both_paces_give_the_same_product_to_the_bit_and_that_of_float64(tmp_path: Any) -> None:
    pair = Pair("measure.instrument", {"pause": 0.0}, {"pause": 0.001}, BATCHES)
    before, after = (set_up(pair, side, tmp_path) for side in ("before", "after"))
    assert before.work == after.work
    assert before.work.flops == 2 * 2 * 3 * 16**3
    first, second = audit(before, seed=3), audit(after, seed=3)
    assert differences(first, second, rtol=0, atol=0) == []
    assert differences(first, audit(after, seed=4), rtol=0, atol=0) != []
    assert after.reference is not None
    truth = after.reference()["product"]
    assert np.allclose(after.outputs()["product"].double(), truth, rtol=0.02, atol=0.05)
    assert not np.allclose(first["product"], truth, rtol=0.02, atol=0.05), "drawn from another seed"


@pytest.mark.parametrize("pause", [0.0, 0.25])
def test_each_batch_has_a_time_once_and_a_pause_of_the_asked_length_after_it(
    pause: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    paused: list[float] = []

    def product(a: Any, b: Any, *, out: Any) -> None:
        now[0] += 1.0
        out.fill_(now[0])

    def rest(seconds: float) -> None:
        paused.append(seconds)
        now[0] += seconds

    workload = measure.instrument(Context(), **BATCHES, pause=pause)
    monkeypatch.setattr(pacing, "perf_counter", lambda: now[0])
    monkeypatch.setattr(pacing, "sleep", rest)
    monkeypatch.setattr(pacing.torch, "mm", product)
    workload.step()
    assert workload.latencies is not None
    assert workload.latencies() == pytest.approx([2.0] * 3), "two products each"
    assert workload.latencies() == [], "those since the last time"
    assert paused == [pause] * 3 * bool(pause)
    assert now[0] == 6 + 3 * pause


@pytest.mark.parametrize("given", [{"pause": 0.1}, {"subject": "batches", "pause": -0.1}])
def test_a_pause_is_for_batches(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="pause is for subject batches"):
        measure.instrument(Context(), **given)


@pytest.mark.parametrize(("given", "message"), [({"timer": "wall"}, "small_kernels"), ({"ranges": 1}, "train_step")])
def test_batches_take_no_clock_and_no_ranges(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        measure.instrument(Context(), **BATCHES, **given)


@pytest.mark.parametrize(("pause", "held"), [(0.0, 1), (0.25, 3)])
def test_a_batch_that_finds_the_stream_empty_is_held_until_all_of_it_is_queued(
    pause: float, held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    holds: list[int] = []
    batches = pacing._Batches(torch.ones(2, 2), torch.ones(2, 2), count=3, pause=pause)
    batches.on_gpu = True
    monkeypatch.setattr(pacing, "sleep", lambda seconds: None)
    monkeypatch.setattr(torch.cuda, "_sleep", holds.append)
    batches.step()
    assert holds == [pacing._HOLD_CYCLES] * held
