"""How programs were run, in sentences: sliced or not and why, what was started for a shim, who counted what they used.

What must not live here: the notes on their numbers (analysis/notes.py), and how other sides are measured.
"""

from __future__ import annotations

from collections.abc import Iterator

from aiperf.records import CaseRecord, SideRun
from aiperf.report.numbers import clean

_COUNTED = {
    "cgroup": "by a control group of each run",
    "wait4": "process by process as they exited, with the memory of concurrent processes sampled",
}


def program_sentences(record: CaseRecord) -> list[str]:
    """Say how the programs of a case were run; empty for other cases, and for records that do not hold it."""
    if not record.case.is_command:
        return []
    runs = {run.side: run for pair in record.pairs for run in pair.runs}
    return [*_turns(runs), *_shims(runs), *_counted(runs)]


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
