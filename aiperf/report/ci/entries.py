"""One entry for each thing that a CI system shows: its outcome, its words and its numbers, for every format to read.

What must not live here: any format, files, the environment. An entry is red (failed or error) exactly where the
command's exit code says that something is wrong, so that a report and a job never contradict each other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from aiperf.analysis.gate import GateOutcome, GateRow
from aiperf.analysis.metrics import DEFAULT_METRIC
from aiperf.analysis.rows import FIRST_SIDES, LAST_SIDES, ComparisonRow, comparison_row
from aiperf.errors import Exit, Fault
from aiperf.records import CaseRecord, RunRecord
from aiperf.report.explain import explain_case
from aiperf.report.faults import fault_lines
from aiperf.report.numbers import clean, confidence, format_interval, format_ratio, format_value
from aiperf.report.reasons import void_sentence
from aiperf.report.views.cells import interval_text, speedup_text
from aiperf.report.views.run_rows import RunRow, build_rows

Outcome = Literal["passed", "failed", "error", "skipped", "undecided"]
"""failed: measured, and wrong or worse than allowed. error: it could not be measured. undecided: no verdict."""
Level = Literal["error", "warning", "notice", ""]
OWN_GROUP = "command"
"""Group of the entries that are about a command as a whole."""
_ENDLESS = 10_000
_PLACE = re.compile(r"(?P<path>.+?):(?P<line>[1-9]\d*)(:\d+)?")
_INCONCLUSIVE: dict[str, tuple[Outcome, Level]] = {
    "fail": ("failed", "error"),
    "warn": ("undecided", "warning"),
    "pass": ("undecided", ""),
}
"""What a gate does with inconclusive rows -> how such a row is shown."""
_GATED: dict[str, tuple[Outcome, Level]] = {
    "passed": ("passed", ""),
    "skipped": ("skipped", ""),
    "regressed": ("failed", "error"),
    "invalid": ("failed", "error"),
}
"""Status of a gate's row -> how it is shown; the others could not be compared."""
_DECIDED = ("improved", "regressed", "equivalent")
_NOT_TO_COMPARE = ("invalid", "failed", "unfit", "interrupted", "not begun", "not comparable")


@dataclass(frozen=True)
class CiEntry:
    """One case (or one metric of one, or the command itself) as a CI system shows it."""

    name: str
    """Unique in its group and the same in every run; one line."""
    group: str
    """The scenario."""
    outcome: Outcome
    word: str
    """The verdict's word, or the status of a case without one."""
    summary: str
    """The outcome in one line."""
    text: str
    """All there is to say, several lines."""
    seconds: float
    path: str
    """Scenario file; empty without one."""
    metrics: tuple[ComparisonRow, ...] = ()
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


@dataclass(frozen=True)
class CiReport:
    """What a command has for CI systems."""

    entries: Sequence[CiEntry]
    title: str
    """The command."""
    exit_code: Exit
    root: Path
    """Root of the repository."""
    elsewhere: str
    """Path that is given for a scenario outside the repository."""
    summary: str = ""
    """All of it as one text in Markdown."""


@dataclass(frozen=True)
class CiFormat:
    """A format of CI systems: the option that names its file, and how it is written."""

    name: str
    help: str
    render: Callable[[CiReport], Mapping[str, str]]
    """What is added to the file's stem -> text; most formats are one file, with nothing added."""
    endings: tuple[str, ...] = ("",)
    """Every key of what ``render`` returns."""

    def files(self, path: Path) -> dict[str, Path]:
        """Ending -> file, beside each other: ``bench.json``, ``bench-speedup.json``."""
        return {
            ending: path.with_name(f"{path.stem}{ending}{path.suffix}") if ending else path for ending in self.endings
        }


def entries_of_run(
    run: RunRecord, records: Sequence[CaseRecord], *, problems: Sequence[str] = ()
) -> tuple[CiEntry, ...]:
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
        said = f"the run was interrupted; {missing} of {len(order)} cases were never started"
        entries.insert(0, _own("run", "interrupted", said, said))
    return _unique(entries)


def entries_of_gate(outcome: GateOutcome) -> tuple[CiEntry, ...]:
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


def entry_of_error(name: str, summary: str, *, word: str = "failed") -> CiEntry:
    """Build the entry of a command without a result, such as one that was interrupted at once."""
    return _own(name, word, summary, summary)


def entries_of_faults(name: str, faults: Iterable[Fault]) -> tuple[CiEntry, ...]:
    """Build the entries of a command that was called wrongly: one a mistake, at its place in its file."""
    return _unique(_of_fault(name, fault) for fault in sorted(set(faults)))


def counts(entries: Iterable[CiEntry]) -> dict[Outcome, int]:
    """How many entries have each outcome; all five are named."""
    found: dict[Outcome, int] = dict.fromkeys(("passed", "failed", "error", "skipped", "undecided"), 0)
    for entry in entries:
        found[entry.outcome] += 1
    return found


def _of_record(run: RunRecord, record: CaseRecord) -> list[CiEntry]:
    case, rows = record.case, build_rows([record]).rows
    shown = [row for row in rows if row.verdict and row.primary] or [rows[-1]]
    # Commands are to be copied, so no line is broken.
    text = explain_case(run, record, width=_ENDLESS)
    entries = []
    for place, row in enumerate(shown):
        word, outcome, level = _judged(record, row)
        entries.append(
            CiEntry(
                name=clean(_name(row)),
                group=clean(case.scenario),
                outcome=outcome,
                word=word,
                summary=_summary(record, row, word),
                text=text,
                # A ladder was measured once, whatever the number of its steps.
                seconds=0.0 if place else record.seconds,
                path=case.path,
                metrics=tuple(
                    comparison_row(record, r) for r in record.results if (r.side, r.against) == (row.side, row.against)
                ),
                level=level,
            )
        )
    return entries


def _judged(record: CaseRecord, row: RunRow) -> tuple[str, Outcome, Level]:
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


def _missed(row: RunRow) -> bool:
    return bool(row.expect) and row.verdict != row.expect


def _name(row: RunRow) -> str:
    if row.ladder or row.against not in FIRST_SIDES:
        return f"{row.case}: {row.side} vs {row.against}"
    return row.case


def _summary(record: CaseRecord, row: RunRow, word: str) -> str:
    if record.status == "failed":
        row = build_rows([record]).rows[-1]
    if not row.verdict:
        return clean(f"{word}: {row.sentence}{'; ' + row.fix if row.fix else ''}")
    if word == "unfit":
        return f"unfit: {void_sentence(record)}"
    expected = f"; the scenario expects: {row.expect}" if word in _DECIDED and _missed(row) else ""
    figures = f"{speedup_text(row)} ({interval_text(row)})"
    return clean(f"{word} {figures}: {row.sentence.rstrip('.')}{expected}")


def _not_begun(name: str) -> CiEntry:
    said = "not begun: the run ended before this case"
    return CiEntry(clean(name), clean(name.partition("[")[0]), "skipped", "not begun", said, said, 0.0, "")


def _own(name: str, word: str, summary: str, text: str) -> CiEntry:
    return CiEntry(name, OWN_GROUP, "error", word, clean(summary), text, 0.0, "", level="error")


def _of_fault(name: str, fault: Fault) -> CiEntry:
    said = "\n".join(fault_lines([fault]))
    entry = _own(clean(fault.where) or name, "failed", said, said)
    place = _PLACE.fullmatch(fault.where)
    if place is None:
        return entry
    return replace(entry, name=clean(place["path"]), path=place["path"], line=int(place["line"]))


def _of_row(gate: GateOutcome, row: GateRow) -> CiEntry:
    outcome, level = _status(gate, row)
    plain = row.metric == DEFAULT_METRIC and row.side in LAST_SIDES
    return CiEntry(
        name=clean(row.case if plain else " ".join(p for p in (f"{row.case}:", row.side, row.metric) if p)),
        group=clean(row.scenario),
        outcome=outcome,
        word=row.status.replace("_", " "),
        summary=clean(f"{row.status.replace('_', ' ')}: {row.sentence}"),
        text="\n".join(_row_text(gate, row)),
        seconds=row.seconds,
        path=row.path,
        metrics=(_gated(gate, row),) if row.ratio is not None else (),
        level=level,
    )


def _status(gate: GateOutcome, row: GateRow) -> tuple[Outcome, Level]:
    if row.status == "inconclusive":
        return _INCONCLUSIVE[gate.on_inconclusive]
    # A gate may let a case without a baseline pass, as one that is new at its head: then its exit code says so.
    passes = gate.exit in (Exit.OK, Exit.SKIPPED)
    return _GATED.get(row.status, ("skipped", "warning") if passes else ("error", "error"))


def _row_text(gate: GateOutcome, row: GateRow) -> list[str]:
    said = [row.sentence]
    if row.ratio is not None:
        sure = f"{confidence(row.alpha)} interval" if row.alpha is not None else "interval"
        span = format_interval(row.low, row.high)
        ratio = format_ratio(row.ratio, row.low, row.high)
        said.append(f"{row.metric}: ratio {ratio} (above 1 is better), {sure} {span} from {row.pairs} pairs.")
    if gate.level != "ratio" and (row.before is not None or row.after is not None):
        values = (format_value(value, row.unit) for value in (row.before, row.after))
        said.append("base {}, head {}.".format(*values))
    if row.confirmed is not None:
        said.append(f"A fresh session {'confirmed it' if row.confirmed else 'did not confirm it'}.")
    if gate.runs:
        said.append(f"Stored in: {', '.join(gate.runs)}.")
    return said + ([f"To reproduce it: {row.reproduce}"] if row.reproduce else [])


def _gated(gate: GateOutcome, row: GateRow) -> ComparisonRow:
    if gate.level == "ratio":
        # The values are speedups, not values of the metric.
        row = replace(row, before=None, after=None)
    return replace(row, side="head", against="base")


def _unique(entries: Iterable[CiEntry]) -> tuple[CiEntry, ...]:
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
