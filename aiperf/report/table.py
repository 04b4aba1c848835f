"""The one table of a run: rows built from case records, which every dialect only reads.

What must not live here: verdicts being decided, layout, files.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from aiperf.analysis.limits import binding
from aiperf.analysis.metrics import HEADLINE
from aiperf.records import CaseRecord, Comparison, Failure, Limit, Result, RunRecord
from aiperf.records.profiled import Profile
from aiperf.report.mechanism import flag, mechanism_cell
from aiperf.report.numbers import (
    DASH,
    as_change,
    clean,
    format_change,
    format_change_interval,
    format_interval,
    format_ratio,
    format_share,
    format_value,
)

NOT_BEGUN, NO_RECORD = "not begun", "no record"
"""Status of a planned case that the run holds nothing of: it had not come to it, or has lost it."""
_INTERRUPTED = "the run was interrupted before it"
TIME_UNITS = ("s",)
"""A metric in one of these units has a speedup; any other prints its change."""


@dataclass(frozen=True)
class Row:
    """One line of the table: one metric of one side of one case, or a case without results."""

    scenario: str
    case: str
    """Id, unique in a run."""
    label: str
    """The axes as people read them; empty for a case without axes."""
    status: str
    """measured, skipped, failed, interrupted or imported; NOT_BEGUN or NO_RECORD for a planned case that has none."""
    metric: str = ""
    unit: str = ""
    side: str = ""
    against: str = ""
    headline: bool = True
    ladder: bool = False
    """Whether the case has more sides than before and after."""
    before: float | None = None
    """Value of ``against``; a time is seconds per iteration."""
    after: float | None = None
    """Value of ``side``."""
    ratio: float | None = None
    """Above 1 is better."""
    low: float | None = None
    high: float | None = None
    alpha: float | None = None
    change: float | None = None
    """after / before minus 1, whichever direction is better."""
    change_low: float | None = None
    change_high: float | None = None
    pairs: int = 0
    mde: float | None = None
    pairs_needed: int | None = None
    limit_share: float | None = None
    limit_roof: str = ""
    limit_side: str = ""
    verdict: str = ""
    """The verdict's word, or the status of a case that was cut short; empty for a row without numbers."""
    reason: str = ""
    """Reason code of the verdict."""
    sentence: str = ""
    """The verdict's sentence, or why the case was skipped, failed or interrupted."""
    fix: str = ""
    provisional: bool = False
    expect: str = ""
    quality: str = ""
    """How far the outputs differ where the sides differ by design."""
    mechanism: str = ""
    """Whether the counters that the scenario names moved as it claims; empty without a claim or any profile."""
    mechanism_note: str = ""
    """Says so where a side improved and they did not."""
    findings: tuple[str, ...] = ()
    """What was found of the host that can bias the case, ``warn:`` or ``unfit:`` first."""

    @property
    def is_time(self) -> bool:
        """Whether the ratio is a speedup."""
        return self.unit in TIME_UNITS

    @property
    def is_price(self) -> bool:
        """Whether it is the time of a case that is about something else: what a gain costs is told with it."""
        return self.metric == HEADLINE and not self.headline

    @property
    def name(self) -> str:
        """What stands in the first column under the scenario's name."""
        parts = [self.label]
        if self.ladder or self.against not in ("before", ""):
            parts.append(self.side if self.against == "before" else f"{self.side} vs {self.against}")
        if not self.headline:
            parts = [self.metric]
        elif self.metric != HEADLINE:
            parts.append(self.metric)
        return " ".join(p for p in parts if p) or self.metric

    @property
    def own_name(self) -> str:
        """What tells it from the scenario's other rows; empty where there is nothing to tell."""
        if not self.verdict or self.name == HEADLINE:
            return self.label
        return self.name

    @property
    def before_text(self) -> str:
        """Value of ``against`` with its unit."""
        return format_value(self.before, self.unit)

    @property
    def after_text(self) -> str:
        """Value of ``side`` with its unit."""
        return format_value(self.after, self.unit)

    @property
    def speedup_text(self) -> str:
        """``2.81×`` for a time, the change for any other metric."""
        return format_ratio(self.ratio, self.low, self.high) if self.is_time else format_change(self.change)

    @property
    def interval_text(self) -> str:
        """Interval of what ``speedup_text`` shows."""
        if self.is_time:
            return format_interval(self.low, self.high)
        return format_change_interval(self.change_low, self.change_high)

    @property
    def change_text(self) -> str:
        """The change in per cent, of times too."""
        return format_change(self.change)

    @property
    def limit_text(self) -> str:
        """Share of the limit that binds."""
        return format_share(self.limit_share)

    @property
    def verdict_text(self) -> str:
        """The verdict's word, or the status of a case without one."""
        word = self.verdict or (self.status if self.status != "measured" else DASH)
        return f"{word} (provisional)" if self.provisional else word


@dataclass(frozen=True)
class Block:
    """Columns of one kind that were asked for, beside the table's own: one line a side of a case."""

    titles: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    """What the numbers are, and what they are not."""


@dataclass(frozen=True)
class Extras:
    """All the columns that were asked for, laid out for people and plain for programs."""

    blocks: tuple[Block, ...] = ()
    names: tuple[str, ...] = ()
    """Names of the plain values, in their order."""
    values: tuple[dict[str, Any], ...] = ()
    """One a comparison: ``case``, ``side``, ``against``, then every one of ``names``; None is not measured."""

    def of(self, row: Row) -> dict[str, Any]:
        """The plain values of a row; empty for rows of other metrics than the case is about."""
        key = (row.case, row.side, row.against)
        found = (v for v in self.values if (v["case"], v["side"], v["against"]) == key)
        return next(found, {}) if row.headline else {}


@dataclass(frozen=True)
class Table:
    """All rows of a run, in the order of its records."""

    rows: tuple[Row, ...]
    extras: Extras | None = None
    """Columns on demand."""

    @property
    def alpha(self) -> float | None:
        """The error of every interval, when they share one."""
        found = {r.alpha for r in self.rows if r.alpha is not None}
        return found.pop() if len(found) == 1 else None

    @property
    def unread(self) -> list[str]:
        """The status of every planned case that has no record."""
        return [row.status for row in self.rows if row.status in (NOT_BEGUN, NO_RECORD)]

    def groups(self) -> list[tuple[str, list[Row]]]:
        """Rows by scenario, in the order of first appearance."""
        by_name: dict[str, list[Row]] = {}
        for row in self.rows:
            by_name.setdefault(row.scenario, []).append(row)
        return list(by_name.items())


def build_table(
    records: Iterable[CaseRecord], *, run: RunRecord | None = None, profiles: Mapping[str, Profile] | None = None
) -> Table:
    """Rows of every record: one a result, or one that says why there is none.

    ``profiles``, by case id, tell the mechanisms; without any, rows tell only of wins that the workload's own counts
    speak against.
    With its ``run``, also a row for every planned case that it has neither a record nor a profile of.
    """
    found = list(records)
    rows = [_with_mechanism(row, record, profiles) for record in found for row in _rows(record)]
    return Table((*rows, *(_not_begun(run, {r.case.id for r in found}, profiles or ()) if run else ())))


def _with_mechanism(row: Row, record: CaseRecord, profiles: Mapping[str, Profile] | None) -> Row:
    # A claim is of the last side against the first: of the rungs between it says nothing.
    sides = record.case.sides
    if not row.headline or not row.verdict or (row.side, row.against) != (sides[-1].name, sides[0].name):
        return row
    profile = profiles.get(record.case.id) if profiles else None
    cell = mechanism_cell(record, profile) if profiles else ""
    return replace(row, mechanism=cell, mechanism_note=flag(record, profile))


def _not_begun(run: RunRecord, known: Collection[str], profiled: Collection[str]) -> list[Row]:
    # A run that only profiled holds no record at all; of parts together no command line is left.
    only_profiled = not known and (run.profiled_only or (not run.argv and bool(profiled)))
    if run.status == "finished" and only_profiled:
        return []
    ended = {"finished": "the run planned it and holds none that can be read", "interrupted": _INTERRUPTED}
    why = ended.get(run.status, "the run has not come to it")
    status = NO_RECORD if run.status == "finished" else NOT_BEGUN
    begun = {*known, *(profiled if only_profiled else ())}
    # A case's id is its scenario's name and its axes in brackets.
    return [
        Row(scenario=name, case=case, label=axes.rstrip("]").replace(",", " "), status=status, sentence=why)
        for case in run.without(begun)
        for name, _, axes in [case.partition("[")]
    ]


def failure_sentence(failure: Failure) -> str:
    """``before, set-up: CUDA out of memory; stderr kept``."""
    place = ", ".join(p for p in (failure.side, failure.phase) if p)
    rank = f" (rank {failure.rank})" if failure.rank is not None else ""
    kept = "; stderr kept" if failure.stderr_tail else ""
    return f"{place}{rank}: {clean(failure.message).rstrip('.')}{kept}"


def limit_of(limits: Sequence[Limit], side: str) -> Limit | None:
    """Return the limit that binds a side, or None when none was charged."""
    return binding([limit for limit in limits if limit.side == side])


def _rows(record: CaseRecord) -> list[Row]:
    if record.results:
        rows = [_result_row(record, result) for result in record.results]
        return [*rows, _bare_row(record)] if record.status == "failed" else rows
    return [_bare_row(record)]


def _bare_row(record: CaseRecord) -> Row:
    case = record.case
    sentence, fix = {
        "skipped": (record.skip_reason, record.skip_fix),
        "failed": (failure_sentence(record.failure) if record.failure else "no reason was recorded", ""),
        "interrupted": (f"after {_count(len(record.pairs), 'pair')}", ""),
        "imported": (_imported(record), ""),
        "measured": ("no result", ""),
    }[record.status]
    return Row(
        scenario=case.scenario,
        case=case.id,
        label=case.label,
        status=record.status,
        sentence=clean(sentence),
        fix=clean(fix),
        expect=case.expect,
        findings=tuple(map(clean, record.findings)),
    )


def _cut_short(record: CaseRecord, pairs: int) -> str:
    if record.status == "failed" and record.failure:
        return failure_sentence(record.failure)
    if record.stop == "unfit":
        voids = sum(pair.void for pair in record.pairs)
        return f"the host disturbed {voids} of {len(record.pairs)} pairs, which therefore do not count: no verdict"
    told = record.status if record.stop else "still going on, or killed,"
    return f"{told} after {_count(pairs, 'pair')}, before any rule ended the case: no verdict"


def _imported(record: CaseRecord) -> str:
    values = ", ".join(f"{s.side} {format_value(s.value, 's')}" for s in record.summaries)
    count = next((s.replicates for s in record.summaries if s.replicates), None)
    repeated = f"{count} × {record.replicate}" if count else "its spread is not known"
    return f"{values or 'no value'} ({repeated}); aiperf compare holds it against a run"


def _result_row(record: CaseRecord, result: Result) -> Row:
    case, found, verdict = record.case, result.comparison, result.verdict
    limit = limit_of(record.limits, result.side) or limit_of(record.limits, result.against)
    if found.metric != HEADLINE:
        limit = None
    change, change_low, change_high = _change(found)
    word = record.outcome(result)
    judged = word == verdict.word
    return Row(
        scenario=case.scenario,
        case=case.id,
        label=case.label,
        status="interrupted" if record.status == "interrupted" else "measured",
        metric=found.metric,
        unit=found.unit,
        side=result.side,
        against=result.against,
        headline=result.headline,
        ladder=len(case.sides) > 2,
        before=found.before.value,
        after=found.after.value,
        ratio=found.ratio,
        low=found.low,
        high=found.high,
        alpha=found.alpha,
        change=change,
        change_low=change_low,
        change_high=change_high,
        pairs=found.pairs,
        mde=found.mde,
        pairs_needed=found.pairs_needed,
        limit_share=limit.share if limit else None,
        limit_roof=limit.roof if limit else "",
        limit_side=limit.side if limit else "",
        verdict=word,
        reason=verdict.reason if judged else word,
        sentence=clean(verdict.sentence if judged else _cut_short(record, found.pairs)),
        provisional=verdict.provisional and judged,
        expect=case.expect,
        quality=_quality(record, result) if result.headline else "",
        findings=tuple(map(clean, record.findings)),
    )


def _change(found: Comparison) -> tuple[float | None, float | None, float | None]:
    """Return after / before - 1 with its interval, from the ratio (which is above 1 when better)."""
    ends = (found.ratio, found.low, found.high)
    if not all(end > 0 for end in ends):
        return None, None, None
    if found.better == "higher":
        return found.ratio - 1, found.low - 1, found.high - 1
    return as_change(found.ratio), as_change(found.high), as_change(found.low)


def _quality(record: CaseRecord, result: Result) -> str:
    check = record.case.check
    if check.kind != "named" and (check.kind == "none" or not check.reason):
        return ""
    errors = [c.max_error for pair in record.pairs if not pair.void for c in pair.checks if c.max_error is not None]
    name = check.name or "largest relative error"
    value = f"{name} {max(errors):.3g}" if errors else name
    bound = f" (at most {check.bound:.3g})" if check.bound is not None else ""
    return clean(f"{value}{bound}{': ' + check.reason if check.reason else ''}")


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"
