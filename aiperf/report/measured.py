"""What ``aiperf show NAME`` says of the latest stored measurement of a scenario, for people and as JSON.

What must not live here: finding records, verdicts being decided, the scenario itself (scenarios.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import groupby
from typing import Any

from aiperf.analysis.rows import ComparisonRow, comparison_row
from aiperf.records.machines import machines
from aiperf.report.numbers import clean, confidence
from aiperf.report.summary import machine_text, nodes_text
from aiperf.report.views.cells import another_plain, another_text, change_text, interval_text, ratio_text, verdict_text
from aiperf.store.reference import Measurement

_SHOWN = ("case", "side", "against", "metric", "verdict", "provisional", "ratio", "low", "high", "alpha", "change")
"""What programs get of a comparison."""


def measured_sentences(measurements: Sequence[Measurement], *, hashes: Collection[str], command: str) -> list[str]:
    """One block of lines a run: where and when it was, the verdict of each case, whether the file has changed since;
    what to do if there is none."""
    if not measurements:
        return [f"not measured yet: {command}"]
    lines = []
    for (_, changed), group in groupby(measurements, key=lambda m: (m.folder, _changed(m, hashes))):
        cases = list(group)
        lines += [_origin(cases[0]), *(f"  {line}" for m in cases for line in _case_lines(m))]
        if changed:
            lines.append(f"  The scenario file has changed since then; {command} measures it as it is now.")
    return lines


def measured_plain(measurements: Sequence[Measurement], *, hashes: Collection[str]) -> list[dict[str, Any]]:
    """One object a case and side: verdict, ratio, interval, when and where."""
    return [
        {
            **{name: getattr(row, name) for name in _SHOWN},
            **another_plain(m.another.get((row.side, row.against))),
            "measured": m.record.finished or m.run.started,
            "host": str(m.run.host.get("hostname") or m.record.host_id),
            "machine": machine_text(m.run.host),
            "run": str(m.folder),
            "reference": m.reference,
            "scenario_changed": _changed(m, hashes),
        }
        for m in measurements
        for row in _primary_rows(m)
    ]


def _changed(measurement: Measurement, hashes: Collection[str]) -> bool:
    return measurement.record.case.scenario_hash not in hashes


def _primary_rows(measurement: Measurement) -> Iterator[ComparisonRow]:
    """The primary comparison of every side with the first one."""
    record = measurement.record
    first = record.case.sides[0].name
    return (comparison_row(record, r) for r in record.results if r.primary and r.against == first)


def _origin(measurement: Measurement) -> str:
    when = (measurement.record.finished or measurement.run.started)[:16].replace("T", " ")
    names = [machine.name for machine in machines(measurement.run, measurement.record.case.nodes)]
    host = nodes_text(names) if len(names) > 1 else names[0] or measurement.record.host_id or "unknown host"
    kind = "reference run" if measurement.reference else "run"
    return clean(f"{when} on {host} ({machine_text(measurement.run.host)}), {kind} {measurement.folder}")


def _case_lines(measurement: Measurement) -> Iterator[str]:
    several = len(measurement.record.case.sides) > 2
    for row in _primary_rows(measurement):
        name = clean(f"{row.case} {row.side}" if several else row.case)
        level = f"{confidence(row.alpha)} interval" if row.alpha is not None else "interval"
        value = f"{ratio_text(row)} as fast" if row.is_time else f"{row.metric} {change_text(row)}"
        yield f"{name}: {verdict_text(row)}, {value} ({level} {interval_text(row)})"
        if text := another_text(row, measurement.another.get((row.side, row.against))):
            yield f"  {text}"
