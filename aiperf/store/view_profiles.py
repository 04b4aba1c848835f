"""From profiles to the rows of their views: one function for each view, values as DuckDB takes them.

What must not live here: DuckDB, files, any other record of a run.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any

from aiperf.profilers.ncu_read import FLOPS
from aiperf.records.profiled import CounterRow, Profile
from aiperf.store.codec import number
from aiperf.store.view_rows import Row, json_text
from aiperf.store.views import MECHANISMS, PROFILE_METRICS, PROFILE_PASSES, PROFILE_ROWS, PROFILE_SIDES

_OF_AN_ACTIVITY = ("side", "rank", "device", "tool", "kind", "name")


def activity_rows(run: str, profile: Profile) -> Iterator[Row]:
    """One row for each activity that a profiler saw under a side of the run called ``run``."""
    for row in profile.rows:
        iterations = _iterations(profile, row)
        yield {**_keys(run, profile), **_cells(row), "iterations": iterations, **_arithmetic(row)}


def metric_rows(run: str, profile: Profile) -> Iterator[Row]:
    """One row for each further counter of each of them."""
    for row in profile.rows:
        lead = {**_keys(run, profile), **{name: getattr(row, name) for name in _OF_AN_ACTIVITY}}
        for metric, value in row.metrics.items():
            yield {**lead, "metric": metric, "value": number(value)}


def side_rows(run: str, profile: Profile) -> Iterator[Row]:
    """One row for each side as a whole by each tool."""
    for side in profile.sides:
        yield {**_keys(run, profile), **_cells(side), "iterations": side.iterations or None}


def pass_rows(run: str, profile: Profile) -> Iterator[Row]:
    """One row for each pass of a tool, that left out included."""
    for made in profile.artefacts:
        told = {"seconds": made.seconds or None, "files": list(made.files), "command": shlex.join(made.command) or None}
        yield {**_keys(run, profile), **_cells(made), **told}


def mechanism_rows(run: str, profile: Profile) -> Iterator[Row]:
    """One row for each claim of the scenario."""
    for mechanism in profile.mechanism:
        yield {**_keys(run, profile), **_cells(mechanism)}


PROFILE_VIEW_ROWS: dict[str, Callable[[str, Profile], Iterator[Row]]] = {
    PROFILE_ROWS.name: activity_rows,
    PROFILE_METRICS.name: metric_rows,
    PROFILE_SIDES.name: side_rows,
    PROFILE_PASSES.name: pass_rows,
    MECHANISMS.name: mechanism_rows,
}
"""View -> what makes its rows of one profile."""


def _keys(run: str, profile: Profile) -> Row:
    return {"run": run, "case": profile.case, "scenario": profile.case.partition("[")[0]}


def _cells(record: Any) -> Row:
    return {f.name: _cell(getattr(record, f.name)) for f in fields(record)}


def _cell(value: Any) -> Any:
    """What was not read or said is NULL, whichever way the record leaves it empty."""
    if isinstance(value, dict | tuple):
        return json_text(value) if value else None
    if isinstance(value, str):
        return value or None
    return number(value) if isinstance(value, float) else value


def _iterations(profile: Profile, row: CounterRow) -> int | None:
    """Iterations that the totals of ``row`` are of, where its tool told of the side as a whole."""
    told = (side.iterations for side in profile.sides if (side.side, side.tool) == (row.side, row.tool))
    return next(told, None) or None


def _arithmetic(row: CounterRow) -> Row:
    """Operations of all calls together, and each second of their time."""
    each, seconds = row.metrics.get(FLOPS), row.time_s if row.count else None
    if each is None:
        return {"flops": None, "flops_per_s": None}
    total = each * (row.count or 1)
    return {"flops": number(total), "flops_per_s": number(total / seconds) if seconds else None}
