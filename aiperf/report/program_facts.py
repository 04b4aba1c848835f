"""How programs were run, in sentences: sliced or not and why, what was started for a shim, who counted what they used.

What must not live here: the notes on their numbers (analysis/notes.py), and how other sides are measured.
"""

from __future__ import annotations

from collections.abc import Iterator

from aiperf.records import CaseRecord, CheckKind, SideRun
from aiperf.report.numbers import clean

_COUNTED = {
    "cgroup": "by a control group of each run",
    "wait4": "process by process as they exited, with the memory of concurrent processes sampled",
}


_PRINTS = {
    "same": "{base} and {side} print the same",
    "nothing": "{base} and {side} print nothing",
    "otherwise": "{side} and {base} print different output",
    "varies": "what {base} or {side} prints changes from run to run, so it was not compared",
    "unseen": "{base} vs {side}: not compared",
    "too_long": "{base} vs {side}: not compared, because another run of each would take too long",
    "failed": "{base} vs {side}: not compared, because another run of one of them failed",
}
"""How what a side prints relates to what the first one prints."""
_COMPARED = _PRINTS.keys() - {"unseen", "too_long", "failed"}


def printed_sentences(record: CaseRecord) -> list[str]:
    """Say whether the programs of a case print and write the same; empty for other cases, and for records that do not
    hold it."""
    if not record.case.is_command or not record.pairs:
        return []
    return [*_printed(record), *_written(record)]


def _same(record: CaseRecord, kind: CheckKind) -> list[str]:
    """Sides that no pair found to differ from the first one by checks of a kind."""
    checks = [check for pair in record.pairs for check in pair.checks if check.kind == kind]
    wrong = {side for check in checks if not check.passed for side in check.sides}
    return [side.name for side in record.case.sides[1:] if side.name not in wrong]


def _written(record: CaseRecord) -> list[str]:
    names, base = clean(", ".join(record.case.check.files)), record.case.sides[0].name
    how = f"wrote the same bytes to {names} in every run that was compared"
    return [f"Files: {base} and {side} {how}." for side in _same(record, "files")] if names else []


def _printed(record: CaseRecord) -> list[str]:
    base, *others = (side.name for side in record.case.sides)
    if record.case.check.kind == "bitwise":
        how = "printed the same in every run that was compared"
        return [f"Output: {base} and {side} {how}." for side in _same(record, "printed")]
    facts = {run.side: str(run.facts.get("prints")) for pair in record.pairs for run in pair.runs}
    said = [_PRINTS[facts[side]].format(base=base, side=side) for side in others if facts.get(side, "") in _PRINTS]
    seen = " of untimed runs" if any(facts.get(side) in _COMPARED for side in others) else ""
    return [f"Output{seen}: {'; '.join(said)}."] if said else []


def program_sentences(record: CaseRecord) -> list[str]:
    """Say how the programs of a case were run; empty for other cases, and for records that do not hold it."""
    if not record.case.is_command:
        return []
    runs = {run.side: run for pair in record.pairs for run in pair.runs}
    return [*_turns(runs), *_shims(runs), *_counted(runs), *printed_sentences(record)]


def _turns(runs: dict[str, SideRun]) -> Iterator[str]:
    facts = next((run.facts for run in runs.values() if "sliced" in run.facts), {})
    if facts:
        how = "in slices, one awake at a time" if facts["sliced"] else "one after the other, as whole runs"
        yield f"The programs ran {how}: {clean(str(facts.get('why', '')))}."


def _shims(runs: dict[str, SideRun]) -> Iterator[str]:
    for side, run in runs.items():
        if "shim" in run.facts:
            shim, program = clean(str(run.facts["shim"])), clean(str(run.facts["program"]))
            yield f"{side} names a shim, {shim}; the program behind it was started directly: {program}."


def _counted(runs: dict[str, SideRun]) -> Iterator[str]:
    kinds = {run.facts.get("counted_by") for run in runs.values()}
    if len(kinds) == 1 and (how := _COUNTED.get(str(*kinds))):
        yield f"CPU time and memory include every process that a program started, counted {how}."
