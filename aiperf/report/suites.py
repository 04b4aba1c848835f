"""What ``aiperf list --suites`` says, for people and as JSON.

What must not live here: reading suites, finding their scenarios.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from aiperf.plan.suites import NOT_MEASURED, Suite
from aiperf.report.columns import text_table
from aiperf.report.layout.text import Line
from aiperf.units import format_duration

STANDARD = "standard"
"""Precision of records that tell how long a suite may take."""


@dataclass(frozen=True)
class SuiteRow:
    """One suite."""

    name: str
    title: str
    scenarios: int
    precision: str
    """Empty: the command's own default."""
    duration: str
    recorded: int = 0
    """How many of its scenarios have a record, where nobody measured how long the suite takes."""
    recorded_s: float = 0.0
    """Seconds of the cases in those records."""


def suite_rows(
    found: Iterable[tuple[Suite, Collection[str]]], *, seconds: Mapping[str, float] = MappingProxyType({})
) -> list[SuiteRow]:
    """Rows of (suite, the scenarios it has); ``seconds`` that scenarios took tell what to expect of a suite that was
    never measured as a whole."""
    return [_row(suite, names, seconds) for suite, names in found]


def _row(suite: Suite, names: Collection[str], seconds: Mapping[str, float]) -> SuiteRow:
    row = SuiteRow(suite.name, suite.title, len(names), suite.precision, suite.duration)
    if suite.duration != NOT_MEASURED or suite.precision not in ("", STANDARD):
        return row
    known = [seconds[name] for name in names if name in seconds]
    return replace(row, recorded=len(known), recorded_s=sum(known))


def suite_lines(rows: Sequence[SuiteRow], *, width: int = 100) -> list[Line]:
    """Lay the suites out, with how to run one below."""
    cells = [(row.name, str(row.scenarios), f"{row.title}. Duration: {row.duration}{_expected(row)}.") for row in rows]
    table = text_table(("suite", "scenarios", "what it is"), cells, width=width, right=(1,))
    return [*table, Line(""), Line("aiperf run --suite NAME · aiperf profile --suite NAME")]


def _expected(row: SuiteRow) -> str:
    if not row.recorded:
        return ""
    whose = f"{row.recorded} of its {row.scenarios} scenarios"
    return f"; what the newest records hold of {whose} took {format_duration(row.recorded_s)}"
