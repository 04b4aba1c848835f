"""What a reader should know of programs beside their verdict: leftovers, work that not every run does, what is unknown.
The metrics of its own that a side gives, be it a program or not, are here too, where they are 0.

What must not live here: sentences, running programs.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import ceil
from statistics import fmean, median
from typing import Any

from aiperf.analysis.gpu_work import unequal_gpu_work
from aiperf.analysis.pairs import counted, has_metric, reading, side_run, side_value, valid
from aiperf.records import Case, Note, Pair, SideRun

_TIMES = 2.0
"""How much more CPU time a run has to use than others to have done work that they did not. Noise does not double it."""
_ONE_SIDED, _BEYOND_OTHERS = 1.4, 1.2
"""The same of the first run of a side, where its excess is also so many times that of the other sides' first runs,
which met the same host."""
_WALL_TIMES = 3.0
_LEAST_S, _LEAST_ONE_SIDED_S, _LEAST_WALL_S = 0.02, 0.01, 0.1
_NEARLY_ALL, _FEWEST_ONE_SIDED = 0.95, 8
"""Share of the measured runs that the first one must have exceeded, and how many a first run of one side only is held
against. Where others have the second thread of a core, any run may use 1.8 times the CPU time of the next: of 96 honest
programs on a busy host the first run used 1.4 to 1.6 times as much in four."""
_FEW_CHARS, _CHARS_SHARE = 64, 0.05
"""Bytes, and their share of what later runs write, by which runs that do the same may differ."""
_CLUSTER_RUNS, _CLUSTER_SHARE = 2, 0.1
"""The smaller group of runs has at least so many of them: fewer are outliers."""


def program_notes(pairs: Sequence[Pair], case: Case) -> tuple[Note, ...]:
    """The notes on a case of programs; empty for any other."""
    used = valid(pairs)
    if not case.is_command or not used:
        return ()
    sides = [side.name for side in case.sides]
    runs = {name: [run for pair in used if (run := side_run(pair, name))] for name in sides}
    found = [_sliced(runs), unequal_gpu_work(used, case)]
    excess = {name: _first_excess(name, used, runs[name]) for name in sides}
    for name in sides:
        own, others = excess[name], [excess[other] for other in sides if other != name and excess[other]]
        alone = bool(others) and own > _ONE_SIDED and own > _BEYOND_OTHERS * min(others)
        slower = _uneven(name, used) or _first_slower(name, used, runs[name], alone=alone)
        found.append(slower or _first_files(name, runs[name]))
    kept = (note for note in found if note is not None)
    return (*kept, *_printed(case, runs), *_written(case, runs), *_unknown(used, case, runs))


def zero_notes(pairs: Sequence[Pair], case: Case) -> tuple[Note, ...]:
    """A note on each metric of the sides' own that all of them gave in every pair and that was 0 for some: the table
    leaves out the comparisons with these, which have no ratio."""
    used, sides = valid(pairs), [side.name for side in case.sides]
    found = []
    for metric in case.program_metrics if used else ():
        how = reading(used, case, metric=metric.name)
        given = {side: [v for pair in used if (v := side_value(pair, side, how=how)) is not None] for side in sides}
        zero = [side for side, numbers in given.items() if numbers and min(numbers) == 0]
        if zero and all(len(numbers) == len(used) for numbers in given.values()):
            means = {side: fmean(numbers) for side, numbers in given.items()}
            found.append(
                Note("metric_zero", {"metric": metric.name, "unit": metric.unit, "sides": zero, "means": means})
            )
    return tuple(found)


def _printed(case: Case, runs: dict[str, list[SideRun]]) -> list[Note]:
    """Sides that print something else than the first, though nobody asked that they print the same."""
    facts = {name: own[0].facts.get("prints_otherwise") for name, own in runs.items() if own}
    strict = "" if case.path else "--same-output"
    base = case.sides[0].name
    return [
        Note("prints_otherwise", {**change, "side": name, "against": base, "strict": strict})
        for name, change in facts.items()
        if change
    ]


def _written(case: Case, runs: dict[str, list[SideRun]]) -> list[Note]:
    """Programs that write files, of which none is compared."""
    least = {name: min((run.facts.get("written_elsewhere", 0) for run in own), default=0) for name, own in runs.items()}
    counts = {name: count for name, count in least.items() if count > _FEW_CHARS}
    if case.check.files or not counts or (case.check.kind == "none" and case.check.reason):
        return []
    way = "check: {files: FILE}" if case.path else "--same-file FILE"
    return [Note("files_uncompared", {"bytes": counts, "way": way})]


def _sliced(runs: dict[str, list[SideRun]]) -> Note | None:
    slices = next((run.facts.get("slice_s") for own in runs.values() for run in own), None)
    return Note("sliced", {"slice_s": slices}) if slices else None


def _cpu_times(side: str, pairs: Sequence[Pair]) -> list[float]:
    samples = [sample for pair in pairs for sample in counted(pair, side)]
    return [s.user_s + s.system_s for s in samples if s.user_s is not None and s.system_s is not None]


def _uneven(side: str, pairs: Sequence[Pair]) -> Note | None:
    """Two kinds of runs, of which one does what the other does not."""
    times = sorted(_cpu_times(side, pairs))
    least = max(_CLUSTER_RUNS, _CLUSTER_SHARE * len(times))
    gaps = [
        (above - below, place)
        for place, (below, above) in enumerate(pairwise(times), start=1)
        if above > _TIMES * below and above - below > _LEAST_S and min(place, len(times) - place) >= least
    ]
    if not gaps:
        return None
    place = max(gaps)[1]
    low, high = times[:place], times[place:]
    return Note(
        "uneven_runs", {"side": side, "runs": len(high), "of": len(times), "s": fmean(high), "rest_s": fmean(low)}
    )


def _first_run(runs: Sequence[SideRun]) -> dict[str, Any] | None:
    return next((run.facts["first_run"] for run in runs if "first_run" in run.facts), None)


def _first_excess(side: str, pairs: Sequence[Pair], runs: Sequence[SideRun]) -> float:
    """CPU time of the first run of all, in times of that of the measured ones; 0 where it is not known."""
    first, later = _first_run(runs), _cpu_times(side, pairs)
    return first["cpu_s"] / max(median(later), 1e-9) if first and later else 0.0


def _first_slower(side: str, pairs: Sequence[Pair], runs: Sequence[SideRun], *, alone: bool) -> Note | None:
    """The first run of all, which is not measured, did what none of the measured ones does."""
    first = _first_run(runs)
    if first is None:
        return None
    walls = [sample.wall_s for pair in pairs for sample in counted(pair, side)]
    alone = alone and len(walls) >= _FEWEST_ONE_SIDED
    times, least_s = (_ONE_SIDED, _LEAST_ONE_SIDED_S) if alone else (_TIMES, _LEAST_S)
    kinds = (
        ("cpu", first["cpu_s"], _cpu_times(side, pairs), times, least_s),
        ("wall", first["wall_s"] if not first["from_disk"] else 0.0, walls, _WALL_TIMES, _LEAST_WALL_S),
    )
    for kind, once, later, most, least in kinds:
        slowest = sorted(later)[ceil(_NEARLY_ALL * len(later)) - 1] if later else 0.0
        if later and once > max(most * median(later), _BEYOND_OTHERS * slowest) and once - median(later) > least:
            return Note("first_run_slower", {"side": side, "kind": kind, "first_s": once, "later_s": median(later)})
    return None


def _first_files(side: str, runs: Sequence[SideRun]) -> Note | None:
    """The first run of all wrote what none of the measured ones does, or they all read what it did not."""
    first = _first_run(runs) or {}
    for name in ("written_chars", "read_chars"):
        later = [count for run in runs for count in run.facts.get(name, ())]
        if not later or name not in first:
            continue
        once, fewest, most = max(first[name]), min(later), max(later)
        wrote = name == "written_chars" and once > most + max(_FEW_CHARS, _CHARS_SHARE * most)
        read = name == "read_chars" and fewest > once + _FEW_CHARS >= once + most - fewest
        if wrote or read:
            return Note("first_run_files", {"side": side, "kind": name, "first": once, "later": most})
    return None


def _unknown(pairs: Sequence[Pair], case: Case, runs: dict[str, list[SideRun]]) -> list[Note]:
    """What the kernel does not count: the CPU time of idle programs, the memory of small ones."""
    names = list(runs)
    lacking = [m for m in ("user", "system", "peak_memory") if not has_metric(pairs, case, metric=m, sides=names)]
    notes = [Note("no_cpu_time", {"metric": metric}) for metric in lacking if metric != "peak_memory"]
    every = (run for own in runs.values() for run in own)
    below = {run.side: run.facts["peak_below_bytes"] for run in every if "peak_below_bytes" in run.facts}
    if below and "peak_memory" in lacking:
        notes.append(Note("memory_below", {"sides": list(below), "bytes": max(below.values())}))
    return notes
