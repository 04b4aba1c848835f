"""Takes out of an nsys export what it recorded of environments and of what programs printed.

What must not live here: which variables a profiled process gets (environment.py).

nsys stores the whole environment of its target, that of other processes whose /proc/PID/environ it may read, and the
target's output, in the raw report and in every export. The raw report cannot be cleaned and stays where it was made.
"""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

_DELETE = (
    ("META_DATA_CAPTURE", "name LIKE '%ENVIRONMENT_VARIABLE%'"),
    ("TARGET_INFO_SYSTEM_ENV", "name LIKE '%Environment%'"),
    ("ProcessStreams", "1"),
)


def scrub(path: Path) -> int:
    """Remove environments and program output from a sqlite export, in place; returns how many entries went.

    Raises sqlite3.DatabaseError when the file is no database.
    """
    with contextlib.closing(sqlite3.connect(path)) as base:
        tables = {row[0] for row in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        gone = 0
        for table, condition in _DELETE:
            if table in tables:
                gone += base.execute(f"DELETE FROM {table} WHERE {condition}").rowcount
        if "StringIds" in tables:
            # A block of /proc/PID/environ is stored as one string with NUL bytes in it; nothing else has any.
            gone += base.execute(
                "UPDATE StringIds SET value = '<environment>' WHERE instr(value, char(0)) > 0"
            ).rowcount
        base.commit()
        # Deleted rows stay in the file's free pages until it is rewritten.
        base.execute("VACUUM")
    return gone
