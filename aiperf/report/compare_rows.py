"""Runs held against each other as rows: each run's own results, and how every later run stands against the first.

What must not live here: which cases compare and what a change comes to (analysis/across.py), any layout.
"""

from __future__ import annotations

from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any

from aiperf.analysis.across import Across, CaseAcross, MetricAcross, Value, record_values
from aiperf.analysis.estimates import Change
from aiperf.analysis.metrics import DEFAULT_METRIC
from aiperf.analysis.notes import note_sentences
from aiperf.records import CaseRecord
from aiperf.report.numbers import (
    DASH,
    clean,
    format_change,
    format_change_interval,
    format_interval,
    format_ratio,
    format_value,
)
from aiperf.report.views.run_rows import RunRow, build_rows

NOT_COMPARED, NEW, VANISHED = "not compared", "new", "vanished"


@dataclass(frozen=True)
class CompareRow:
    """A run's own result of one comparison of a case, or how a later run stands against the first."""

    scenario: str
    case: str
    kind: str
    """run, speedup (its change), value (the side's own change), none (nothing to show, and why)."""
    run: str
    """Folder name; of a change, that of the later run."""
    letter: str
    """``B``, or ``B vs A`` of a change."""
    metric: str = ""
    unit: str = ""
    side: str = ""
    against: str = ""
    primary: bool = True
    before: float | None = None
    """Value of ``against``."""
    after: float | None = None
    """Value of ``side``."""
    ratio: float | None = None
    """Above 1 is better: of a run before / after (or its inverse), of a change later / first."""
    low: float | None = None
    high: float | None = None
    alpha: float | None = None
    threshold: float | None = None
    change: float | None = None
    """Kind value: later / first - 1 of the value of ``side``."""
    change_low: float | None = None
    change_high: float | None = None
    base_change: float | None = None
    """Kind value: the same of ``against``."""
    tau: float | None = None
    """Of a change: the noise between sessions that it holds."""
    verdict: str = ""
    """A word of DESIGN.md; new, vanished or not compared; or the status of a case without a result."""
    provisional: bool = False
    forced: bool = False
    """Computed in spite of differences that forbid it."""
    replicate: str = ""
    """What ``replicates`` are; of a run."""
    replicates: int = 0
    sentence: str = ""

    @property
    def verdict_text(self) -> str:
        """The verdict with what weakens it."""
        marks = [word for word, true in (("provisional", self.provisional), ("forced", self.forced)) if true]
        if self.kind == "run" and not self.against:
            marks.append(f"{self.replicates} × {self.replicate}" if self.replicates else "spread not told")
        return f"{self.verdict or DASH} ({', '.join(marks)})" if marks else self.verdict or DASH

    @property
    def label(self) -> str:
        """What stands in the first column."""
        if self.kind == "value":
            return f"   {self.letter} {self.side}"
        ratio = "speedup" if self.unit == "s" else "ratio"
        return f"   {self.letter} {ratio}" if self.kind == "speedup" else f"   {self.letter}"

    def cells(self) -> list[str]:
        """Label, before, after, speedup, interval, verdict."""
        texts = [format_value(self.before, self.unit), format_value(self.after, self.unit)]
        interval = format_interval(self.low, self.high)
        ratio = format_ratio(self.ratio, self.low, self.high)
        if self.kind == "value":
            texts, ratio = [format_change(self.base_change), format_change(self.change)], DASH
            interval = format_change_interval(self.change_low, self.change_high)
        return [self.label, *texts, ratio, interval, self.verdict_text]


def compare_rows(across: Across) -> tuple[CompareRow, ...]:
    """Every run's results and every change, case by case in the order of appearance."""
    return tuple(row for case in across.cases for row in _case_rows(across, case))


def letters_of(across: Across) -> list[str]:
    """A, B, ..., Z, R27, R28, ... in the order of the runs."""
    return [ascii_uppercase[i] if i < len(ascii_uppercase) else f"R{i + 1}" for i in range(len(across.runs))]


def field_count(count: int) -> str:
    """``1 must-match field``, ``3 must-match fields``."""
    return f"{count} must-match field{'' if count == 1 else 's'}"


def _case_rows(across: Across, case: CaseAcross) -> list[CompareRow]:
    keys: dict[tuple[str, str, str], None] = {}
    own: list[dict[tuple[str, str, str], CompareRow]] = []
    for number, record in enumerate(case.records):
        own.append(_own_rows(across, number, record) if record is not None else {})
        keys.update(dict.fromkeys(own[-1]))
    rows = []
    for place, key in enumerate(keys or {("", "", ""): None}):
        for number, record in enumerate(case.records):
            if key in own[number]:
                rows.append(own[number][key])
            elif record is not None and not place:
                rows.append(_bare(across, case, number, record))
        for number in range(1, len(case.records)):
            rows += _change_rows(across, case, number, key=key, first=not place)
    return rows


def _own_rows(across: Across, number: int, record: CaseRecord) -> dict[tuple[str, str, str], CompareRow]:
    if record.results:
        rows = [row for row in build_rows([record]).rows if row.verdict]
        return {(row.metric, row.side, row.against): _run_row(across, number, record, row) for row in rows}
    values = record_values(record)
    return {(metric, side, ""): _value_row(across, number, record, v) for (metric, side), v in values.items()}


def _run_row(across: Across, number: int, record: CaseRecord, row: RunRow) -> CompareRow:
    return CompareRow(
        row.scenario, row.case, "run", across.runs[number].run, letters_of(across)[number],
        metric=row.metric, unit=row.unit, side=row.side, against=row.against, primary=row.primary,
        before=row.before, after=row.after, ratio=row.ratio, low=row.low, high=row.high, alpha=row.alpha,
        verdict=row.verdict, provisional=row.provisional, replicate=record.replicate, replicates=row.pairs,
        sentence=row.sentence,
    )  # fmt: skip


def _value_row(across: Across, number: int, record: CaseRecord, value: Value) -> CompareRow:
    """One side's value of an imported record."""
    return CompareRow(
        record.case.scenario, record.case.id, "run", across.runs[number].run, letters_of(across)[number],
        metric=value.metric, unit=value.unit, side=value.summary.side, primary=value.metric == DEFAULT_METRIC,
        after=value.summary.value, verdict=record.status, replicate=record.replicate, replicates=value.replicates,
    )  # fmt: skip


def _bare(across: Across, case: CaseAcross, number: int, record: CaseRecord) -> CompareRow:
    """A run that has the case without a result: skipped, failed, interrupted, imported without a value."""
    if record.status == "imported":
        sentence = "; ".join(note_sentences(record)) or "the file holds no readings of it"
    else:
        bare = build_rows([record]).rows[-1]
        sentence = f"{bare.sentence}; {bare.fix}" if bare.fix else bare.sentence
    run, letter = across.runs[number].run, letters_of(across)[number]
    return CompareRow(case.scenario, case.id, "none", run, letter, verdict=record.status, sentence=clean(sentence))


def _change_rows(
    across: Across, case: CaseAcross, number: int, *, key: tuple[str, str, str], first: bool
) -> list[CompareRow]:
    """How a later run stands against the first in one comparison; what concerns the whole case is said once."""
    letters = letters_of(across)
    start: dict[str, Any] = {
        "scenario": case.scenario,
        "case": case.id,
        "run": across.runs[number].run,
        "letter": f"{letters[number]} vs {letters[0]}",
    }
    word, why = _obstacle(across, case, number)
    if word:
        return [CompareRow(**start, kind="none", verdict=word, sentence=why)] if first and why else []
    held = next((h for h in case.held[number - 1] if (h.metric, h.side, h.against) == key), None)
    if held is None:
        told = f"{key[0]} is not in both runs" if key[0] else ""
        return [CompareRow(**start, kind="none", metric=key[0], verdict=NOT_COMPARED, primary=first, sentence=told)]
    forced = across.forced and bool(across.differences[number - 1].must_match or case.differences[number - 1])
    start |= {"metric": held.metric, "unit": held.unit, "side": held.side, "against": held.against}
    start |= {"primary": held.primary, "tau": case.tau if held.unit == "s" else None, "forced": forced}
    return _held_rows(start, held, case.records[number])


def _held_rows(start: dict[str, Any], held: MetricAcross, record: CaseRecord | None) -> list[CompareRow]:
    rows = []
    if held.speedup:
        rows.append(
            CompareRow(
                **start, **_ratio(held.speedup), kind="speedup", verdict=held.speedup.word,
                provisional=held.provisional, sentence=held.reason,
            )
        )  # fmt: skip
    elif held.against or not held.value:
        rows.append(CompareRow(**start, kind="none", verdict=NOT_COMPARED, sentence=held.reason))
    if held.value:
        change, low, high = held.value.of_value(held.better)
        base = held.base_value.of_value(held.better)[0] if held.base_value else None
        lone = not held.against
        rows.append(
            CompareRow(
                **start, **_ratio(held.value), kind="value", change=change, change_low=low, change_high=high,
                base_change=base, verdict=held.value.word if lone else "", provisional=lone and held.provisional,
                replicate=record.replicate if record else "",
            )
        )  # fmt: skip
    return rows


def _obstacle(across: Across, case: CaseAcross, number: int) -> tuple[str, str]:
    """Why a whole case of a later run is not held against the first: the word and the sentence; empty when it is."""
    first, now = case.records[0], case.records[number]
    base = letters_of(across)[0]
    if first is None or now is None:
        return _absence(across, case, number)
    if case.held[number - 1]:
        return "", ""
    hosts, own = across.differences[number - 1].must_match, case.differences[number - 1]
    if not across.forced and (hosts or own):
        named = ", ".join(f"{d.name} {d.then} → {d.now}" for d in own)
        return NOT_COMPARED, f"it asks another question: {named}" if own else _apart(across, number, len(hosts))
    lacking = [letter for letter, r in ((base, first), (letters_of(across)[number], now)) if not r.results]
    told = f"{' and '.join(lacking)} came to no result" if lacking else "they share no metric"
    return NOT_COMPARED, told


def _apart(across: Across, number: int, fields: int) -> str:
    """Why the hosts of a later run and the first one do not match."""
    lost = [letters_of(across)[place] for place in (0, number) if not across.runs[place].known]
    if lost:
        return f"of {' and '.join(lost)} no host is known: the run's own record is damaged"
    return f"the hosts differ in {field_count(fields)}"


def _absence(across: Across, case: CaseAcross, number: int) -> tuple[str, str]:
    """Why a case is not in both runs. A run that planned it and has no record of it did not make it vanish."""
    base = letters_of(across)[0]
    lacking = [place for place in (0, number) if case.records[place] is None]
    if len(lacking) == 2:
        return NOT_COMPARED, ""
    run, letter = across.runs[lacking[0]], letters_of(across)[lacking[0]]
    if not run.known:
        return NOT_COMPARED, f"{letter} has no record of it, and its own record, which would name the case, is damaged"
    if run.status != "finished":
        return NOT_COMPARED, f"{letter} has no record of it, but is not finished"
    if case.id in run.planned:
        return NOT_COMPARED, f"{letter} planned it, but holds no record of it that can be read"
    return (VANISHED, f"{base} has it, this run does not") if lacking[0] else (NEW, f"{base} does not have it")


def _ratio(change: Change) -> dict[str, Any]:
    return {
        "ratio": change.ratio,
        "low": change.low,
        "high": change.high,
        "alpha": change.alpha,
        "threshold": change.threshold,
    }
