"""From what nsys left behind to a clean sqlite export: import by hand when its importer was not found, export, scrub.

What must not live here: profiling itself, and reading the export.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path

from aiperf.profilers.reading import NoReport
from aiperf.profilers.scrub import scrub
from aiperf.profilers.tools import FoundTool, HelperRun, importers, missing_libraries, packages_of, run_helper

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
    ended = run_helper(nsys_export(nsys, report, output=sqlite), env, limit=_IMPORT_S)
    if not sqlite.is_file():
        raise NoReport(f"nsys export wrote nothing{_because(ended)}")
    if ended.status != 0:
        # What it left is cut short, and an export that was never scrubbed must not lie about.
        sqlite.unlink()
        raise NoReport(f"nsys export did not finish{_because(ended)}")
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
        ended = run_helper(command, env, limit=_IMPORT_S)
        if report.is_file():
            return
        reasons.append(f"{importer} made no report{_because(ended)}")
    raise NoReport("; ".join(reasons) or f"no QdstrmImporter near {nsys.path}: the installation is incomplete")


def _because(ended: HelperRun) -> str:
    lines = (ended.err or ended.out).strip().splitlines()
    return f" ({lines[-1].strip()[:300]})" if lines else ""
