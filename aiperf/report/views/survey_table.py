"""A survey in every format: each node by metric, each link that is not ok, and what to do about those that are slow.

What must not live here: verdicts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from aiperf.analysis.survey_history import NodeHistory
from aiperf.analysis.survey_verdict import SurveyVerdict
from aiperf.plan.survey import SurveyCost
from aiperf.records.surveyed import Ended, SurveyRecord
from aiperf.report.layout.formats import Printed, printed_listing
from aiperf.report.layout.page import Block, Sentences
from aiperf.report.layout.table import Table, TableColumn
from aiperf.report.numbers import DASH, counted, format_change, format_change_interval, format_value, whole_change
from aiperf.units import format_duration

_PARTS = {"copy": "memory", "gemm": "CPU", "disk": "disk", "all_reduce": "NIC", "gpu_all_reduce": "NIC"}
_LINKS_SHOWN = 5
"""Undecided links in the table; JSON and CSV have all of them."""
_UNDECIDED = {
    "too_few_parts": "too few parts", "too_few_pairs": "too few pairs", "spans_threshold": "interval spans threshold",
    "parts_disagree": "parts disagree",
}  # fmt: skip
_WIDEST = 12
"""Nodes whose pairs fit into a terminal; the page shows more."""

_NO_BOUND = 10.0
"""A deficit, as a share, up to which an interval says something."""


class SurveyLength(NamedTuple):
    """How much of a survey was measured."""

    ended: Ended
    rounds: int
    planned: int

    @classmethod
    def of(cls, survey: SurveyRecord) -> SurveyLength:
        """That of a stored survey."""
        return cls(survey.ended, survey.rounds, survey.planned)

    @property
    def line(self) -> str:
        """In words, for one that ended early."""
        why = {"interrupted": "interrupted", "nodes_lost": "ended early, because too few nodes were left,"}[self.ended]
        return f"{why} after {self.rounds} of {self.planned} rounds"


WHOLE = SurveyLength("", 0, 0)


@dataclass(frozen=True)
class SurveyRow:
    """One node, or a link that is not ok, by one metric."""

    node: str
    metric: str
    verdict: str
    """slow, ok, undecided or unreachable."""
    deficit: float | None
    """Its time over that of the fleet's middle, less one."""
    low: float | None
    high: float | None
    part: str = ""
    """What is suspected of a slow one: memory, CPU, disk, NIC, link, GPU 0, PCIe of GPU 0; node where several metrics
    are slow, unless all of them are of one GPU."""
    reason: str = ""
    """Why it is unreachable."""
    code: str = ""
    """Why it is undecided: too_few_parts, too_few_pairs, spans_threshold or parts_disagree; why it is unreachable:
    not_joined, lost or no_readings."""
    ended: str = ""
    """Of the whole survey: interrupted or nodes_lost if it ended early, after ``rounds`` of ``planned`` rounds."""
    rounds: int = 0
    planned: int = 0


def survey_rows(
    verdicts: Sequence[SurveyVerdict],
    names: Sequence[str],
    unreachable: Mapping[int, str] = MappingProxyType({}),
    *,
    length: SurveyLength = WHOLE,
) -> list[SurveyRow]:
    """The rows, slow ones first; undecided links come last, the slowest first. ``unreachable``: why a node was not
    there, by its number."""
    slow = [one for one in verdicts if one.word == "slow"]
    parts = {nodes: {_part(one.metric) for one in slow if one.nodes == nodes} for nodes in {one.nodes for one in slow}}
    rows = []
    for one in sorted(verdicts, key=_place):
        part = "link" if len(one.nodes) == 2 else _suspected(one.metric, parts.get(one.nodes, set()))
        deficit, low, high = map(_share, (one.deficit, one.low, one.high))
        name = " – ".join(names[node] for node in one.nodes)
        reason = unreachable.get(one.nodes[0], "no readings") if one.word == "unreachable" else ""
        part = part if one.word == "slow" else ""
        rows.append(SurveyRow(name, one.metric, one.word, deficit, low, high, part, reason, one.reason, *length))
    return rows


def _place(one: SurveyVerdict) -> tuple[bool, bool, float, tuple[int, ...], str]:
    link = one.word != "slow" and len(one.nodes) == 2
    return one.word != "slow", link, -one.deficit if link else 0.0, one.nodes, one.metric


def _part(metric: str) -> str:
    """What a metric is about: ``GPU 0`` of ``gpu0_gemm``."""
    card, _, _ = metric.partition("_")
    return f"GPU {card[3:]}" if card[:3] == "gpu" and card[3:].isdigit() else _PARTS.get(metric, "")


def _suspected(metric: str, parts: set[str]) -> str:
    """Of a slow metric, where these parts of the node are slow."""
    if len(parts) > 1:
        return "node"
    return f"PCIe of {_part(metric)}" if metric.endswith("_h2d") else _part(metric)


@dataclass(frozen=True)
class SurveyHistoryRow:
    """One node by one metric over stored surveys."""

    node: str
    metric: str
    surveys: int
    before: float | None
    """Deficit in the middle of the earlier surveys."""
    last: float | None
    change: float | None
    """By how much it takes longer now, as a share, beyond what the fleet does."""
    low: float | None
    high: float | None
    since: str
    """slower, no slower, undecided, new in the last survey, or unreachable in it."""
    ended: str = ""
    """Of the last survey: interrupted or nodes_lost if it ended early, after ``rounds`` of ``planned`` rounds."""
    rounds: int = 0
    planned: int = 0


def history_view_of(found: Sequence[NodeHistory], *, about: Sequence[str], last: SurveyLength = WHOLE) -> Printed:
    """What became of every node of the last survey, those that are slower or unreachable first."""
    order = sorted(found, key=lambda one: (one.since not in ("slower", "unreachable"), one.node, one.metric))
    rows = [
        SurveyHistoryRow(
            one.node, one.metric, one.surveys, _share(one.before), _share(one.last), _share(one.last - one.before),
            _share(one.low), _share(one.high), one.since, *last,
        )
        for one in order
    ]  # fmt: skip
    table = Table[SurveyHistoryRow](
        [
            TableColumn("node", "node", lambda row: row.node),
            TableColumn("metric", "metric", lambda row: row.metric),
            TableColumn("surveys", "surveys", lambda row: str(row.surveys), right=True, rank=2),
            TableColumn("before", "before", lambda row: format_change(row.before), right=True, rank=1),
            TableColumn("last", "now", lambda row: format_change(row.last), right=True, rank=1),
            TableColumn("change", "change", lambda row: format_change(row.change), right=True),
            TableColumn("low", "interval", _interval, right=True, rank=1),
            TableColumn("since", "since", lambda row: row.since),
        ],
        rows,
    )
    return printed_listing(rows, [[table, Sentences(about, lead=" ", style="dim")]], kind=SurveyHistoryRow)


def plan_view_of(costs: Sequence[SurveyCost], *, about: Sequence[str]) -> Printed:
    """What surveys of fleets of some sizes take."""
    table = Table[SurveyCost](
        [
            TableColumn("nodes", "nodes", lambda row: str(row.nodes), right=True),
            TableColumn("rounds", "rounds", lambda row: str(row.rounds), right=True),
            TableColumn("parts", "parts", lambda row: str(row.parts), right=True),
            TableColumn("seconds", "time", _duration, right=True),
        ],
        costs,
    )
    return printed_listing(costs, [[table, Sentences(about, lead=" ", style="dim")]], kind=SurveyCost)


def _duration(row: SurveyCost) -> str:
    return DASH if row.seconds is None else format_duration(row.seconds)


def batch_lines(times: Mapping[str, Mapping[int, float]], nodes: int) -> list[str]:
    """What the nodes take together, by how many they are; and of a fleet too small to name one by it, that."""
    lines = []
    for metric, by_size in times.items():
        if max(by_size) > 2:
            shown = [
                f"{'all ' if size == nodes else ''}{size} nodes {format_value(seconds, 's')}"
                for size, seconds in by_size.items()
            ]
            lines.append(f"{metric}: {', '.join(shown)} (medians; more than 2 nodes together identify none)")
        if nodes < 4:
            lines.append(f"{metric} is undecided: with {nodes} nodes, the slow one cannot be identified")
    return lines


def pair_table(shares: Mapping[tuple[int, int], float], names: Sequence[str]) -> Table[int]:
    """The pairs of nodes as a square of per cents over the middle of all pairs."""

    def cell(other: int) -> Callable[[int], str]:
        def said(node: int) -> str:
            share = shares.get((min(node, other), max(node, other)))
            return "" if share is None else whole_change(share)

        return said

    columns = [TableColumn[int]("node", "pairs, %", lambda node: names[node])]
    columns += [TableColumn[int](f"with{other}", names[other], cell(other), right=True) for other in range(len(names))]
    return Table(columns, list(range(len(names))))


def survey_view(
    rows: Sequence[SurveyRow],
    names: Sequence[str],
    *,
    on_slurm: bool,
    about: Sequence[str],
    pairs: Mapping[tuple[int, int], float] = MappingProxyType({}),
) -> Printed:
    """The table, then the line that drains each slow node, the square of ``pairs`` of a small fleet, then ``about``."""
    links = [row for row in rows if row.verdict == "undecided" and row.node not in names]
    hidden = links[_LINKS_SHOWN:]
    shown = [row for row in rows if row not in hidden]
    table = Table(
        [
            TableColumn("node", "node", lambda row: row.node),
            TableColumn("metric", "metric", lambda row: row.metric),
            TableColumn("deficit", "deficit", lambda row: format_change(row.deficit), right=True),
            TableColumn("low", "interval", _interval, right=True, rank=1),
            TableColumn("part", "suspected", lambda row: row.part or DASH, rank=2),
            TableColumn("verdict", "verdict", lambda row: row.verdict),
            TableColumn("code", "reason", lambda row: _UNDECIDED.get(row.code, ""), rank=2),
        ],
        shown,
    )
    slow = dict.fromkeys(row.node for row in rows if row.verdict == "slow" and row.node in names)
    drains = [
        f'scontrol update nodename={name} state=drain reason="aiperf survey: '
        f'{", ".join(f"{row.metric} {format_change(row.deficit)}" for row in rows if row.node == name and row.part)}"'
        for name in slow
    ]
    square: list[Block] = [pair_table(pairs, names)] if pairs and 2 < len(names) <= _WIDEST else []
    parts: list[Block] = [
        Sentences(drains if on_slurm else [], lead=" ", whole=True),
        Sentences(_hidden_line(hidden), lead=" ", style="dim"),
        *square,
        Sentences(about, lead=" ", style="dim"),
    ]
    return printed_listing(rows, [[table, *parts]], kind=SurveyRow)


def _hidden_line(hidden: Sequence[SurveyRow]) -> list[str]:
    if not hidden:
        return []
    return [f"{counted(len(hidden), 'more link')} undecided, with smaller deficits; --json lists all of them"]


def _share(log: float) -> float | None:
    return None if math.isnan(log) else math.expm1(log)


def _interval(row: SurveyRow | SurveyHistoryRow) -> str:
    if row.high is not None and row.high > _NO_BOUND:
        return "too few readings"
    return format_change_interval(row.low, row.high)
