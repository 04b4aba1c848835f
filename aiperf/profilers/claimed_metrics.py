"""The metrics of Nsight Compute that a case's own claims name: which to ask for, which this ncu does not know.

What must not live here: holding claims against what was read (counters.py), and counters asked for in every case.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from aiperf.profilers.ncu_read import FIELDS, NCU_METRICS, WHOLE
from aiperf.records.profiled import ProfileNote

_OF_SECTIONS = "launch__"
"""What Nsight Compute knows of a launch without a counter: it comes with a section, and no list of counters has it."""


@dataclass(frozen=True)
class Claimed:
    """What the claims of a case add to ncu's command."""

    ask: tuple[str, ...] = ()
    """Metrics to ask for beside those of every case."""
    read: tuple[str, ...] = ()
    """Metrics to look for in the report."""
    notes: tuple[ProfileNote, ...] = ()
    """The metrics that are not asked for."""


def claimed_metrics(moves: Iterable[str], offered: Collection[str]) -> Claimed:
    """The metrics (names with ``__``) among the names of ``moves``; ``offered`` is what ncu lists, without suffix.

    A name that ncu does not know would fail the whole pass, so it is left out and noted.
    """
    every = {*NCU_METRICS, *(name for names in (*FIELDS.values(), *WHOLE.values()) for name in names)}
    wanted = [name for name in moves if "__" in name and name not in every]
    counters = [name for name in wanted if not name.startswith(_OF_SECTIONS)]
    unknown = [name for name in counters if name.partition(".")[0] not in offered]
    left_out = ProfileNote("unknown_metrics", {"names": unknown, "offered": bool(offered)})
    return Claimed(
        ask=tuple(name for name in counters if name not in unknown),
        read=tuple(name for name in wanted if name not in unknown),
        notes=(left_out,) if unknown else (),
    )
