"""What ``aiperf list --workloads`` and ``aiperf show WORKLOAD`` say of workloads, for people.

What must not live here: reading workloads (scenario/workloads.py), scenarios being explained (scenarios.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from aiperf.report.columns import text_table
from aiperf.report.layout.text import Line, wrap
from aiperf.report.numbers import clean
from aiperf.scenario.workloads import Parameter, WorkloadListing

_NAMED = 5
"""Scenarios that are named of those that use a workload."""
_UNITS = {"Size": "A size carries a unit, such as 256MiB.", "Seconds": "A time carries a unit, such as 2ms."}


def workload_lines(listings: Sequence[WorkloadListing], *, width: int = 100) -> list[Line]:
    """Lay the workloads out: name, how many scenarios use it, what it does; then where more is told."""
    cells = [[entry.name, str(len(entry.scenarios)), _text(entry.summary)] for entry in listings]
    table = text_table(["workload", "scenarios", "what a step does"], cells, width=width, right=(1,))
    below = "aiperf show WORKLOAD tells its parameters; workload: ./my-file.py:function runs one of yours."
    return [*table, Line(""), *(Line(part) for part in wrap(below, width, indent="  "))]


def explain_workload(entry: WorkloadListing, *, width: int = 100) -> list[Line]:
    """Say what a workload does, which parameters it takes, and which scenarios use it."""
    first, *rest = [" ".join(paragraph.split()) for paragraph in (entry.doc or "It has no docstring.").split("\n\n")]
    lines = [Line(part) for part in wrap(_text(f"{entry.name}: {first}"), width, indent="    ")]
    for paragraph in rest:
        lines += [Line(""), *(Line(part) for part in wrap(_text(paragraph), width))]
    used = [Line(part) for part in wrap(f"  {_used(entry.scenarios)}", width, indent="    ")]
    return [*lines, Line(""), *_parameters(entry.parameters, width), Line(""), Line("Scenarios that use it"), *used]


def _parameters(parameters: Sequence[Parameter], width: int) -> list[Line]:
    if not parameters:
        return [Line("It takes no parameters.")]
    cells = [[p.name, "required" if p.required else p.written, p.takes] for p in parameters]
    units = [said for kind, said in _UNITS.items() if any(kind in p.type for p in parameters)]
    below = [Line(part) for text in units for part in wrap(text, width)]
    return [*text_table(["parameter", "default", "takes"], cells, width=width), *below]


def _used(names: Sequence[str]) -> str:
    if not names:
        return "None of those that are shipped."
    more = len(names) - _NAMED
    return f"{', '.join(names[:_NAMED])}{f' and {more} more' if more > 0 else ''}."


def _text(doc: str) -> str:
    """A docstring's text for a terminal: one line, names in single backquotes."""
    return clean(doc.replace("``", "`"))
