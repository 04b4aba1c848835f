"""From what nsys left behind to a clean sqlite export: import by hand when its importer was not found, export, scrub.

What must not live here: profiling itself, and reading the export.
"""

from __future__ import annotations

import sqlite3
import subprocess
from collections.abc import Mapping
from pathlib import Path

from aiperf.profilers.reading import NoReport
from aiperf.profilers.scrub import scrub
from aiperf.profilers.tools import FoundTool, importers, missing_libraries, packages_of

_IMPORT_S = 300.0


def nsys_export(nsys: FoundTool, report: Path, *, output: Path) -> list[str]:
    """Export a report as sqlite: the tables are the same over releases, those of ``nsys stats`` are not."""
    return [
        *(str(nsys.path), "export", "--type", "sqlite", "--quiet", "true", "--force-overwrite", "true"),
        *("--output", str(output), str(report)),
    ]


def nsys_sqlite(nsys: FoundTool, output: Path, *, env: Mapping[str, str]) -> Path:
    """The scrubbed sqlite export of the report ``output`` (a path without ending).

    nsys exits with 0 whether or not it made a report, so only the file counts. The .qdstrm, which can be gigabytes,
    is removed. Raises NoReport.
    """
    report, raw = output.with_name(f"{output.name}.nsys-rep"), output.with_name(f"{output.name}.qdstrm")
    try:
        if not report.is_file():
            _import(nsys, raw, report, env)
    finally:
        raw.unlink(missing_ok=True)
    return exported(nsys, report, output=output.with_name(f"{output.name}.sqlite"), env=env)


def exported(nsys: FoundTool, report: Path, *, output: Path, env: Mapping[str, str]) -> Path:
    """The scrubbed sqlite export of a finished report, written to ``output``. Raises NoReport."""
    sqlite = output
    status, said = _run(nsys_export(nsys, report, output=sqlite), env)
    if not sqlite.is_file():
        raise NoReport(f"nsys export wrote nothing{_because(said)}")
    if status:
        # What it left is cut short, and an export that was never scrubbed must not lie about.
        sqlite.unlink()
        raise NoReport(f"nsys export did not come to its end{_because(said)}")
    try:
        scrub(sqlite)
    except sqlite3.DatabaseError as error:
        sqlite.unlink()
        raise NoReport(f"what nsys exported cannot be scrubbed ({error})") from None
    return sqlite


def _import(nsys: FoundTool, raw: Path, report: Path, env: Mapping[str, str]) -> None:
    if not raw.is_file():
        raise NoReport("nsys left neither a report nor a .qdstrm")
    reasons = []
    for importer in importers(nsys.path):
        missing = missing_libraries(importer, env=env)
        if missing:
            reasons.append(f"{importer} lacks {', '.join(missing)}: {packages_of(missing)}")
            continue
        command = [str(importer), "--input-file", str(raw), "--output-file", str(report), "--force-overwrite"]
        _, said = _run(command, env)
        if report.is_file():
            return
        reasons.append(f"{importer} made no report{_because(said)}")
    raise NoReport("; ".join(reasons) or f"no QdstrmImporter lies near {nsys.path}: the installation is not whole")


def _run(command: list[str], env: Mapping[str, str]) -> tuple[int, str]:
    """Exit status and what was said."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_IMPORT_S, env=dict(env), check=False
        )
    except subprocess.TimeoutExpired:
        return 1, f"no end within {_IMPORT_S:g} s"
    except OSError as error:
        return 1, str(error)
    return done.returncode, (done.stderr or done.stdout).strip()


def _because(said: str) -> str:
    last = said.splitlines()[-1].strip() if said else ""
    return f" ({last[:300]})" if last else ""
