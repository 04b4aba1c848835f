"""What was read of one tool's report, whichever tool it was.

What must not live here: any tool's format, and joining the reports of several tools.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aiperf.errors import AiperfError
from aiperf.records.profiled import CounterRow, ProfileNote, SideProfile, Span


class NoReport(AiperfError):
    """A profiler left nothing that can be read; the text says why, and what would help."""


class UnreadableReport(AiperfError):
    """A report that is not what its tool writes; the text says what was found."""


def range_name(side: str) -> str:
    """What the worker calls the range of a side: ``warp_v2`` for ``Warp.v2``.

    Its own rule, in worker/ranges.py, is out of this room's reach; a test holds the two together.
    """
    return re.sub(r"[^a-z0-9_-]", "_", side.lower())


@dataclass(frozen=True)
class Pass:
    """What a profiled launch said of itself: the worker's own reports, one for each rank."""

    side: str
    iterations: int
    ranks: Mapping[int, int] = field(default_factory=dict)
    """Process id -> rank."""
    domain: str | None = "aiperf"
    """NVTX domain of the side's range; empty when the backend knows none. None: aiperf's, else the nameless one."""

    @property
    def domains(self) -> tuple[str, ...]:
        """The domains in which its range may be, in this order."""
        return ("aiperf", "") if self.domain is None else (self.domain,)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of its range: the side's own in a program that is not aiperf's, else what the worker makes of it."""
        return tuple(dict.fromkeys((self.side, range_name(self.side))))


@dataclass(frozen=True)
class Reading:
    """Rows, side summaries and timeline bars of one report."""

    rows: tuple[CounterRow, ...] = ()
    sides: tuple[SideProfile, ...] = ()
    spans: tuple[Span, ...] = ()
    notes: tuple[ProfileNote, ...] = ()
    """What the reader could not find, or passed over."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Schema version, device names, peak bandwidth as the tool has it, records without a launch."""
