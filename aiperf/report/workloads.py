"""One workload explained: what it does, which parameters it takes, and which scenarios use it.

What must not live here: reading workloads (scenario/workloads.py), scenarios being explained (scenarios.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from aiperf.report.layout.formats import Printed, printed_listing
from aiperf.report.layout.page import Block, Sentences
from aiperf.report.layout.table import listing
from aiperf.report.views.listings import docstring_text
from aiperf.scenario.workloads import Parameter, WorkloadListing

_NAMED = 5
"""Scenarios that are named of those that use a workload."""
_UNITS = {"Size": "A size needs a unit, such as 256MiB.", "Seconds": "A time needs a unit, such as 2ms."}


def workload_view(entry: WorkloadListing) -> Printed:
    """Its docstring, a table of its parameters, the scenarios that use it."""
    first, *rest = (entry.doc or "It has no docstring.").split("\n\n")
    return printed_listing(
        [entry],
        [
            [Sentences([docstring_text(f"{entry.name}: {first}")], indent="    ")],
            *([Sentences([docstring_text(paragraph)])] for paragraph in rest),
            _parameters(entry.parameters),
            [Sentences(["Scenarios that use it"]), Sentences([_used(entry.scenarios)], lead="  ", indent="    ")],
        ],
    )


def _parameters(parameters: Sequence[Parameter]) -> list[Block]:
    if not parameters:
        return [Sentences(["It takes no parameters."])]
    cells = [[p.name, "required" if p.required else p.written, p.takes] for p in parameters]
    units = [said for kind, said in _UNITS.items() if any(kind in p.type for p in parameters)]
    return [listing(["parameter", "default", "takes"], cells), Sentences(units)]


def _used(names: Sequence[str]) -> str:
    if not names:
        return "None of the shipped ones."
    more = len(names) - _NAMED
    return f"{', '.join(names[:_NAMED])}{f' and {more} more' if more > 0 else ''}."
