"""What was found of the host, once for all the cases of a table that it can bias.

What must not live here: which finding touches which case, layout.
"""

from __future__ import annotations

from collections.abc import Sequence

from aiperf.report.numbers import clean
from aiperf.report.views.run_rows import RunRow, RunTable

_MOST_NAMES = 4
"""More are counted."""


def touched_lines(table: RunTable) -> list[str]:
    """``unfit, may affect every case: CPU 0-1 97 % busy; ...``: one line for each thing found, unfit ones first.

    Of a value that changes from one reading of the host to the next (a load, a temperature) the first is shown.
    """
    readings: dict[tuple[str, str, str], dict[str, set[str]]] = {}
    for row in table.rows:
        for finding in row.findings:
            # A case that was rejected because of its unfit findings says so in its own row.
            if not (row.reason == finding.level == "unfit" and row.status == "failed"):
                found = readings.setdefault((finding.level, finding.id, finding.title), {})
                found.setdefault(clean(finding.text), set()).add(row.case)
    order = sorted(readings, key=lambda key: key[0] != "unfit")
    return [_line(key[0], readings[key], table.rows) for key in order]


def _line(level: str, found: dict[str, set[str]], rows: Sequence[RunRow]) -> str:
    more = f" (the first of {len(found)} readings)" if len(found) > 1 else ""
    return f"{level}, may affect {_where(set().union(*found.values()), rows)}: {next(iter(found)).rstrip('.')}{more}"


def _where(touched: set[str], rows: Sequence[RunRow]) -> str:
    """Names of cases, of a scenario for all of its cases, or just that it is every case."""
    looked_at = {row.case: row.scenario for row in rows if row.verdict or row.findings}
    if touched == set(looked_at) and len(touched) > 1:
        return "every case"
    whole = {s for s in looked_at.values() if all(case in touched for case, own in looked_at.items() if own == s)}
    names = list(dict.fromkeys(s if s in whole else case for case, s in looked_at.items() if case in touched))
    more = len(names) - _MOST_NAMES
    return ", ".join(names) if more <= 0 else f"{', '.join(names[:_MOST_NAMES])} and {more} more"
