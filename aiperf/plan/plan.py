"""The plan of a run: which cases this host runs, which it skips and why, and how long it may take.

What must not live here: starting anything, printing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from aiperf.errors import Fault, UserError, usage
from aiperf.host.facts import HostFacts
from aiperf.plan.cases import expand
from aiperf.plan.needs import unmet
from aiperf.protocol.libraries import EXTRAS
from aiperf.records import Case, Needs, Side, Skip
from aiperf.scenario.imports import imported_libraries
from aiperf.scenario.model import Scenario
from aiperf.scenario.serving import LOAD
from aiperf.scenario.text import axis_text, chosen_texts
from aiperf.scenario.wording import allowed, nearest
from aiperf.settings import Precision, Settings
from aiperf.units import format_duration

START_SECONDS = {"command": 0.1, "cpu": 2.0, "gpu": 6.0}
"""Rough cost of starting one process of a side, imports and set-up included, by where it runs. Only the estimate of
``--dry-run`` rests on it; nothing is measured with it."""
_LEAST_WARMUP_SHARE = 0.1
_CHECK_SECONDS = 0.5
_NAMED = 4
"""As many scenarios as a note names."""


@dataclass(frozen=True)
class Plan:
    """What one run will do."""

    cases: tuple[Case, ...]
    skips: tuple[Skip, ...]
    notes: tuple[str, ...] = ()
    """What somebody who asked for some of the cases has to know."""

    def shard(self, number: int, count: int) -> Plan:
        """Part ``number`` (from 1) of ``count``, by turns, so that neighbours, which take alike, are dealt out.

        The parts hold every case and every skip once. Raises UserError when there is no such part.
        """
        if not 1 <= number <= count:
            raise usage(f"part {number} of {count} does not exist.", "Count from 1, e.g. 1/2 and 2/2.", where="--shard")
        # By the names of all: a case that only another host, or a fuller memory, skips must not move the others.
        names = sorted([case.id for case in self.cases] + [skip.case.id for skip in self.skips])
        mine = set(names[number - 1 :: count])
        return Plan(
            tuple(case for case in self.cases if case.id in mine),
            tuple(skip for skip in self.skips if skip.case.id in mine),
            self.notes,
        )


@dataclass(frozen=True)
class Narrowed:
    """What ``--only`` leaves of several scenarios."""

    values: Mapping[str, Mapping[str, str]]
    """Scenario -> the axis values that its cases are kept by, several of an axis between commas; without those of which
    no case is left."""
    notes: tuple[str, ...] = ()
    """Which scenarios are kept whole, or left out."""


def narrow(scenarios: Sequence[Scenario], host: HostFacts, only: Mapping[str, str]) -> Narrowed:
    """Apply axis values to scenarios that need not have the same axes: one without the axis keeps all its cases, one
    whose axis lacks the value is left out. Raises UserError for an axis or a value that none of them has.
    """
    if len(scenarios) < 2 or not only:
        return Narrowed({scenario.name: only for scenario in scenarios})
    axes = {scenario.name: _axis_texts(host_cases(scenario, host)) for scenario in scenarios}
    faults, notes = [], []
    wanted = {}
    for axis, text in only.items():
        having = {name: own[axis] for name, own in axes.items() if axis in own}
        values = dict.fromkeys(value for own in having.values() for value in own)
        wanted[axis] = chosen_texts(text, values)
        if not having:
            every = sorted({own for found in axes.values() for own in found})
            hint = nearest(axis, every) or f"Their axes: {allowed(every) or 'none'}."
            faults.append(Fault("--only", f"none of the {len(axes)} scenarios has an axis {axis}.", hint))
        else:
            head, known = f"none of the {len(axes)} scenarios has a case with {axis}=", allowed(sorted(values))
            faults += [Fault("--only", f"{head}{one}; allowed: {known}.") for one in wanted[axis] if one not in values]
        lacking = [name for name, own in having.items() if not own.intersection(wanted[axis])]
        notes += _said(f"--only {axis}={text}: all cases kept, without that axis", [n for n in axes if n not in having])
        notes += _said(f"--only {axis}={text}: left out, without that value", lacking)
        axes = {name: own for name, own in axes.items() if name not in lacking}
    if not axes and not faults:
        faults.append(Fault("--only", "no scenario has all of these values.", "Leave one of them out."))
    if faults:
        raise UserError(faults)
    kept = {
        name: {axis: ",".join(t for t in texts if t in own[axis]) for axis, texts in wanted.items() if axis in own}
        for name, own in axes.items()
    }
    return Narrowed(kept, tuple(notes))


def _axis_texts(cases: Sequence[Case]) -> dict[str, set[str]]:
    """Axis -> its values as they are typed."""
    found: dict[str, set[str]] = {}
    for case in cases:
        for axis, value in case.axes.items():
            found.setdefault(axis, set()).add(axis_text(value))
    return found


def _said(what: str, names: Sequence[str]) -> list[str]:
    """A note that names a few and counts the others."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return [f"{what}: {', '.join(names[:_NAMED])}{more}"] if names else []


def make_plan(
    scenarios: Iterable[Scenario],
    host: HostFacts,
    settings: Settings,
    *,
    only: Mapping[str, str] | None = None,
    ids: Mapping[str, Sequence[str]] | None = None,
) -> Plan:
    """Expand every scenario for this host and part what can run from what must be skipped.

    ``only`` keeps the cases with these axis values, as ``narrow`` does; ``ids`` those of a scenario that have one of
    these ids. Raises UserError for axes and ids that no scenario has, and when two scenarios share a name.
    """
    scenarios = list(scenarios)
    narrowed = narrow(scenarios, host, only or {})
    cases: list[Case] = []
    skips: list[Skip] = []
    seen: dict[str, Path] = {}
    for scenario in scenarios:
        if seen.setdefault(scenario.name, scenario.path) != scenario.path:
            what = f"two scenarios have the name {scenario.name}: {seen[scenario.name]} and {scenario.path}."
            raise usage(what, "Rename one: runs are stored under that name.")
        if scenario.name not in narrowed.values:
            continue
        expanded = host_cases(scenario, host, only=narrowed.values[scenario.name])
        for case in _named_cases(scenario.name, expanded, (ids or {}).get(scenario.name, ())):
            needs = with_imports(case, host)
            found = unmet(
                needs,
                host,
                ranks=ranks_per_node(case),
                nodes=case.nodes,
                has_nodes=settings.nodes,
                folder=settings.results,
            )
            if found:
                reasons, fixes = "; ".join(r for r, _ in found), "; ".join(dict.fromkeys(f for _, f in found if f))
                skips.append(Skip(case, reasons, fixes))
            else:
                cases.append(case)
    return Plan(tuple(cases), tuple(skips), narrowed.notes)


def _named_cases(scenario: str, cases: Sequence[Case], ids: Sequence[str]) -> Sequence[Case]:
    """The cases with these ids, or all without any. Raises UserError for an id that none of them has."""
    known = [case.id for case in cases]
    if faults := [
        Fault("", f'{scenario} has no case "{one}".', nearest(one, known) or f"Its cases: {allowed(known)}.")
        for one in ids
        if one not in known
    ]:
        raise UserError(faults)
    return [case for case in cases if case.id in ids] if ids else cases


def host_cases(scenario: Scenario, host: HostFacts, *, only: Mapping[str, str] | None = None) -> list[Case]:
    """The cases in the lane that fits the host.

    A scenario that needs GPUs is always a GPU scenario. One that only has a gpu block becomes one where the host has
    enough GPUs for its smallest gang; elsewhere it keeps its CPU sizes.
    """
    if scenario.lane == "gpu":
        return expand(scenario, on_gpu=True, only=only)
    if scenario.lane == "either":
        smallest = min(c.needs.gpus for c in expand(scenario, on_gpu=True))
        return expand(scenario, on_gpu=len(host.gpus) >= smallest, only=only)
    return expand(scenario, on_gpu=False, only=only)


def with_imports(case: Case, host: HostFacts) -> Needs:
    """What the case needs, with the libraries that the host lacks and that its workloads import when they are loaded.

    Gangs and sides on GPUs need torch, whatever they run. A side with an interpreter of its own is not looked at.
    """
    absent = EXTRAS.keys() - host.libraries.keys()
    workloads = {side.workload for side in case.sides if side.workload and not side.python}
    if not absent or not workloads:
        return case.needs
    wanted = {name for workload in workloads for name in imported_libraries(workload, base=Path(case.path).parent)}
    if case.needs.gpus or ranks_of(case) > 1:
        wanted.add("torch")
    more = dict.fromkeys(sorted(wanted & absent), "")
    return replace(case.needs, libraries={**more, **case.needs.libraries})


def ranks_of(case: Case) -> int:
    """Ranks of the case's largest side."""
    return max(side.ranks for side in case.sides)


def nodes_used(scenarios: Iterable[Scenario]) -> int:
    """Nodes of the largest case, on CPUs or on GPUs; 0 without a scenario."""
    lanes = {"cpu": (False,), "gpu": (True,), "either": (False, True)}
    return max((c.nodes for s in scenarios for on_gpu in lanes[s.lane] for c in expand(s, on_gpu=on_gpu)), default=0)


def ranks_per_node(case: Case) -> int:
    """Ranks of the case's largest side on each of its nodes."""
    return max(side.ranks // side.nodes for side in case.sides)


def estimate(case: Case, precision: Precision) -> tuple[float, float]:
    """Seconds that a case may take, from the fewest pairs and a short warm-up to the last look and a full one.

    An estimate for ``--dry-run``: it knows the precision's looks and budgets, and of workloads only how long the
    schedule of a load lasts. One pair costs each side its start, warm-up, measured time and check; sides set up one
    after the other. The budget of the case caps it, but for the schedules of the first look.
    """
    place = "command" if case.is_command else "gpu" if case.needs.gpus else "cpu"
    first, last = _looks(case, precision)
    start = START_SECONDS[place]
    check = 0.0 if case.check.kind == "none" else _CHECK_SECONDS
    warmup = 0.0 if case.is_command else precision.warmup_seconds
    measured = precision.gpu_side_seconds if case.needs.gpus else precision.side_seconds
    measured = max(measured, *map(_schedule_seconds, case.sides))
    low = start + warmup * _LEAST_WARMUP_SHARE + measured + check
    high = start + warmup + measured + check
    sides = len(case.sides)
    cap = max(precision.case_seconds, _first_schedules(case, precision))
    return min(cap, first * sides * low), min(cap, last * sides * high)


def _first_schedules(case: Case, precision: Precision) -> float:
    """What the schedules of the pairs up to the first look last, which no budget cuts short."""
    return _looks(case, precision)[0] * sum(map(_schedule_seconds, case.sides))


def _looks(case: Case, precision: Precision) -> tuple[int, int]:
    """Pairs at the first and at the last look."""
    looks = precision.looks_within(case.measure.max_pairs)
    return looks[0], looks[-1]


def _schedule_seconds(side: Side) -> float:
    """What the schedule of a load lasts, where a drawn trace says so; 0 for everything else, and for a search, which
    changes the rate."""
    trace = side.params.get("trace") if side.workload == LOAD else None
    if not isinstance(trace, dict) or side.params.get("find"):
        return 0.0
    rate = side.params.get("load") or trace.get("rate")
    return float(trace.get("requests", 0)) / float(rate) if rate else 0.0


def too_long_loads(plan: Plan, settings: Settings) -> str:
    """Says so where the schedules of a case's servers need more for its first look than a case has, of the longest."""
    precision = settings.precision
    case = max(plan.cases, key=lambda each: _first_schedules(each, precision), default=None)
    longest = _first_schedules(case, precision) if case else 0.0
    if case is None or longest <= precision.case_seconds:
        return ""
    pairs, limit = _looks(case, precision)[0], format_duration(precision.case_seconds)
    return (
        f"{case.id}: the schedules of one pair last {format_duration(longest / pairs)}, so the {pairs} pairs of the "
        f"first look take at least {format_duration(longest)}, but a case has {limit}: no further pairs will follow. "
        "Write fewer requests, a higher rate, or a longer case_seconds (docs/serving.md)"
    )


def too_small_a_budget(plan: Plan, settings: Settings) -> str:
    """Says so where a run's budget is shorter than the first looks of its cases, as ``estimate`` knows them; for one
    pair of programs, where the time of a case is."""
    if settings.budget is None and len(plan.cases) == 1 and plan.cases[0].is_command:
        uncapped = replace(settings.precision, case_seconds=math.inf)
        settings = replace(settings, precision=uncapped, budget=settings.precision.case_seconds)
    least = sum(estimate(case, settings.precision)[0] for case in plan.cases)
    if settings.budget is None or least <= settings.budget:
        return ""
    whose = "the first look" if len(plan.cases) == 1 else f"the first looks of {len(plan.cases)} cases"
    budget = format_duration(settings.budget)
    return f"{whose} will take about {format_duration(least)}: a budget of {budget} does not shorten that"
