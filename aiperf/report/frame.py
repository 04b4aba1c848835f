"""The picture of a run under way, as lines of text: pure, so that it can be tested without a terminal.

What must not live here: terminals, clocks, deciding anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from aiperf.analysis.metrics import DEFAULT_METRIC
from aiperf.records import Case, CaseRecord, Skip
from aiperf.report.layout.text import wrap
from aiperf.report.numbers import clean, counted, format_interval, known
from aiperf.report.views.cells import interval_text, speedup_text
from aiperf.report.views.run_rows import RunRow, build_rows, run_verdict_text
from aiperf.units import format_duration

_RESERVED = 3
"""Lines kept free below the picture, so that it never scrolls."""
_NOTES = 3


@dataclass
class Board:
    """State of the display; belongs to one display and never leaves it."""

    order: list[str] = field(default_factory=list)
    lines: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Case id -> its name and what is known of it; absent while it waits."""
    current: str = ""
    phase: str = ""
    """What is done with the current case now."""
    elapsed: float | None = None
    """Seconds since it was begun."""
    heard: str = ""
    """What a program of the current case has printed last."""
    done: int = 0
    notes: list[str] = field(default_factory=list)

    def start(self, plan: Sequence[Case | Skip]) -> None:
        """Take over what is planned."""
        self.order = [p.id for p in plan if isinstance(p, Case)]

    def begin(self, case: Case) -> None:
        """Make ``case`` the current one."""
        self._add(case.id)
        self.current, self.phase, self.heard = case.id, "starting", ""
        # A case may be taken up again for its next look: then its line still says more than this one.
        self.lines.setdefault(case.id, (_name(case), case.measure.metric))

    def enter(self, case: Case, phase: str) -> None:
        """Note what is done with ``case`` now."""
        if case.id == self.current:
            self.phase = phase

    def advance(
        self, case: Case, k: int, n: int, *, interval: tuple[float, float] | None, seconds_left: float | None
    ) -> None:
        """Note that ``k`` of at most ``n`` pairs of ``case`` are done."""
        self._add(case.id)
        self.current, self.phase, self.heard = case.id, "", ""
        parts = [f"pair {k}/{n}"]
        if interval is not None and all(known(end) for end in interval):
            parts.append(f"{case.measure.metric} ratio {format_interval(*interval)}")
        else:
            parts.append(case.measure.metric)
        if seconds_left is not None:
            parts.append(f"about {format_duration(max(0.0, seconds_left))} left")
        self.lines[case.id] = (_name(case), " · ".join(parts))

    def hear(self, case: Case, side: str, line: str) -> None:
        """Note what a program of ``case`` has printed last."""
        if case.id == self.current:
            self.heard = f"{side}: {line}"

    def finish(self, record: CaseRecord) -> None:
        """Note how a case ended."""
        if record.status == "skipped" and record.case.id not in self.order:
            return
        self._add(record.case.id)
        self.done += 1
        self.lines[record.case.id] = (case_line(record), "")
        if self.current == record.case.id:
            self.current = self.heard = self.phase = ""

    def note(self, text: str) -> None:
        """Keep the latest notes."""
        self.notes = [*self.notes, text][-_NOTES:]

    def _add(self, case_id: str) -> None:
        if case_id not in self.order:
            self.order.append(case_id)


def frame_lines(board: Board, *, width: int, height: int) -> list[str]:
    """Draw the board in at most ``height`` lines of at most ``width`` cells: the current case is always in view."""
    room = max(1, height - _RESERVED - len(board.notes) - bool(board.heard))
    begun = [case_id for case_id in board.order if case_id in board.lines]
    if board.current in begun:
        begun.remove(board.current)
        begun.append(board.current)
    shown = begun[-room:]
    known_of = [board.lines[case_id] for case_id in shown]
    if shown[-1:] == [board.current]:
        name, rest = known_of[-1]
        spent = "" if board.elapsed is None else format_duration(board.elapsed)
        known_of[-1] = (name, " · ".join(part for part in (spent, board.phase, rest) if part))
    lines = ["  ".join(part for part in parts if part) for parts in known_of]
    if board.heard and shown[-1:] == [board.current]:
        # On a line of its own: behind the rest a terminal of 80 cells would cut off its number.
        lines.append(f"  {board.heard}")
    waiting = len(board.order) - len(begun)
    hidden = len(begun) - len(shown)
    tail = [f"{hidden} more finished"] if hidden else []
    tail += [f"{waiting} waiting"] if waiting else []
    lines += [" · ".join(tail)] if tail else []
    return [wrap(line, width)[0] for line in [*lines, *board.notes]]


def case_line(record: CaseRecord) -> str:
    """How a case ended, on one line: ``name  improved 2.81× (2.77 … 2.84), 6 pairs, 21 s``."""
    rows = [row for row in build_rows([record]).rows if row.primary]
    said = "; ".join(_row(row) for row in rows)
    spent = f", {format_duration(record.seconds)}" if record.seconds else ""
    return clean(f"{_name(record.case)}  {said}{spent}".replace("  ", " – ", 1))


def _row(row: RunRow) -> str:
    if not row.verdict:
        return f"{row.status}: {row.sentence}"
    step = f"{row.side} vs {row.against}: " if row.ladder else ""
    metric = "" if row.metric == DEFAULT_METRIC else f"{row.metric} "
    pairs = counted(row.pairs, "pair")
    return f"{step}{run_verdict_text(row)} {metric}{speedup_text(row)} ({interval_text(row)}), {pairs}"


def _name(case: Case) -> str:
    return f"{case.scenario} {case.label}".strip()
