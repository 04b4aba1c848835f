"""A survey in every format: each node and slow link by metric, and what to do about those that are slow.

What must not live here: verdicts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from aiperf.analysis.survey import Judged
from aiperf.report.layout.formats import Printed, printed_listing
from aiperf.report.layout.page import Sentences
from aiperf.report.layout.table import Table, TableColumn
from aiperf.report.numbers import DASH

_PARTS = {"copy": "memory", "gemm": "CPU", "all_reduce": "NIC"}


@dataclass(frozen=True)
class SurveyRow:
    """One node, or a slow link, by one metric."""

    node: str
    metric: str
    verdict: str
    """slow, ok, undecided or unreachable."""
    deficit: float | None
    """Its time over that of the fleet's middle, less one."""
    low: float | None
    high: float | None
    part: str = ""
    """What is suspected of a slow one: memory, CPU, NIC, link; node where several metrics are slow."""


def survey_rows(judged: Sequence[Judged], names: Sequence[str]) -> list[SurveyRow]:
    """The rows, slow ones first."""
    slow = [one for one in judged if one.word == "slow"]
    many = {one.nodes for one in slow if sum(other.nodes == one.nodes for other in slow) > 1}
    rows = []
    for one in sorted(judged, key=lambda one: (one.word != "slow", one.nodes, one.metric)):
        part = ("link" if len(one.nodes) == 2 else "node" if one.nodes in many else _PARTS.get(one.metric, "")) or ""
        deficit, low, high = map(_share, (one.deficit, one.low, one.high))
        name = " – ".join(names[node] for node in one.nodes)
        rows.append(SurveyRow(name, one.metric, one.word, deficit, low, high, part if one.word == "slow" else ""))
    return rows


def survey_view(rows: Sequence[SurveyRow], names: Sequence[str], *, on_slurm: bool, about: Sequence[str]) -> Printed:
    """The table, then the line that drains each slow node, then ``about``."""
    table = Table(
        [
            TableColumn("node", "node", lambda row: row.node),
            TableColumn("metric", "metric", lambda row: row.metric),
            TableColumn("deficit", "deficit", lambda row: _percent(row.deficit), right=True),
            TableColumn("low", "interval", _interval, right=True, rank=1),
            TableColumn("part", "suspected", lambda row: row.part or DASH, rank=2),
            TableColumn("verdict", "verdict", lambda row: row.verdict),
        ],
        rows,
    )
    slow = dict.fromkeys(row.node for row in rows if row.verdict == "slow" and row.node in names)
    drains = [
        f'scontrol update nodename={name} state=drain reason="aiperf survey: '
        f'{", ".join(f"{row.metric} {_percent(row.deficit)}" for row in rows if row.node == name and row.part)}"'
        for name in slow
    ]
    parts = [Sentences(drains if on_slurm else [], lead=" "), Sentences(about, lead=" ", style="dim")]
    return printed_listing(rows, [[table, *parts]], kind=SurveyRow)


def _share(log: float) -> float | None:
    return None if math.isnan(log) else math.expm1(log)


def _percent(value: float | None) -> str:
    return DASH if value is None else f"{value * 100:+.1f} %".replace("-", "−")


def _interval(row: SurveyRow) -> str:
    return DASH if row.low is None else f"{_percent(row.low)} … {_percent(row.high)}"
