"""The replies of a side's ranks, brought together: incidents, one check result, sums.

What must not live here: asking for them (gang.py), and what a pair does with them (pair.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from aiperf.host.placement import format_cpus
from aiperf.launch.wide import unannounced_fault, varied_fault, wide_fault
from aiperf.protocol.checking import CompareReply
from aiperf.protocol.messages import SummaryReply, WideReply
from aiperf.records import Case, CheckResult, Coverage, Incident, PhaseTime, SideRun

OFF_SCHEDULE = ("rate_off", "sent_late", "client_busy")
"""Codes of faults that say that a load's client did not keep its schedule, and nothing of the sides."""
_NOTED = ("cache_unknown", "foreign_client")
"""Codes of faults that take no pair away: what could not be seen, or is another program's word."""
_NEAR_SHARE = 0.9
"""Share of a rank's own pages that should lie on the NUMA nodes of the CPUs that it is bound to."""


def strays(
    side: str, facts: Sequence[Mapping[str, Any]], wanted: Sequence[tuple[int, ...] | None]
) -> Iterator[Incident]:
    """Ranks that may run elsewhere than they were bound to; fewer CPUs are a side's own choice."""
    for rank, (found, cpus) in enumerate(zip(facts, wanted, strict=True)):
        stray = set(found.get("cpus", ())) - set(cpus or found.get("cpus", ()))
        if stray:
            who = f"rank {rank} may run" if len(facts) > 1 else "it may run"
            detail = f"{who} on CPU {format_cpus(sorted(stray))} too, though it was bound to {format_cpus(cpus or ())}"
            yield Incident("affinity", side, detail)


def refused(side: str, replies: Sequence[SummaryReply]) -> Iterator[CheckResult]:
    """Failed checks for what is wrong with a side: functions that it replaced, faults that it reports of itself."""
    for function in dict.fromkeys(f for reply in replies for f in reply.replaced):
        detail = f"{side} replaced {function}, which its measurement rests on"
        yield CheckResult(False, "the harness", detail, kind="harness", sides=(side,))
    for code, fault in _faults(replies):
        if code not in (*OFF_SCHEDULE, *_NOTED):
            yield CheckResult(False, "the load", f"{side}: {fault}", kind="load", sides=(side,), code=code)


def disturbed(side: str, replies: Sequence[SummaryReply]) -> Iterator[Incident]:
    """Incidents for faults that a side reports and that are not its own; those that spoil its numbers void the pair."""
    for code, fault in _faults(replies):
        if code in (*OFF_SCHEDULE, *_NOTED):
            yield Incident(code, side, fault, voids=code in OFF_SCHEDULE)


def _faults(replies: Sequence[SummaryReply]) -> list[tuple[str, str]]:
    return [item for reply in replies for item in reply.faults.items()]


def gpu_allocation(replies: Sequence[SummaryReply]) -> dict[str, float]:
    """What torch's allocations from the driver have on average, the sum over ranks; empty where one does not tell."""
    known = [reply.gpu_allocation for reply in replies if reply.gpu_allocation is not None]
    return {"gpu_allocation_bytes": float(sum(known))} if len(known) == len(replies) else {}


def far_memory(
    side: str,
    facts: Sequence[Mapping[str, Any]],
    wanted: Sequence[tuple[int, ...] | None],
    nodes: Mapping[int, tuple[int, ...]],
) -> Iterator[Incident]:
    """Ranks whose memory lies on another NUMA node than the CPUs that they were bound to, unless they want it so."""
    for rank, (found, cpus) in enumerate(zip(facts, wanted, strict=True)):
        pages, home = found.get("memory_nodes"), sorted(n for n, there in nodes.items() if set(there) & set(cpus or ()))
        if not pages or not home or found.get("memory_node"):
            continue
        near = sum(float(pages.get(str(node), 0.0)) for node in home)
        if near < _NEAR_SHARE:
            whose = f"rank {rank}'s" if len(facts) > 1 else "its"
            there = f"node {' and '.join(map(str, home))}, where CPU {format_cpus(cpus or ())} is"
            yield Incident("affinity", side, f"{near * 100:.0f} % of {whose} memory is on NUMA {there}")


def worst_check(replies: Sequence[CompareReply], side: str) -> CheckResult:
    """The first rank's failure, else what rank 0 compared; the largest error of any rank."""
    index = next((i for i, r in enumerate(replies) if not r.passed), 0)
    worst = replies[index]
    errors = [r.max_error for r in replies if r.max_error is not None]
    who = side if len(replies) == 1 else f"{side}, rank {index}"
    return CheckResult(
        passed=worst.passed,
        compared=worst.compared,
        detail=f"{who}: {worst.detail}" if worst.detail else "",
        max_error=max(errors, default=None),
        loosened=min((r.loosened for r in replies if r.loosened is not None), default=None),
        sides=(side,),
        audits=worst.audits,
        changes=worst.changes,
        output_bytes=worst.output_bytes,
        seen_bytes=worst.seen_bytes,
    )


def slowest_rank(times: Sequence[Sequence[float]]) -> int | None:
    """The rank that was the slowest of most samples, the first of several; None for a single rank."""
    slowest = Counter(each.index(max(each)) for each in times)
    return min(slowest, key=lambda rank: (-slowest[rank], rank)) if slowest else None


def node_skew(times: Sequence[Sequence[float]], names: Sequence[str]) -> dict[str, float]:
    """By node the median over samples of its slowest rank / the median of all ranks; empty without several nodes.

    ``times``: seconds by rank, sample by sample; the ranks of each node follow each other, as many on each.
    """
    if len(names) < 2 or not times:
        return {}
    local = len(times[0]) // len(names)
    slowest = {name: slice(node * local, (node + 1) * local) for node, name in enumerate(names)}
    return {name: median(max(e[own]) / max(median(e), 1e-12) for e in times) for name, own in slowest.items()}


def sum_known(values: Sequence[int | None]) -> int | None:
    """Over the ranks; None where one has no value."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def gang_phases(ranks: Sequence[SummaryReply]) -> dict[str, PhaseTime]:
    """Of each function the calls of the rank that they took longest."""
    names = dict.fromkeys(name for rank in ranks for name in rank.phases)
    by_rank = {name: [rank.phases[name] for rank in ranks if name in rank.phases] for name in names}
    return {name: max(found, key=lambda phase: phase.seconds) for name, found in by_rank.items()}


def gang_coverage(ranks: Sequence[SummaryReply]) -> Coverage | None:
    """Rank 0's, with what was the same in every audit of any rank; None where a rank had no audit."""
    found = [rank.coverage for rank in ranks if rank.coverage is not None]
    if len(found) < len(ranks):
        return None
    fixed = [each.fixed for each in found if each.fixed is not None]
    names = tuple(dict.fromkeys(name for rank in fixed for name in rank))
    return replace(found[0], fixed=names if len(fixed) == len(found) else None)


def gang_usage(ranks: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """What all ranks used, and the iterations of one of them: a gang goes through each together."""
    sums = {name: sum(used[name] for used in ranks) for name in ranks[0]}
    return {**sums, "iterations": ranks[0]["iterations"]} if sums else {}


def unequal(case: Case, runs: Mapping[str, SideRun], wide: Mapping[str, Sequence[WideReply]]) -> Iterator[CheckResult]:
    """Failed checks of what sides do not share besides their outputs: steps that each of them makes; the items that a
    step delivers, as the workloads count them; and answers to large inputs, on both or on none."""
    first, *others = (side.name for side in case.sides)
    for name, replies in wide.items():
        if left := max((reply.left_out for reply in replies), default=0):
            steps = max(reply.steps for reply in replies)
            fault = f"{name}: {left} of {steps} steps in a row left an output as it was before the step"
            yield CheckResult(False, f"{name}, steps in a row", fault, kind="left_out", sides=(name,))
        quiet = (reply.unannounced for reply in replies)
        if found := [(count, each.steps, output) for each in quiet for output, count in each.left.items() if count]:
            fault = "{}: {} of {} unannounced steps left {} as it was before the step".format(name, *found[0])
            yield CheckResult(False, f"{name}, unannounced steps", fault, kind="left_out", sides=(name,))
    for other in others:
        given = wide.get(first, ()), wide.get(other, ())
        for place, fault in unannounced_fault(*given, case.check, names=(first, other)):
            name = (first, other)[place]
            yield CheckResult(False, f"{name}, unannounced steps", fault, kind="left_out", sides=(name,))
        # Sides that differ by design may differ in the range of numbers that they bear, too.
        by_design = case.check.kind == "named" or case.check.reason
        fault = (
            "" if by_design else wide_fault(wide.get(first, ()), wide.get(other, ()), case.check, names=(first, other))
        )
        if fault:
            compared = f"{other} with {first}, on inputs far from the usual ones"
            yield CheckResult(False, compared, fault, kind="wide_inputs", sides=(other,))
        both = wide.get(first, ()), wide.get(other, ())
        if not by_design and (fault := varied_fault(*both, case.check, names=(first, other))):
            compared = f"{other} with {first}, on inputs that audits leave alone"
            yield CheckResult(False, compared, fault, kind="varied_inputs", sides=(other,))
        if detail := work_differs(runs[first].work, runs[other].work, (first, other)):
            yield CheckResult(False, "work per step", detail, kind="work", sides=(other,))


def work_differs(want: Mapping[str, Any], got: Mapping[str, Any], names: tuple[str, str]) -> str:
    """What is unequal in the work per step that two sides report; empty when both deliver the same."""
    if (want.get("items"), want.get("item")) == (got.get("items"), got.get("item")):
        return ""
    first, other = names
    does = f"{other} does {got.get('items')} {got.get('item')} a step"
    return f"{does}, {first} {want.get('items')} {want.get('item')}"
