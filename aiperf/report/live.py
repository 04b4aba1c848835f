"""What a run says while it measures: a live display, plain lines, or nothing.

What must not live here: measuring, deciding, and the table at the end.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from aiperf.records import Case, CaseRecord, Skip
from aiperf.report.frame import Board, case_line, frame_lines
from aiperf.report.numbers import clean

if TYPE_CHECKING:
    from rich.live import Live

Interval = tuple[float, float]
"""Ends of the primary ratio's interval; above 1 is better."""


_REDRAW_S = 0.2


class Progress:
    """What a run reports as it goes; this one says nothing, for ``--quiet``, ``--json`` and tests."""

    def run_started(self, plan: Sequence[Case | Skip]) -> None:
        """Say what is going to be measured, and what is not."""

    def case_started(self, case: Case) -> None:
        """Say that the workers of a case are being started."""

    def pair_done(
        self, case: Case, k: int, n: int, interval: Interval | None = None, seconds_left: float | None = None
    ) -> None:
        """Say that ``k`` of at most ``n`` pairs are done, and where the interval stands, if there is one yet."""

    def program_said(self, case: Case, side: str, line: str) -> None:
        """Say that a program is still under way, and what it has printed last of what it is asked for, if anything."""

    def phase_entered(self, case: Case, phase: str) -> None:
        """Say what is done with a case now."""

    def case_done(self, record: CaseRecord) -> None:
        """Say how a case ended."""

    def note(self, text: str) -> None:
        """Say something that belongs to no case."""

    def run_done(self) -> None:
        """Leave the terminal as it was found."""


class PlainProgress(Progress):
    """One line per finished case on stderr, without control characters: for pipes, logs and CI."""

    def __init__(self, *, file: TextIO | None = None) -> None:
        self._file = file or sys.stderr
        self._done = 0
        self._total = 0

    def run_started(self, plan: Sequence[Case | Skip]) -> None:
        """Remember how many cases there are."""
        self._total = len(plan)

    def case_done(self, record: CaseRecord) -> None:
        """Print how a case ended."""
        self._done += 1
        self._print(f"[{self._done}/{max(self._total, self._done)}] {case_line(record)}")

    def note(self, text: str) -> None:
        """Print the note."""
        self._print(clean(text))

    def _print(self, line: str) -> None:
        self._file.write(f"{line}\n")
        self._file.flush()


class LiveProgress(Progress):
    """One line a case, redrawn in place; erased at the end, when the table takes over."""

    def __init__(self, *, file: TextIO | None = None) -> None:
        self._file = file or sys.stderr
        self._board = Board()
        self._live: Live | None = None
        self._began: dict[str, float] = {}
        self._drawn = float("-inf")

    def run_started(self, plan: Sequence[Case | Skip]) -> None:
        """Open the display."""
        from rich.console import Console
        from rich.live import Live

        self._board.start(plan)
        console = Console(file=self._file, highlight=False, markup=False, emoji=False)
        # No refresh thread: it would wake up beside the measurement. The display moves when something happened.
        self._live = Live(console=console, auto_refresh=False, transient=True, redirect_stdout=False)
        self._live.start()
        self._draw()

    def case_started(self, case: Case) -> None:
        """Show the case as being set up."""
        self._began.setdefault(case.id, time.monotonic())
        self._board.begin(case)
        self._draw()

    def pair_done(
        self, case: Case, k: int, n: int, interval: Interval | None = None, seconds_left: float | None = None
    ) -> None:
        """Show the pairs, the interval as it closes in and the time left."""
        self._board.advance(case, k, n, interval=interval, seconds_left=seconds_left)
        self._draw()

    def program_said(self, case: Case, side: str, line: str) -> None:
        """Show the time that went by, and the line behind what is known of the case."""
        if line:
            self._board.hear(case, side, clean(line))
        self._draw()

    def phase_entered(self, case: Case, phase: str) -> None:
        """Show the phase; short ones, which follow each other within a second, are not worth a redraw each."""
        self._board.enter(case, phase)
        if time.monotonic() - self._drawn > _REDRAW_S:
            self._draw()

    def case_done(self, record: CaseRecord) -> None:
        """Show how a case ended."""
        self._board.finish(record)
        self._draw()

    def note(self, text: str) -> None:
        """Show the note under the cases."""
        self._board.note(clean(text))
        self._draw()

    def run_done(self) -> None:
        """Close the display; safe to call twice and before the start."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _draw(self) -> None:
        if self._live is None:
            return
        from rich.text import Text

        size = self._live.console.size
        self._drawn = time.monotonic()
        began = self._began.get(self._board.current)
        self._board.elapsed = None if began is None else self._drawn - began
        lines = frame_lines(self._board, width=size.width, height=size.height)
        self._live.update(Text("\n".join(lines), no_wrap=True, overflow="crop"), refresh=True)


def choose_progress(*, quiet: bool = False, file: TextIO | None = None) -> Progress:
    """Return the display that suits ``file`` (stderr): live on a terminal, else plain lines; silent when asked."""
    out = file or sys.stderr
    if quiet:
        return Progress()
    if out.isatty() and os.environ.get("TERM", "") not in ("", "dumb"):
        return LiveProgress(file=out)
    return PlainProgress(file=out)
