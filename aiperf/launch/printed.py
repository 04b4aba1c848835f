"""Compares what programs print and write: every run that counts with one of the base side's that chance picks, or two
by two.

What must not live here: running programs, reading numbers from what they printed, and reading files (written.py).
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence

from aiperf.launch.command_details import Run
from aiperf.launch.program import ProgramOutput
from aiperf.launch.program_output import PrintedChange, PrintedRelation, Unseen, first_change
from aiperf.records import Case, CheckResult
from aiperf.units import format_bytes

KEPT = 16 << 20
"""Bytes of a run's output that are compared, from its beginning; of more than that the length is."""


def compare_printed(case: Case, runs: Mapping[str, Sequence[Run]]) -> tuple[CheckResult, ...]:
    """The check of every side that is held against the first, or the one that says that nothing is compared; none where
    only files are."""
    if case.check.kind != "bitwise":
        return (
            ()
            if case.check.files
            else (CheckResult(True, "exit status 0 on all sides; this check does not compare output", kind="none"),)
        )
    base, *others = (side.name for side in case.sides)
    model = secrets.choice(runs[base])
    own = next((run for run in runs[base] if _differs(run, model)), None)
    return tuple(_check(other, runs[other], base, model, own) for other in others)


def compare_written(case: Case, runs: Mapping[str, Sequence[Run]]) -> tuple[CheckResult, ...]:
    """The check of every side that is held against the first; none where no files are asked for."""
    if not case.check.files:
        return ()
    base, *others = (side.name for side in case.sides)
    model = secrets.choice(runs[base])
    own = _wrong_file(runs[base], model)
    return tuple(_check_files(case, other, runs[other], model, own) for other in others)


def printed_relations(
    sides: Sequence[str], runs: Mapping[str, Sequence[ProgramOutput]], unseen: Unseen = "unseen"
) -> dict[str, PrintedRelation]:
    """Side -> how what it prints relates to what the first side prints; ``unseen`` of all where there are no runs."""
    base, *others = sides
    steady = {name: all(one == own[0] for one in own) for name, own in runs.items()}

    def relation(name: str) -> PrintedRelation:
        if not runs:
            return unseen
        model = runs[base][0]
        if not (steady[base] and steady[name]):
            return "varies"
        if runs[name][0] != model:
            return "otherwise"
        return "same" if model.size else "nothing"

    return {name: relation(name) for name in others}


def printed_changes(runs: Mapping[str, Sequence[ProgramOutput]]) -> dict[str, PrintedChange]:
    """Side -> where it prints something else than the first side; of sides that print the same in each of their runs.

    Programs that print times or numbers of processes differ from themselves and say nothing.
    """
    base = next(iter(runs), "")
    relations = printed_relations(list(runs), runs) if runs else {}
    heads = {name: own[0].head for name, own in runs.items()}
    return {name: first_change(heads[base], heads[name]) for name, word in relations.items() if word == "otherwise"}


def _check(other: str, runs: Sequence[Run], base: str, model: Run, own: Run | None) -> CheckResult:
    longest = max(run.child.printed.size for run in (*runs, model))
    part = f"first {KEPT >> 20} MiB of " if longest > KEPT else ""
    compared = f"{part}standard output of {other} with {base}, bitwise, {len(runs)} runs"
    wrong = own or next((run for run in runs if _differs(run, model)), None)
    if wrong is None:
        return CheckResult(True, compared, kind="printed", sides=(other,))
    mine, its = wrong.child.printed, model.child.printed
    at = next(
        (i for i, (a, b) in enumerate(zip(its.head, mine.head, strict=False)) if a != b), min(mine.size, its.size)
    )
    which = f"{wrong.side}, run {wrong.index}" if own is None else f"two runs of {base} itself"
    lengths = f"({base} wrote {its.size} bytes in run {model.index}, {wrong.side} {mine.size} in run {wrong.index})"
    return CheckResult(False, compared, f"{which}: differs from byte {at} on {lengths}", kind="printed", sides=(other,))


def _differs(run: Run, model: Run) -> bool:
    return run.child.printed != model.child.printed


def _check_files(case: Case, other: str, runs: Sequence[Run], model: Run, own: str) -> CheckResult:
    names = ", ".join(case.check.files)
    compared = f"{names} of {other} with {model.side}, bitwise, {len(runs)} runs"
    wrong = own or _wrong_file(runs, model)
    return CheckResult(not wrong, compared, wrong, kind="files", sides=(other,))


def _wrong_file(runs: Sequence[Run], model: Run) -> str:
    """The first thing that is wrong with what these runs wrote; empty where nothing is."""
    for run in runs:
        for mine, its in zip(run.files, model.files, strict=True):
            if mine.fault:
                return f"{run.side}, run {run.index}: {mine.name} {mine.fault}"
            if not its.fault and mine != its:
                sizes = f"{format_bytes(mine.size)} instead of {format_bytes(its.size)}"
                how = sizes if mine.size != its.size else f"other bytes in a file of {format_bytes(mine.size)}"
                return f"{run.side}, run {run.index}: {mine.name} differs from run {model.index} of {model.side}: {how}"
    return ""
