"""What the page says of one case: sentences, small tables and charts, ready to be laid out.

What must not live here: deciding, reading files, HTML beyond the charts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from aiperf.errors import AiperfError
from aiperf.records import CaseRecord, Pair, Result, RunRecord
from aiperf.records.profiled import Profile
from aiperf.report.explain import (
    CaseBlock,
    case_blocks,
    outcome_sentences,
    reproduce_command,
    side_sentences,
    stderr_lines,
    stdout_lines,
)
from aiperf.report.explain_clock import clock_sentences
from aiperf.report.explain_host import reading_cells
from aiperf.report.html.differences import differences, differences_chart
from aiperf.report.html.distribution import Drawn, distribution_chart
from aiperf.report.html.interval import interval_chart
from aiperf.report.html.load import slowest_chart
from aiperf.report.html.outcome import glyph, outcome_class
from aiperf.report.html.profile_page import ProfileView, profile_view
from aiperf.report.html.readings import Strip, clock_of, strips
from aiperf.report.html.rounds import rounds_chart
from aiperf.report.html.warmup import WarmupLine, warmup_chart, warmup_lines
from aiperf.report.layout.table import TableColumn
from aiperf.report.numbers import clean
from aiperf.report.reasons import result_sentences
from aiperf.report.views.cells import AFTER, BEFORE, INTERVAL, SPEEDUP
from aiperf.report.views.run_rows import RunRow, build_rows, run_verdict_text

_BLOCKS = ("measured", "outside", "checks", "mechanism", "gpu", "facts", "limits", "incidents", "findings", "book")
"""Blocks of ``explain`` that stand at the end of a case; the run's findings are listed once a page."""
_METRIC_COLUMNS: tuple[TableColumn[RunRow], ...] = (
    BEFORE,
    AFTER,
    replace(SPEEDUP, header="ratio or change"),
    INTERVAL,
    TableColumn("verdict", "verdict", run_verdict_text),
)


@dataclass(frozen=True)
class ResultView:
    """One primary result of a case: its sentences and its two charts."""

    heading: str
    css: str
    glyph: str
    sentences: tuple[str, ...]
    interval: str
    differences: str
    running: bool
    """Whether the chart holds an interval that closes in."""
    order: str
    """What a triangle and a disc stand for; empty when the record does not say."""


@dataclass(frozen=True)
class CaseView:
    """Everything that the page shows of one case."""

    id: str
    title: str
    why: str
    words: tuple[tuple[str, str, str], ...]
    """Class, shape and word of every outcome."""
    sides: tuple[str, ...]
    what: tuple[str, ...]
    outcome: tuple[str, ...]
    stderr: tuple[str, ...]
    results: tuple[ResultView, ...]
    columns: tuple[TableColumn[RunRow], ...]
    """Of the table of every metric."""
    metrics: tuple[RunRow, ...]
    clock: str
    slowest: str
    """The slowest request of each side under load."""
    drawn: Drawn
    rounds: str
    warmup: tuple[WarmupLine, ...]
    warmup_chart: str
    watched: tuple[str, ...]
    """Whose telemetry there is: sides, or the whole host."""
    telemetry: tuple[tuple[str, tuple[str, ...]], ...]
    """Name of a reading, and its medians over the pairs, one of each in ``watched``."""
    blocks: tuple[CaseBlock, ...]
    command: str
    profile: ProfileView | None
    trouble: str
    """Why the samples could not be drawn, if so."""


def case_view(
    run: RunRecord,
    record: CaseRecord,
    *,
    pairs: Callable[[CaseRecord], tuple[Pair, ...]],
    profile: Profile | None = None,
) -> CaseView:
    """Build the view of one case; ``pairs`` reads its samples and may fail with an AiperfError, which is shown."""
    trouble = ""
    sampled: tuple[Pair, ...] = ()
    found: tuple[Strip, ...] = ()
    try:
        sampled = pairs(record)
        found = strips(record.case, sampled)
    except AiperfError as error:
        trouble = f"The samples could not be read: {error}"
    case = record.case
    sides = tuple(s.name for s in case.sides)
    counted = (run.side for p in record.pairs for run in p.runs if run.usage)
    watched = tuple(dict.fromkeys([*(mark for p in record.pairs for mark in p.telemetry), *counted]))
    rows = build_rows([record]).rows
    words = list(dict.fromkeys(row.outcome for row in rows if row.primary))
    return CaseView(
        id=case.id,
        title=case.title,
        why=case.why,
        words=tuple((outcome_class(w), glyph(w), w) for w in words),
        sides=sides,
        what=tuple(side_sentences(case)),
        outcome=tuple(outcome_sentences(record)),
        stderr=(*stderr_lines(record), *stdout_lines(record)),
        results=tuple(_result(record, r) for r in record.results if r.primary),
        columns=_METRIC_COLUMNS,
        metrics=tuple(replace(row, primary=True) for row in rows if row.verdict),
        clock=clock_of(case, sampled) if found else "",
        slowest=slowest_chart(record),
        drawn=distribution_chart(found, sides),
        rounds=rounds_chart(found, sides),
        warmup=tuple(warmup_lines(record, found)),
        warmup_chart=warmup_chart(record, found),
        watched=watched,
        telemetry=tuple(reading_cells(record, watched)),
        blocks=tuple(
            CaseBlock(block.key, block.heading, tuple(map(clean, block.sentences)))
            for block in case_blocks(run, record, profile=profile)
            if block.key in _BLOCKS and block.sentences
        ),
        command=reproduce_command(run, record),
        profile=profile_view(profile) if profile else None,
        trouble=trouble,
    )


def _result(record: CaseRecord, result: Result) -> ResultView:
    found = differences(record, result)
    word = record.outcome(result)
    ladder = f"{result.side} against {result.against}: " if len(record.case.sides) > 2 else ""
    order = f"▲ {result.against} went first, ● {result.side} went first" if found.orders else ""
    return ResultView(
        heading=f"{ladder}{word}",
        css=outcome_class(word),
        glyph=glyph(word),
        sentences=(*result_sentences(result, word=word), *clock_sentences(record, result)),
        interval=interval_chart(result, word=word),
        differences=differences_chart(record, result, found),
        running=bool(found.running),
        order=order,
    )
