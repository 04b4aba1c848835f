"""Every table over the stored runs, and the columns that a query and an export show of each.

What must not live here: a table's own columns (measured.py, profiled.py), DuckDB, files.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from aiperf.errors import usage
from aiperf.scenario.text import axis_text
from aiperf.store.tables.columns import EXPORTED_TYPES, DataColumn, DataRow, DataTable
from aiperf.store.tables.measured import LATENCIES, LEAD, MEASURED
from aiperf.store.tables.profiled import PROFILED

TABLES = (*MEASURED, *PROFILED)
QUERY_TABLES = tuple(table for table in TABLES if table != LATENCIES)
"""SQL has latencies as lists in samples.latencies_s."""
AXIS = "axis."
"""Begins the name of an axis's column in an export."""


def table_named(name: str, *, where: str) -> DataTable:
    """Find a table. Raises UserError with the nearest names; ``where``: the option that gave the name."""
    names = [table.name for table in TABLES]
    if name not in names:
        near = difflib.get_close_matches(name, names, n=2)
        hint = f"Nearest: {', '.join(near)}." if near else f"The tables are {', '.join(names)}."
        raise usage(f'there is no table "{name}".', hint, where=where)
    return TABLES[names.index(name)]


def exported_columns(table: DataTable, axes: Iterable[str]) -> tuple[DataColumn, ...]:
    """Columns of a file: of a table of cases those of the run, of the case, and one for each axis come first."""
    lead = (*LEAD, *map(_axis_column, axes)) if table.level == "case" else ()
    known = {column.name for column in lead}
    own = (c for c in table.columns if c.name not in known and c.kind in EXPORTED_TYPES)
    return (*lead, *own)


def _axis_column(axis: str) -> DataColumn:
    def read(row: DataRow) -> str | None:
        axes = row.case.record.case.axes if row.case is not None else {}
        return axis_text(axes[axis]) if axis in axes else None

    return DataColumn(AXIS + axis, "text", f"value of the axis {axis}", read)
