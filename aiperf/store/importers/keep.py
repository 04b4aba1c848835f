"""The recipe of `aiperf import`: one file of another tool becomes one run of the store, or faults.

What must not live here: formats, printing.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aiperf.errors import Fault, UserError, usage
from aiperf.records import CaseRecord, RunRecord
from aiperf.store.importers.cases import PRECISION, case_records
from aiperf.store.importers.common import Foreign
from aiperf.store.importers.detect import AUTO, load, parse
from aiperf.store.importers.unpaired import Against, unpaired_record
from aiperf.store.read import find_runs, open_run
from aiperf.store.write import RunWriter, StoreError

_HOST_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_UNKNOWN_HOST = "imported"
_HOST_NOTE = "the file does not name the machine: name it with --host-id, or this run cannot be compared with any other"


@dataclass(frozen=True)
class ImportOptions:
    """How files are imported."""

    results: Path
    tool: str = AUTO
    host_id: str = ""
    """The user's own name of the machine; empty derives one from the file."""
    again: bool = False
    """Import a file whose content is in the store already."""
    argv: tuple[str, ...] = ()
    against: Against | None = None
    """Two benchmarks of each file to hold against each other."""


@dataclass(frozen=True)
class Imported:
    """One file that is now a run."""

    path: Path
    source: str
    """Tool and version."""
    folder: Path
    run: RunRecord
    records: tuple[CaseRecord, ...]


class _Writer(RunWriter):
    """Writes a run that is not the latest: ``latest`` is what was measured last, not what was imported last."""

    def _link_latest(self) -> None:
        pass


def import_files(paths: Sequence[Path], options: ImportOptions) -> tuple[tuple[Imported, ...], tuple[Fault, ...]]:
    """Import every file that can be, and return the faults of the others. Raises UserError for a bad option."""
    if options.host_id and not _HOST_NAME.fullmatch(options.host_id):
        what = f'"{options.host_id[:80]}" is not a valid host name.'
        raise usage(what, "Use letters, digits, dots and dashes, at most 64.", where="--host-id")
    known = _known(options.results)
    done: list[Imported] = []
    faults: list[Fault] = []
    for path in paths:
        try:
            imported = _import(path, options, known)
        except UserError as error:
            faults += error.faults
            continue
        except StoreError as error:
            faults.append(Fault(str(path), f"{error}."))
            continue
        known[imported.run.settings["imported"]["sha256"]] = imported.run.run
        done.append(imported)
    return tuple(done), tuple(faults)


def derived_host_id(foreign: Foreign, digest: str) -> tuple[str, str]:
    """Derive a host's id from what the file says about the machine, and a note where it says nothing.

    Equal descriptions give equal ids, and none equals a measured one (those have no prefix). The name of the host
    counts only where neither CPU nor GPU is named: containers change theirs, equal nodes have different ones.
    A file that says nothing gets an id of its own, because two unknown machines are not one.
    """
    machine: dict[str, Any] = dict(foreign.machine)
    if foreign.hostname and not machine.keys() & {"cpu_model", "gpus"}:
        machine["hostname"] = foreign.hostname
    note = "" if machine else _HOST_NOTE
    text = json.dumps(machine or {"file": digest}, sort_keys=True, default=str)
    return f"imported-{hashlib.sha256(text.encode()).hexdigest()[:12]}", note


def _known(results: Path) -> dict[str, str]:
    """Content hash -> run, of every file that was imported to its end."""
    found = {}
    for folder in find_runs(results):
        try:
            run = open_run(folder, results=results).record
        except UserError:  # a run of a newer aiperf; that it may hold the same file is not for this one to know
            continue
        kept = run.settings.get("imported")
        if run.status == "finished" and isinstance(kept, dict) and isinstance(kept.get("sha256"), str):
            found[kept["sha256"]] = run.run or folder.name
    return found


def _import(path: Path, options: ImportOptions, known: dict[str, str]) -> Imported:
    data = load(path)
    digest = hashlib.sha256(data).hexdigest()
    if digest in known and not options.again:
        what = f"was already imported, as {known[digest]}."
        raise usage(what, "Import it once more with --again, if you want both.", str(path))
    foreign = _dated(parse(data, path, tool=options.tool), path)
    host_id, note = (options.host_id, "") if options.host_id else derived_host_id(foreign, digest)
    if note:
        foreign = replace(foreign, notes=(*foreign.notes, note))
    return _store(path, foreign, digest, host_id, options)


def _dated(foreign: Foreign, path: Path) -> Foreign:
    """Take the file's own time where the tool gives none."""
    if foreign.started is not None:
        return foreign
    try:
        written = datetime.fromtimestamp(int(path.stat().st_mtime), UTC)
    except (OSError, ValueError, OverflowError):
        raise usage("has no date, and neither does its folder.", "Write the file again.", str(path)) from None
    note = "the file has no date: its modification time is used"
    return replace(foreign, started=written, finished=written, notes=(*foreign.notes, note))


def _store(path: Path, foreign: Foreign, digest: str, host_id: str, options: ImportOptions) -> Imported:
    records = case_records(foreign, host_id=host_id)
    if options.against is not None:
        records += (unpaired_record(foreign, options.against, records, where=str(path)),)
    now = foreign.started.astimezone(UTC) if foreign.started else datetime.now(UTC)
    writer = _Writer.create(options.results, hostname=foreign.hostname or _UNKNOWN_HOST, now=now)
    run = _run_record(writer.name, path, foreign, digest, host_id, options, records)
    writer.write_run(run)
    for record in records:
        writer.write_case(record)
    run = replace(run, status="finished")
    writer.write_run(run)
    return Imported(path, foreign.source, writer.folder, run, records)


def _run_record(
    name: str,
    path: Path,
    foreign: Foreign,
    digest: str,
    host_id: str,
    options: ImportOptions,
    records: Sequence[CaseRecord],
) -> RunRecord:
    named = {"hostname": foreign.hostname} if foreign.hostname else {}
    kept = {"tool": foreign.tool, "version": foreign.version, "file": path.name, "sha256": digest}
    return RunRecord(
        run=name,
        argv=options.argv,
        command="import",
        started=records[0].started,
        finished=records[0].finished,
        precision=PRECISION,
        settings={"imported": {**kept, "when": datetime.now(UTC).isoformat(timespec="seconds")}},
        host={"imported_from": foreign.source, **named, **foreign.machine},
        host_id=host_id,
        software=foreign.software,
        git=foreign.git,
        planned=tuple(record.case.id for record in records),
    )
