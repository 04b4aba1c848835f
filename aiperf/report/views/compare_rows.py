"""Runs compared, as rows: each run's own results, and how every later run stands against the first.

What must not live here: which cases compare and by how much they changed (analysis/across.py), any layout.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from string import ascii_uppercase
from typing import Any

from aiperf.analysis.across import Across, CaseAcross, MetricAcross, record_values
from aiperf.analysis.estimates import Change
from aiperf.analysis.metrics import DEFAULT_METRIC
from aiperf.analysis.notes import note_sentences
from aiperf.analysis.rows import ComparisonRow
from aiperf.records import CaseRecord
from aiperf.report.numbers import DASH, clean, counted
from aiperf.report.views.run_rows import build_rows

NOT_COMPARED, NEW, VANISHED = "not compared", "new", "vanished"
Key = tuple[str, str, str]
"""Metric, side and against: which comparison of a case."""


@dataclass(frozen=True, kw_only=True)
class CompareRow(ComparisonRow):
    """A run's own result of one comparison of a case, or how a later run stands against the first.

    Of a change ``ratio`` is later / first, above 1 is better. ``verdict`` is also new, vanished or not compared, or the
    status of a case without a result.
    """

    kind: str
    """run, speedup (its change), value (the side's own change), none (nothing to show, and why)."""
    run: str
    """Folder name; of a change, that of the later run."""
    letter: str
    """``B``, or ``B vs A`` of a change."""
    base_change: float | None = None
    """Kind value: the change of the value of ``against``."""
    tau: float | None = None
    """Of a change: the noise between sessions that it holds."""
    forced: bool = False
    """Computed in spite of differences that forbid it."""
    replicate: str = ""
    """What ``replicates`` are; of a run."""
    replicates: int = 0

    @property
    def verdict_text(self) -> str:
        """The verdict with what weakens it."""
        marks = [word for word, true in (("provisional", self.provisional), ("forced", self.forced)) if true]
        if self.kind == "run" and not self.against:
            marks.append(f"{self.replicates} × {self.replicate}" if self.replicates else "spread unknown")
        return f"{self.verdict or DASH} ({', '.join(marks)})" if marks else self.verdict or DASH


def compare_rows(across: Across) -> tuple[CompareRow, ...]:
    """Every run's results and every change, case by case in the order of appearance."""
    return tuple(row for case in across.cases for row in _case_rows(across, case))


def letters_of(across: Across) -> list[str]:
    """A, B, ..., Z, R27, R28, ... in the order of the runs."""
    return [ascii_uppercase[i] if i < len(ascii_uppercase) else f"R{i + 1}" for i in range(len(across.runs))]


def _case_rows(across: Across, case: CaseAcross) -> list[CompareRow]:
    own = [_own_rows(across, case, number) for number in range(len(case.records))]
    keys: list[Key] = list(dict.fromkeys(key for found in own for key in found)) or [("", "", "")]
    rows = []
    for place, key in enumerate(keys):
        for number, (found, record) in enumerate(zip(own, case.records, strict=True)):
            if key in found:
                rows.append(found[key])
            elif record is not None and not place:
                rows.append(_bare(_start(across, case, number), record))
        for number in range(1, len(case.records)):
            rows += _change_rows(across, case, number, key=key, first=not place)
    return rows


def _start(across: Across, case: CaseAcross, number: int, *, change: bool = False) -> dict[str, Any]:
    """What every row of a case in a run says."""
    letters = letters_of(across)
    letter = f"{letters[number]} vs {letters[0]}" if change else letters[number]
    return {"scenario": case.scenario, "case": case.id, "run": across.runs[number].run, "letter": letter}


def _own_rows(across: Across, case: CaseAcross, number: int) -> dict[Key, CompareRow]:
    record = case.records[number]
    if record is None:
        return {}
    start = _start(across, case, number) | {"kind": "run", "replicate": record.replicate}
    if record.results:
        return {
            (row.metric, row.side, row.against): CompareRow(**(_fields(row) | start), replicates=row.pairs)
            for row in build_rows([record]).rows
            if row.verdict
        }
    return {
        (metric, side, ""): CompareRow(
            **start, metric=metric, unit=value.unit, better=value.better, side=side, after=value.summary.value,
            primary=metric == DEFAULT_METRIC, verdict=record.status, replicates=value.replicates,
        )
        for (metric, side), value in record_values(record).items()
    }  # fmt: skip


def _fields(row: ComparisonRow) -> dict[str, Any]:
    """What any row of a comparison says, but for what follows from it."""
    return {field.name: getattr(row, field.name) for field in fields(ComparisonRow) if field.init}


def _bare(start: dict[str, Any], record: CaseRecord) -> CompareRow:
    """A run that has the case without a result: skipped, failed, interrupted, imported without a value."""
    if record.status == "imported":
        sentence = "; ".join(note_sentences(record)) or "the file has no readings of it"
    else:
        bare = build_rows([record]).rows[-1]
        sentence = f"{bare.sentence}; {bare.fix}" if bare.fix else bare.sentence
    return CompareRow(**start, kind="none", verdict=record.status, sentence=clean(sentence))


def _change_rows(across: Across, case: CaseAcross, number: int, *, key: Key, first: bool) -> list[CompareRow]:
    """How a later run stands against the first in one comparison; what concerns the whole case is said once."""
    start = _start(across, case, number, change=True)
    word, why = _obstacle(across, case, number)
    if word:
        return [CompareRow(**start, kind="none", verdict=word, sentence=why)] if first and why else []
    held = next((h for h in case.held[number - 1] if (h.metric, h.side, h.against) == key), None)
    if held is None:
        lacking = f"{key[0]} is not in both runs" if key[0] else ""
        return [CompareRow(**start, kind="none", metric=key[0], verdict=NOT_COMPARED, primary=first, sentence=lacking)]
    forced = across.forced and bool(across.differences[number - 1].must_match or case.differences[number - 1])
    start |= {"metric": held.metric, "unit": held.unit, "side": held.side, "against": held.against}
    start |= {"primary": held.primary, "tau": case.tau if held.unit == "s" else None, "forced": forced}
    return _held_rows(start, held, case.records[number])


def _held_rows(start: dict[str, Any], held: MetricAcross, record: CaseRecord | None) -> list[CompareRow]:
    rows = []
    judged: dict[str, Any]
    if held.speedup:
        judged = {"verdict": held.speedup.word, "provisional": held.provisional, "sentence": held.reason}
        # A speedup is better when it is higher, whatever the metric.
        rows.append(CompareRow(**start, **_ratio(held.speedup), **judged, kind="speedup", better="higher"))
    elif held.against or not held.value:
        rows.append(CompareRow(**start, kind="none", verdict=NOT_COMPARED, sentence=held.reason))
    if held.value:
        lone = not held.against
        judged = {"verdict": held.value.word if lone else "", "provisional": lone and held.provisional}
        base = held.base_value.of_value(held.better)[0] if held.base_value else None
        judged |= {"base_change": base, "better": held.better, "replicate": record.replicate if record else ""}
        rows.append(CompareRow(**start, **_ratio(held.value), **judged, kind="value"))
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
        named = ", ".join(map(str, own))
        return NOT_COMPARED, f"not the same measurement: {named}" if own else _apart(across, number, len(hosts))
    lacking = [letter for letter, r in ((base, first), (letters_of(across)[number], now)) if not r.results]
    has = "has" if len(lacking) == 1 else "have"
    return NOT_COMPARED, f"{' and '.join(lacking)} {has} no result" if lacking else "the runs have no metric in common"


def _apart(across: Across, number: int, fields: int) -> str:
    """Why the hosts of a later run and the first one do not match."""
    lost = [letters_of(across)[place] for place in (0, number) if not across.runs[place].known]
    if lost:
        return f"the host of {' and '.join(lost)} is unknown: the run's own record is damaged"
    return f"the hosts differ in {counted(fields, 'must-match field')}"


def _absence(across: Across, case: CaseAcross, number: int) -> tuple[str, str]:
    """Why a case is not in both runs. A run that planned it and has no record of it did not make it vanish."""
    base = letters_of(across)[0]
    lacking = [place for place in (0, number) if case.records[place] is None]
    if len(lacking) == 2:
        return NOT_COMPARED, ""
    run, letter = across.runs[lacking[0]], letters_of(across)[lacking[0]]
    if not run.known:
        return NOT_COMPARED, f"{letter} has no record of it; its own record, which lists the cases, is damaged"
    if run.status != "finished":
        return NOT_COMPARED, f"{letter} has no record of it, but it is not finished"
    if case.id in run.planned:
        return NOT_COMPARED, f"{letter} planned it, but its record is missing or unreadable"
    return (VANISHED, f"{base} has it; this run does not") if lacking[0] else (NEW, f"{base} does not have it")


def _ratio(change: Change) -> dict[str, Any]:
    return {name: getattr(change, name) for name in ("ratio", "low", "high", "alpha", "threshold")}
