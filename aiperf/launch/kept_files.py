"""What a program's later runs owe to the files that its first run left, as it is seen before anything is measured.

What must not live here: the view of the file system in which that is tried (private_files.py), what its times say
(analysis/program_notes.py).
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiperf.host import proc
from aiperf.launch import private_files
from aiperf.launch.injection import wants_gpu
from aiperf.records import Case, Side

_MOST_BYTES, _MEMORY_SHARE = 256 << 20, 0.125
"""Of memory that the files of a program may take meanwhile; with more it fails there, and nothing is known of it."""
_SHARE = 0.2
"""Part of a case's time that the runs of all sides may take; most cases need a few of them."""
_LEAST_S = 8.0
"""That a side may take whatever its case may."""
_COMMON = ("/tmp", "/var/tmp", "/dev/shm")
_FOLDERS = ("HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")
_APART = ",:\\"
"""Signs in a path that the options of a mount would take for their own."""
_MOST_NAMED = 20


@dataclass(frozen=True)
class KeptFiles:
    """Runs of one program with the files that its first run left (``kept``), and with none but code among them."""

    first_s: float
    """Seconds of CPU time, of the first run of all, which found no file of an earlier one."""
    kept_s: tuple[float, ...] = ()
    without_s: tuple[float, ...] = ()
    """Seconds of CPU time, in the order of the runs; both empty where the first one left nothing but code."""
    left: tuple[str, ...] = ()
    """Paths of what it left, code apart."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Path -> digest of files that two first runs wrote alike."""

    @property
    def facts(self) -> dict[str, Any]:
        """As a record holds it."""
        return {
            "first_s": self.first_s,
            "kept_s": list(self.kept_s),
            "without_s": list(self.without_s),
            "left": list(self.left[:_MOST_NAMED]),
        }


def sides_in_view(case: Case) -> tuple[Side, ...]:
    """The sides of a case of programs that are tried so: none where a line prepares each run, because that decides what
    a run finds, and none on GPUs, whose set-up takes too long."""
    prepared = any(side.prepare for side in case.sides)
    return () if case.needs.gpus or wants_gpu(case) or prepared else case.sides


def private_view(
    case: Case, side: Side, *, spool: Path, most_s: float
) -> Callable[[Sequence[str], Mapping[str, str]], list[str]]:
    """Makes, of a side's command and environment, the command that runs it in views of its own and prints what was
    seen. ``spool``: an empty folder; ``most_s``: seconds that the case may take, of which this takes a part at most.
    """
    folder = Path(side.folder or Path.cwd())
    memory = proc.memory_info().get("MemAvailable", 0)
    order = {
        "folder": str(folder),
        "spool": str(spool),
        "limit_s": max(_LEAST_S, _SHARE * most_s / len(case.sides)),
        "bytes": min(_MOST_BYTES, int(_MEMORY_SHARE * memory)),
        "printed": case.check.kind == "bitwise",
    }

    def command(argv: Sequence[str], env: Mapping[str, str]) -> list[str]:
        places = list(_outermost(_places(argv, env, folder)))
        file = str(private_files.__file__)
        return [sys.executable, "-I", "-S", file, json.dumps({**order, "places": places}), *argv]

    return command


def read_report(out: bytes) -> KeptFiles | None:
    """What that command printed; None where it printed nothing, because this host has no such views or the program
    failed in it."""
    try:
        found = json.loads(out)
    except ValueError:
        return None
    return KeptFiles(
        found["first"], tuple(found["kept"]), tuple(found["without"]), tuple(found["left"]), found["files"]
    )


def files_otherwise(found: Mapping[str, KeptFiles]) -> dict[str, tuple[str, ...]]:
    """Side -> paths of files that it writes with other contents than the first side does, each of them the same in two
    runs; sides without any are left out."""
    base, *others = found.values() if len(found) > 1 else (KeptFiles(0.0),)
    names = list(found)[1:]
    every = {
        name: tuple(path for path, digest in own.files.items() if base.files.get(path, digest) != digest)
        for name, own in zip(names, others, strict=True)
    }
    return {name: paths[:_MOST_NAMED] for name, paths in every.items() if paths}


def _places(argv: Sequence[str], env: Mapping[str, str], folder: Path) -> Iterator[str]:
    """Folders in which a program may write: its own, those that its environment or its arguments name."""
    yield str(folder)
    yield from (*_COMMON, tempfile.gettempdir(), *(env[name] for name in _FOLDERS if name in env))
    for word in argv[1:]:
        for named in (word, word.rpartition("=")[2]):
            path = Path(named)
            if path.is_absolute() and "\0" not in named:
                yield str(next(parent for parent in (path, *path.parents) if parent.is_dir()))


def _outermost(places: Iterator[str]) -> Iterator[str]:
    """Those that exist, may be written in, and are in none of the others; never all of the file system."""
    real = {os.path.realpath(place) for place in places if os.path.isabs(place)}
    able = sorted(p for p in real if p != os.sep and os.path.isdir(p) and os.access(p, os.W_OK | os.X_OK))
    kept: list[str] = []
    for place in able:
        if not set(place) & set(_APART) and not any(place.startswith(f"{outer}{os.sep}") for outer in kept):
            kept.append(place)
    yield from kept
