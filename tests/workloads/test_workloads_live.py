"""gpu.concurrent with time_first on two streams, without a GPU: order, what is counted, priorities."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from aiperf.workloads.contract import Context
from aiperf.workloads.gpu import jobs as gpu_jobs
from aiperf.workloads.gpu import live as gpu_live
from aiperf.workloads.gpu import workload as gpu
from aiperf.workloads.gpu.live import LiveRequests


class Device:
    """Two streams whose passes end one at a time, while the host waits for a request."""

    def __init__(self, *, per_request: int) -> None:
        self.noted: list[tuple[str, str]] = []
        self.queued = self.ended = self.most = 0
        self._per_request = per_request

    def current(self) -> str:
        return "timed"

    def queue(self, lane: str, call: Callable[[], object]) -> None:
        self.noted.append((lane, str(call())))
        self.queued += lane == "low"
        self.most = max(self.most, self.queued - self.ended)

    def mark(self, lane: str) -> Any:
        number = self.queued
        return SimpleNamespace(lane=lane, query=lambda: self.ended >= number)

    def wait(self, lane: str, end: Any) -> None:
        self.noted.append((lane, f"wait for {end.lane}"))

    def wait_on_host(self, lane: str) -> None:
        assert lane == "live"
        self.ended = min(self.queued, self.ended + self._per_request)


def _live(device: Device, *, requests: int, passes: int) -> LiveRequests:
    return LiveRequests(
        device,
        ("live", "low"),
        request=lambda: "request",
        background=lambda: "pass",
        requests=requests,
        passes=passes,
    )


def test_all_requests_and_all_passes_run_and_the_timed_stream_goes_on_after_both() -> None:
    device = Device(per_request=1)
    live = _live(device, requests=5, passes=40)
    live.step()
    live.step()
    assert device.noted.count(("live", "request")) == 10
    assert device.noted.count(("low", "pass")) == 80
    assert device.noted[-2:] == [("timed", "wait for live"), ("timed", "wait for low")]
    assert device.noted[:2] == [("live", "wait for timed"), ("low", "wait for timed")]
    assert len(live.take_latencies()) == 10
    assert live.take_latencies() == []
    assert live.alone == 0


def test_few_passes_are_queued_ahead_and_one_at_least_beside_every_request() -> None:
    device = Device(per_request=3)
    _live(device, requests=10, passes=40).step()
    first_requests = [i for i, note in enumerate(device.noted) if note == ("live", "request")]
    assert all(device.noted[:i].count(("low", "pass")) > 3 * n for n, i in enumerate(first_requests))
    rest = Device(per_request=3)
    live = _live(rest, requests=10, passes=35)
    live.step()
    assert rest.most == gpu_live._AHEAD
    assert live.alone == 0


def test_requests_that_ended_after_the_last_pass_are_counted_and_stay_in_the_latencies() -> None:
    device = Device(per_request=2)
    live = _live(device, requests=10, passes=6)
    live.step()
    assert live.alone == 8
    assert len(live.take_latencies()) == 10


def test_a_graph_is_captured_at_the_priority_of_the_stream_that_its_job_runs_on(monkeypatch) -> None:
    captured: list[tuple[str, int]] = []
    monkeypatch.setattr(torch.cuda, "Stream", lambda device, priority=0: SimpleNamespace(priority=priority))
    monkeypatch.setattr(gpu_jobs, "DECODE_WIDTH", 16)
    monkeypatch.setattr(gpu_jobs, "TOKENS", {"decode": 1, "prefill": 4})

    def replay_of(step: Callable[[], None], *, stream: Any) -> Callable[[], None]:
        captured.append((stream.priority, step))
        return step

    monkeypatch.setattr(gpu_jobs, "replay_of", replay_of)
    made, _ = gpu_jobs.make_jobs(
        Context(), ["decode", "prefill"], rounds=1, priorities=gpu._priorities("first_high", 2)
    )
    assert [priority for priority, _ in captured] == [-1, 0]
    decode, prefill = made
    assert (decode.source.shape, prefill.source.shape) == ((1, 16), (4, 16))
    assert prefill.flops == 4 * decode.flops
    prefill.source[2] = decode.source[0]
    for job in made:
        job.run()
    assert torch.allclose(prefill.result[2], decode.result[0], rtol=0.1, atol=0.1)
    assert float(decode.result.abs().sum()) > 0
    assert gpu._priorities("equal", 2) == [0, 0]
    assert [int(job.done) for job in made] == [1, 1]
    alone, _ = gpu_jobs.make_jobs(Context(), ["decode"], rounds=1)
    assert alone[0].done is None


def test_a_side_counts_the_work_of_both_jobs_and_reports_the_streams_priorities(monkeypatch) -> None:
    streams = [SimpleNamespace(priority=-3), SimpleNamespace(priority=0)]
    monkeypatch.setattr(gpu, "_Lanes", lambda *asked: SimpleNamespace(streams=streams))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    arrays = [torch.zeros(3), torch.zeros(3)]
    done = [torch.tensor([99]), torch.tensor([99])]

    class Served:
        alone = 0

        def __init__(self, queues: Any, streams: Any, **asked: Any) -> None:
            self.asked = asked

        def step(self) -> None:
            done[0].add_(self.asked["requests"])
            done[1].add_(self.asked["passes"])

        def take_latencies(self) -> list[float]:
            return []

    monkeypatch.setattr(gpu, "LiveRequests", Served)
    monkeypatch.setattr(gpu, "Queues", lambda device: None)

    def job(index: int, size: float) -> gpu_jobs.Job:
        array = arrays[index]
        run = lambda: array.add_(1)  # noqa: E731
        return gpu_jobs.Job(run, array, array, lambda seed: None, bytes=size, flops=2 * size, done=done[index])

    asked = SimpleNamespace(
        context=Context(device="cuda:0"), jobs=["decode", "prefill"], requests=7, background_passes=5,
        stream_flags="nonblocking", priority="first_high",
    )  # fmt: skip
    side = gpu._live(asked, [job(0, 10), job(1, 1)])
    assert (side.work.bytes, side.work.flops, side.work.items) == (75, 150, 12)
    assert side.facts["stream_priorities"] == [-3, 0]
    assert side.latency_source
    for _ in range(2):
        side.step()
        assert {name: int(value[0]) for name, value in side.outputs().items()} == {
            "0_decode": 0, "1_prefill": 0, "0_done": 7, "1_done": 5,
        }  # fmt: skip


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"jobs": ["decode"], "streams": 2, "time_first": True}, "for two jobs on streams: 2"),
        ({"jobs": ["decode", "prefill"], "time_first": True}, "for two jobs on streams: 2"),
        ({"jobs": ["decode", "prefill"], "streams": 2, "priority": "first_high"}, "time_first"),
        ({"jobs": ["decode", "prefill"], "streams": 2, "background_passes": 3}, "for share: streams with time_first"),
        ({"jobs": ["decode"], "background_passes": 0}, "1 or more"),
        ({"jobs": ["decode", "prefill"], "streams": 2, "time_first": True, "stray_legacy": 1}, "no stray_legacy"),
        ({"jobs": ["decode", "prefill"], "streams": 2, "time_first": True, "stream_flags": "legacy"}, "flags legacy"),
        (
            {
                "jobs": ["decode", "prefill"], "streams": 2, "time_first": True, "priority": "first_high",
                "stream_flags": "blocking",
            },
            "nonblocking",
        ),
    ],
)  # fmt: skip
def test_an_impossible_request_stream_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gpu.concurrent(Context(), **given)


@pytest.mark.parametrize(("given", "wanted"), [({}, ()), ({"time_first": True}, [0, 0])])
def test_runs_are_counted_in_their_graphs_only_where_requests_are_timed(given, wanted, monkeypatch) -> None:
    asked: list[Any] = []

    def make_jobs(*named: Any, priorities: Any, **more: Any) -> Any:
        asked.append(priorities)
        raise InterruptedError

    monkeypatch.setattr(gpu, "make_jobs", make_jobs)
    monkeypatch.setattr(Context, "use_gpu", lambda self, why: None)
    with pytest.raises(InterruptedError):
        gpu.concurrent(Context(), jobs=["decode", "prefill"], streams=2, **given)
    assert asked == [wanted]
