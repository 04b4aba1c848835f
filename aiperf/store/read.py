"""Finding and reading stored runs; a damaged record is named and passed over, the rest is shown.

What must not live here: writing, printing, statistics.
"""

from __future__ import annotations

import difflib
import gc
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from aiperf.errors import UserError, usage
from aiperf.records import Case, CaseRecord, Pair, RunRecord
from aiperf.store.codec import CorruptRecord, decode_case, decode_run
from aiperf.store.samples import join_samples
from aiperf.store.write import CASES, LATEST, RUN_FILE, SAMPLES, file_name

_FEW = 5
"""As many cases as a hint names."""


@dataclass(frozen=True)
class Damaged:
    """A stored file that could not be read."""

    path: Path
    reason: str

    @property
    def sentence(self) -> str:
        """A sentence for the reader of a table."""
        if self.path.name == RUN_FILE:
            lost = "the run's own record is damaged, its host, settings and end are unknown"
            return f"{self.path} {self.reason}: {lost}"
        return f"{self.path} {self.reason}; ignored"

    @classmethod
    def by(cls, error: CorruptRecord | UserError | OSError, path: Path) -> Damaged:
        """What an error of reading ``path`` says of it."""
        if isinstance(error, OSError):
            return cls(path, f"cannot be read ({error.strerror})")
        return cls(path, error.faults[0].what.rstrip(".") if isinstance(error, UserError) else str(error))


@dataclass(frozen=True)
class StoredRun:
    """One run on disk."""

    folder: Path
    record: RunRecord
    warnings: tuple[Damaged, ...] = ()
    """Damage to ``run.json`` itself."""

    def iter_cases(self) -> Iterator[CaseRecord | Damaged]:
        """Every case in plan order, then those that the plan does not name; samples stay on disk."""
        return iter(self._entries())

    def read_cases(self) -> tuple[tuple[CaseRecord, ...], tuple[Damaged, ...]]:
        """Return the readable case records in plan order, and what was passed over."""
        entries = self._entries()
        damaged = tuple(e for e in entries if isinstance(e, Damaged))
        return tuple(e for e in entries if isinstance(e, CaseRecord)), (*self.warnings, *damaged)

    def lost(self, read: Sequence[CaseRecord], damaged: Sequence[Damaged]) -> int:
        """How many cases it should hold beside those ``read``: damaged ones, and what a finished run lacks."""
        run, known = self.record, {record.case.id for record in read}
        # Parts together have no command: without records they may have been made to profile.
        measured = known or run.command not in ("", "profile")
        missing = len(run.without(known)) if measured and run.status == "finished" else 0
        return max(missing, sum(entry.path.name != RUN_FILE for entry in damaged))

    @property
    def folders(self) -> tuple[Path, ...]:
        """Where what belongs to it lies."""
        return (self.folder,)

    def samples_path(self, case: Case) -> Path:
        """Where the samples of a case lie."""
        return self.folder / SAMPLES / f"{file_name(case)}.parquet"

    def _entries(self) -> list[CaseRecord | Damaged]:
        with no_collection():
            found = [_read_case(path) for path in case_files(self.folder)]
        return in_order(found, self.record.planned)


def in_order(entries: Sequence[CaseRecord | Damaged], planned: Sequence[str]) -> list[CaseRecord | Damaged]:
    """Records in the order of the plan, then those that it does not name, then what is damaged."""
    places = {case_id: place for place, case_id in enumerate(planned)}

    def place(entry: CaseRecord | Damaged) -> int:
        return places.get(entry.case.id, len(places)) if isinstance(entry, CaseRecord) else len(places) + 1

    return sorted(entries, key=place)


def find_runs(results: Path) -> tuple[Path, ...]:
    """Folders of the stored runs in ``results``, oldest first by name. Empty when there are none."""
    return tuple(folder for folder in run_folders(results) if _is_run(folder))


def run_folders(results: Path) -> tuple[Path, ...]:
    """Folders that may be runs, oldest first by name: one listing, and no look into any of them.

    Raises UserError when ``results`` is there but may not be read.
    """
    try:
        with os.scandir(results) as found:
            names = [e.name for e in found if not e.name.startswith(".") and e.is_dir(follow_symlinks=False)]
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except OSError as error:
        raise usage(
            f"the results cannot be read ({error.strerror}).", "Name another folder: --results PATH.", str(results)
        ) from None
    return tuple(sorted((results / name for name in names), key=age))


def open_run(name: str | Path = LATEST, *, results: Path) -> StoredRun:
    """Open the run called ``name``: a folder's path, a name in ``results``, a unique beginning of one, or ``latest``.

    A damaged ``run.json`` is a warning of the run, whose record is then unknown. Raises UserError when there is no such
    run or it is too new.
    """
    folder = _locate(str(name), results)
    path = folder / RUN_FILE
    try:
        return StoredRun(folder, decode_run(path.read_bytes(), where=str(path)))
    except (CorruptRecord, OSError) as error:
        return StoredRun(folder, RunRecord.unknown(folder.name), (Damaged.by(error, path),))


def read_case(run: StoredRun, name: str) -> CaseRecord:
    """Read the record of the case with the id ``name``, as a table prints it, or of a scenario's only case.

    Raises UserError.
    """
    records, damaged = run.read_cases()
    exact = [r for r in records if r.case.id == name]
    found = exact or [r for r in records if name in _names(r.case)]
    if len(found) == 1:
        return found[0]
    if found:
        ids = ", ".join(r.case.id for r in found)
        raise usage(f'"{name}" has {len(found)} cases in {run.folder}.', f"Name one of: {ids}.")
    ids_known = [r.case.id for r in records]
    near = difflib.get_close_matches(name, ids_known, n=3, cutoff=0.4)
    lost = f" {len(damaged)} damaged record(s) were ignored." if damaged else ""
    raise usage(f'no case "{name}" in {run.folder}.{lost}', _held(ids_known, near))


def _held(ids: Sequence[str], near: Sequence[str]) -> str:
    """What to name instead: all that there is where that is little, else the nearest or the first."""
    if not ids:
        return "It is empty."
    if len(ids) <= _FEW:
        return f"It holds: {', '.join(ids)}."
    if near:
        return f"Nearest of its {len(ids)} cases: {', '.join(near)}."
    return f"It holds {', '.join(ids[:_FEW])} and {len(ids) - _FEW} more."


def _names(case: Case) -> set[str]:
    """What tables, progress and files call a case: its axes or their values, with or without its scenario."""
    axes = case.id.partition("[")[2].removesuffix("]").replace(",", " ")
    values = " ".join(axis.partition("=")[2] for axis in axes.split())
    labels = {axes, values, case.label} - {""}
    return {case.scenario, file_name(case), *labels, *(f"{case.scenario} {label}" for label in labels)}


def read_pairs(run: StoredRun, case: CaseRecord) -> tuple[Pair, ...]:
    """Read the pairs of ``case`` with their samples, equal to those that were measured. Raises UserError."""
    if not case.pairs:
        return ()
    path = run.samples_path(case.case)
    try:
        return join_samples(case.pairs, path.read_bytes(), case=case.case.id)
    except CorruptRecord as error:
        raise usage(
            f"{error}.", "The record itself can still be shown; measure again for samples.", str(path)
        ) from None
    except OSError as error:
        what = f"the samples cannot be read ({error.strerror})."
        raise usage(what, "The record itself can still be shown; measure again for samples.", str(path)) from None


def case_files(folder: Path) -> tuple[Path, ...]:
    """List the case records of a run's folder by name, without what a killed writer left behind."""
    found = (folder / CASES).glob("*.json")
    return tuple(sorted(p for p in found if not p.name.startswith(".")))


def _read_case(path: Path) -> CaseRecord | Damaged:
    try:
        return decode_case(path.read_bytes(), where=str(path))
    except (CorruptRecord, UserError, OSError) as error:
        return Damaged.by(error, path)


def _is_run(folder: Path) -> bool:
    try:
        return (folder / RUN_FILE).is_file() or (folder / CASES).is_dir()
    except OSError:  # a name too long to be a file, a folder that may not be entered
        return False


def age(folder: Path) -> tuple[str, int]:
    """Sort key of a run's folder: the name, where -10 comes after -2."""
    stem, _, count = folder.name.rpartition("-")
    return (stem, int(count)) if count.isdigit() and len(count) < 4 else (folder.name, 1)


def _last_measured(runs: Sequence[Path]) -> Path:
    """The newest run that is not an import: where no link says it. Raises UserError."""
    for folder in reversed(runs):
        try:
            imported = decode_run((folder / RUN_FILE).read_bytes(), where=str(folder)).command == "import"
        except (CorruptRecord, OSError, UserError):
            imported = False
        if not imported:
            return folder
    what = f"{runs[-1].parent} has only imported runs, so latest names none."
    raise usage(what, f"Name one: {', '.join(p.name for p in runs[-3:])}.")


def _locate(name: str, results: Path) -> Path:
    for candidate in (results / name, Path(name)):
        if name and _is_run(candidate):
            return candidate.parent / candidate.readlink() if candidate.is_symlink() else candidate
    runs = find_runs(results)
    if name == LATEST and runs:
        return _last_measured(runs)
    begun = [p for p in runs if name and p.name.startswith(name)]
    if len(begun) == 1:
        return begun[0]
    if ".py:" in name:
        hint = "In Python: from aiperf import compare; in the shell, aiperf new NAME creates a pair to run."
        raise usage(f'"{name}" names a function, but a stored run is needed here.', hint)
    if not runs:
        raise usage(f"no run is stored in {results}.", "Measure something first: aiperf run NAME.")
    if begun:
        raise usage(f'"{name}" is a prefix of {len(begun)} runs.', f"Name one of: {', '.join(p.name for p in begun)}.")
    newest = ", ".join(p.name for p in reversed(runs[-3:]))
    raise usage(f'no run "{name}" in {results}.', f"The newest are: {newest}.")


@contextmanager
def no_collection() -> Iterator[None]:
    """Keep the cycle collector out: records hold no cycles, and looking for some takes longer than reading them."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
