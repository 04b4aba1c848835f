"""The table as JSON for programs: the run, its rows with raw numbers, what the host did, the counts, the warnings.

What must not live here: rows being built, rounding, other dialects.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from aiperf.records import SCHEMA_VERSION, CaseRecord, RunRecord
from aiperf.report.explain_host import reading_values
from aiperf.report.summary import count_outcomes, found_in, summary_line
from aiperf.report.table import Table
from aiperf.store.codec import dump_json


def render_json(run: RunRecord, table: Table, *, records: Sequence[CaseRecord], warnings: Sequence[str] = ()) -> str:
    """Return the run as one JSON document; what was not measured is null."""
    document: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "run": run_plain(run),
        "rows": table.rows,
        "telemetry": [mark for record in records for mark in reading_values(record)],
        "outcomes": count_outcomes(records, unread=table.unread),
        "summary": summary_line(records, unread=table.unread),
        "discoveries": found_in(run, records),
        "warnings": list(warnings),
    }
    if table.extras is not None:
        document["columns"] = table.extras.values
    return dump_json(document).decode("utf-8")


def run_plain(run: RunRecord, names: Sequence[str] = ()) -> Any:
    """``run``, or its fields of these names, for a document; what a damaged record does not tell is null."""
    if not (names or not run.known):
        return run
    names = names or [field.name for field in fields(run)]
    told = names if run.known else ("run", "status")
    return {name: getattr(run, name) if name in told else None for name in names}


def listing_json(rows: Sequence[Any]) -> str:
    """Return any listing (scenarios, plan, peaks, calibrations) as a JSON array of its rows."""
    return dump_json(list(rows)).decode("utf-8")
