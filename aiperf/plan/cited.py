"""The shipped scenarios that cover rows of the book, and whether this host can run them.

What must not live here: the rows themselves, measured results.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from aiperf.errors import UserError
from aiperf.host.facts import HostFacts
from aiperf.plan.needs import unmet
from aiperf.plan.plan import host_cases, ranks_per_node, with_imports
from aiperf.scenario.citations import Citation
from aiperf.scenario.find import Listing, list_scenarios
from aiperf.scenario.load import load_scenario


@dataclass(frozen=True)
class Cited:
    """A scenario and the rows that it cites."""

    scenario: str
    rows: tuple[str, ...]
    hashes: tuple[str, ...] = ()
    """Of which a record of its file as it is now holds one."""
    problem: str = ""
    """Why this host can run none of its cases; empty when it can run some."""
    named: Mapping[str, Citation] = field(default_factory=dict)
    """Row -> its citation; a row that is not here is answered by the last side of the only case."""
    why: str = ""
    """Why its sides differ, as its file says."""


def cited_rows(
    host: HostFacts, *, results: Path, wanted: Iterable[str], folders: Sequence[Path] | None = None
) -> tuple[Cited, ...]:
    """Every scenario in ``folders`` (the shipped ones by default) that cites rows.

    Only those that cite one of ``wanted`` (ids, or chapters) are loaded, which takes its time: of the others it is not
    known whether ``host`` can run them. ``results`` is the folder whose disk counts.
    """
    cited = [entry for entry in list_scenarios(folders) if entry.book]
    loaded = {entry.name for entry in citing(cited, wanted)}
    found = (_cited(e, host, results) if e.name in loaded else Cited(e.name, e.book) for e in cited)
    return tuple(replace(c, named=_named(e), why=e.why) for c, e in zip(found, cited, strict=True))


def citing(entries: Iterable[Listing], rows: Iterable[str]) -> tuple[Listing, ...]:
    """The scenarios among ``entries`` that cite one of ``rows``: ids, or chapters that stand for all of theirs."""
    wanted = set(rows)
    return tuple(e for e in entries if any(r in wanted or r.partition("/")[0] in wanted for r in e.book))


def _named(entry: Listing) -> dict[str, Citation]:
    return {citation.row: citation for citation in entry.citations}


def _cited(entry: Listing, host: HostFacts, results: Path) -> Cited:
    try:
        scenario = load_scenario(entry.path)
        cases = host_cases(scenario, host)
    except UserError as error:
        return Cited(entry.name, entry.book, problem=f"{entry.name} has faults: {error.faults[0].what}")
    lacking = [
        unmet(with_imports(c, host), host, ranks=ranks_per_node(c), nodes=c.nodes, folder=results) for c in cases
    ]
    reasons = ["; ".join(reason for reason, _ in found) for found in lacking]
    problem = "" if not all(reasons) else f"{entry.name} {' or '.join(dict.fromkeys(reasons))}"
    return Cited(entry.name, entry.book, scenario.hashes, problem)
