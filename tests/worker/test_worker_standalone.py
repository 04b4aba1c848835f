"""A side that runs by itself: what lies in its ranges, how many iterations, whom it obeys, how it fails."""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S

from aiperf.protocol.measuring import Check, Measure
from aiperf.protocol.messages import SetUpRequest, WarmUpReply, WorkloadCall
from aiperf.protocol.standalone import StandaloneReport, StandaloneSpec
from aiperf.protocol.wire import decode, encode
from aiperf.worker import ranges, standalone
from aiperf.worker.nvtx_tools import RangeTool
from aiperf.worker.ranges import Ranges

SIDES = Path(__file__).parents[1] / "launch" / "launch_sides.py"


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is emitted and run, in order."""
    log: list[str] = []

    def start(name: str) -> str:
        log.append(f"<{name}")
        return name

    tool = RangeTool(
        "made", start, lambda name: log.append(f"{name}>"), lambda name: log.append("("), lambda: log.append(")")
    )
    monkeypatch.setattr(standalone.Ranges, "open", classmethod(lambda cls, force=False: Ranges(tool, "made")))
    # A workload logs its steps through a file of this process.
    monkeypatch.setattr(ranges, "log_of_the_test", log, raising=False)
    return log


WORKLOAD = """
import time
from aiperf.worker import ranges
from aiperf.workloads.contract import Context, Work, Workload

def logged(context, *, seconds=0.0, prepares=False, first=0.0):
    log = ranges.log_of_the_test
    pause = [first, seconds]
    def step():
        log.append("step")
        time.sleep(pause.pop(0) if len(pause) > 1 else pause[0])
    prepare = (lambda: log.append("prepare")) if prepares else None
    return Workload(step, Work(items=1), outputs=dict, counters=lambda: {"launches": 3},
                    facts={"odd": object()}, prepare=prepare, close=lambda: log.append("close"))
"""


def spec(
    folder: Path, workload: str = "", *, params: dict[str, Any] | None = None, ranks: int = 1, **more: Any
) -> StandaloneSpec:
    own = folder / "logged.py"
    own.write_text(WORKLOAD)
    (folder / "shared").mkdir(exist_ok=True)
    request = SetUpRequest(
        "before", WorkloadCall(workload or f"{own}:logged", params or {}), Measure(clock="wall", delta=0.02),
        Check("none"), "cpu", seed=3, scratch=str(folder / "before"), shared_scratch=str(folder / "shared"),
    )  # fmt: skip
    given = {"warmup_seconds": 0.0, "target_seconds": 0.0, "most_iterations": 50, **more}
    return StandaloneSpec(request, ranks, report=str(folder / "report-{rank}.json"), **given)


def run(folder: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str, **fields: Any) -> tuple[int, StandaloneReport]:
    path = folder / "spec.json"
    path.write_text(encode(spec(folder, **fields)))
    monkeypatch.setattr(sys, "argv", ["standalone", str(path), *arguments])
    code = standalone.main()
    return code, decode((folder / "report-0.json").read_text(), StandaloneReport)


def test_the_range_holds_the_profiled_iterations_and_neither_set_up_nor_warm_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: list[str]
):
    code, report = run(tmp_path, monkeypatch, params={"seconds": 0.001}, target_seconds=0.003)
    assert code == 0
    number = report.iterations
    assert 1 <= number <= 3
    # First, one to plan with, two to warm up.
    assert seen == ["step"] * 4 + ["<before", *["(", "step", ")"] * number, "before>", "close"]


def test_iterations_that_need_preparing_have_a_range_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: list[str]
):
    _, report = run(
        tmp_path, monkeypatch, params={"prepares": True, "seconds": 0.001}, target_seconds=100.0, most_iterations=2
    )
    assert report.iterations == 2
    assert seen[-13:] == [*["prepare", "<before", "(", "step", ")", "before>"] * 2, "close"]
    assert seen.count("<before") == 2


def test_a_slow_first_iteration_does_not_count_for_the_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: list[str]
):
    # Were it a trial, it would be the only one: it takes longer than the warm-up.
    fields = {"warmup_seconds": 0.45, "target_seconds": 1.0, "most_iterations": 7}
    _, report = run(tmp_path, monkeypatch, params={"first": 0.5, "seconds": 0.001}, **fields)
    assert report.iterations == 7
    assert seen.index("<before") > 10


def test_one_iteration_is_the_fewest_and_two_readings_warm_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: list[str]
):
    _, report = run(tmp_path, monkeypatch, params={"seconds": 0.01}, target_seconds=0.001)
    assert (report.iterations, seen.index("<before")) == (1, 4)


def test_the_report_says_who_ran_what_for_how_long_through_which_ranges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: list[str]
):
    _, report = run(tmp_path, monkeypatch, params={"seconds": 0.01}, target_seconds=0.02)
    assert (report.rank, report.pid) == (0, os.getpid())
    assert (report.backend, report.domain, report.backend_reason) == ("made", "aiperf", "made")
    assert report.wall_s >= 0.009 * report.iterations
    assert report.summary is not None
    assert report.summary.counters == {"launches": 3}
    assert report.summary.work["items"] == 1
    assert report.summary.facts["odd"].startswith("<object")
    assert report.summary.peak_bytes > 1 << 20
    assert report.summary.peak_gpu_bytes is None
    assert not list(tmp_path.glob("*.part"))


def test_braces_in_a_folders_name_are_only_braces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: list[str]):
    folder = tmp_path / "{0} {x}"
    folder.mkdir()
    assert run(folder, monkeypatch)[0] == 0


@pytest.mark.parametrize(
    ("function", "error"),
    [
        ("broken", "warm-up: ValueError: broken batch"),
        ("refuses", "set-up: this disk has no O_DIRECT"),
        ("absent", "set-up: "),
    ],
)
def test_a_failing_side_is_told_in_the_words_of_the_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: list[str], function: str, error: str
):
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "AIPERF_PAD"):
        monkeypatch.setenv(name, "0")
    code, report = run(tmp_path, monkeypatch, workload=f"{SIDES}:{function}")
    assert code == 1
    assert report.error.startswith(error)
    assert (report.iterations, report.summary) == (0, None)


def test_a_failure_of_the_profiled_iterations_is_told_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: list[str], capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(standalone._StandaloneRank, "_profiled", lambda self, iterations: 1 / 0)
    code, report = run(tmp_path, monkeypatch)
    assert (code, report.error) == (1, "ZeroDivisionError: division by zero")
    assert "Traceback" in capsys.readouterr().err


# ---- torch.profiler --------------------------------------------------------------------------------------------------


def test_the_trace_marks_each_prepared_iteration_and_not_what_lies_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: list[str]
):
    code, report = run(
        tmp_path, monkeypatch, params={"prepares": True, "seconds": 0.002}, target_seconds=100.0, most_iterations=3,
        trace=str(tmp_path / "trace-{rank}.json.gz"),
    )  # fmt: skip
    assert (code, report.backend) == (0, "made")
    events = json.loads(gzip.decompress((tmp_path / "trace-0.json.gz").read_bytes()))["traceEvents"]
    # First, one to plan with, two to warm up, one under the new recording, three profiled.
    assert seen.count("step") == 8
    marks = sorted((e["ts"], e["dur"]) for e in events if e.get("name") == "aiperf@before")
    assert len(marks) == 3
    assert all(dur >= 2000 for _, dur in marks)
    assert all(ts + dur <= later for (ts, dur), (later, _) in pairwise(marks))


# ---- perf's FIFOs ----------------------------------------------------------------------------------------------------


class FakePerf(threading.Thread):
    """The other end of the FIFOs: answers every word, or goes away after some."""

    def __init__(self, folder: Path, *, answers: int = 99) -> None:
        super().__init__(daemon=True)
        self.fifos = [str(folder / "control.fifo"), str(folder / "answer.fifo")]
        for fifo in self.fifos:
            os.mkfifo(fifo)
        self.words: list[str] = []
        self._answers = answers
        self.start()

    def run(self) -> None:
        with open(self.fifos[0]) as asked, open(self.fifos[1], "w") as told:
            for word in asked:
                if len(self.words) == self._answers:
                    return
                self.words.append(word.strip())
                told.write("ack\n")
                told.flush()


def test_perf_counts_from_just_before_the_range_until_just_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: list[str]
):
    perf = FakePerf(tmp_path)
    heard = standalone._switch
    monkeypatch.setattr(standalone, "_switch", lambda *ends: (seen.append(ends[2]), heard(*ends)))
    assert run(tmp_path, monkeypatch, control=tuple(perf.fifos))[0] == 0
    perf.join(PATIENCE_S)
    assert perf.words == ["enable", "disable"]
    first, last = seen.index("enable"), seen.index("disable")
    assert seen[first : first + 2] == ["enable", "<before"]
    assert seen[last - 1 : last + 2] == ["before>", "disable", "close"]


@pytest.mark.parametrize(("answers", "word"), [(0, "enable"), (1, "disable")])
def test_a_perf_that_goes_away_is_a_failure_and_no_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: list[str], answers: int, word: str
):
    perf = FakePerf(tmp_path, answers=answers)
    code, report = run(tmp_path, monkeypatch, control=tuple(perf.fifos))
    assert (code, report.error) == (1, f"perf ended before it acknowledged {word}")


def test_a_perf_that_has_closed_its_end_is_a_failure_in_the_same_words():
    reader, writer = os.pipe()
    os.close(reader)
    with (
        open(writer, "wb", buffering=0) as tell,
        pytest.raises(standalone._Failed, match="perf ended before it acknowledged disable"),
    ):
        standalone._switch(tell, io.BytesIO(b"ack\n"), "disable")


def test_only_rank_0_talks_to_perf(tmp_path: Path):
    one = object.__new__(standalone._StandaloneRank)
    one._spec, one._rank = spec(tmp_path, control=(str(tmp_path / "no"), str(tmp_path / "fifo"))), 1
    with one._counting():
        pass
    one._rank = 0
    with pytest.raises(FileNotFoundError), one._counting():
        pass


# ---- a gang ----------------------------------------------------------------------------------------------------------


def gang(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *scripts: str
) -> tuple[int, float, list[subprocess.Popen[bytes]]]:
    """Exit status and seconds of a gang whose ranks are these Python scripts."""
    real, started = subprocess.Popen, []

    def popen(argv: list[str], **more: Any) -> subprocess.Popen[bytes]:
        assert argv[1:4] == ["-m", "aiperf.worker.standalone", str(tmp_path)]
        rank = int(argv[4])
        assert more["env"]["RANK"] == more["env"]["LOCAL_RANK"] == str(rank)
        assert more["env"]["WORLD_SIZE"] == str(len(scripts))
        # The socket on which the ranks meet is rank 0's.
        assert (int(argv[6]) in more["pass_fds"]) == (rank == 0)
        started.append(real([sys.executable, "-c", scripts[rank]], **more))
        return started[-1]

    monkeypatch.setattr(standalone.subprocess, "Popen", popen)
    began = time.monotonic()
    return standalone._gang(tmp_path, len(scripts)), time.monotonic() - began, started


WAITS = "import time; time.sleep(60)"


@pytest.mark.parametrize(
    ("scripts", "code"),
    [
        (("pass", "pass"), 0),
        (("pass", "raise SystemExit(3)"), 3),
        (("raise SystemExit(3)", "pass"), 3),
        (("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "pass"), 9),
    ],
)
def test_a_gangs_status_is_that_of_the_rank_that_failed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, scripts: tuple[str, ...], code: int
):
    assert gang(monkeypatch, tmp_path, *scripts)[0] == code


@pytest.mark.parametrize("dying", [pytest.param(0, marks=pytest.mark.long), 1])
def test_a_rank_that_dies_takes_the_waiting_ones_with_it_whichever_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, dying: int
):
    scripts = [WAITS, WAITS]
    scripts[dying] = "raise SystemExit(7)"
    code, seconds, started = gang(monkeypatch, tmp_path, *scripts)
    assert code == 7
    assert seconds < 60
    assert started[1 - dying].returncode == -9


def test_the_peers_of_a_dead_rank_get_a_moment_to_say_what_they_saw(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(standalone, "_PEER_GRACE_S", PATIENCE_S)
    late = f"import time, pathlib; time.sleep(0.3); pathlib.Path({str(tmp_path / 'said')!r}).write_text('x')"
    assert gang(monkeypatch, tmp_path, late, "raise SystemExit(7)")[0] == 7
    assert (tmp_path / "said").exists()


def test_an_interrupted_gang_leaves_no_rank(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    ranks: list[subprocess.Popen[bytes]] = []
    ended = standalone._end
    monkeypatch.setattr(standalone, "_end", lambda started: (ranks.extend(started), ended(started)))
    monkeypatch.setattr(standalone, "_PEER_GRACE_S", 0.05)
    monkeypatch.setattr(standalone, "sleep", interrupt)
    with pytest.raises(KeyboardInterrupt):
        gang(monkeypatch, tmp_path, WAITS, WAITS)
    assert [rank.returncode for rank in ranks] == [-9, -9]


def warmed(seconds: float) -> WarmUpReply:
    return WarmUpReply(seconds=(seconds,), reading_s=seconds, steady=True, reason="")


def test_a_rank_follows_the_plan_of_rank_0(tmp_path: Path):
    one = object.__new__(standalone._StandaloneRank)
    one._rank, one._side = 1, "before"
    one._spec = spec(tmp_path, ranks=2)
    (tmp_path / "coming").write_text("[4, 9]")
    # Whole or not at all, as rank 0 leaves it.
    threading.Timer(0.1, lambda: (tmp_path / "coming").rename(tmp_path / "shared" / "plan-before.json")).start()
    trials: list[int] = []
    one._warm_up = lambda readings: (trials.append(readings), warmed(0.5))[1]  # type: ignore[method-assign,func-returns-value]
    assert one._plan() == (4, 9)
    assert trials == [1] * 3


def test_a_rank_that_hears_nothing_from_rank_0_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(standalone, "_PLAN_WAIT_S", 0.05)
    one = object.__new__(standalone._StandaloneRank)
    one._rank, one._side = 1, "before"
    one._spec = spec(tmp_path, ranks=2)
    one._warm_up = lambda readings: warmed(0.5)  # type: ignore[method-assign]
    with pytest.raises(standalone._Failed, match="rank 0 did not say how many iterations to run"):
        one._plan()


def planned(tmp_path: Path, seconds: list[float], **fields: Any) -> tuple[tuple[int, int], list[float]]:
    """What rank 0 decides when its trials take so long, and the trials that it did not need."""
    one = object.__new__(standalone._StandaloneRank)
    one._rank, one._side = 0, "before"
    one._spec = spec(tmp_path, **{"ranks": 2, "target_seconds": 0.1, **fields})
    one._warm_up = lambda readings: warmed(seconds.pop(0))  # type: ignore[method-assign]
    return one._plan(), seconds


def test_a_gang_decides_by_the_middle_of_three_trials_however_slow_the_first_is(tmp_path: Path):
    assert planned(tmp_path, [5.0, 0.02, 0.03]) == ((2, 3), [])
    assert json.loads((tmp_path / "shared" / "plan-before.json").read_text()) == [2, 3]


def test_a_side_without_peers_tries_no_longer_than_it_warms_up(tmp_path: Path):
    assert planned(tmp_path, [0.5, 0.1, 0.1], ranks=1) == ((2, 1), [0.1, 0.1])
    assert planned(tmp_path, [0.5, 0.01, 0.01], ranks=1, warmup_seconds=1.0) == ((100, 10), [])
    assert not (tmp_path / "shared" / "plan-before.json").exists()
