"""The trend of a case in every format: a block a host, a line a run, what changed between them.

What must not live here: finding change points, choosing series, files.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from aiperf.analysis.gate import Difference
from aiperf.analysis.notes import note_sentences
from aiperf.analysis.rows import FIRST_SIDES, LAST_SIDES, ComparisonRow
from aiperf.analysis.trend import FEWEST_POINTS, SHORTEST, Point, Series, Step
from aiperf.analysis.trend_marks import Mark, ratio_marks, series_threshold, value_marks
from aiperf.records import SCHEMA_VERSION
from aiperf.report.layout.formats import Printed, document_json, records_csv
from aiperf.report.layout.page import Block, Sentences
from aiperf.report.layout.table import Table, TableColumn
from aiperf.report.layout.text import STYLES, Line, cut_to
from aiperf.report.numbers import (
    DASH,
    clean,
    confidence,
    counted,
    format_change,
    format_change_interval,
    format_ratio,
    format_value,
)
from aiperf.report.views.cells import after_text, ratio_interval_text, ratio_text, verdict_text
from aiperf.report.views.run_rows import build_rows
from aiperf.report.views.sparks import bar, reach, spark_floor, sparkline
from aiperf.units import format_percent

_SHOWN = 32
"""Characters of a value that changed between two runs that are shown."""
_LEAST_SPARK = 10


@dataclass(frozen=True, kw_only=True)
class HistoryRow(ComparisonRow):
    """One run in the trend of a comparison; without ``after`` the run has no number, and ``sentence`` says why."""

    host_id: str
    run: str
    started: str
    run_status: str
    status: str
    precision: str
    replicate: str
    in_trend: bool
    """Whether its numbers belong to the trend."""
    git: dict[str, str] = field(default_factory=dict)
    changed: tuple[Difference, ...] = ()
    """What differs from the run before."""
    breaks: tuple[Difference, ...] = ()
    """Why the trend begins anew here."""
    steps: tuple[str, ...] = ()
    """The changes of level that begin here."""

    @property
    def when(self) -> str:
        """``2026-11-20 18:05``, or the run's name where its beginning is unknown."""
        return f"{self.started[:10]} {self.started[11:16]}" if len(self.started) >= 16 else clean(self.run)

    @property
    def commit(self) -> str:
        """The checkout's commit, with a plus where it had changes."""
        sha = self.git.get("sha", "")
        return f"{clean(sha[:8])}{'+' if self.git.get('diff') else ''}" if sha else DASH

    @property
    def word(self) -> str:
        """Its verdict, else the status of the case."""
        return verdict_text(self) if self.verdict else self.status if self.status != "measured" else "no number"


def history_view(
    found: Sequence[Series], *, hidden: Sequence[Series] = (), warnings: Sequence[str] = (), ascii_only: bool = False
) -> Printed:
    """Every series in a paragraph of its own; ``hidden`` are those of other hosts, which are only counted."""
    rows = [history_rows(series) for series in found]
    notes = _notes(found, hidden=hidden)
    document: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "series": [_plain(series, own) for series, own in zip(found, rows, strict=True)],
        "notes": notes,
        "warnings": list(warnings),
    }
    return Printed(
        [*(_paragraph(*both, ascii_only=ascii_only) for both in zip(found, rows, strict=True)), [Sentences(notes)]],
        json=lambda: document_json(document),
        csv=lambda: records_csv([row for own in rows for row in own], kind=HistoryRow),
    )


def history_rows(series: Series) -> list[HistoryRow]:
    """A row a run, oldest first."""
    return [_row(series, place, point) for place, point in enumerate(series.points)]


def _row(series: Series, place: int, point: Point) -> HistoryRow:
    run, record, value = point.run, point.record, point.value
    compared: dict[str, Any] = {"scenario": series.scenario, "case": series.case, "metric": series.metric}
    compared |= {"side": series.side, "against": series.against}
    if point.result is not None:
        (row, *_) = build_rows([replace(record, results=(point.result,))]).rows
        compared |= {f.name: getattr(row, f.name) for f in fields(ComparisonRow) if f.init}
    elif value is not None:
        compared |= {"after": value.summary.value, "unit": value.unit, "better": value.better}
    else:
        compared["sentence"] = _why(point)
    return HistoryRow(
        **compared,
        host_id=series.host,
        run=run.run,
        started=run.started,
        run_status=run.status if run.known else "damaged",
        status=record.status,
        precision=record.precision,
        replicate=record.replicate,
        in_trend=point.counts,
        git=dict(run.git),
        changed=point.changed,
        breaks=point.breaks,
        steps=tuple(_steps(series, place)),
    )


def _why(point: Point) -> str:
    """Why a run has no number."""
    record = point.record
    if record.results or record.summaries:
        return "this run does not have the metric"
    if record.status == "imported":
        return "; ".join(map(clean, note_sentences(record))) or "the file has no readings of it"
    return build_rows([record]).rows[-1].sentence


def _steps(series: Series, place: int) -> list[str]:
    found = [(_ratio_name(series), step) for step in series.ratio_steps if step.index == place]
    found += [(f"{series.side}'s own value", step) for step in series.value_steps if step.index == place]
    return [_step_text(name, step) for name, step in found]


def _step_text(name: str, step: Step) -> str:
    ends = format_change_interval(step.low - 1, step.high - 1)
    return f"step: {name} {format_change(step.ratio - 1)} ({ends})"


def _paragraph(series: Series, rows: Sequence[HistoryRow], *, ascii_only: bool) -> list[Block]:
    heading = [series.case]
    if series.side not in LAST_SIDES or series.against not in FIRST_SIDES:
        heading.append(f"{series.side} vs {series.against}" if series.against else series.side)
    if series.metric != "time":
        better = next((f", {row.better} is better" for row in rows if row.after is not None), "")
        heading.append(f"{series.metric}{better}")
    heading.append(f"host {series.host} ({', '.join(series.hostnames)})")
    days = list(dict.fromkeys(row.started[:10] for row in rows if row.started))
    span = f", {' … '.join(dict.fromkeys((days[0], days[-1])))}" if days else ""
    return [
        Sentences([" · ".join(heading)], indent="  ", style="bold", mark="### "),
        Sentences([f"{counted(len(rows), 'run')}{span}"]),
        lambda width: _sparks(series, rows, width=width, ascii_only=ascii_only),
        _table(series, rows, ascii_only=ascii_only),
    ]


def _table(series: Series, rows: Sequence[HistoryRow], *, ascii_only: bool) -> Table[HistoryRow]:
    title, bars = _bars(series, ascii_only=ascii_only)
    # The rank is the order in which a narrow terminal loses columns; never the ratio or the verdict.
    return Table(
        [
            TableColumn("started", "when (UTC)", lambda row: row.when),
            TableColumn("git", "commit", lambda row: row.commit, right=True, rank=3, quiet=True),
            TableColumn("ratio", _ratio_name(series), ratio_text, right=True, rank=1),
            TableColumn("low", "interval", ratio_interval_text, right=True),
            TableColumn(
                "bar", title, lambda row: bars.get(row.run, ""), rank=4, quiet=True, optional=True, dialect="terminal"
            ),
            TableColumn("after", "after", after_text, right=True, rank=2, quiet=True),
            TableColumn("verdict", "verdict", lambda row: row.word, markdown=_word_with_sentence),
            TableColumn("notes", "notes", _notes_text, dialect="markdown", optional=True),
        ],
        rows,
        above=lambda row: [Line(text) for text in _above(row)],
        below=lambda row: [Line(text, "bold") for text in _below(row)],
        instead=lambda row: Line(f" {row.when}  {row.word}: {row.sentence}", "dim") if row.after is None else None,
        style=lambda row: STYLES.get(row.verdict, ""),
    )


def _word_with_sentence(row: HistoryRow) -> str:
    return f"{row.word}: {row.sentence}" if row.after is None else row.word


def _notes_text(row: HistoryRow) -> str:
    return "; ".join([*_above(row), *_below(row)])


def _bars(series: Series, *, ascii_only: bool) -> tuple[str, dict[str, str]]:
    """The ends of one scale for all runs, and each run's interval on it; nothing for a single run."""
    ratios = ratio_marks(series)
    marks = ratios if any(ratios) else value_marks(series)
    if sum(mark is not None for mark in marks) < 2:
        return "", {}
    ends = reach(marks, threshold=series_threshold(series))
    low, high = (
        format_ratio(math.exp(end)) if marks is ratios else format_value(math.exp(end), _unit(series)) for end in ends
    )
    drawn = {p.run.run: bar(mark, ends, ascii_only=ascii_only) for p, mark in zip(series.points, marks, strict=True)}
    return f"{low} … {high}", drawn


def _sparks(series: Series, rows: Sequence[HistoryRow], *, width: int, ascii_only: bool) -> list[Line]:
    ratios = ratio_marks(series), series.ratio_steps, [ratio_text(row) for row in rows]
    values = value_marks(series), series.value_steps, [after_text(row) for row in rows]
    drawings = [(_ratio_name(series), *ratios), (series.side, *values)]
    names = max(len(name) for name, *_ in drawings)
    floor = spark_floor(series_threshold(series))
    lines = []
    for name, marks, steps, texts in drawings:
        known = [(mark.log, text) for mark, text in zip(marks, texts, strict=True) if mark is not None]
        if len(known) < 2:
            continue
        ends = f"{min(known)[1]} … {max(known)[1]}{_typical(marks)}"
        room = max(_LEAST_SPARK, width - names - len(ends) - 4)
        levels = [mark.level if mark else None for mark in marks]
        drawn = sparkline(levels, begins={s.index for s in steps}, room=room, ascii_only=ascii_only, floor=floor)
        lines.append(Line(f"{name:<{names}}  {drawn}  {ends}"))
    return lines


def _typical(marks: Sequence[Mark | None]) -> str:
    """`` (each ± 1.0 %)``: half the middle interval; empty where none is known."""
    halves = [mark.half for mark in marks if mark is not None and mark.half is not None]
    return f" (each ± {format_percent(math.expm1(statistics.median(halves)))})" if halves else ""


def _notes(found: Sequence[Series], *, hidden: Sequence[Series] = ()) -> list[str]:
    """What the lines hold and what they do not."""
    said = []
    if hidden:
        hosts = list(dict.fromkeys(series.host for series in hidden))
        runs = {point.run.run for series in hidden for point in series.points}
        one = f"host {hosts[0]}" if len(hosts) == 1 else f"{len(hosts)} other hosts"
        said.append(f"{one} with {counted(len(runs), 'run')} not shown; --all-hosts shows each host separately")
    alphas = {p.result.comparison.alpha for s in found for p in s.points if p.result}
    if len(alphas) == 1:
        said.append(f"intervals: {confidence(alphas.pop())} within a run")
    if any(sum(point.counts for point in series.points) > 1 for series in found):
        said.append("pictures: a run that differs from its level by no more than the noise is drawn on that level")
    steps = [step for series in found for step in (*series.ratio_steps, *series.value_steps)]
    if steps:
        level = confidence(steps[0].alpha)
        said.append(
            f"step: the level changed at that run and stayed for at least {SHORTEST} runs; its interval ({level}) "
            "takes the change point as given. It is a hint to investigate, not a verdict"
        )
    if any(series.value_steps for series in found):
        said.append("a side's absolute value also varies with the machine and the day; in the speedup this cancels")
    if any(_longest(series) < FEWEST_POINTS for series in found):
        said.append(f"change points are searched only in series of at least {FEWEST_POINTS} comparable runs")
    return said


def _above(row: HistoryRow) -> list[str]:
    """What changed since the run above."""
    said = (
        [f"not comparable with the runs above, so the trend restarts here: {_changes(row.breaks)}"]
        if row.breaks
        else []
    )
    # The commit has a column of its own.
    changed = [d for d in row.changed if not d.name.startswith("git.")]
    return [*said, f"changed: {_changes(changed)}"] if changed else said


def _below(row: HistoryRow) -> list[str]:
    """What has to be known of this run."""
    said = list(row.steps)
    if said:
        said[-1] += f"; this run: {clean(row.run)}"
    if row.run_status == "damaged":
        said.append("this run's own record is damaged: when it began, its host and its commit are unknown")
    if row.run_status == "running":
        said.append("this run is not finished: still running, or killed")
    if row.after is not None and not row.in_trend:
        said.append(f"not in the trend: {row.sentence}")
    return said


def _changes(found: Iterable[Difference]) -> str:
    return ", ".join(clean(f"{d.name} {cut_to(d.then, _SHOWN)} → {cut_to(d.now, _SHOWN)}") for d in found)


def _ratio_name(series: Series) -> str:
    return "speedup" if _unit(series) == "s" else "ratio"


def _unit(series: Series) -> str:
    return next((point.value.unit for point in series.points if point.value is not None), "")


def _longest(series: Series) -> int:
    """Most runs with a number between two changes of the question."""
    longest = count = 0
    for point in series.points:
        count = (0 if point.breaks else count) + point.counts
        longest = max(longest, count)
    return longest


def _plain(series: Series, rows: Sequence[HistoryRow]) -> dict[str, Any]:
    steps = [("speedup", step) for step in series.ratio_steps] + [("value", step) for step in series.value_steps]
    return {
        **{name: getattr(series, name) for name in ("case", "scenario", "hostnames", "metric", "side", "against")},
        "host_id": series.host,
        "unit": _unit(series),
        "points": rows,
        "steps": [{"of": of, "run": rows[step.index].run, **asdict(step)} for of, step in steps],
    }
