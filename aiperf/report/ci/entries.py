"""One entry for each thing that a CI system shows: its outcome, its words and its numbers, for every format to read.

What must not live here: any format, files, the environment. An entry is red (failed or error) exactly where the
command's exit code says that something is wrong, so that a report and a job never contradict each other.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from aiperf.analysis.gate import GateOutcome, GateRow
from aiperf.analysis.metrics import HEADLINE, METRICS
from aiperf.errors import Exit, Fault
from aiperf.records import Better, CaseRecord, Result, RunRecord
from aiperf.report.explain import explain_case
from aiperf.report.faults import fault_lines
from aiperf.report.numbers import clean, confidence, format_interval, format_ratio, format_value
from aiperf.report.table import Row, build_table

Outcome = Literal["passed", "failed", "error", "skipped", "undecided"]
"""failed: measured, and wrong or worse than allowed. error: it could not be measured. undecided: no verdict."""
Level = Literal["error", "warning", "notice", ""]
OWN_GROUP = "command"
"""Group of the entries that are about a command as a whole."""
_ENDLESS = 10_000
_PLACE = re.compile(r"(?P<path>.+?):(?P<line>[1-9]\d*)(:\d+)?")
_DECIDED = ("improved", "regressed", "equivalent")
_NOT_TO_COMPARE = ("invalid", "failed", "unfit", "interrupted", "not begun", "not comparable")


@dataclass(frozen=True)
class Metric:
    """One compared quantity of an entry, in SI units; None is "not measured"."""

    name: str
    unit: str
    better: Better
    side: str
    against: str
    before: float | None
    """Value of ``against``."""
    after: float | None
    """Value of ``side``."""
    ratio: float | None
    """Above 1 is better."""
    low: float | None
    high: float | None
    alpha: float | None = None
    spread: float | None = None
    """How far the pair that lies farthest from ``after`` is from it."""
    headline: bool = True


@dataclass(frozen=True)
class Entry:
    """One case (or one metric of one, or the command itself) as a CI system shows it."""

    name: str
    """Unique in its group and the same in every run; one line."""
    group: str
    """The scenario."""
    outcome: Outcome
    word: str
    """The verdict's word, or the status of a case without one."""
    headline: str
    """One line: what came of it."""
    text: str
    """All there is to say, several lines."""
    seconds: float
    path: str
    """Scenario file; empty without one."""
    metrics: tuple[Metric, ...] = ()
    level: Level = ""
    """How loudly it asks for attention."""
    line: int = 1
    """Line of ``path`` that it is about."""

    @property
    def red(self) -> bool:
        """Whether it makes a job fail."""
        return self.outcome in ("failed", "error")

    @property
    def comparable(self) -> bool:
        """Whether its numbers may enter a trend."""
        return self.word not in _NOT_TO_COMPARE


def entries_of_run(run: RunRecord, records: Sequence[CaseRecord], *, problems: Sequence[str] = ()) -> tuple[Entry, ...]:
    """Entries of a run in plan order; also of what it never began, and one for what cut it short.

    A regression is a result of a run and no fault of it (only a gate forbids one): it warns and stays green.
    """
    found = {record.case.id: record for record in records}
    order = [*run.planned, *(name for name in found if name not in run.planned)]
    entries = [e for name in order for e in (_of_record(run, found[name]) if name in found else [_not_begun(name)])]
    missing = sum(name not in found for name in order)
    if problems:
        entries.insert(0, _own("run", "failed", "; ".join(map(clean, problems)), "\n".join(problems)))
    elif run.status == "interrupted" or missing:
        said = f"the run was interrupted; {missing} of {len(order)} cases were never begun"
        entries.insert(0, _own("run", "interrupted", said, said))
    return _unique(entries)


def entries_of_gate(outcome: GateOutcome) -> tuple[Entry, ...]:
    """Entries of a gate: one a row, and one for the gate itself when it fails for no single row's sake."""
    seen: set[str] = set()
    entries = []
    for row in outcome.rows:
        entry = _of_row(outcome, row)
        # A case was measured once, whatever the number of its metrics.
        entries.append(replace(entry, seconds=0.0) if row.case in seen else entry)
        seen.add(row.case)
    if outcome.exit not in (Exit.OK, Exit.SKIPPED) and not any(e.red for e in entries):
        differing = [f"{d.name}: {d.then} then, {d.now} now" for d in outcome.differences]
        text = "\n".join([outcome.sentence, *differing, *outcome.notes])
        entries.insert(0, _own("gate", "failed", outcome.sentence, text))
    return _unique(entries)


def entry_of_error(name: str, headline: str, *, word: str = "failed") -> Entry:
    """Build the entry of a command that came to nothing, such as one that was interrupted at once."""
    return _own(name, word, headline, headline)


def entries_of_faults(name: str, faults: Iterable[Fault]) -> tuple[Entry, ...]:
    """Build the entries of a command that was called wrongly: one a mistake, at its place in its file."""
    return _unique(_of_fault(name, fault) for fault in sorted(set(faults)))


def counts(entries: Iterable[Entry]) -> dict[Outcome, int]:
    """How many entries have each outcome; all five are named."""
    found: dict[Outcome, int] = dict.fromkeys(("passed", "failed", "error", "skipped", "undecided"), 0)
    for entry in entries:
        found[entry.outcome] += 1
    return found


def _of_record(run: RunRecord, record: CaseRecord) -> list[Entry]:
    case, rows = record.case, build_table([record]).rows
    shown = [row for row in rows if row.verdict and row.headline] or [rows[-1]]
    # Commands are to be copied, so no line is broken.
    text = explain_case(run, record, width=_ENDLESS)
    entries = []
    for place, row in enumerate(shown):
        word, outcome, level = _judged(record, row)
        entries.append(
            Entry(
                name=clean(_name(row)),
                group=clean(case.scenario),
                outcome=outcome,
                word=word,
                headline=_headline(record, row, word),
                text=text,
                # A ladder was measured once, whatever the number of its steps.
                seconds=0.0 if place else record.seconds,
                path=case.path,
                metrics=tuple(_metric(r) for r in record.results if (r.side, r.against) == (row.side, row.against)),
                level=level,
            )
        )
    return entries


def _judged(record: CaseRecord, row: Row) -> tuple[str, Outcome, Level]:
    """Word, outcome and level of a case: red exactly where ``aiperf run`` exits with 5 or 6."""
    if record.status == "failed":
        return "failed", "error", "error"
    if row.verdict == "invalid":
        return "invalid", "failed", "error"
    if record.stop == "unfit":
        return "unfit", "error", "error"
    if record.status == "skipped":
        return "skipped", "skipped", ""
    if record.status == "interrupted":
        return "interrupted", "undecided", ""
    if not row.verdict:
        return record.status, "undecided", "notice"
    if row.verdict == "inconclusive":
        return "inconclusive", "undecided", "notice"
    return row.verdict, "passed", "warning" if row.verdict == "regressed" or _missed(row) else ""


def _missed(row: Row) -> bool:
    return bool(row.expect) and row.verdict != row.expect


def _name(row: Row) -> str:
    if row.ladder or row.against not in ("before", ""):
        return f"{row.case}: {row.side} vs {row.against}"
    return row.case


def _headline(record: CaseRecord, row: Row, word: str) -> str:
    if record.status == "failed":
        row = build_table([record]).rows[-1]
    if not row.verdict:
        return clean(f"{word}: {row.sentence}{'; ' + row.fix if row.fix else ''}")
    if word == "unfit":
        voids = sum(pair.void for pair in record.pairs)
        return f"unfit: the host disturbed {voids} of {len(record.pairs)} pairs, which therefore do not count"
    provisional = " (provisional)" if row.provisional else ""
    expected = f"; the scenario expects: {row.expect}" if word in _DECIDED and _missed(row) else ""
    figures = f"{row.speedup_text} ({row.interval_text})"
    return clean(f"{word}{provisional} {figures}: {row.sentence.rstrip('.')}{expected}")


def _metric(result: Result) -> Metric:
    found = result.comparison
    ends = (found.after.low, found.after.high)
    return Metric(
        name=found.metric,
        unit=found.unit,
        better=found.better,
        side=result.side,
        against=result.against,
        before=found.before.value,
        after=found.after.value,
        ratio=found.ratio,
        low=found.low,
        high=found.high,
        alpha=found.alpha,
        spread=max(abs(end - found.after.value) for end in ends) if all(map(math.isfinite, ends)) else None,
        headline=result.headline,
    )


def _not_begun(name: str) -> Entry:
    said = "not begun: the run ended before its turn came"
    return Entry(clean(name), clean(name.partition("[")[0]), "skipped", "not begun", said, said, 0.0, "")


def _own(name: str, word: str, headline: str, text: str) -> Entry:
    return Entry(name, OWN_GROUP, "error", word, clean(headline), text, 0.0, "", level="error")


def _of_fault(name: str, fault: Fault) -> Entry:
    said = "\n".join(fault_lines([fault]))
    entry = _own(clean(fault.where) or name, "failed", said, said)
    place = _PLACE.fullmatch(fault.where)
    if place is None:
        return entry
    return replace(entry, name=clean(place["path"]), path=place["path"], line=int(place["line"]))


def _of_row(gate: GateOutcome, row: GateRow) -> Entry:
    outcome, level = _standing(gate, row)
    plain = row.metric == HEADLINE and row.side in ("", "after", "head")
    return Entry(
        name=clean(row.case if plain else " ".join(p for p in (f"{row.case}:", row.side, row.metric) if p)),
        group=clean(row.scenario),
        outcome=outcome,
        word=row.standing.replace("_", " "),
        headline=clean(f"{row.standing.replace('_', ' ')}: {row.sentence}"),
        text="\n".join(_row_text(gate, row)),
        seconds=row.seconds,
        path=row.path,
        metrics=(_row_metric(gate, row),) if row.ratio is not None else (),
        level=level,
    )


def _standing(gate: GateOutcome, row: GateRow) -> tuple[Outcome, Level]:
    if row.standing == "passed":
        return "passed", ""
    if row.standing == "skipped":
        return "skipped", ""
    if row.standing == "inconclusive":
        if gate.on_inconclusive == "fail":
            return "failed", "error"
        return "undecided", "warning" if gate.on_inconclusive == "warn" else ""
    if row.standing in ("regressed", "invalid"):
        return "failed", "error"
    # A gate may let a case without a baseline pass, as one that is new at its head: then its exit code says so.
    return ("skipped", "warning") if gate.exit in (Exit.OK, Exit.SKIPPED) else ("error", "error")


def _row_text(gate: GateOutcome, row: GateRow) -> list[str]:
    said = [row.sentence]
    if row.ratio is not None:
        sure = f"{confidence(row.alpha)} interval" if row.alpha is not None else "interval"
        span = format_interval(row.low, row.high)
        ratio = format_ratio(row.ratio, row.low, row.high)
        said.append(f"{row.metric}: ratio {ratio} (above 1 is better), {sure} {span} from {row.pairs} pairs.")
    if gate.level != "ratio" and (row.base_value is not None or row.head_value is not None):
        values = (format_value(value, row.unit) for value in (row.base_value, row.head_value))
        said.append("base {}, head {}.".format(*values))
    if row.confirmed is not None:
        said.append(f"A fresh sitting {'confirmed it' if row.confirmed else 'did not confirm it'}.")
    if row.pairs_needed is not None:
        said.append(f"About {row.pairs_needed} pairs would decide it.")
    if gate.runs:
        said.append(f"Stored in: {', '.join(gate.runs)}.")
    return said + ([f"To reproduce it: {row.reproduce}"] if row.reproduce else [])


def _row_metric(gate: GateOutcome, row: GateRow) -> Metric:
    # At the level of ratios the values are speedups, not values of the metric.
    valued = gate.level != "ratio"
    return Metric(
        name=row.metric,
        unit=row.unit,
        better=METRICS[row.metric].better if row.metric in METRICS else "lower",
        side="head",
        against="base",
        before=row.base_value if valued else None,
        after=row.head_value if valued else None,
        ratio=row.ratio,
        low=row.low,
        high=row.high,
        alpha=row.alpha,
    )


def _unique(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """Entries with no name twice in a group: readers such as GitLab keep only the first of a name."""
    seen: set[tuple[str, str]] = set()
    kept = []
    for entry in entries:
        name, again = entry.name, 1
        while (entry.group, name) in seen:
            again += 1
            name = f"{entry.name} ({again})"
        seen.add((entry.group, name))
        kept.append(replace(entry, name=name))
    return tuple(kept)
