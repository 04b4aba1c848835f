"""gpu.concurrent without a GPU: order over streams, threads, arguments."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from patience import PATIENCE_S

from aiperf.workloads.contract import Context, SkipSide
from aiperf.workloads.gpu import workload as gpu
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
        ({"jobs": ["small"], "copies": -1}, "copies are 80000, 20, -1; each must be 1 or more"),
    ],
)
def test_an_impossible_sharing_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gpu.concurrent(Context(), **given)


def test_without_a_gpu_the_side_is_skipped() -> None:
    with pytest.raises(SkipSide, match="GPU"):
        gpu.concurrent(Context(), jobs=["small"])
