"""The table of ``aiperf peaks``: each roof of this host, how far it spread, when and how it was measured.

What must not live here: measuring a roof, judging one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aiperf.host.peaks import ROOFS
from aiperf.report.columns import text_table
from aiperf.report.console import Line, wrap
from aiperf.report.numbers import DASH, format_percent, format_value


@dataclass(frozen=True)
class PeakRow:
    """One measured roof."""

    roof: str
    value: float
    """The best sample, in ``unit``: a rate, or a shortest time for a floor."""
    unit: str
    spread: float | None = None
    """Range of the samples as a share of the value."""
    when: str = ""
    detail: str = ""
    """The conditions under which it was reached."""


def peaks_lines(rows: Sequence[PeakRow], *, problems: Sequence[str] = (), width: int = 100) -> list[Line]:
    """Lay the roofs out, then why any could not be measured."""
    titles = {roof.name: roof.title for roof in ROOFS}
    cells = [
        [
            row.roof,
            format_value(row.value, row.unit),
            format_percent(row.spread) if row.spread is not None else DASH,
            row.when[:16].replace("T", " "),
            "; ".join(part for part in (titles.get(row.roof, ""), row.detail) if part),
        ]
        for row in rows
    ]
    lines = text_table(["roof", "peak", "spread", "measured (UTC)", "what"], cells, width=width, right=(1, 2))
    lines = lines or [Line("No roof of this host has been measured yet: run aiperf peaks.")]
    return lines + [Line(part, "dim") for problem in problems for part in wrap(f" {problem}", width, indent="     ")]
