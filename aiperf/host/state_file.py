"""One JSON file per host in the state folder: read tolerantly, written atomically, safe for two runs at once.

What must not live here: what the files mean.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from aiperf.paths import state_folder

T = TypeVar("T")
_ASIDE = ".unreadable-"


def path_of(kind: str, host_id: str) -> Path:
    """Where the facts of one kind about one host are kept."""
    return state_folder() / kind / f"{host_id}.json"


def load_as(
    type_: type[T], kind: str, host_id: str, *, renamed: Mapping[str, str] = MappingProxyType({})
) -> dict[str, T]:
    """Name -> entry as a dataclass. Entries that do not fit it are left out, as are fields that it does not have.

    ``renamed``: name of a field in files of older versions -> name today.
    """
    found: dict[str, T] = {}
    names = {field.name for field in fields(type_)}  # type: ignore[arg-type]
    for name, entry in load(path_of(kind, host_id)).items():
        if not isinstance(entry, dict):
            continue
        today = {renamed.get(key, key): value for key, value in entry.items()}
        with contextlib.suppress(TypeError):  # a field is missing
            found[name] = type_(**{key: value for key, value in today.items() if key in names})
    return found


def load(path: Path) -> dict[str, Any]:
    """Name -> entry. A missing file is empty; an unreadable one is renamed aside (see ``set_aside``) and is empty."""
    if not path.exists():
        return {}
    with _locked(path):
        return _read(path)


def update(path: Path, entries: dict[str, Any]) -> None:
    """Merge ``entries`` into the file. Raises OSError when the state folder cannot be written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _locked(path):
        merged = {**_read(path), **entries}
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=".tmp")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(merged, file, indent=1, sort_keys=True)
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise


def set_aside(kind: str, host_id: str) -> tuple[Path, ...]:
    """Files of this host that could not be read and were renamed; for a finding."""
    path = path_of(kind, host_id)
    return tuple(sorted(path.parent.glob(f"{path.name}{_ASIDE}*")))


def _read(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError):
        data = None
    except OSError:
        return {}
    if isinstance(data, dict):
        return data
    # A folder that may not be written keeps its bad file: reading goes on without it.
    with contextlib.suppress(OSError):
        path.rename(path.with_name(f"{path.name}{_ASIDE}{time.time_ns()}"))
    return {}


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the host's lock; without one when the folder is read-only, where nobody writes anyway."""
    try:
        handle = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o644)
    except OSError:
        yield
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
