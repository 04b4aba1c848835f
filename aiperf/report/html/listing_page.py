"""The trend of a case and runs compared, each as one self-contained HTML page: charts above the tables of the terminal.

What must not live here: rows and sentences (report/views), drawing, files being written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aiperf import __version__
from aiperf.analysis.across import Across
from aiperf.analysis.over_hosts import HostKind
from aiperf.analysis.rows import FIRST_SIDES
from aiperf.analysis.trend import Series
from aiperf.report.html.heat_map import heat_map
from aiperf.report.html.over_hosts import over_hosts_chart
from aiperf.report.html.speedups import speedup_chart
from aiperf.report.html.templates import source, templates
from aiperf.report.html.trends import trend_charts
from aiperf.report.layout.formats import Printed
from aiperf.report.layout.html import page_html
from aiperf.report.layout.page import Page
from aiperf.report.views.compare_rows import CompareRow
from aiperf.report.views.compare_table import compare_view
from aiperf.report.views.history_table import history_rows, history_view
from aiperf.report.views.hosts_table import case_of, case_rows, hosts_view, shown_cases
from aiperf.report.views.run_rows import RunRow

_TREND = (
    "Every run with its interval. The axis is logarithmic and spans at least four thresholds, to keep noise small. "
    "The line is the level: a run that differs from it by no more than the noise is drawn on it."
)

_PAIRS = "Every measured pair of nodes against the median of all pairs; red is slower, with full colour at 20 %."

_HOSTS = (
    "Every host's own ratio with its interval; beyond 1× the side is better. The band is where another host of the "
    "kind is expected. The axis is logarithmic."
)


@dataclass(frozen=True)
class _ListingPart:
    """Charts between the first tables and sentences of a part of the page and the others."""

    head: str
    charts: Sequence[str]
    caption: str
    tables: str


def history_html(
    name: str, found: Sequence[Series], *, hidden: Sequence[Series] = (), warnings: Sequence[str] = ()
) -> str:
    """Return the page of a scenario's trend; ``hidden`` are the series of other hosts, which are only counted."""
    *own, last = history_view(found, hidden=hidden).page
    parts = [
        _ListingPart(
            _tables([page[:2]]), trend_charts(series, history_rows(series)), _TREND, _tables([page[2:]], "lines")
        )
        for series, page in zip(found, own, strict=True)
    ]
    return _listing(f"History of {name}", [*parts, _ListingPart(_tables([last]), (), "", "")], warnings)


def compare_html(
    across: Across, rows: Sequence[CompareRow], *, every_metric: bool = False, warnings: Sequence[str] = ()
) -> str:
    """Return the page of runs compared, with the changes of the primary metrics (``every_metric``: of all) drawn."""
    changes = [_drawn(row) for row in rows if row.kind == "speedup" and (row.primary or every_metric)]
    found = speedup_chart(changes)
    caption = f"Every change with its interval; beyond 1× the later run is better. {found.axis}"
    charts = [found.chart] if found.chart else []
    _, head, *tables = compare_view(across, rows, every_metric=every_metric).page
    part = _ListingPart(_tables([head]), charts, caption, _tables(tables[:1]) + _tables(tables[1:], "lines"))
    return _listing("Runs compared", [part], warnings)


def hosts_html(found: Sequence[HostKind], *, named: bool, warnings: Sequence[str] = ()) -> str:
    """Return the page of cases over hosts: of each kind of host the cases drawn, then its table."""
    *own, last = hosts_view(found, named=named).page
    parts = []
    for kind, page in zip(found, own, strict=True):
        cases = [case_rows("", case) for case in shown_cases(kind, named=named)]
        charts = [over_hosts_chart(rows, title=case_of(rows[0])) for rows in cases]
        parts.append(_ListingPart(_tables([page[:1]]), charts, _HOSTS, _tables([page[1:]], "lines")))
    return _listing("Cases over hosts", [*parts, _ListingPart(_tables([last]), (), "", "")], warnings)


def survey_html(view: Printed, shares: Mapping[tuple[int, int], float], names: Sequence[str]) -> str:
    """Return the page of a survey: its table, and the heat map of the pairs, ``shares`` over the middle of all."""
    charts = [heat_map(shares, names, title="Pairs of nodes")] if shares else []
    (tables,) = view.page
    return _listing("Survey", [_ListingPart(_tables([tables[:1]]), charts, _PAIRS, _tables([tables[1:]], "lines"))], ())


def _drawn(row: CompareRow) -> RunRow:
    """A change as the chart of a run draws its rows; the letters name the runs."""
    parts = [row.letter, *([] if row.primary else [row.metric])]
    if row.against not in FIRST_SIDES:
        parts.append(f"{row.side} vs {row.against}")
    return RunRow(
        scenario=row.case, case=f"{row.case} {row.letter}", label=" ".join(parts), verdict=row.verdict, ratio=row.ratio,
        low=row.low, high=row.high, threshold=row.threshold, unit=row.unit, metric="time", against="before",
        side=row.side, primary=True,
    )  # fmt: skip


def _tables(page: Page, kind: str = "") -> str:
    return page_html(page, table_class=f"small {kind}".rstrip())


def _listing(title: str, parts: Sequence[_ListingPart], warnings: Sequence[str]) -> str:
    return (
        templates()
        .get_template("listing.html.j2")
        .render(
            title=title,
            version=__version__,
            parts=parts,
            warnings=warnings,
            style=source("style.css"),
        )
    )
