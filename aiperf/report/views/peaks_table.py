"""The peaks of this host in every format: each with its interval, its share of the datasheet, how it was measured.

What must not live here: measuring a peak, judging one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from aiperf.host.datasheets import PeakShare
from aiperf.host.peaks import PEAK_SPECS, Peak
from aiperf.report.layout.formats import Printed, printed_listing
from aiperf.report.layout.page import Sentences
from aiperf.report.layout.table import Table, TableColumn
from aiperf.report.numbers import DASH, format_share, format_value
from aiperf.units import format_percent

_TITLES = {spec.name: spec.title for spec in PEAK_SPECS}


@dataclass(frozen=True)
class PeakRow:
    """One measured peak."""

    peak_name: str
    value: float
    """The best sample, in ``unit``: a rate, or a shortest time for a floor."""
    unit: str
    spread: float | None = None
    """Range of the samples as a share of the value."""
    when: str = ""
    detail: str = ""
    """The conditions under which it was reached."""
    launches: int = 0
    """Launches of the latest occasion that the interval is over."""
    low: float | None = None
    """95 % interval of a launch's best sample, over those launches."""
    high: float | None = None
    model: str = ""
    """The GPU whose datasheet it is held against."""
    datasheet: float | None = None
    """The datasheet's figure, in ``unit``."""
    datasheet_source: str = ""
    """Its title, with a mark of how sure the figure is."""
    datasheet_checked: str = ""
    """Where the figure was really read; empty for one that is from memory."""
    share: float | None = None
    """The latest occasion's best sample over the datasheet's figure."""
    far_below: bool = False
    """Whether the share is so small that it is a finding."""
    book: float | None = None
    """What the book claims, in ``unit``."""
    book_lines: str = ""
    book_error: str = ""
    """What is known to be wrong with the book's claim."""
    by_size: dict[str, float] = field(default_factory=dict)
    """Bytes of a message -> what was reached with it, in ``unit``."""


def peak_row(peak: Peak, held: PeakShare | None = None) -> PeakRow:
    """The row of a peak, beside the datasheet that it is held against."""
    spread = abs(peak.high - peak.low) / peak.value if peak.value else None
    shown = ", ".join(f"{k}={v}" for k, v in peak.conditions.items() if k not in ("cpus", "torch"))
    row = PeakRow(
        peak.name,
        peak.value,
        peak.unit,
        spread,
        peak.when,
        shown,
        launches=peak.launches,
        low=peak.interval_low or None,
        high=peak.interval_high or None,
        by_size=dict(sorted(peak.by_size.items(), key=lambda entry: float(entry[0]))),
    )
    if held is None:
        return row
    row = replace(row, model=held.model, share=held.share, far_below=held.far_below)
    if figure := held.figure:
        row = replace(row, datasheet=figure.value, datasheet_source=figure.source, datasheet_checked=figure.checked)
    if claim := held.claim:
        row = replace(row, book=claim.value, book_lines=claim.lines, book_error=claim.error)
    return row


def peaks_view(rows: Sequence[PeakRow], *, problems: Sequence[str] = ()) -> Printed:
    """The peaks, then what they are held against, then why any was not measured, or is worth little."""
    table = Table(
        [
            TableColumn("peak_name", "name", lambda row: row.peak_name),
            TableColumn("value", "peak", lambda row: format_value(row.value, row.unit), right=True),
            TableColumn("spread", "spread", _spread, right=True, rank=2, quiet=True),
            # A host without a known GPU, or peaks of an older version, have nothing to say in these.
            TableColumn("low", "95 %", _half_width, right=True, optional=True),
            TableColumn("share", "of sheet", lambda row: format_share(row.share), right=True, optional=True),
            TableColumn("when", "measured (UTC)", lambda row: row.when[:16].replace("T", " "), rank=1, quiet=True),
            TableColumn("detail", "what", _what, rank=3, fold="wrap"),
        ],
        rows,
    )
    empty = [] if rows else [Sentences(["No peak of this host has been measured yet: run aiperf peaks."])]
    notes = [_sentences(_notes(row), style="yellow" if row.far_below else "dim") for row in rows]
    return printed_listing(rows, [[table, *empty, *notes, _sentences(problems, style="dim")]], kind=PeakRow)


def _sentences(texts: Sequence[str], *, style: str) -> Sentences:
    return Sentences(texts, lead=" ", indent="     ", style=style, mark="- ")


def _spread(row: PeakRow) -> str:
    return format_percent(row.spread) if row.spread is not None else DASH


def _what(row: PeakRow) -> str:
    return "; ".join(part for part in (_TITLES.get(row.peak_name, ""), row.detail) if part)


def _half_width(row: PeakRow) -> str:
    if not row.low or not row.high:
        return DASH
    return f"± {format_percent(math.sqrt(row.high / row.low) - 1)}"


def _notes(row: PeakRow) -> list[str]:
    """What there is to say of a peak beside its numbers: its interval, its datasheet, the book."""
    said = []
    if row.low and row.high:
        span = f"{format_value(row.low, row.unit)} … {format_value(row.high, row.unit)}"
        said.append(f"95 % interval of a launch's best: {span} ({row.launches} launches)")
    if row.datasheet is not None:
        share = f"FAR BELOW its datasheet ({format_share(row.share)})" if row.far_below else "datasheet"
        said.append(f"{share}: {format_value(row.datasheet, row.unit)} for {row.model}, {row.datasheet_source}")
    if row.book is not None:
        error = f", but {row.book_error}" if row.book_error else ""
        said.append(f"claimed by the book: {format_value(row.book, row.unit)} (line {row.book_lines}){error}")
    notes = [f"{row.peak_name}: {'; '.join(said)}"] if said else []
    sizes = [f"{format_value(float(size), 'B')} {format_value(one, row.unit)}" for size, one in row.by_size.items()]
    return [*notes, f"{row.peak_name} by size: {', '.join(sizes)}"] if sizes else notes
