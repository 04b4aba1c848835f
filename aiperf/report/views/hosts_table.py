"""A case over hosts, in every format: each host's own ratio, then where another host of the kind is expected.

What must not live here: which results count, and what is predicted (analysis/over_hosts.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from aiperf.analysis.over_hosts import ALPHA, FEWEST_HOSTS, CaseOverHosts, HostKind
from aiperf.analysis.rows import LAST_SIDES
from aiperf.report.layout.formats import Printed, printed_listing
from aiperf.report.layout.page import Block, Sentences
from aiperf.report.layout.table import Table, TableColumn
from aiperf.report.numbers import DASH, clean, confidence, counted, format_interval, format_ratio
from aiperf.report.summary import machine_text
from aiperf.units import format_percent

_ANOTHER = "another"


@dataclass(frozen=True)
class HostRow:
    """One comparison of a case on one host, or what is expected of another host of the kind."""

    kind: str
    """``kind_text``."""
    case: str
    side: str
    against: str
    host: str
    """Name of the host, or of the nodes; ``another``: of the prediction."""
    host_id: str
    machine: str
    """What tells it from equal hosts: its GPUs' UUIDs, else host name and machine id, else class and host name."""
    run: str
    ratio: float | None
    low: float | None
    high: float | None
    verdict: str
    """Of the host's own result; of the prediction why there is none, if there is none."""
    hosts: int | None = None
    """Of the prediction: how many hosts it is from."""
    spread: float | None = None
    """Of the prediction: standard deviation between hosts, as a share, beyond what their own errors explain."""
    label: str = ""
    """The beginning of ``machine``."""

    @property
    def name(self) -> str:
        """The host, told from others of its name."""
        return f"{self.host} ({self.label})" if self.label else self.host


def host_rows(found: Sequence[HostKind]) -> list[HostRow]:
    """The rows of every kind and case, the prediction after the hosts."""
    return [row for kind in found for case in kind.cases for row in case_rows(kind_text(kind), case)]


def kind_text(kind: HostKind) -> str:
    """What hosts of a kind have in common: how many nodes, their GPUs, else their processor, and the CPUs that aiperf
    had on each."""
    cpus, nodes = len(kind.host.get("cpus") or ()), len(kind.cases[0].hosts[0].machines)
    parts = [machine_text(kind.host), *([counted(cpus, "CPU")] if cpus else [])]
    return f"{f'{nodes} nodes of ' if nodes > 1 else ''}{', '.join(parts)}"


def case_rows(kind: str, case: CaseOverHosts) -> list[HostRow]:
    """The rows of one case on every host of a ``kind``, then the prediction."""
    rows = [
        HostRow(
            kind, case.case, case.side, case.against, clean(", ".join(each.name or "host" for each in one.machines)),
            one.run.host_id, " ".join(part for key in one.key for part in key), one.run.run,
            one.result.comparison.ratio, one.result.comparison.low, one.result.comparison.high,
            one.result.verdict.word, label=", ".join(each.label for each in one.machines),
        )
        for one in case.hosts
    ]  # fmt: skip
    count = len(case.hosts)
    few = "" if case.low is not None else f"not possible: {counted(count, 'host')}, but {FEWEST_HOSTS} are needed"
    ratio = case.ratio if case.low is not None else None
    ends = (case.low, case.high, few, count, case.spread)
    return [*rows, HostRow(kind, case.case, case.side, case.against, _ANOTHER, "", "", "", ratio, *ends)]


def hosts_view(found: Sequence[HostKind], *, named: bool) -> Printed:
    """A table for each kind of host, and what its figures mean. Unless scenarios were ``named``, people are shown the
    cases of several hosts; programs get all."""
    rows = host_rows(found)
    page: list[list[Block]] = []
    for kind in found:
        title = f"{kind_text(kind)}: {counted(kind.count, 'host')}"
        shown = shown_cases(kind, named=named)
        own = [row for case in shown for row in case_rows(kind_text(kind), case)]
        lone = [f"{counted(left, 'comparison')} of one host only"] if (left := len(kind.cases) - len(shown)) else []
        table = [_table(own)] if own else []
        about = Sentences([*_about(kind), *lone], lead=" ")
        page.append([Sentences([title], style="bold", mark="## "), *table, about])
    said = [
        f"another: the range that is expected to hold {confidence(ALPHA)} of measurements on further hosts of this "
        "kind; the spread between hosts excludes their own measurement errors",
        "each host counts with its newest result that is neither invalid nor provisional",
    ]
    return printed_listing(rows, [*page, [Sentences(said, lead=" ", style="dim")]], kind=HostRow)


def shown_cases(kind: HostKind, *, named: bool) -> list[CaseOverHosts]:
    """The cases that people are shown: unless scenarios were ``named``, those of several hosts."""
    return [case for case in kind.cases if named or len(case.hosts) > 1]


def _about(kind: HostKind) -> list[str]:
    said = [f"they differ in {', '.join(kind.apart)}, which adds to the spread"] if kind.apart else []
    left = [f"{case.case}: {counted(case.otherwise, 'host')}" for case in kind.cases if case.otherwise]
    return [*said, *([f"left out because they measured something else: {'; '.join(left)}"] if left else [])]


def _table(rows: Sequence[HostRow]) -> Table[HostRow]:
    first = {id(next(own)) for _, own in groupby(rows, key=lambda row: (row.case, row.side, row.against))}
    return Table(
        [
            TableColumn("case", "case", lambda row: case_of(row) if id(row) in first else ""),
            TableColumn("host", "host", lambda row: row.name),
            TableColumn("ratio", "speedup", lambda row: format_ratio(row.ratio, row.low, row.high), right=True),
            TableColumn("low", "interval", lambda row: format_interval(row.low, row.high), right=True),
            TableColumn("verdict", "verdict", verdict_of),
            TableColumn("run", "run", lambda row: row.run or DASH, rank=1),
        ],
        rows,
    )


def case_of(row: HostRow) -> str:
    """The case, and its sides where it has several comparisons."""
    return row.case if row.side in LAST_SIDES else f"{row.case} {row.side} vs {row.against}"


def verdict_of(row: HostRow) -> str:
    """The verdict on a host; of the prediction its hosts and the spread between them, or why there is none."""
    if row.hosts is None or row.low is None or row.spread is None:
        return row.verdict
    return f"{row.hosts} hosts, spread {format_percent(row.spread)}"
