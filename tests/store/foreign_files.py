"""The files of other tools, and one imported, for tests.

What must not live here: tests.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from aiperf.errors import Fault
from aiperf.records import CaseRecord
from aiperf.store.importers.keep import Imported, ImportOptions, import_files
from aiperf.store.read import find_runs

FOLDER = Path(__file__).resolve().parents[1] / "fixtures" / "foreign"
ASV = "asv/vm/asv.json"
FILES = (*sorted(p.name for p in FOLDER.iterdir() if p.is_file() and p.name != "README.md"), ASV)
JSON_FILES = tuple(name for name in FILES if name.endswith(".json"))


def document(name: str) -> Any:
    """The JSON of a fixture, to be changed."""
    return json.loads((FOLDER / name).read_text())


def take(path: Path, folder: Path, **options: Any) -> Imported:
    """Import one file into ``folder/results``; its faults are a failure."""
    (imported,), faults = import_files([path], ImportOptions(folder / "results", **options))
    assert faults == ()
    return imported


def take_fixture(name: str, folder: Path, **options: Any) -> Imported:
    """Import a fixture as it is."""
    return take(FOLDER / name, folder, **options)


def take_changed(name: str, changed: Any, folder: Path, **options: Any) -> Imported:
    """Import a fixture's document after a change."""
    path = folder / name
    path.write_text(json.dumps(changed))
    return take(path, folder, **options)


def fault_of_bytes(name: str, data: bytes, folder: Path, **options: Any) -> Fault:
    """The one fault of a file that cannot be imported; nothing may be stored then."""
    path = folder / name
    path.write_bytes(data)
    imported, (fault,) = import_files([path], ImportOptions(folder / "results", **options))
    assert imported == ()
    assert find_runs(folder / "results") == ()
    assert fault.where == str(path)
    return fault


def fault_of_changed(name: str, changed: Any, folder: Path, **options: Any) -> Fault:
    """The one fault of a document."""
    return fault_of_bytes(name, json.dumps(changed).encode(), folder, **options)


def with_side_files(folder: Path) -> Path:
    """A copy of the nvbench fixture with its samples."""
    shutil.copytree(FOLDER / "nvbench.json-bin", folder / "nvbench.json-bin")
    return Path(shutil.copy(FOLDER / "nvbench.json", folder / "nvbench.json"))


def case_of(imported: Imported, case_id: str) -> CaseRecord:
    """A case of what was imported."""
    return next(r for r in imported.records if r.case.id == case_id)
