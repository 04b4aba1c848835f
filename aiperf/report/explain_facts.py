"""What the sides say of themselves, in sentences: registers and spills of a kernel, allocator, tuned tile, versions,
and what their workload counts of one step.

What must not live here: what was claimed of a count (mechanism.py), and where the sides ran (explain_host.py).
"""

from __future__ import annotations

from typing import Any

from aiperf.analysis.pairs import valid
from aiperf.profilers.counters import unit_of_own
from aiperf.records import CaseRecord
from aiperf.report.mechanism import own_counts
from aiperf.report.numbers import format_value
from aiperf.report.profile_words import written
from aiperf.report.scenarios import value_text
from aiperf.units import significant

_ELSEWHERE = ("cpus", "threads", "memory_nodes", "readings_held", "readings_unheld")
"""Named where the measuring is described."""
_DRAWN = ("slowest",)
"""What pages draw."""
_MARKS = ("folder", "code_digest", "step_digest", "library_sha", "compile_options")
"""Marks for programs, and what only repeats the parameters."""
_SOFTWARE = ("python", "torch")
"""Worth a word only where the sides differ."""
_MOST = 3
"""Values of one side, from pair to pair, that are listed one by one."""


def fact_sentences(record: CaseRecord) -> list[str]:
    """One sentence on what differs between the sides, one on what does not; none of programs, which say nothing."""
    if record.case.is_command:
        return []
    found = {**_counted(record), **_facts(record)}
    alike = {name: by for name, by in found.items() if len(by) == len(record.case.sides) and len({*by.values()}) == 1}
    differing = [f"{name}: {_by_side(by)}" for name, by in found.items() if name not in alike]
    same = [f"{name} {next(iter(by.values()))}" for name, by in alike.items() if name not in _SOFTWARE]
    return [
        *([f"They differ in {'; '.join(differing)}."] if differing else []),
        *([f"Alike: {'; '.join(same)}."] if same else []),
    ]


def _counted(record: CaseRecord) -> dict[str, dict[str, str]]:
    """Count -> side -> its value as text; without those that the scenario claims of."""
    found: dict[str, dict[str, str]] = {}
    for side, counts in own_counts(record).items():
        for name in counts.keys() - record.case.moves.keys():
            found.setdefault(name, {})[side] = written(counts[name], unit_of_own(name))
    return dict(sorted(found.items()))


def _by_side(by: dict[str, str]) -> str:
    return ", ".join(f"{side} {text}" for side, text in by.items())


def _facts(record: CaseRecord) -> dict[str, dict[str, str]]:
    """Fact -> side -> its value as text, of all pairs that count."""
    found: dict[str, dict[str, dict[str, None]]] = {}
    for side in record.case.sides:
        for run in (run for pair in valid(record.pairs) for run in pair.runs if run.side == side.name):
            for name in run.facts.keys() - {*_ELSEWHERE, *_DRAWN, *_MARKS}:
                found.setdefault(name, {}).setdefault(side.name, {})[_text(name, run.facts[name])] = None
    return {name: {side: _one(list(values)) for side, values in by.items()} for name, by in sorted(found.items())}


def _one(values: list[str]) -> str:
    if len(values) == 1:
        return values[0]
    more = f" and {len(values) - _MOST} more" if len(values) > _MOST else ""
    return f"{' or '.join(values[:_MOST])}{more}"


def _text(name: str, value: Any) -> str:
    if isinstance(value, float):
        return significant(value)
    if isinstance(value, int) and not isinstance(value, bool) and unit_of_own(name):
        return format_value(value, unit_of_own(name))
    return value_text(value) or "none"
