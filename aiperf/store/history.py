"""Every case record of a results folder, oldest first, without its pairs: the view over all runs.

What must not live here: raw samples, SQL (query.py), statistics, printing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Generic, TypeVar

from aiperf.errors import UserError
from aiperf.records import CaseRecord, RunRecord
from aiperf.store.codec import CorruptRecord, decode_run
from aiperf.store.light import decode_light
from aiperf.store.read import Damaged, age, no_collection, run_folders
from aiperf.store.write import CASES, RUN_FILE, name_stem

T = TypeVar("T")
Decode = Callable[[bytes, str], T]
"""(text of a case file, its path) -> what the reader wants of it; raises as ``decode_case``."""
_AT_ONCE = 8
"""Runs that are read before the first of them is decoded."""
_READERS = 8
"""On a network file system the answer to a small read is what takes long, so several are asked for at once."""
_STAMP = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d)-(\d\d)-(\d\d)-")


@dataclass(frozen=True)
class Entry:
    """One case of one run."""

    run: RunRecord
    """Of a damaged ``run.json``: an unknown one."""
    record: CaseRecord
    """Without its pairs."""


@dataclass(frozen=True)
class History:
    """Every readable case record, and what had to be passed over."""

    entries: tuple[Entry, ...]
    """Oldest run first; within a run in plan order."""
    damaged: tuple[Damaged, ...] = ()


@dataclass(frozen=True)
class ScannedRun(Generic[T]):
    """One run's folder, its cases as ``Decode`` made them."""

    folder: Path
    record: RunRecord
    cases: tuple[tuple[Path, T], ...]
    """(path of the case file, what was made of it), in the files' order."""
    damaged: tuple[Damaged, ...]


@dataclass(frozen=True)
class _Files:
    """What a run's folder holds, as bytes or as the error of reading them."""

    folder: Path
    run: bytes | OSError
    cases: tuple[tuple[Path, bytes | OSError], ...]


def entries(results: Path, *, scenario: str = "") -> History:
    """Read every case record in ``results``, or those of one scenario or case id; empty without runs.

    A damaged file is named and passed over, the cases of a damaged run.json are shown. With ``scenario`` only files
    whose name can be of it are opened, so damage elsewhere is not seen.
    """
    found: list[tuple[tuple[float, tuple[str, int]], list[Entry]]] = []
    damaged: list[Damaged] = []
    for run in scan(results, lambda data, where: decode_light(data, where=where).record, scenario=scenario):
        wanted = [r for _, r in run.cases if not scenario or scenario in (r.case.scenario, r.case.id)]
        places = {case_id: place for place, case_id in enumerate(run.record.planned)}
        wanted.sort(key=lambda r: places.get(r.case.id, len(places)))
        found.append((_began(run), [Entry(run.record, r) for r in wanted]))
        damaged.extend(run.damaged)
    found.sort(key=lambda item: item[0])
    return History(tuple(e for _, run_entries in found for e in run_entries), tuple(damaged))


def scan(results: Path, decode: Decode[T], *, scenario: str = "") -> Iterator[ScannedRun[T]]:
    """Yield each run in ``results`` by name, one after the other, its case files read and decoded.

    ``scenario`` leaves files unread whose name shows that they are of another one; then a run without such files is
    left out.
    """
    folders = run_folders(results)
    with ThreadPoolExecutor(_READERS) as pool, no_collection():
        for first in range(0, len(folders), _AT_ONCE):
            chunk = folders[first : first + _AT_ONCE]
            for files in pool.map(lambda f: _read_files(f, name_stem(scenario)), chunk):
                if files is not None:
                    yield _decoded(files, decode)


def _read_files(folder: Path, stem: str) -> _Files | None:
    """Read a run's files; None when the folder is no run, or has no case of the name wanted."""
    try:
        with os.scandir(folder / CASES) as listed:
            names = sorted(e.name for e in listed if e.name.endswith(".json") and not e.name.startswith("."))
    except OSError:
        names = []
    wanted = [name for name in names if name.startswith(stem)]
    run = None if stem and not wanted else _bytes(folder / RUN_FILE)
    if run is None or (isinstance(run, OSError) and not names):
        return None
    return _Files(folder, run, tuple((folder / CASES / name, _bytes(folder / CASES / name)) for name in wanted))


def _bytes(path: Path) -> bytes | OSError:
    try:
        return path.read_bytes()
    except OSError as error:
        return error


def _decoded(files: _Files, decode: Decode[T]) -> ScannedRun[T]:
    run_path = files.folder / RUN_FILE
    record = _tried(run_path, files.run, lambda data, where: decode_run(data, where=where))
    found = [(path, _tried(path, data, decode)) for path, data in files.cases]
    damaged = [item for item in (record, *(item for _, item in found)) if isinstance(item, Damaged)]
    return ScannedRun(
        files.folder,
        RunRecord.unknown(files.folder.name) if isinstance(record, Damaged) else record,
        tuple((path, item) for path, item in found if not isinstance(item, Damaged)),
        tuple(damaged),
    )


def _tried(path: Path, data: bytes | OSError, decode: Decode[T]) -> T | Damaged:
    if isinstance(data, OSError):
        return Damaged.by(data, path)
    try:
        return decode(data, str(path))
    except (CorruptRecord, UserError) as error:
        return Damaged.by(error, path)


def _began(run: ScannedRun[T]) -> tuple[float, tuple[str, int]]:
    """Sort key: when the run began, by its record or else by its folder's name; runs of one second by name."""
    text = run.record.started
    if not text and (stamp := _STAMP.match(run.folder.name)):
        text = f"{stamp[1]}T{stamp[2]}:{stamp[3]}:{stamp[4]}"
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return 0.0, age(run.folder)
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp(), age(run.folder)
