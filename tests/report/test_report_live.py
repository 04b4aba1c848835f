"""Progress: plain lines when piped, one line a case on a terminal, nothing left behind."""

from __future__ import annotations

import io
import os
import pty
import re
from dataclasses import replace

import pytest
from factory_of_records import make_case, sample_records

from aiperf.records import Measure, Skip
from aiperf.report.frame import Board, case_line, frame_lines
from aiperf.report.live import LiveProgress, PlainProgress, Progress, choose_progress


def play(progress: Progress) -> None:
    """A whole run: two measured cases, a skip, a failure, notes."""
    records = sample_records()
    skipped = records[4]
    progress.run_started([*(r.case for r in records if r is not skipped), Skip(skipped.case, skipped.skip_reason)])
    progress.case_done(skipped)
    for record in records[:4]:
        progress.case_started(record.case)
        progress.pair_done(record.case, 1, 40)
        progress.pair_done(record.case, 6, 40, (2.7, 2.9), 30.0)
        progress.note("measuring the peak of h2d\x1b[31m")
        progress.case_done(record)
    progress.case_done(records[5])
    progress.run_done()


def test_a_pipe_gets_one_line_a_finished_case_and_no_control_character() -> None:
    out = io.StringIO()
    play(choose_progress(file=out))
    lines = out.getvalue().splitlines()
    assert [line[:5] for line in lines if line.startswith("[")] == [f"[{k}/6]" for k in range(1, 7)]
    assert lines[2] == "[2/6] pageable-vs-pinned-copy h2d 1MiB – improved 2.81× (2.77 … 2.84), 6 pairs, 21 s"
    assert lines[0].endswith("skipped: GPUDirect Storage is not active (nvidia-fs not loaded)")
    assert all(line.isprintable() for line in lines)


def test_a_quiet_run_says_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    progress = choose_progress(quiet=True)
    play(progress)
    assert type(progress) is Progress
    assert capfd.readouterr() == ("", "")


def test_a_terminal_shows_pairs_interval_and_time_left_and_is_left_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    master, slave = pty.openpty()
    with os.fdopen(slave, "w", encoding="utf-8") as terminal, os.fdopen(master, "rb", buffering=0) as screen:
        progress = choose_progress(file=terminal)
        assert isinstance(progress, LiveProgress)
        play(progress)
        terminal.flush()
        os.set_blocking(master, False)
        shown = b"".join(iter(lambda: screen.read(100_000) or b"", b"")).decode()
    assert "pair 6/40 · time ratio 2.70 … 2.90 · about 30 s left" in shown
    # From the first moment on: how long, what is done, which metric.
    assert re.search(r"copy h2d 1MiB  \S+ s · starting · time", shown)
    assert shown.index("\x1b[?25l") < shown.rindex("\x1b[?25h")
    assert shown.endswith("\x1b[2K")


@pytest.mark.parametrize("term", ["", "dumb"])
def test_a_terminal_that_cannot_move_its_cursor_gets_plain_lines(monkeypatch: pytest.MonkeyPatch, term: str) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", term)
    assert isinstance(choose_progress(file=Terminal()), PlainProgress)


def test_the_current_case_is_in_view_however_many_there_are() -> None:
    cases = [make_case(f"case-{i:03}") for i in range(200)]
    board = Board()
    board.start(cases)
    for case in cases[:150]:
        board.begin(case)
        board.advance(case, 1, 40, interval=None, seconds_left=None)
    board.note("a note")
    lines = frame_lines(board, width=60, height=24)
    assert len(lines) < 24
    assert max(map(len, lines)) <= 60
    assert lines[-3] == "case-149  pair 1/40 · time"
    assert lines[-2:] == ["130 more finished · 50 waiting", "a note"]


def test_a_case_taken_up_again_keeps_its_figures_until_the_next_pair() -> None:
    first, second = make_case("first"), make_case("second")
    board = Board()
    board.start([first, second])
    for case in (first, second):
        board.begin(case)
        board.advance(case, 6, 40, interval=(0.9, 1.1), seconds_left=2.0)
    board.begin(first)
    assert frame_lines(board, width=100, height=24) == [
        "second  pair 6/40 · time ratio 0.90 … 1.10 · about 2 s left",
        "first  starting · pair 6/40 · time ratio 0.90 … 1.10 · about 2 s left",
    ]


def test_an_interval_without_an_end_is_not_shown() -> None:
    case = make_case("first")
    board = Board()
    board.advance(case, 2, 40, interval=(0.0, float("inf")), seconds_left=None)
    assert frame_lines(board, width=100, height=24) == ["first  pair 2/40 · time"]


def test_a_failed_case_says_why_on_its_line() -> None:
    assert case_line(sample_records()[5]) == (
        "time-slicing-vs-mps – failed: before, set-up: CUDA out of memory (asked 4.0 GiB, 1.2 GiB free) and more; "
        "aiperf show RUN CASE has its stderr, 4 s"
    )


def test_a_line_says_how_long_its_case_goes_on_what_is_done_and_the_metric() -> None:
    case, board = replace(make_case("training"), measure=Measure(metric="latency_p99")), Board()
    board.start([case])
    board.begin(case)
    board.enter(case, "warm-up of before")
    board.enter(make_case("another"), "measuring")
    board.elapsed = 65.0
    assert frame_lines(board, width=120, height=20) == ["training  1 m 05 s · warm-up of before · latency_p99"]


def test_what_a_program_printed_last_stands_below_its_case_until_the_next_pair() -> None:
    case, board = make_case("training-of-a-model"), Board()
    board.start([case])
    board.begin(case)
    board.advance(case, 1, 6, interval=None, seconds_left=43.0)
    board.enter(case, "run of after")
    board.elapsed = 17.0
    board.hear(case, "after", "step 300 tokens/s: 812")
    assert frame_lines(board, width=80, height=20) == [
        "training-of-a-model  17 s · run of after · pair 1/6 · time · about 43 s left",
        "  after: step 300 tokens/s: 812",
    ]
    assert len(frame_lines(board, width=80, height=5)) < 5
    board.advance(case, 2, 6, interval=None, seconds_left=None)
    board.hear(make_case("another"), "after", "nothing")
    assert len(frame_lines(board, width=120, height=20)) == 1
