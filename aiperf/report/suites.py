"""What ``aiperf list --suites`` says, for people and as JSON.

What must not live here: reading suites, finding their scenarios.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from aiperf.plan.suites import Suite
from aiperf.report.columns import text_table
from aiperf.report.console import Line


@dataclass(frozen=True)
class SuiteRow:
    """One suite."""

    name: str
    title: str
    scenarios: int
    precision: str
    """Empty: the command's own default."""
    duration: str


def suite_rows(found: Iterable[tuple[Suite, int]]) -> list[SuiteRow]:
    """Rows of (suite, how many scenarios it has)."""
    return [SuiteRow(suite.name, suite.title, number, suite.precision, suite.duration) for suite, number in found]


def suite_lines(rows: Sequence[SuiteRow], *, width: int = 100) -> list[Line]:
    """Lay the suites out, with how to run one below."""
    cells = [(row.name, str(row.scenarios), f"{row.title}. Duration: {row.duration}.") for row in rows]
    table = text_table(("suite", "scenarios", "what it is"), cells, width=width, right=(1,))
    return [*table, Line(""), Line("aiperf run --suite NAME · aiperf profile --suite NAME")]
