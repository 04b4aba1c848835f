"""Two benchmarks of one foreign file as the sides of one case: what can be said of sides that were never paired.

What must not live here: verdicts (sides measured apart earn none), files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from aiperf.analysis.imported import summary_of, unpaired
from aiperf.errors import UserError, usage
from aiperf.plan.cases import case_id
from aiperf.records import CaseRecord, Side, text_notes
from aiperf.store.importers.cases import pairs_of, safe_name
from aiperf.store.importers.common import Benchmark, Foreign
from aiperf.units import format_percent, significant

_SHOWN = 5


@dataclass(frozen=True)
class Against:
    """Which benchmark is held against which."""

    before: str
    after: str
    name: str = ""
    """Of the case; empty makes one of both names."""


def unpaired_record(foreign: Foreign, against: Against, records: Sequence[CaseRecord], *, where: str) -> CaseRecord:
    """Build one case of two benchmarks of the file, each named by its own name or its case's id.

    ``records`` are those of every benchmark, in order. The ratio of both, with an interval that knows nothing of drift,
    stands in a note. Raises UserError.
    """
    (old, base), (new, record) = (
        _find(foreign, records, name, where=where) for name in (against.before, against.after)
    )
    if base is record:
        raise usage("--before and --after name the same benchmark.", "Name two.", where)
    pairs = (*pairs_of(old, "before"), *pairs_of(new, "after", first=len(base.pairs)))
    name = safe_name(against.name or f"{base.case.id}-vs-{record.case.id}")
    if any(name == r.case.id for r in records):
        raise usage(f'"{name}" is already a case of the file.', "Choose another --name.", where)
    sides = (Side("before"), Side("after"))
    title = f"{old.name} against {new.name}"
    case = replace(
        record.case, scenario=name, id=case_id(name, {}), title=title, sides=sides, axes={}, scenario_hash=""
    )
    summaries = tuple(summary_of(pairs, case, side=side.name) for side in sides)
    counts = (len(base.pairs), len(record.pairs))
    found = unpaired(*summaries, replicates=counts, alpha=record.alpha, delta=record.threshold)
    if found is None:
        raise _without_spread(f"{old.name} and {new.name}", where)
    ends = f"{significant(found.low, 4)} … {significant(found.high, 4)}"
    note = (
        f"before / after is {significant(found.ratio, 4)} ({ends}, {format_percent(1 - found.alpha)}), by Welch's t "
        f"over {counts[0]} and {counts[1]} replicates ({record.replicate}): never interleaved, so it includes whatever "
        "changed between the two, and is not a verdict"
    )
    return replace(
        record,
        case=case,
        pairs=pairs,
        summaries=summaries,
        notes=(*text_notes((note,)), *(n for n in record.notes if n in base.notes)),
        seconds=base.seconds + record.seconds,
    )


def _find(foreign: Foreign, records: Sequence[CaseRecord], name: str, *, where: str) -> tuple[Benchmark, CaseRecord]:
    known = list(zip(foreign.benchmarks, records, strict=True))
    found = [(b, r) for b, r in known if name == b.name] or [(b, r) for b, r in known if name == r.case.id]
    if len(found) != 1:
        ids = ", ".join(r.case.id for _, r in known[:_SHOWN]) + (", ..." if len(known) > _SHOWN else "")
        what = (
            f'"{name}" names {len(found)} benchmarks of the file.' if found else f'no benchmark "{name}" in the file.'
        )
        raise usage(what, f"Name a case of it: {ids}.", where)
    if len(found[0][1].pairs) < 2:
        raise _without_spread(name, where)
    return found[0]


def _without_spread(name: str, where: str) -> UserError:
    return usage(
        f"{name}: no spread is known, so no interval can be made.", "Import without --before and --after.", where
    )
