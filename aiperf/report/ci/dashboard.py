"""JSON for dashboards: github-action-benchmark's custom formats, one entry a case, for its charts over commits.

What must not live here: outcomes being decided, files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from aiperf.report.ci.entries import Entry, Metric
from aiperf.report.numbers import clean, confidence, format_interval, format_ratio, format_value, known

_SHOWN = {"s": ("ms", 1e3)}
"""One unit for good: a chart cannot change it from one commit to the next."""


def render_values(entries: Sequence[Entry]) -> str:
    """Return the values of the side after, as ``customSmallerIsBetter``: times in ms; nothing that ought to grow."""
    rows = []
    for entry, metric in _headlines(entries):
        if metric.better == "lower" and metric.after is not None and known(metric.after):
            unit, factor = _SHOWN.get(metric.unit, (metric.unit, 1.0))
            rows.append(_row(entry, metric, metric.after * factor, unit, _times(metric.spread, factor)))
    return json.dumps(rows, ensure_ascii=False, indent=1) + "\n"


def render_speedups(entries: Sequence[Entry]) -> str:
    """Return the ratios of after to before, as ``customBiggerIsBetter``."""
    rows = []
    for entry, metric in _headlines(entries):
        if metric.ratio is not None and known(metric.ratio):
            rows.append(_row(entry, metric, metric.ratio, "x", _reach(metric)))
    return json.dumps(rows, ensure_ascii=False, indent=1) + "\n"


def speedups_beside(path: Path) -> Path:
    """Return the file of the speedups beside that of the values: ``bench.json``, ``bench-speedup.json``."""
    return path.with_name(f"{path.stem}-speedup{path.suffix}")


def _headlines(entries: Sequence[Entry]) -> Iterator[tuple[Entry, Metric]]:
    """What may enter a trend: a wrong or broken side's time never does."""
    for entry in entries:
        for metric in entry.metrics:
            if entry.comparable and metric.headline:
                yield entry, metric


def _row(entry: Entry, metric: Metric, value: float, unit: str, reach: float | None) -> dict[str, Any]:
    row: dict[str, Any] = {"name": clean(entry.name), "unit": unit, "value": _short(value)}
    if reach is not None and known(reach):
        row["range"] = f"± {_short(reach):g}"
    return {**row, "extra": "\n".join(map(clean, _extra(entry, metric)))}


def _extra(entry: Entry, metric: Metric) -> list[str]:
    sides = [(metric.against, metric.before), (metric.side, metric.after)]
    sure = f"{confidence(metric.alpha)} interval" if metric.alpha is not None else "interval"
    ratio = format_ratio(metric.ratio, metric.low, metric.high)
    return [
        entry.word,
        *(f"{side} {format_value(value, metric.unit)}" for side, value in sides if value is not None),
        f"ratio {ratio}, {sure} {format_interval(metric.low, metric.high)}",
    ]


def _reach(metric: Metric) -> float | None:
    """Distance from the ratio to the farther end of its interval."""
    if metric.ratio is None or metric.low is None or metric.high is None:
        return None
    return max(metric.high - metric.ratio, metric.ratio - metric.low)


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _short(value: float) -> float:
    return float(f"{value:.6g}")
