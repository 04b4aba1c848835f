"""Takes out of an nsys export everything that the reader has no use for, environments above all.

What must not live here: which variables a profiled process gets (environment.py).

nsys stores the whole environment of its target, that of other processes whose /proc/PID/environ it may read, and the
target's output, in the raw report and in every export. Where it puts them differs between releases, so what is kept is
listed, not what goes. The raw report cannot be cleaned and stays where it was made.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
from pathlib import Path

_KEEP = re.compile(
    r"(StringIds|NVTX_EVENTS|OSRT_API|DIAGNOSTIC_EVENT|META_DATA_EXPORT|EXPORT_META_DATA|TARGET_INFO_GPU"
    r"|CUPTI_ACTIVITY_KIND_(KERNEL|RUNTIME|MEMCPY|MEMSET|GRAPH_TRACE))(_V\d+)?"
)
_EXPORT = ("META_DATA_EXPORT", "EXPORT_META_DATA")
_NAMES = ("nameId", "textId", "shortName")
"""Columns whose strings are names of calls, ranges, domains and kernels; every other string goes."""


def scrub(path: Path) -> int:
    """Remove what is not on the list from a sqlite export, in place; returns how many entries went.

    Raises sqlite3.DatabaseError when the file is not a database.
    """
    with contextlib.closing(sqlite3.connect(path)) as base:
        # Deleted rows would stay in the file's free pages, in the journal, and in a page's unused end.
        base.execute("PRAGMA secure_delete = ON")
        kinds = dict(base.execute("SELECT name, type FROM sqlite_master WHERE type IN ('table', 'view')"))
        gone = 0
        for name, kind in kinds.items():
            if not _KEEP.fullmatch(name) and not name.startswith("sqlite_"):
                quoted = name.replace('"', '""')
                gone += _rows(base, quoted) if kind == "table" else 0
                base.execute(f'DROP {kind.upper()} "{quoted}"')
        for name in kinds:
            if name.startswith(_EXPORT):
                # Paths on this machine, but for the version of the schema.
                gone += base.execute(f"DELETE FROM {name} WHERE name != 'EXPORT_SCHEMA_VERSION'").rowcount
        if "StringIds" in kinds:
            gone += _unused_strings(base, [name for name in kinds if _KEEP.fullmatch(name) and name != "StringIds"])
        base.commit()
        base.execute("VACUUM")
    return gone


def _rows(base: sqlite3.Connection, table: str) -> int:
    (count,) = base.execute(f'SELECT count(*) FROM "{table}"').fetchone()
    return int(count)


def _unused_strings(base: sqlite3.Connection, tables: list[str]) -> int:
    used = [
        f"SELECT {column} FROM {table} WHERE {column} IS NOT NULL"
        for table in tables
        for column in sorted({row[1] for row in base.execute(f"PRAGMA table_info({table})")} & set(_NAMES))
    ]
    # A block of /proc/PID/environ has NUL bytes in it, a name never has.
    condition = f"id NOT IN ({' UNION '.join(used)})" if used else "1"
    return base.execute(f"DELETE FROM StringIds WHERE {condition} OR instr(value, char(0)) > 0").rowcount
