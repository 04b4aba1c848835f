"""Rows of the view of what was read of the host while pairs ran: one for each reading and each count of a side.

What must not live here: DuckDB, files, records without pairs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aiperf.records import Pair
from aiperf.store.codec import number
from aiperf.store.history import ScannedRun
from aiperf.store.light import Light

_ALL = "all readings"


def telemetry_rows(run: ScannedRun[Light]) -> Iterator[dict[str, Any]]:
    """One row for each number; ``run`` must have been read with its pairs."""
    for _, light in run.cases:
        record = light.record
        keys = {"run": run.folder.name, "case": record.case.id, "scenario": record.case.scenario}
        for slot, pair in enumerate(record.pairs):
            place = {**keys, "slot": slot, "pair": pair.index, "void": pair.void}
            for kind, mark, name, value in telemetry_numbers(pair):
                yield {**place, "mark": mark, "kind": kind, "name": name, "value": number(value)}


def telemetry_numbers(pair: Pair) -> Iterator[tuple[str, str, str, float]]:
    """(kind, mark, name, value) of everything that was read and counted while a pair ran."""
    for mark, readings in pair.telemetry.items():
        yield from (("median", mark or _ALL, name, value) for name, value in readings.items())
    for run in pair.runs:
        yield from (("sum", run.side, name, value) for name, value in run.usage.items())
    for gpu, degrees in pair.watch.temperatures.items():
        yield "start", _ALL, f"temperature_c of {gpu}", degrees
    if pair.watch.cost is not None:
        yield "share", _ALL, "sampling_cost", pair.watch.cost
