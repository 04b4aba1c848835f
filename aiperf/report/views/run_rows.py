"""The one table of a run: rows built from case records, which every dialect only reads.

What must not live here: verdicts being decided, layout, files.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from aiperf.analysis.metrics import DEFAULT_METRIC
from aiperf.analysis.notes import BELOW_THE_ROW, note_sentence
from aiperf.analysis.rows import FIRST_SIDES, ComparisonRow, row_fields
from aiperf.analysis.unverified import unexplained
from aiperf.records import CaseRecord, Failure, HostFinding, Result, RunRecord
from aiperf.records.profiled import Profile
from aiperf.report.layout.table import Table
from aiperf.report.layout.text import cut_to
from aiperf.report.mechanism import flag, mechanism_cell
from aiperf.report.numbers import DASH, clean, counted, format_value
from aiperf.report.output_changes import change_sentences
from aiperf.report.reasons import void_sentence

NOT_BEGUN, NO_RECORD = "not begun", "no record"
"""Status of a planned case that the run holds nothing of: it ended before the case, or its record is lost."""
_OPEN = {
    "inputs_undeclared": "inputs not named",
    "inputs_fixed": "inputs not redrawn",
    "outputs_unpoisoned": "outputs not overwritten",
    "outputs_unmoved": "outputs that never changed",
    "latencies_reported": "latencies as reported",
    "values_reported": "metric as reported",
    "stragglers": "processes left running",
    "nothing_returned": "nothing returned, so equal work was not checked",
    "nothing_printed": "nothing on standard output, so equal work was not checked",
}
"""Note on what could not be checked -> a few words."""
_LAST_WORDS = 120
"""Characters of the last line that a program wrote to stderr."""
_INTERRUPTED = "the run was interrupted before this case"


@dataclass(frozen=True, kw_only=True)
class RunRow(ComparisonRow):
    """One line of a run's table: a comparison, or a case without results."""

    label: str = ""
    """The axes as people read them; empty for a case without axes."""
    declared: bool = False
    """Whether its programs give the metric because the scenario asks for it: a line that they print, or a range."""
    status: str = "measured"
    """measured, skipped, failed, interrupted or imported; NOT_BEGUN or NO_RECORD for a planned case that has none."""
    ladder: bool = False
    """Whether the case has more sides than before and after."""
    fix: str = ""
    expect: str = ""
    quality: str = ""
    """How far the outputs differ where the sides differ by design."""
    changed: str = ""
    """Outputs of another type or size than those they are compared with."""
    mechanism: str = ""
    """Whether the counters that the scenario names moved as it claims; empty without a claim or any profile."""
    mechanism_note: str = ""
    """Says so where a side improved and they did not."""
    notes: tuple[str, ...] = ()
    """What the numbers of the case are, where that is not what a reader would think."""
    unverified: str = ""
    """What of the sides could not be checked, without a reason, in a few words."""
    findings: tuple[HostFinding, ...] = ()
    """What was found of the host that can bias the case, unfit ones first."""

    @property
    def is_price(self) -> bool:
        """Whether it is the time of a case that is about something else: shown with it, as what a gain costs."""
        return self.metric == DEFAULT_METRIC and not self.primary

    @property
    def name(self) -> str:
        """The text of the first column, under the scenario's name."""
        if not self.primary:
            return f"{self.metric} {self.sides}".strip()
        return " ".join(filter(None, (self.place, "" if self.metric == DEFAULT_METRIC else self.metric))) or self.metric

    @property
    def place(self) -> str:
        """Axes and, of more than two sides, which are compared: whatever the metric."""
        return f"{self.label} {self.sides}".strip()

    @property
    def sides(self) -> str:
        """Which sides are compared; empty where there are only before and after, or base and head."""
        if not self.ladder and self.against in FIRST_SIDES:
            return ""
        return self.side if self.against == "before" else f"{self.side} vs {self.against}"

    @property
    def own_name(self) -> str:
        """What distinguishes it from the scenario's other rows; empty where it is the only one."""
        if not self.verdict or self.name == DEFAULT_METRIC:
            return self.label
        return self.name

    @property
    def outcome(self) -> str:
        """The verdict, else the status."""
        return self.verdict or self.status


@dataclass(frozen=True)
class Extras:
    """All the columns that were asked for, laid out for people and plain for programs."""

    tables: tuple[tuple[Table[Any], tuple[str, ...]], ...] = ()
    """Each kind of column as a table of its own, one line a side of a case, with what the numbers are and are not."""
    names: tuple[str, ...] = ()
    """Names of the plain values, in their order."""
    values: tuple[dict[str, Any], ...] = ()
    """One a comparison: ``case``, ``side``, ``against``, then every one of ``names``; None is not measured."""

    def of(self, row: RunRow) -> dict[str, Any]:
        """The plain values of a row by name; None for rows of other metrics than the case is about."""
        key = (row.case, row.side, row.against)
        found = (v for v in self.values if row.primary and (v["case"], v["side"], v["against"]) == key)
        values = next(found, {})
        return {name: values.get(name) for name in self.names}


@dataclass(frozen=True)
class RunTable:
    """All rows of a run, in the order of its records."""

    rows: tuple[RunRow, ...]
    extras: Extras | None = None
    """Columns on demand."""

    @property
    def unread(self) -> list[str]:
        """The status of every planned case that has no record."""
        return [row.status for row in self.rows if row.status in (NOT_BEGUN, NO_RECORD)]

    def groups(self) -> list[tuple[str, list[RunRow]]]:
        """Rows by scenario, in the order of first appearance; skips of several scenarios for one reason are one row."""
        by_name: dict[str, list[RunRow]] = {}
        for row in fold_skips(self.rows):
            by_name.setdefault(row.scenario, []).append(row)
        return list(by_name.items())


def build_rows(
    records: Iterable[CaseRecord], *, run: RunRecord | None = None, profiles: Mapping[str, Profile] | None = None
) -> RunTable:
    """Rows of every record: one a result, or one that says why there is none.

    ``profiles``, by case id, show the mechanisms; without any, rows note only wins that the workload's own counts
    speak against.
    With its ``run``, also a row for every planned case that it has neither a record nor a profile of.
    """
    found = list(records)
    rows = [_with_mechanism(row, record, profiles) for record in found for row in _rows(record)]
    return RunTable((*rows, *(_not_begun(run, {r.case.id for r in found}, profiles or ()) if run else ())))


def fold_skips(rows: Sequence[RunRow]) -> list[RunRow]:
    """The rows with one in place of all those that several scenarios skip for one reason; these stand last."""
    reasons: dict[str, list[RunRow]] = {}
    for row in rows:
        if row.status == "skipped":
            reasons.setdefault(row.sentence, []).append(row)
    shared = {why: own for why, own in reasons.items() if len({row.scenario for row in own}) > 1}
    said = [
        RunRow(
            scenario=f"{len(own)} cases",
            label=DASH,
            status="skipped",
            sentence=why,
            fix="aiperf show NAME says what it needs",
        )
        for why, own in shared.items()
    ]
    return [*(row for row in rows if row.status != "skipped" or row.sentence not in shared), *said]


def _with_mechanism(row: RunRow, record: CaseRecord, profiles: Mapping[str, Profile] | None) -> RunRow:
    # A claim is of the last side against the first: of the rungs between it says nothing.
    sides = record.case.sides
    if not row.primary or not row.verdict or (row.side, row.against) != (sides[-1].name, sides[0].name):
        return row
    profile = profiles.get(record.case.id) if profiles else None
    cell = mechanism_cell(record, profile) if profiles else ""
    note = flag(record, profile)
    return replace(row, mechanism=cell, mechanism_note=note) if cell or note else row


def _not_begun(run: RunRecord, known: Collection[str], profiled: Collection[str]) -> list[RunRow]:
    # A run that only profiled holds no record at all; parts together have no command.
    only_profiled = not known and (run.profiled_only or (not run.command and bool(profiled)))
    if run.status == "finished" and only_profiled:
        return []
    ended = {"finished": "planned, but its record is missing or unreadable", "interrupted": _INTERRUPTED}
    why = ended.get(run.status, "the run has not reached this case")
    status = NO_RECORD if run.status == "finished" else NOT_BEGUN
    begun = {*known, *(profiled if only_profiled else ())}
    # A case's id is its scenario's name and its axes in brackets.
    return [
        RunRow(scenario=name, case=case, label=axes.rstrip("]").replace(",", " "), status=status, sentence=why)
        for case in run.without(begun)
        for name, _, axes in [case.partition("[")]
    ]


def run_verdict_text(row: RunRow) -> str:
    """The verdict's word, or the status of a case without one; that verdicts are provisional is said once, below."""
    return row.verdict or (row.status if row.status != "measured" else DASH)


def failure_sentence(failure: Failure, *, pointing: bool = True) -> str:
    """``before, set-up: CUDA out of memory; aiperf show RUN CASE has its stderr``; of a program with its last line.

    ``pointing``: whether the command that shows more is named, which that command itself leaves out.
    """
    place = ", ".join(p for p in (failure.side, failure.phase) if p)
    rank = f" (rank {failure.rank})" if failure.rank is not None else ""
    tails = (("its stderr", failure.stderr_tail), ("what it printed", failure.stdout_tail))
    kept = " and ".join(name for name, tail in tails if tail)
    lines = failure.stderr_tail.splitlines() if failure.kind == "error" and failure.exit_status else []
    last = next((f": {cut_to(words, _LAST_WORDS)}" for line in reversed(lines) if (words := clean(line))), "")
    more = f"; aiperf show RUN CASE has {kept}" if kept and pointing else ""
    return f"{place}{rank}: {clean(failure.message).rstrip('.')}{last}{more}"


def _rows(record: CaseRecord) -> list[RunRow]:
    if record.results:
        rows = [_result_row(record, result) for result in record.results]
        return [*rows, _bare_row(record)] if record.status == "failed" else rows
    return [_bare_row(record)]


def _bare_row(record: CaseRecord) -> RunRow:
    case = record.case
    sentence, fix = {
        "skipped": (record.skip_reason, record.skip_fix),
        "failed": (failure_sentence(record.failure) if record.failure else "no reason was recorded", ""),
        "interrupted": (f"after {counted(len(record.pairs), 'pair')}", ""),
        "imported": (_imported(record), ""),
        "measured": (void_sentence(record) if record.stop == "unfit" else "no result", ""),
    }[record.status]
    return RunRow(
        scenario=case.scenario,
        case=case.id,
        label=case.label,
        status=record.status,
        reason="unfit" if record.stop == "unfit" else "",
        sentence=clean(sentence),
        fix=clean(fix),
        expect=case.expect,
        findings=record.findings,
    )


def _cut_short(record: CaseRecord, pairs: int) -> str:
    if record.status == "failed" and record.failure:
        return failure_sentence(record.failure)
    if record.stop == "unfit":
        return f"{void_sentence(record)}: no verdict"
    # The column of the verdict has the word interrupted.
    state = "" if record.stop else "still running, or killed, "
    return f"{state}after {counted(pairs, 'pair')}, before any stopping rule applied: no verdict"


def _imported(record: CaseRecord) -> str:
    values = ", ".join(f"{s.side} {format_value(s.value, 's')}" for s in record.summaries)
    count = next((s.replicates for s in record.summaries if s.replicates), None)
    repeated = f"{count} × {record.replicate}" if count else "its spread is not known"
    return f"{values or 'no value'} ({repeated}); aiperf compare compares it with another run"


def _result_row(record: CaseRecord, result: Result) -> RunRow:
    case, row = record.case, row_fields(record, result)
    judged = row["verdict"] == result.verdict.word
    row["sentence"] = clean(row["sentence"] if judged else _cut_short(record, row["pairs"]))
    return RunRow(
        **row,
        label=case.label,
        declared=any(m.name == row["metric"] and m.part == "mean" for m in case.program_metrics),
        status="interrupted" if record.status == "interrupted" else "measured",
        ladder=len(case.sides) > 2,
        expect=case.expect,
        quality=_quality(record, result) if result.primary else "",
        changed=_changed(record, result.side) if result.primary else "",
        notes=_notes(record) if _is_last(record, result) else (),
        unverified=_unverified(record, result) if result.primary else "",
        findings=record.findings,
    )


def _is_last(record: CaseRecord, result: Result) -> bool:
    """Whether a row is the last of its case's primary ones: what is said of the case stands there."""
    return result.primary and result is [r for r in record.results if r.primary][-1]


def _notes(record: CaseRecord) -> tuple[str, ...]:
    return tuple(clean(note_sentence(note)) for note in record.notes if note.code in BELOW_THE_ROW)


def _unverified(record: CaseRecord, result: Result) -> str:
    sides = (result.against, result.side)
    notes = unexplained(record.notes, sides=sides, metric=result.comparison.metric)
    about = ([side for side in sides if side in note.values["sides"]] for note in notes)
    return "; ".join(f"{_OPEN[note.code]} ({', '.join(of)})" for note, of in zip(notes, about, strict=True))


def _quality(record: CaseRecord, result: Result) -> str:
    check = record.case.check
    if check.kind != "named" and (check.kind == "none" or not check.reason):
        return ""
    errors = [c.max_error for pair in record.pairs if not pair.void for c in pair.checks if c.max_error is not None]
    name = check.name or "largest relative error"
    value = f"{name} {max(errors):.3g}" if errors else name
    bound = f" (at most {check.bound:.3g})" if check.bound is not None else ""
    return clean(f"{value}{bound}{': ' + check.reason if check.reason else ''}")


def _changed(record: CaseRecord, side: str) -> str:
    checks = [check for pair in record.pairs if not pair.void for check in pair.checks if side in check.sides]
    return "; ".join(change_sentences(checks))
