"""gpu.concurrent without a GPU: order over streams, threads, arguments."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from patience import PATIENCE_S

from aiperf.workloads.contract import Context, SkipSide
from aiperf.workloads.gpu import workload as gpu
from aiperf.workloads.gpu.live import LiveTimes
from aiperf.workloads.gpu.threads import Crew


class Log:
    """Streams that only note what they get."""

    def __init__(self) -> None:
        self.noted: list[tuple[str, str]] = []

    def current(self) -> str:
        return "timed"

    def queue(self, lane: str, call: Any) -> None:
        self.noted.append((lane, call()))

    def mark(self, lane: str) -> str:
        self.noted.append((lane, "mark"))
        return f"end of {lane}"

    def wait(self, lane: str, mark: str) -> None:
        self.noted.append((lane, f"wait for {mark}"))


def test_jobs_take_turns_on_the_streams_and_the_timed_stream_waits_for_every_stream() -> None:
    log = Log()
    gpu._spread(log, ["a", "b"], [lambda n=n: f"job {n}" for n in range(3)], "zero", [lambda: "stray"])
    work = [note for note in log.noted if note[1].startswith(("job", "stray"))]
    assert work == [
        ("a", "job 0"),
        ("zero", "stray"),
        ("b", "job 1"),
        ("zero", "stray"),
        ("a", "job 2"),
        ("zero", "stray"),
    ]
    last = log.noted.index(("zero", "stray"), log.noted.index(("a", "job 2")))
    joined = {note[1] for note in log.noted[last:] if note[0] == "timed"}
    assert joined == {"wait for end of a", "wait for end of b", "wait for end of zero"}


def test_without_strays_the_default_stream_is_left_alone() -> None:
    log = Log()
    gpu._spread(log, ["a"], [lambda: "job"], "zero", [])
    assert all(lane != "zero" for lane, _ in log.noted)


def test_the_threads_of_a_crew_run_at_the_same_time_and_end_with_it() -> None:
    meeting, done = threading.Barrier(3), []

    def call() -> None:
        meeting.wait(timeout=PATIENCE_S)
        done.append(threading.get_ident())

    crew = Crew([call] * 3, start=lambda: None)
    crew.round()
    crew.round()
    assert len(done) == 6
    assert len(set(done)) == 3
    crew.close()
    assert not any(thread.is_alive() for thread in crew._threads)


def test_what_a_thread_raises_is_raised_by_the_round_and_the_crew_goes_on() -> None:
    rounds = []

    def call() -> None:
        rounds.append(1)
        if len(rounds) == 1:
            raise OSError("the launch failed")

    crew = Crew([call], start=lambda: None)
    with pytest.raises(OSError, match="the launch failed"):
        crew.round()
    crew.round()
    crew.close()
    assert len(rounds) == 2


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"jobs": []}, "are none"),
        ({"jobs": ["large"]}, "tiny, small, filling, gemm"),
        ({"jobs": ["infer"]}, "share streams knows"),
        ({"jobs": ["gemm"], "share": "processes"}, "infer, train"),
        ({"jobs": ["gemm"], "share": "threads", "stream_flags": "legacy"}, "tiny, small"),
        ({"jobs": ["small"], "share": "threads"}, "legacy or per_thread"),
        ({"jobs": ["small"], "stream_flags": "per_thread"}, "for share: threads"),
        ({"jobs": ["small"], "streams": 0}, "1 or more"),
        ({"jobs": ["small"], "share": "serial", "stray_legacy": 1}, "for share: streams"),
        ({"jobs": ["infer"], "share": "mps", "thread_percentage": 0}, "from 1 to 100"),
        ({"jobs": ["infer"], "share": "processes", "thread_percentage": 50}, "for share: mps"),
        ({"jobs": ["small"], "rounds": 0}, "1 or more"),
    ],
)
def test_an_impossible_sharing_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gpu.concurrent(Context(), **given)


def test_without_a_gpu_the_side_is_skipped() -> None:
    with pytest.raises(SkipSide, match="GPU"):
        gpu.concurrent(Context(), jobs=["small"])


class Clocked:
    """A stream whose events are times that the test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def record_event(self, event: Event) -> Event:
        event.at = self.now
        return event


class Event:
    """An event that keeps its time, in ms."""

    at = 0.0
    waited = 0

    def synchronize(self) -> None:
        Event.waited += 1

    def elapsed_time(self, other: Event) -> float:
        return other.at - self.at


def test_a_live_job_takes_from_the_end_of_the_one_before_it_and_the_first_from_the_start_of_the_step() -> None:
    stream, live = Clocked(), LiveTimes(Event)
    for start in (10.0, 100.0):
        stream.now = start
        live.begin(stream)
        for end in (2.0, 7.0):
            stream.now = start + end
            live.ended(stream)
    assert live.take() == pytest.approx([0.002, 0.005, 0.002, 0.005])
    assert Event.waited == 1
    assert live.take() == []


def test_priority_is_refused_where_no_stream_can_have_it() -> None:
    for wrong in ({"streams": 2, "share": "serial"}, {"streams": 2, "stream_flags": "blocking"}):
        with pytest.raises(ValueError, match="priority"):
            gpu.concurrent(Context(), jobs=["gemm", "decode"], priority="last_high", **wrong)


def test_only_the_jobs_of_the_last_stream_have_priority() -> None:
    asked = SimpleNamespace(jobs=["gemm", "decode"] * 2, streams=2, priority="last_high")
    assert gpu._priorities(asked) == [0, -1, 0, -1]
    assert gpu._priorities(SimpleNamespace(**{**vars(asked), "priority": "equal"})) == [0] * 4
