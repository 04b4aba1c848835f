"""measure.instrument: ranges change nothing that is computed, and a clock is only given work that it can misread."""

from __future__ import annotations

from time import sleep
from typing import Any

import numpy as np
import pytest
from cpu_pairs import Pair, audit, differences, set_up

from aiperf.workloads.contract import Context, SkipSide
from aiperf.workloads.measure import workload as measure


def test_ranges_change_no_bit_of_the_loss_or_of_a_gradient(tmp_path: Any) -> None:
    pair = Pair("measure.instrument", {"ranges": 0}, {"ranges": 4}, {"steps": 2})
    before, after = (set_up(pair, side, tmp_path) for side in ("before", "after"))
    before.step()
    after.step()
    assert before.work == after.work
    first, second = audit(before, seed=3), audit(after, seed=3)
    assert "loss" in first
    assert len(first) > 10
    assert differences(first, second, rtol=0, atol=0) == []
    assert differences(first, audit(after, seed=4), rtol=0, atol=0) != []


def test_a_step_starts_from_the_same_weights_after_a_reset(tmp_path: Any) -> None:
    workload = set_up(Pair("measure.instrument", {}, {}, {"steps": 1}), "before", tmp_path)
    workload.step()
    first = audit(workload, seed=3)
    assert differences(first, audit(workload, seed=3), rtol=0, atol=0) == []


@pytest.mark.parametrize("count", [0, 1, 4])
def test_as_many_ranges_are_made_as_were_asked_for(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    import contextlib

    import nvtx

    made: list[str] = []

    def annotate(part: str, *, domain: str) -> Any:
        made.append(f"{domain}.{part}")
        return contextlib.ExitStack()

    monkeypatch.setattr(nvtx, "annotate", annotate)
    workload = measure.instrument(Context(), steps=2, ranges=count)
    workload.step()
    expected = ["train.train_step", "train.forward", "train.backward", "train.optimizer_step"][:count]
    assert made == expected * 2
    assert workload.counters is not None
    assert workload.counters()["ranges"] == len(made)
    workload.step()
    assert workload.counters()["ranges"] == 2 * count, "those of the latest step"


def test_ranges_that_nvtx_was_told_to_leave_out_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    import contextlib

    import nvtx

    monkeypatch.setattr(nvtx, "annotate", lambda part, *, domain: contextlib.nullcontext())
    workload = measure.instrument(Context(), steps=1, ranges=4)
    workload.step()
    assert workload.counters is not None
    assert workload.counters()["ranges"] == 0


def test_a_clock_around_the_call_tells_how_long_the_call_took() -> None:
    told = measure._wall(3)(lambda: sleep(0.002))
    assert len(told) == 3
    assert np.min(told) >= 0.002


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"steps": 0}, "1 or more"),
        ({"ranges": 5}, "0 to 4"),
        ({"timer": "wall"}, "small_kernels"),
        ({"subject": "small_kernels"}, "needs one"),
        ({"subject": "small_kernels", "timer": "wall", "ranges": 1}, "train_step"),
    ],
)
def test_what_cannot_be_measured_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        measure.instrument(Context(), **given)


def test_a_clock_that_does_not_wait_needs_a_gpu() -> None:
    with pytest.raises(SkipSide, match="GPU"):
        measure.instrument(Context(), subject="small_kernels", timer="wall")
