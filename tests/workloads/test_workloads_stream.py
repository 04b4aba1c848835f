"""stream.pipeline without a GPU: its order on a device that delays everything it may, its arithmetic, its arguments."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from aiperf.workloads.contract import Context, SkipSide
from aiperf.workloads.shared import chain as _chain
from aiperf.workloads.shared import queues as _queues
from aiperf.workloads.stream import schedule, stages
from aiperf.workloads.stream import workload as stream
from aiperf.workloads.stream.stages import Compute, compute, rows_of


@dataclass
class Lane:
    """A stream of the pretended device: calls, marks to reach and marks to wait for, in order."""

    waiting: list[tuple[str, Any]] = field(default_factory=list)


class Device:
    """A device that runs the streams' work as late and in as odd an order as their events allow."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._reached: set[int] = set()
        self._marks = 0
        self.host_waits = 0
        self.timed = Lane()
        self.lanes = [self.timed]

    def streams(self, count: int) -> list[Lane]:
        new = [Lane() for _ in range(count)]
        self.lanes += new
        return new

    def current(self) -> Lane:
        return self.timed

    def queue(self, lane: Lane, call: Callable[[], object]) -> None:
        lane.waiting.append(("call", call))

    def mark(self, lane: Lane) -> int:
        self._marks += 1
        lane.waiting.append(("mark", self._marks))
        return self._marks

    def wait(self, lane: Lane, mark: int) -> None:
        lane.waiting.append(("wait", mark))

    def wait_on_host(self, lane: Lane) -> None:
        self.host_waits += 1
        self.drain(lane)

    def wait_for_all(self) -> None:
        self.host_waits += 1
        while any(lane.waiting for lane in self.lanes):
            self._advance()

    def drain(self, lane: Lane) -> None:
        while lane.waiting:
            self._advance()

    def _advance(self) -> None:
        ready = [
            lane
            for lane in self.lanes
            if lane.waiting and (lane.waiting[0][0] != "wait" or lane.waiting[0][1] in self._reached)
        ]
        assert ready, "every stream waits for another"
        what, value = self._random.choice(ready).waiting.pop(0)
        if what == "call":
            value()
        elif what == "mark":
            self._reached.add(value)


def passed(plan: schedule.PipelinePlan, device: Any, *, words: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    """Sources, and results once the timed stream alone is through."""
    shape = ((words,), torch.int32)
    stage = Compute(source=shape, target=shape, run=lambda x, y: y.copy_(x * 3 + 1), fill=lambda x, s: None)
    whole = stream._Pipeline(Context(), plan, stage, pinned=False)
    _chain.fill_words(whole._sources, seed=1)
    whole._results.fill_(0x5A)
    schedule.run(device, plan, device.streams(plan.lanes), whole._calls)
    device.drain(device.timed)
    return whole._sources, whole._results


PLANS = [
    *(schedule.PipelinePlan(9, chain, streams=s) for chain in schedule.CHAINS for s in (1, 2, 3)),
    *(
        schedule.PipelinePlan(9, chain, dedicated=True, handoff=how)
        for chain in schedule.CHAINS
        for how in ("event", "stream_sync", "device_sync")
    ),
]


@pytest.mark.parametrize("plan", PLANS, ids=lambda p: f"{'+'.join(p.stages)}-{p.lanes}-{p.dedicated}-{p.handoff}")
def test_every_order_that_the_events_allow_gives_the_serial_result(plan: schedule.PipelinePlan) -> None:
    for seed in range(12):
        device = Device(seed)
        sources, results = passed(plan, device)
        assert torch.equal(results, sources * 3 + 1)
        assert device.host_waits == plan.host_waits


@pytest.mark.parametrize("streams", [1, 2, 3])
def test_the_items_take_turns_on_all_of_the_streams(streams: int) -> None:
    device, plan = Device(0), schedule.PipelinePlan(12, schedule.CHAINS[1], streams=streams)
    lanes, nothing = device.streams(plan.lanes), dict.fromkeys(plan.stages, lambda item, runner: None)
    schedule.run(device, plan, lanes, nothing)
    queued = [sum(what == "call" for what, _ in lane.waiting) for lane in lanes]
    assert queued == [24 // streams] * streams


class Deaf(Device):
    """A device that ignores the waits between its streams."""

    def wait(self, lane: Lane, mark: int) -> None:
        return


class NeverReuses(Device):
    """A device on which only the wait for a free buffer is missing."""

    def wait(self, lane: Lane, mark: int) -> None:
        if not (self.lanes.index(lane) == 1 and mark > 4):
            super().wait(lane, mark)


@pytest.mark.parametrize("broken", [Deaf, NeverReuses])
def test_a_missing_dependency_shows_in_the_results(broken: type[Device]) -> None:
    plan = schedule.PipelinePlan(9, schedule.CHAINS[0], dedicated=True)
    wrong = 0
    for seed in range(12):
        sources, results = passed(plan, broken(seed))
        wrong += not torch.equal(results, sources * 3 + 1)
    assert wrong > 0


def test_without_the_join_the_timed_stream_ends_before_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "join", lambda queues, lanes: None)
    sources, results = passed(schedule.PipelinePlan(9, schedule.CHAINS[0], streams=2), Device(0))
    assert not torch.equal(results, sources * 3 + 1)


def test_a_dedicated_stage_runs_at_most_its_buffers_ahead() -> None:
    assert schedule.PipelinePlan(9, schedule.CHAINS[0], dedicated=True).slots == schedule.SLOTS == 2
    assert schedule.PipelinePlan(9, schedule.CHAINS[0], streams=3).slots == 3


@pytest.mark.parametrize("rounds", [0, 1, 2, 7, 1000])
def test_the_closed_form_is_the_recurrence(rounds: int) -> None:
    words = np.array([0, 1, -1, 2**31 - 1, -(2**31), 12345], dtype=np.int32)
    value = words.view(np.uint32).astype(np.uint64)
    for _ in range(rounds):
        value = (value * _chain.MULTIPLIER + _chain.INCREMENT) % 2**32
    assert np.array_equal(_chain.expected(words, rounds), value.astype(np.uint32).view(np.int32))


SHIM = """
#include <vector>
#include <cstdio>
#define __global__
#define __device__
#define __forceinline__ inline
#define __restrict__
struct Index { unsigned x; };
struct uint4 { unsigned x, y, z, w; };
static Index blockIdx, threadIdx, blockDim, gridDim;
static unsigned long long __shfl_down_sync(unsigned, unsigned long long, int) { return 0; }
static void atomicAdd(unsigned long long* to, unsigned long long by) { *to += by; }
#include "SOURCE"
int main() {
  const long long n = 1001;
  std::vector<unsigned> x(n), y(n);
  for (long long i = 0; i < n; ++i) x[i] = (unsigned)i;
  gridDim.x = 3; blockDim.x = 64;
  for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x)
    for (threadIdx.x = 0; threadIdx.x < blockDim.x; ++threadIdx.x) chain(x.data(), y.data(), n, 37, MUL, INC);
  fwrite(y.data(), 4, n, stdout);
}
"""


def test_the_plain_kernel_run_on_the_cpu_gives_the_closed_form(tmp_path: Path) -> None:
    text = SHIM.replace("SOURCE", str(_chain.SOURCE)).replace("MUL", f"{_chain.MULTIPLIER}u")
    (tmp_path / "emulated.cpp").write_text(text.replace("INC", f"{_chain.INCREMENT}u"), encoding="utf-8")
    subprocess.run(["g++", "-std=c++17", "-w", "emulated.cpp", "-o", "emulated"], cwd=tmp_path, check=True, timeout=60)
    told = subprocess.run([tmp_path / "emulated"], check=True, capture_output=True, timeout=60).stdout
    assert np.array_equal(np.frombuffer(told, np.int32), _chain.expected(np.arange(1001, dtype=np.int32), 37))


@pytest.mark.parametrize("shape", list(_chain.ENTRIES))
@pytest.mark.parametrize("n", [1, 1024, 1025, 5_000_000])
def test_a_launch_has_whole_clusters_and_no_idle_grid(shape: str, n: int) -> None:
    grid, block = _chain.geometry(shape, n=n, sms=132)
    assert 1 <= grid <= 132 * 12
    assert block == (96 if "warp" in shape else 256)
    assert grid % _chain.CLUSTER == 0 or "cluster" not in shape


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"items": 0}, "1 or more"),
        ({"stages": ["d2h"]}, "h2d, kernel, d2h"),
        ({"total_bytes": 1001}, "multiple of 4 times 16"),
        ({"rounds": 1}, "2 or more"),
        ({"streams": 2, "copy_stream": "dedicated"}, "one stream"),
        ({"handoff": "device_sync"}, "dedicated"),
        ({"kernel": "train_step"}, "stages h2d, kernel"),
        ({"kernel": "decode"}, "kernel, d2h"),
        ({"graph": True, "host": "pageable"}, "pinned"),
        ({"graph": True, "scratch": "cuda_malloc"}, "no scratch"),
    ],
)
def test_an_impossible_pipeline_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        stream.pipeline(Context(), **given)


def test_rows_are_cut_without_a_rest() -> None:
    assert rows_of("decode", 16 << 20) == 128
    assert rows_of("train_step", 8 << 20) == 1024
    with pytest.raises(ValueError, match="cannot be cut"):
        rows_of("train_step", 1000)


def test_without_a_gpu_the_side_is_skipped() -> None:
    with pytest.raises(SkipSide, match="GPU"):
        stream.pipeline(Context())


def test_the_training_stage_takes_a_step_and_can_be_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "_WIDTH", 64)
    monkeypatch.setattr(stages, "_CLASSES", 8)
    stage = compute(Context(seed=3), kernel="train_step", each=4 * 64 * 4, rounds=2, scratch="none")
    sources, target = torch.empty(1, *stage.source[0]), torch.empty(stage.target[0])
    stage.fill(sources, 5)
    stage.run(sources[0], target)
    first = target.clone()
    stage.run(sources[0], target)
    assert target[0] < first[0], "the loss of the same batch falls"
    assert stage.reset is not None
    stage.reset()
    stage.run(sources[0], target)
    assert torch.equal(target, first)


def test_waiting_on_the_host_is_for_one_stream_or_for_all() -> None:
    device = Device(0)
    first, second = device.streams(2)
    device.mark(first)
    device.mark(second)
    _queues.wait_on_host(device, first, "stream_sync")
    assert not first.waiting
    _queues.wait_on_host(device, first, "device_sync")
    assert not second.waiting
