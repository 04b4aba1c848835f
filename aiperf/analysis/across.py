"""Whole runs held against each other, case by case.

What must not live here: arithmetic of estimates (estimates.py), and whether runs compare at all (differences.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from aiperf.analysis.differences import Differences, case_differences, run_differences
from aiperf.analysis.estimates import Change, change, ratio_estimate, value_estimate
from aiperf.analysis.gate import Difference
from aiperf.analysis.metrics import DEFAULT_METRIC, METRICS
from aiperf.analysis.verdict import NO_SPREAD, Reason
from aiperf.records import Better, Case, CaseRecord, Result, RunRecord, Summary
from aiperf.records.calibration import Calibration, of_case

ALPHA = 0.05
"""Two-sided error of one change between two runs."""


@dataclass(frozen=True)
class Value:
    """One side's value in one run, with what its spread was taken over."""

    summary: Summary
    metric: str
    unit: str
    better: Better
    replicates: int


@dataclass(frozen=True)
class MetricAcross:
    """One metric of one case in a later run, held against the first run."""

    metric: str
    unit: str
    better: Better
    side: str
    against: str = ""
    """Empty for a value without another side (imported)."""
    primary: bool = True
    speedup: Change | None = None
    """Of before / after: what both runs' machine and day did to both sides cancels."""
    value: Change | None = None
    """Of the side's own value. Day and machine do not cancel, and from one session each the interval cannot hold them
    (METHOD 10, level 3): its word is provisional at best."""
    base_value: Change | None = None
    """The same of the side it is held against: what the day and the machine did, where that side is the same code."""
    reason: str = ""
    """Why there is no change of the speedup, or why its word is inconclusive whatever its interval."""
    provisional: bool = False
    """Whether one of the two results was no more than a quick look, or an imported value from a single session."""


@dataclass(frozen=True)
class CaseAcross:
    """One case in every run, each later one held against the first."""

    id: str
    scenario: str
    records: tuple[CaseRecord | None, ...]
    """One a run; None where the run does not have the case."""
    differences: tuple[tuple[Difference, ...], ...] = ()
    """For each later run: why its case asks another question than the first run's."""
    held: tuple[tuple[MetricAcross, ...], ...] = ()
    """For each later run; empty where nothing may be compared."""
    tau: float | None = None
    """Noise between sessions that the changes of times hold; None when it was never measured on this host."""


@dataclass(frozen=True)
class Across:
    """Runs held against the first of them."""

    runs: tuple[RunRecord, ...]
    differences: tuple[Differences, ...]
    """For each later run."""
    cases: tuple[CaseAcross, ...]
    forced: bool = False
    """Whether differences that forbid a comparison were overruled."""
    alpha: float = ALPHA

    @property
    def hosts_differ(self) -> bool:
        """Whether any later run has a must-match field that differs from the first run's."""
        return any(d.must_match for d in self.differences)

    @property
    def comparable(self) -> bool:
        """Whether the hosts match, or were forced to, and at least one case was held against another."""
        return (self.forced or not self.hosts_differ) and any(h for case in self.cases for h in case.held)


def hold_runs(
    runs: Sequence[tuple[RunRecord, Sequence[CaseRecord]]],
    *,
    calibrations: Mapping[str, Sequence[Calibration]],
    force: bool = False,
    alpha: float = ALPHA,
) -> Across:
    """Hold every later run against the first, case by case in the order of appearance.

    ``calibrations`` are those of each host_id. ``force`` compares in spite of must-match fields, scenarios or ways of
    timing that differ.
    """
    between = tuple(run_differences(runs[0][0], run) for run, _ in runs[1:])
    by_id = [{record.case.id: record for record in records} for _, records in runs]
    cases = []
    for case_id in dict.fromkeys(name for known in by_id for name in known):
        found = tuple(known.get(case_id) for known in by_id)
        case = next(record.case for record in found if record is not None)
        tau = _tau(case, [calibrations.get(run.host_id, ()) for run, _ in runs])
        apart = tuple(case_differences(found[0], x) if found[0] and x else () for x in found[1:])
        held = tuple(
            hold_case(found[0], x, tau=tau or 0.0, alpha=alpha)
            if found[0] and x and (force or not (hosts.must_match or own))
            else ()
            for x, hosts, own in zip(found[1:], between, apart, strict=True)
        )
        cases.append(CaseAcross(case_id, case.scenario, found, apart, held, tau))
    overruled = any(d.must_match for d in between) or any(own for case in cases for own in case.differences)
    return Across(tuple(run for run, _ in runs), between, tuple(cases), force and overruled, alpha)


def hold_case(then: CaseRecord, now: CaseRecord, *, tau: float = 0.0, alpha: float = ALPHA) -> tuple[MetricAcross, ...]:
    """Every metric that both records of a case hold: change of the speedup, and of the side's own value."""
    before = {_key(result): result for result in _spoken(then)}
    found = [_hold_result(before[_key(r)], r, tau=tau, alpha=alpha) for r in _spoken(now) if _key(r) in before]
    if found:
        return tuple(found)
    values, threshold = record_values(then), max(then.threshold, now.threshold)
    lone = []
    for key, value in record_values(now).items():
        if key in values:
            moved = _moved(values[key], value, tau=tau, alpha=alpha, threshold=threshold)
            lone.append(
                MetricAcross(
                    value.metric, value.unit, value.better, key[1], primary=value.metric == DEFAULT_METRIC,
                    provisional=True, value=moved,
                    reason="" if moved else "one of the values has no spread to make an interval of",
                )
            )  # fmt: skip
    return tuple(lone)


def record_values(record: CaseRecord) -> dict[tuple[str, str], Value]:
    """Each side's value of every metric, by (metric, side)."""
    found: dict[tuple[str, str], Value] = {}
    for result in record.results:
        c = result.comparison
        for summary in (c.before, c.after):
            found.setdefault((c.metric, summary.side), Value(summary, c.metric, c.unit, c.better, c.pairs))
    metric = METRICS[DEFAULT_METRIC]
    for summary in record.summaries:
        value = Value(summary, metric.name, metric.unit, metric.better, summary.replicates or 0)
        found[metric.name, summary.side] = value
    return found


def tau_of(case: Case, calibrations: Iterable[Calibration]) -> float | None:
    """Noise between sessions that a change must allow for: the upper bound of what A/A calibration found for a case's
    way of measuring, as for gates (METHOD 9); None when it never looked.
    """
    found = of_case(case, calibrations)
    return max(found.tau, found.tau_upper) if found else None


def _tau(case: Case, hosts: Iterable[Sequence[Calibration]]) -> float | None:
    """The noisiest of the hosts; None when one of them never looked."""
    found = [tau_of(case, calibrations) for calibrations in hosts]
    known = [tau for tau in found if tau is not None]
    return max(known) if len(known) == len(found) else None


def _spoken(record: CaseRecord) -> list[Result]:
    """The results of a record; those of a case that was cut short decide nothing."""
    outcomes = [(record.outcome(result), result) for result in record.results]
    return [
        result
        if word == result.verdict.word
        else replace(result, verdict=replace(result.verdict, word="inconclusive", reason=word, provisional=False))
        for word, result in outcomes
    ]


def _key(result: Result) -> tuple[str, str, str]:
    return result.comparison.metric, result.side, result.against


def _hold_result(then: Result, now: Result, *, tau: float, alpha: float) -> MetricAcross:
    new, old = now.comparison, then.comparison
    # Calibration measures times; nothing is known of how other metrics scatter between sessions.
    tau = tau if new.unit == "s" else 0.0
    threshold = max(then.verdict.threshold, now.verdict.threshold)
    sides = [[Value(s, c.metric, c.unit, c.better, c.pairs) for s in (c.before, c.after)] for c in (old, new)]
    quick = then.verdict.provisional or now.verdict.provisional
    held = MetricAcross(new.metric, new.unit, new.better, now.side, now.against, now.primary, provisional=quick)
    if invalid := _named(then, now, [r.verdict.word == "invalid" for r in (then, now)]):
        return replace(held, reason=f"{invalid} is invalid")
    base_value, value = (_moved(*both, tau=tau, alpha=alpha, threshold=threshold) for both in zip(*sides, strict=True))
    held = replace(held, value=value, base_value=base_value)
    base, estimate = ratio_estimate(old), ratio_estimate(new)
    if base is None or estimate is None:
        unbounded = _named(then, now, [base is None, estimate is None])
        return replace(held, reason=f"{unbounded} has no interval with two ends")
    found = change(estimate, base, alpha=alpha, delta=threshold, tau=tau)
    doubt = _named(then, now, [_doubted(r) for r in (then, now)])
    if doubt:
        found = replace(found, word="inconclusive")
    return replace(held, speedup=found, reason=f"{doubt} carries no verdict of its own" if doubt else "")


def _moved(then: Value, now: Value, *, tau: float, alpha: float, threshold: float) -> Change | None:
    """Change of one side's value; None when a spread is missing, or a time never scattered."""
    pair = [value_estimate(v.summary, pairs=v.replicates, better=v.better) for v in (then, now)]
    base, estimate = pair
    if base is None or estimate is None:
        return None
    if now.unit == "s" and max(base.se, estimate.se) < NO_SPREAD:
        return None
    # The noise between sessions of a ratio is the least that a value alone has.
    return change(estimate, base, alpha=alpha, delta=threshold, tau=tau)


def _doubted(result: Result) -> bool:
    """Whether a run would not stand by its own interval, however narrow."""
    open_, straddles = result.verdict.word == "inconclusive", Reason.INTERVAL_STRADDLES.value
    return open_ and result.verdict.reason != straddles


def _named(then: Result, now: Result, which: Sequence[bool]) -> str:
    """``the first run's result (why)`` of those that something is true of; empty when it is true of none."""
    said = [
        f"the {name} run's result ({result.verdict.reason.replace('_', ' ')})"
        for name, result, true in zip(("first", "later"), (then, now), which, strict=True)
        if true
    ]
    return " and ".join(said)
