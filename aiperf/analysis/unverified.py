"""What no audit could put to the test, with the reason that a workload gives: notes, which strict mode refuses without
one.

What must not live here: what an audit reaches (worker/audit.py), wording.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from aiperf.analysis.fresh import batch_doubts
from aiperf.analysis.memory import elsewhere_notes
from aiperf.analysis.metrics import DEFAULT_METRIC, LATENCIES
from aiperf.analysis.outside import first_notes, phase_notes
from aiperf.analysis.pairs import side_run, valid
from aiperf.analysis.program_notes import program_notes
from aiperf.analysis.scheduled import scheduling_notes
from aiperf.records import Case, Coverage, Note, NoteCode, Pair

UNVERIFIED = (
    "nothing_returned", "inputs_undeclared", "inputs_fixed", "outputs_unpoisoned", "outputs_unmoved",
    "latencies_reported", "stragglers",
)  # fmt: skip
"""Codes of these notes."""
DOUBTS: Mapping[str, tuple[str, ...]] = {
    "time_outside": (DEFAULT_METRIC, "wall"),
    "first_elsewhere": ("first_iteration",),
    "memory_elsewhere": ("peak_memory",),
    "latencies_reported": tuple(LATENCIES),
    "tolerance_used": (),
    "scheduled_apart": (DEFAULT_METRIC, "wall", "first_iteration", *LATENCIES),
    "batches_only": (DEFAULT_METRIC, "wall"),
    "first_run_slower": (DEFAULT_METRIC, "user", "system"),
}
"""Code of a note that names another place for what a side seems to save, or says that nobody but the side knows it ->
the metrics that may be better for it; all of them where none is named."""
_STRICTLY = ("batches_only", "first_run_slower")
"""Of these, what only strict mode refuses: honest steps overlap with the next one, and caches on disk that a first run
fills are what many honest programs have."""
_MANY_VALUES = 16
"""Different numbers of an output that are no status, count or flag, which honest steps often give."""
_PLACES = ("prepare", "inputs", "outputs")
"""Of ``time_outside``: set-up and ``redraw`` of honest sides differ for reasons of their own."""


def unverified_notes(pairs: Sequence[Pair], case: Case) -> tuple[Note, ...]:
    """One note for each thing that could not be checked: its sides, the reason given (or empty), names of inputs."""
    found: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    sides = [side.name for side in case.sides]
    if sides == [side for side in sides if _returns_nothing(valid(pairs), side)]:
        found["nothing_returned", "", ()] = sides
    if (
        case.is_command
        and not case.check.files
        and sides[1:]
        and all(_prints_nothing(valid(pairs), side) for side in sides[1:])
    ):
        found["nothing_printed", case.check.reason, ()] = sides
    for side in sides:
        for code, reason, inputs in _of_side(valid(pairs), side, case.measure.metric):
            found.setdefault((code, reason, inputs), []).append(side)
    return (*(_note(*key, sides) for key, sides in found.items()), *_unnamed_notes(valid(pairs), sides))


def unused_note(pairs: Sequence[Pair], case: Case, side: str) -> Note | None:
    """The finding that no input of a side or of the base side has a part in their outputs: many different numbers, the
    same in every audit and with extreme values of every input, though a step can use arrays that are not named and no
    workload says why. What they are computed from is not an input then, and no audit shows who computes it. None for
    the base side, or where a launch shows another."""
    base = case.sides[0].name
    if side == base:
        return None
    names: dict[str, None] = {}
    unnamed = 0
    for name in (base, side):
        runs = [run for pair in valid(pairs) if (run := side_run(pair, name)) is not None]
        covered = [run.coverage for run in runs if run.coverage is not None]
        unmoved = _unmoved(covered)
        most = max((each.unmoved_values for each in covered), default=0)
        if not unmoved or most < _MANY_VALUES or covered[0].fixed_inputs or covered[0].inputs != "declared":
            return None
        names |= dict.fromkeys(unmoved)
        unnamed += max(each.unnamed or 0 for each in covered)
    if not unnamed:
        return None
    return Note("inputs_unused", {"side": side, "base": base, "outputs": list(names)})


def tolerance_notes(pairs: Sequence[Pair], case: Case) -> Iterator[Note]:
    """A note on each side whose outputs are off by more than is usual for their type, and pass only by a tolerance that
    the scenario names, or a check of the workload's own, without a reason."""
    checks = [check for pair in valid(pairs) for check in pair.checks if check.loosened is not None]
    for side in (side.name for side in case.sides if not case.check.reason):
        found = [check for check in checks if side in check.sides]
        if found:
            error, usual = max(c.max_error or 0.0 for c in found), min(c.loosened or 0.0 for c in found)
            values = {"side": side, "error": error, "declared": case.check.rtol, "usual": usual}
            yield Note("tolerance_used", values)


def refused(notes: Sequence[Note], *, sides: Sequence[str], metric: str) -> Note | None:
    """What strict mode refuses a comparison of ``sides`` for: the first of these notes without a reason that is about
    one of them; None where there is none."""
    first = next(iter(unexplained(notes, sides=sides, metric=metric)), None)
    return Note("unverified", {"code": first.code, **first.values}) if first else None


def unexplained(notes: Sequence[Note], *, sides: Sequence[str], metric: str) -> list[Note]:
    """Those of a case's notes that say what could not be checked of a comparison, and have no reason."""
    about = [
        n for n in notes if n.code in UNVERIFIED and not n.values["reason"] and set(n.values["sides"]) & set(sides)
    ]
    return [note for note in about if note.code != "latencies_reported" or metric in LATENCIES]


def doubts(pairs: Sequence[Pair], case: Case, *, strict: bool = False) -> tuple[Note, ...]:
    """Notes for which no side is said to be better, each on a ``side``: what it saves is done or kept elsewhere, or is
    known from its own code alone, and its workload or the scenario gives no reason."""
    moved = (
        *phase_notes(pairs, case),
        *first_notes(pairs, case),
        *elsewhere_notes(pairs, case),
        *(scheduling_notes(pairs, case) if strict or not case.is_command else ()),
    )
    if strict:
        moved = (*moved, *batch_doubts(pairs, case))
    told = [n for n in unverified_notes(pairs, case) if n.code == "latencies_reported" and not n.values["reason"]]
    found = (
        *(note for note in moved if not note.values.get("reason")),
        *(Note(note.code, {**note.values, "side": side}) for note in told for side in note.values["sides"]),
        *(tolerance_notes(pairs, case) if case.check.kind == "named" else ()),
        *(program_notes(pairs, case) if strict else ()),
    )
    return tuple(n for n in found if n.code in DOUBTS and n.values.get("phase", _PLACES[0]) in _PLACES)


def doubted(notes: Sequence[Note], *, winner: str, metric: str) -> Note | None:
    """The first of ``doubts`` by which ``winner`` may be better in a metric; None where there is none."""
    about = (n for n in notes if n.values["side"] == winner and metric in (DOUBTS[n.code] or (metric,)))
    first = next(about, None)
    if first is None:
        return None
    return Note("unverified" if first.code in _STRICTLY else "doubted", {"code": first.code, **first.values})


def _returns_nothing(pairs: Sequence[Pair], side: str) -> bool:
    """Whether a plain function returned None wherever its outputs were asked for: all of them compare as equal."""
    runs = [run for pair in pairs if (run := side_run(pair, side)) is not None]
    known = [run.facts["returns"] for run in runs if "returns" in run.facts]
    return bool(known) and all(returned is None for returned in known)


def _prints_nothing(pairs: Sequence[Pair], side: str) -> bool:
    """Whether neither this program nor the base side's printed anything in the runs that were looked at. Nothing else
    of a program is compared."""
    runs = [run for pair in pairs if (run := side_run(pair, side)) is not None]
    return bool(runs) and all(run.facts.get("prints") == "nothing" for run in runs)


def _note(code: Any, reason: str, inputs: tuple[str, ...], sides: list[str]) -> Note:
    named: NoteCode = code
    return Note(named, {"sides": sides, "reason": reason, **({"inputs": list(inputs)} if inputs else {})})


def _unnamed_notes(pairs: Sequence[Pair], sides: Sequence[str]) -> Iterator[Note]:
    """A note on the sides whose steps use as many arrays that they do not name, in every launch that can say so."""
    found: dict[tuple[int, str, str], list[str]] = {}
    for side in sides:
        runs = [run for pair in pairs if (run := side_run(pair, side)) is not None]
        known = [c for run in runs if (c := run.coverage) is not None and c.unnamed is not None]
        fewest = min(known, key=lambda each: each.unnamed or 0, default=None)
        if fewest is not None and fewest.unnamed:
            found.setdefault((fewest.unnamed, fewest.largest_unnamed, fewest.fixed_inputs), []).append(side)
    for (count, largest, reason), named in found.items():
        yield Note("inputs_unnamed", {"sides": named, "reason": reason, "count": count, "largest": largest})


def _of_side(pairs: Sequence[Pair], side: str, metric: str) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """(code, reason, names of inputs or outputs, or ``metric``) of what is open on a side in any of the pairs."""
    runs = [run for pair in pairs if (run := side_run(pair, side)) is not None]
    if any(run.facts.get("stragglers") for run in runs):
        yield "stragglers", "", ()
    covered = [run.coverage for run in runs if run.coverage is not None]
    if covered:
        # Of a launch with one audit nobody can say whether inputs without names were redrawn.
        able = [each for each in covered if each.fixed is not None] or covered[:1]
        if all(each.inputs == "undeclared" for each in able):
            yield "inputs_undeclared", covered[0].fixed_inputs, ()
        yield from _of_coverage(covered[0], _fixed(covered), _unmoved(covered))
        if any(metric in run.values for run in runs):
            yield "values_reported", covered[0].latency_source, (metric,)


def _of_coverage(
    first: Coverage, fixed: tuple[str, ...], unmoved: tuple[str, ...]
) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    if fixed:
        yield "inputs_fixed", first.fixed_inputs, fixed
    if unmoved:
        yield "outputs_unmoved", first.fixed_inputs, unmoved
    if not first.poisoned:
        yield "outputs_unpoisoned", first.kept_outputs, ()
    if first.latencies:
        yield "latencies_reported", first.latency_source, ()


def _unmoved(covered: Sequence[Coverage]) -> tuple[str, ...]:
    """Outputs that were the same in every launch that can say so."""
    able = [set(each.unmoved) for each in covered if each.fixed is not None]
    return tuple(name for name in covered[0].unmoved if all(name in each for each in able)) if covered else ()


def _fixed(covered: Sequence[Coverage]) -> tuple[str, ...]:
    """Inputs that were fixed in every launch that can say so."""
    known = [each.fixed for each in covered if each.fixed is not None]
    return tuple(name for name in known[0] if all(name in fixed for fixed in known)) if known else ()
