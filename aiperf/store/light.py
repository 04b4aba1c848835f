"""Case records without their largest parts: what a history of many runs can afford to hold.

What must not live here: finding files, samples.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from aiperf.records import CaseRecord, Incident
from aiperf.store.codec import from_plain, load_plain


@dataclass(frozen=True)
class Light:
    """A case record without its pairs, and what a reader of its samples must know of them."""

    record: CaseRecord
    """``pairs`` is empty unless they were asked for."""
    pairs: int
    void: tuple[int, ...] = ()
    """Places of the pairs that do not count."""

    @cached_property
    def derived(self) -> dict[Hashable, Any]:
        """What tables have derived from this record, each under a key of its own, for the next row. Never stored."""
        return {}


@dataclass(frozen=True)
class _PairIncidents:
    incidents: tuple[Incident, ...] = ()


@dataclass(frozen=True)
class _CaseIncidents:
    """The part of a record that says which of its pairs count."""

    pairs: tuple[_PairIncidents, ...] = ()


def decode_light(data: bytes, *, where: str = "", results: bool = True, pairs: bool = False) -> Light:
    """Decode a case file with only those large parts that are wanted, and count its pairs. Raises as ``decode_case``.

    The whole file must be JSON; a part that is not wanted is not checked any further.
    """
    plain = load_plain(data, where=where)
    found = from_plain(_CaseIncidents, plain)
    void = tuple(place for place, pair in enumerate(found.pairs) if any(i.voids for i in pair.incidents))
    unwanted = [name for name, wanted in (("results", results), ("pairs", pairs)) if not wanted]
    record = from_plain(CaseRecord, {**plain, **{name: [] for name in unwanted}})
    return Light(record, len(found.pairs), void)
