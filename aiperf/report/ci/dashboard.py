"""JSON for dashboards: github-action-benchmark's custom formats, one entry a case, for its charts over commits.

What must not live here: outcomes being decided, files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from aiperf.analysis.rows import ComparisonRow
from aiperf.report.ci.entries import CiEntry, CiFormat
from aiperf.report.numbers import clean, confidence, format_interval, format_ratio, format_value, known

_SPEEDUP = "-speedup"
_SHOWN = {"s": ("ms", 1e3)}
"""One unit for good: a chart cannot change it from one commit to the next."""


def render_values(entries: Sequence[CiEntry]) -> str:
    """Return the values of the side after, as ``customSmallerIsBetter``: times in ms; nothing that ought to grow."""
    rows = []
    for entry, metric in _headlines(entries):
        if metric.better == "lower" and metric.after is not None and known(metric.after):
            unit, factor = _SHOWN.get(metric.unit, (metric.unit, 1.0))
            spread = None if metric.after_spread is None else metric.after_spread * factor
            rows.append(_row(entry, metric, metric.after * factor, unit, spread))
    return json.dumps(rows, ensure_ascii=False, indent=1) + "\n"


def render_speedups(entries: Sequence[CiEntry]) -> str:
    """Return the ratios of after to before, as ``customBiggerIsBetter``."""
    rows = []
    for entry, metric in _headlines(entries):
        if metric.ratio is not None and known(metric.ratio):
            rows.append(_row(entry, metric, metric.ratio, "x", _reach(metric)))
    return json.dumps(rows, ensure_ascii=False, indent=1) + "\n"


def _headlines(entries: Sequence[CiEntry]) -> Iterator[tuple[CiEntry, ComparisonRow]]:
    """What may enter a trend: a wrong or broken side's time never does."""
    for entry in entries:
        for metric in entry.metrics:
            if entry.comparable and metric.primary:
                yield entry, metric


def _row(entry: CiEntry, metric: ComparisonRow, value: float, unit: str, reach: float | None) -> dict[str, Any]:
    row: dict[str, Any] = {"name": clean(entry.name), "unit": unit, "value": _short(value)}
    if reach is not None and known(reach):
        row["range"] = f"± {_short(reach):g}"
    return {**row, "extra": "\n".join(map(clean, _extra(entry, metric)))}


def _extra(entry: CiEntry, metric: ComparisonRow) -> list[str]:
    sure = f"{confidence(metric.alpha)} interval" if metric.alpha is not None else "interval"
    ratio = format_ratio(metric.ratio, metric.low, metric.high)
    return [
        entry.word,
        *(f"{side} {format_value(value, metric.unit)}" for side, value in metric.values if value is not None),
        f"ratio {ratio}, {sure} {format_interval(metric.low, metric.high)}",
    ]


def _reach(metric: ComparisonRow) -> float | None:
    """Distance from the ratio to the farther end of its interval."""
    if metric.ratio is None or metric.low is None or metric.high is None:
        return None
    return max(metric.high - metric.ratio, metric.ratio - metric.low)


def _short(value: float) -> float:
    return float(f"{value:.6g}")


FORMAT = CiFormat(
    "dashboard",
    "Write JSON for github-action-benchmark: FILE for customSmallerIsBetter (values of the after side), and next to "
    "it NAME-speedup.json for customBiggerIsBetter (ratios).",
    lambda report: {"": render_values(report.entries), _SPEEDUP: render_speedups(report.entries)},
    endings=("", _SPEEDUP),
)
