"""The table as CSV: one row a comparison or a case without one, raw numbers in SI units.

What must not live here: rows being built, rounding, other dialects.
"""

from __future__ import annotations

import csv
import io
from dataclasses import fields
from typing import Any

from aiperf.report.numbers import known
from aiperf.report.table import Extras, Row, Table

COLUMNS = tuple(f.name for f in fields(Row))
"""Header of the file: the fields of a row, in their order."""


def render_csv(table: Table) -> str:
    """Return the table as CSV with a header line; what was not measured is an empty field."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    extras = table.extras or Extras()
    writer.writerow([*COLUMNS, *extras.names])
    for row in table.rows:
        more = extras.of(row)
        own = [plain_cell(getattr(row, name)) for name in COLUMNS]
        writer.writerow([*own, *(plain_cell(more.get(name)) for name in extras.names)])
    return out.getvalue()


def plain_cell(value: Any) -> Any:
    """A value as a CSV cell holds it: text without control characters, everything else as it is."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(value) if known(value) else ""
    if isinstance(value, tuple):
        return " | ".join(map(str, value))
    return "" if value is None else value
