"""``python -m tests.gpu.unverified RUN ...``: what the rules over recorded times found in stored runs, honest or not.

Prints each finding against a side, each note on what was not checked or moved out of the time, and how near the rest
came to the thresholds. What must not live here: measuring.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import median

from aiperf.analysis.audited import FEWEST_PAIRS, reuse_note
from aiperf.analysis.notes import note_sentence
from aiperf.analysis.outside import outputs_fault, phase_notes
from aiperf.analysis.pairs import counted, per_iteration, reading, valid
from aiperf.analysis.unverified import unverified_notes
from aiperf.records import CaseRecord, Note, Pair
from aiperf.store.read import open_run, read_pairs


def main(names: list[str]) -> None:
    """Print the findings of each run, then the largest ratios of audited to plain time by clock."""
    sides, largest = 0, dict[str, tuple[float, str]]()
    for name in names:
        run = open_run(name, results=Path("results"))
        for record in (r for r in run.read_cases()[0] if r.results and not r.case.is_command):
            pairs = valid(read_pairs(run, record))
            for note in _notes(record, pairs):
                print(f"{record.case.id}: {note.code}: {note_sentence(note)}")
            sides += len(record.case.sides)
            for clock, ratio, side in _ratios(record, pairs):
                largest[clock] = max(largest.get(clock, (0.0, "")), (ratio, f"{side} of {record.case.id}"))
    print(f"{sides} sides; largest ratio of audited to plain time: {largest}")


def _notes(record: CaseRecord, pairs: tuple[Pair, ...]) -> list[Note]:
    names = [side.name for side in record.case.sides]
    against = [rule(pairs, record.case, name) for name in names for rule in (reuse_note, outputs_fault)]
    found = [note for note in against if note is not None]
    return [*found, *phase_notes(pairs, record.case), *unverified_notes(pairs, record.case)]


def _ratios(record: CaseRecord, pairs: tuple[Pair, ...]) -> list[tuple[str, float, str]]:
    field = reading(pairs, record.case, metric="time").field
    found = []
    for side in (side.name for side in record.case.sides):
        ratios = []
        for pair in pairs:
            audits = [s for s in pair.samples if s.side == side and s.audit and getattr(s, field) is not None]
            plain = counted(pair, side, field)
            if audits and plain:
                ratios.append(median(per_iteration(audits, field)) / median(per_iteration(plain, field)))
        if len(ratios) >= FEWEST_PAIRS:
            found.append((field, median(ratios), side))
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
