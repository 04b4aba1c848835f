"""The rows of a profile by what they are of: one activity of one tool, its ranks folded, before held against after.

What must not live here: wording, layout, any bottleneck being decided.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from aiperf.profilers.ncu_read import FLOPS
from aiperf.records.profiled import CounterRow, Profile, SideProfile

_TOTALS = ("count", "time_s", "bytes")


@dataclass(frozen=True)
class Seen:
    """One activity under one side, one row for each rank and device that it ran on."""

    rows: tuple[CounterRow, ...]
    iterations: int | None
    """What totals are divided by; None when they are of everything that was profiled."""

    def number(self, field: str) -> float | None:
        """Value of a column: totals per iteration, of several ranks or devices the mean. None when it was not read."""
        if field == "bytes_per_s":
            return self._rate()
        value = mean(getattr(row, field) for row in self.rows)
        return value / max(1, self.iterations) if value is not None and self.iterations and field in _TOTALS else value

    @property
    def each_s(self) -> float | None:
        """Mean time of a call."""
        known = [(r.time_s, r.count) for r in self.rows if r.time_s is not None and r.count]
        return sum(seconds for seconds, _ in known) / sum(count for _, count in known) if known else None

    @property
    def bytes_each(self) -> float | None:
        """Mean bytes of a launch."""
        known = [(r.bytes, r.count or 1) for r in self.rows if r.bytes is not None]
        return sum(amount for amount, _ in known) / sum(count for _, count in known) if known else None

    @property
    def median_s(self) -> float | None:
        """Median time of several launches; that of a single one is its time."""
        return self.number("median_s") if any((r.count or 0) > 1 for r in self.rows) else None

    @property
    def flops(self) -> float | None:
        """Floating-point operations of a launch, counted; None where those of any row are not known."""
        known = [(r.metrics.get(FLOPS), r.count or 1) for r in self.rows]
        if any(amount is None for amount, _ in known):
            return None
        return sum((amount or 0.0) * count for amount, count in known) / sum(count for _, count in known)

    @property
    def flop_rate(self) -> float | None:
        """Of them, each second of the launches' own time."""
        amount, seconds = self.flops, self.each_s
        return amount / seconds if amount is not None and seconds else None

    @property
    def longest(self) -> CounterRow:
        """The rank's row that took the most time: its words stand for all."""
        return max(self.rows, key=lambda row: row.time_s or 0.0)

    def _rate(self) -> float | None:
        known = [(r.bytes, r.time_s) for r in self.rows if r.bytes is not None and r.time_s]
        if known:
            return sum(amount for amount, _ in known) / sum(seconds for _, seconds in known)
        return mean(row.bytes_per_s for row in self.rows)


@dataclass(frozen=True)
class Match:
    """One activity of one tool under two sides, or under the one of them that has it."""

    kind: str
    name: str
    rank: int | None
    before: Seen | None
    after: Seen | None

    @property
    def both(self) -> tuple[Seen | None, Seen | None]:
        """The two in order."""
        return self.before, self.after

    @property
    def present(self) -> tuple[Seen, ...]:
        """Those of the two that there are."""
        return tuple(seen for seen in self.both if seen)

    @property
    def size(self) -> float:
        """The larger of the two times."""
        return max((seen.number("time_s") or 0.0 for seen in self.present), default=0.0)


def mean(values: Iterable[float | None]) -> float | None:
    """Mean of what is known; None when nothing is."""
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def sides_of(profile: Profile) -> tuple[str, ...]:
    """Names of the sides, in the order in which they were profiled."""
    names = [a.side for a in profile.artefacts] + [s.side for s in profile.sides] + [r.side for r in profile.rows]
    names += [span.side for span in profile.spans]
    return tuple(dict.fromkeys(name for name in names if name))


def pairs_of(profile: Profile) -> list[tuple[str, ...]]:
    """Each later side with the first; of a profile of one side, that alone."""
    first, *rest = sides_of(profile) or ("",)
    return [(first, other) for other in rest] or [(first,)]


def side_of(profile: Profile, side: str, tool: str) -> SideProfile | None:
    """What one tool recorded of one side as a whole."""
    return next((s for s in profile.sides if s.side == side and s.tool == tool), None)


def iterations_of(profile: Profile, side: str, tool: str) -> int | None:
    """Profiled iterations that a tool's totals are of; None when the profile does not say."""
    found = side_of(profile, side, tool)
    return found.iterations if found and found.iterations > 0 else None


def matched(profile: Profile, tool: str, before: str, after: str = "", *, fold: bool = True) -> list[Match]:
    """Activities of two sides by kind and name (and rank, unless folded), those that take the most time first.

    Totals are per iteration where the iterations of every side with rows are known, else of all that was profiled.
    """
    rows = [row for row in profile.rows if row.tool == tool and row.side in (before, after)]
    each = {side: iterations_of(profile, side, tool) for side in dict.fromkeys(row.side for row in rows)}
    comparable = all(count is not None for count in each.values())
    groups: dict[tuple[str, str, int | None], dict[str, list[CounterRow]]] = {}
    ranked = not fold and any(row.rank is not None for row in rows)
    for row in rows:
        # A side of a single process has no ranks: held against several, it is rank 0.
        key = (row.kind, row.name, (row.rank or 0) if ranked else None)
        groups.setdefault(key, {}).setdefault(row.side, []).append(row)

    def seen(found: Sequence[CounterRow] | None, side: str) -> Seen | None:
        return Seen(tuple(found), each[side] if comparable else None) if found else None

    made = [
        Match(kind, name, rank, seen(sides.get(before), before), seen(sides.get(after), after))
        for (kind, name, rank), sides in groups.items()
    ]
    return sorted(made, key=lambda match: -match.size)
