"""Opening the folder of a run that ended early, and what of it is taken over.

What must not live here: what must be the same (plan/resume.py), measuring, printing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from aiperf.errors import UserError, usage
from aiperf.plan.resume import conflicts, goes_on, is_kept
from aiperf.records import Case, CaseRecord, RunRecord
from aiperf.records.machines import with_machines_of
from aiperf.store.codec import decode_run, encode_run
from aiperf.store.read import StoredRun, open_run, read_pairs
from aiperf.store.write import RunWriter


def reopen(earlier: StoredRun, now: RunRecord) -> tuple[RunWriter, RunRecord]:
    """Go on in the folder of ``earlier``; ``now`` is how a new run would begin.

    Raises UserError with everything that is not as it was then, or with the process that measures into it now.
    """
    writer = RunWriter(earlier.folder)
    writer.claim.take()
    try:
        # Whoever had it may have measured since it was read.
        return writer, _begun_again(writer, open_run(earlier.folder, results=earlier.folder.parent), now)
    except BaseException:
        writer.claim.release()
        raise


def _begun_again(writer: RunWriter, earlier: StoredRun, now: RunRecord) -> RunRecord:
    old = earlier.record
    if earlier.warnings:
        raise usage(f"{earlier.warnings[0].sentence}.", "Start a new run.", where="--resume")
    # Through the encoding, so that a tuple equals the list it was stored as.
    now = decode_run(encode_run(now))
    if changed := conflicts(old, now):
        what = f"{old.run} cannot be resumed: {'; '.join(changed)}."
        raise usage(what, "Restore it, or start a new run.", where="--resume")
    planned = tuple(dict.fromkeys((*old.planned, *now.planned)))
    findings = tuple(dict.fromkeys((*old.findings, *now.findings)))
    run = replace(with_machines_of(old, now), status="running", finished="", planned=planned, findings=findings)
    writer.write_run(run)
    return run


def stored_cases(earlier: StoredRun, cases: Sequence[Case], *, note: Callable[[str], None]) -> dict[str, CaseRecord]:
    """Records of ``cases`` that are kept or gone on with, samples included; ``note`` gets what is measured again."""
    wanted = {case.id: case for case in cases}
    records, damaged = earlier.read_cases()
    for spoilt in damaged:
        note(f"{spoilt.sentence}: measured again")
    found = {}
    for record in records:
        case = wanted.get(record.case.id)
        if case is None:
            continue
        if not (is_kept(record, case) or goes_on(record, case)):
            note(f"{case.id} is measured again because {_why(record, case)}")
            continue
        try:
            found[case.id] = replace(record, pairs=read_pairs(earlier, record))
        except UserError as error:
            note(f"{case.id} is measured again: {error.faults[0].what}")
    kept = sum(is_kept(found[name], wanted[name]) for name in found)
    opened, new = len(found) - kept, len(cases) - len(found)
    note(f"resuming in {earlier.folder}: {kept} kept, {opened} resumed, {new} to start")
    return found


def _why(record: CaseRecord, case: Case) -> str:
    if record.case.scenario_hash != case.scenario_hash:
        return "its scenario file was changed"
    return f"it was {record.status}" if record.status != "measured" else "it had no pair yet"
