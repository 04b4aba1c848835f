"""Stored runs that are read as one: the parts of a plan, measured side by side (``--shard``).

What must not live here: what must be the same (plan/resume.py), writing, printing.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from aiperf.errors import usage
from aiperf.plan.resume import conflicts
from aiperf.records import Case, CaseRecord, RunRecord
from aiperf.records.machines import with_machines_of
from aiperf.store.read import Damaged, StoredRun, in_order, open_run


@dataclass(frozen=True)
class PartedRun(StoredRun):
    """Several runs on disk; its folder is that of the first."""

    parts: tuple[StoredRun, ...] = ()

    @property
    def folders(self) -> tuple[Path, ...]:
        """Of every part."""
        return tuple(part.folder for part in self.parts)

    def samples_path(self, case: Case) -> Path:
        """Where the samples of a case lie: in the part that has it."""
        paths = [part.samples_path(case) for part in self.parts]
        return next((path for path in paths if path.exists()), paths[0])

    def _entries(self) -> list[CaseRecord | Damaged]:
        return in_order([entry for part in self.parts for entry in part.iter_cases()], self.record.planned)


def open_parts(names: Sequence[str], *, results: Path) -> StoredRun:
    """Open runs as ``open_run`` does, several as one.

    Raises UserError where they cannot be parts of one plan: another host, seed, precision or software, or a case twice.
    """
    parts = list({run.folder.resolve(): run for run in (open_run(name, results=results) for name in names)}.values())
    if len(parts) == 1:
        return parts[0]
    known = [part for part in parts if part.record.known] or parts
    for part in known[1:]:
        _check(known[0], part)
    _check_cases(parts)
    warnings = tuple(warning for part in parts for warning in part.warnings)
    return PartedRun(parts[0].folder, _together([part.record for part in known]), warnings, tuple(parts))


def _check(first: StoredRun, part: StoredRun) -> None:
    if found := conflicts(first.record, part.record, words=("in the first", "in the second")):
        what = f"{first.record.run} and {part.record.run} are not parts of one run: {'; '.join(found)}."
        raise usage(what, "Name the parts that --shard made of one plan, or compare the runs: aiperf compare.")


def _check_cases(parts: Sequence[StoredRun]) -> None:
    seen: dict[str, StoredRun] = {}
    for part in parts:
        for record in part.read_cases()[0]:
            if (other := seen.setdefault(record.case.id, part)) is not part:
                what = f"{record.case.id} is in both {other.folder} and {part.folder}."
                raise usage(what, "Name parts without a case in common, or compare them: aiperf compare.")


def _together(records: Sequence[RunRecord]) -> RunRecord:
    ended = [record.status for record in records]
    return replace(
        functools.reduce(with_machines_of, records),
        run=" + ".join(record.run for record in records),
        argv=(),  # no one command measures all of it again
        command="",
        started=min(record.started for record in records),
        finished=max(r.finished for r in records) if all(r.finished for r in records) else "",
        status=next((status for status in ended if status != "finished"), "finished"),
        findings=tuple(dict.fromkeys(finding for record in records for finding in record.findings)),
        # Parts are dealt out by name.
        planned=tuple(sorted({name for record in records for name in record.planned})),
    )
