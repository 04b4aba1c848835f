"""What was found of the host, told once for all the cases of a table that it can bias.

What must not live here: which finding touches which case, layout.
"""

from __future__ import annotations

from collections.abc import Sequence

from aiperf.report.table import Row, Table

_MOST_NAMES = 4
"""More are counted."""


def touched_lines(table: Table) -> list[str]:
    """``unfit, touches every case: CPU 0-1 97 % busy: ...``: one line for each thing that was found, unfit ones first.

    What changes from one look at the host to the next (a load, a temperature) is told as the first of its readings.
    """
    readings: dict[tuple[str, str], dict[str, set[str]]] = {}
    for row in table.rows:
        for finding in row.findings:
            level, _, text = finding.partition(": ")
            if text.rstrip(".") not in row.sentence:
                # A case that the host is unfit for says so in its own row.
                found = readings.setdefault((level, text.partition(":")[0]), {})
                found.setdefault(text.rstrip("."), set()).add(row.case)
    order = sorted(readings, key=lambda key: key[0] != "unfit")
    return [_line(level, readings[level, title], table.rows) for level, title in order]


def _line(level: str, found: dict[str, set[str]], rows: Sequence[Row]) -> str:
    more = f" (the first of {len(found)} readings)" if len(found) > 1 else ""
    return f"{level}, touches {_where(set().union(*found.values()), rows)}: {next(iter(found))}{more}"


def _where(touched: set[str], rows: Sequence[Row]) -> str:
    """Names of cases, of a scenario for all of its cases, or just that it is every case."""
    looked_at = {row.case: row.scenario for row in rows if row.verdict or row.findings}
    if touched == set(looked_at) and len(touched) > 1:
        return "every case"
    whole = {s for s in looked_at.values() if all(case in touched for case, own in looked_at.items() if own == s)}
    names = list(dict.fromkeys(s if s in whole else case for case, s in looked_at.items() if case in touched))
    more = len(names) - _MOST_NAMES
    return ", ".join(names) if more <= 0 else f"{', '.join(names[:_MOST_NAMES])} and {more} more"
