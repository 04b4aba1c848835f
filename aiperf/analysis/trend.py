"""The trend of a case over its runs: one series a host, what changed between runs, where the level changed.

What must not live here: reading runs, drawing anything.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from aiperf.analysis.across import Value, record_values
from aiperf.analysis.differences import case_differences, run_differences
from aiperf.analysis.distributions import t_quantile
from aiperf.analysis.estimates import LogEstimate, ratio_estimate
from aiperf.analysis.gate import Difference
from aiperf.records import CUT_SHORT, CaseRecord, Result, RunRecord
from aiperf.records.machines import machines

FEWEST_POINTS = 8
"""Points below which the noise of a series is not known well enough to look for a change."""
SHORTEST = 2
"""Points that a level needs: one run alone is an outlier, not a change."""
ALPHA = 0.05
"""Two-sided error of a step's interval."""
_FACTOR, _SMALL = 3.0, 5.0
"""Penalty of a change: _FACTOR (1 + _SMALL / n) ln n. BIC's form; the constants keep false alarms of flat, independent,
normal series of any length at about 3 % or less, noise estimated (tests/analysis/test_analysis_trend.py)."""
_KEPT = 0.75
"""Share of the differences between neighbours, the smallest ones, that the noise is estimated from."""
_RESOLUTION = 1e-6
"""Changes of a logarithm below this do not matter, and weights beyond its inverse square lose digits."""


@dataclass(frozen=True)
class Step:
    """A change point: from ``index`` on, the values have another level."""

    index: int
    ratio: float
    """New level / old level."""
    low: float
    high: float
    alpha: float
    """Of the interval given this place; that the place was looked for is not in it."""


@dataclass(frozen=True)
class Point:
    """One run in a series."""

    run: RunRecord
    record: CaseRecord
    result: Result | None = None
    value: Value | None = None
    """Of the side itself."""
    changed: tuple[Difference, ...] = ()
    """What is another than in the run before: host, software, checkout, precision; none of them stops the trend."""
    breaks: tuple[Difference, ...] = ()
    """Why this run does not ask what the run before asked: the trend begins anew here."""

    @property
    def counts(self) -> bool:
        """Whether its numbers belong to the trend."""
        return self.value is not None and (
            self.result is None or self.record.outcome(self.result) not in ("invalid", *CUT_SHORT)
        )

    @property
    def ratio(self) -> LogEstimate | None:
        """The ratio, above 0 better; None where there is none to trust."""
        return ratio_estimate(self.result.comparison) if self.result and self.counts else None

    @property
    def log_ratio(self) -> float | None:
        """Natural logarithm of the ratio."""
        return self.ratio.log if self.ratio else None

    @property
    def log_value(self) -> float | None:
        """Natural logarithm of the side's own value."""
        known = self.counts and self.value is not None and 0 < self.value.summary.value < math.inf
        return math.log(self.value.summary.value) if known and self.value is not None else None

    @property
    def value_error(self) -> float | None:
        """Standard error of ``log_value``; None where the spread was not stored."""
        if self.value is None or self.value.summary.log_sd is None or self.value.replicates < 2:
            return None
        return self.value.summary.log_sd / math.sqrt(self.value.replicates)


@dataclass(frozen=True)
class Series:
    """One comparison of one case on one class of host, oldest run first."""

    case: str
    scenario: str
    host: str
    """Host id, or the name of a host that was not recorded; of a case over nodes, those of all of them."""
    metric: str
    side: str
    against: str
    points: tuple[Point, ...]
    ratio_steps: tuple[Step, ...] = ()
    value_steps: tuple[Step, ...] = ()

    @property
    def hostnames(self) -> tuple[str, ...]:
        """Names of the machines, in the order of appearance."""
        used = (machine for p in self.points for machine in machines(p.run, p.record.case.nodes))
        return tuple(dict.fromkeys(machine.name or "unknown" for machine in used))


def all_series(entries: Iterable[tuple[RunRecord, CaseRecord]], *, metric: str = "") -> tuple[Series, ...]:
    """Series of one metric, or of what each case is about: one for each case, host and comparison.

    ``entries`` come oldest first.

    A run without a number (skipped, failed) is a point too. A case none of whose runs has the metric has a series
    without side.
    """
    groups: dict[tuple[str, str], list[tuple[RunRecord, CaseRecord]]] = {}
    for run, record in entries:
        # A gate's sessions hold two commits of one side against each other: another question than the scenario's.
        name = f"{record.case.id} between commits" if record.case.rebuilt else record.case.id
        # A host that was not recorded is known by its name; one without a name has a series of its own.
        host = run.host_id or record.host_id or str(run.host.get("hostname") or run.run)
        others = machines(run, record.case.nodes)[1:]
        host = "+".join([host, *(machine.host_id or machine.name for machine in others)])
        groups.setdefault((name, host), []).append((run, record))
    found = []
    for (case, host), members in groups.items():
        newest = members[-1][1].case
        about = metric or newest.measure.metric
        keys = dict.fromkeys(key for _, record in members for key in _comparisons(record, about))
        for side, against in keys or {("", ""): None}:
            points = _points(members, about, side, against)
            found.append(_with_steps(Series(case, newest.scenario, host, about, side, against, points)))
    return tuple(found)


def metrics_of(entries: Iterable[tuple[RunRecord, CaseRecord]]) -> tuple[str, ...]:
    """Every metric that some record holds, in the order of appearance."""
    return tuple(dict.fromkeys(name for _, record in entries for name, _ in record_values(record)))


def latest_hosts(found: Sequence[Series]) -> tuple[Series, ...]:
    """Keep of every case the series of the host with its newest run."""
    newest: dict[str, Series] = {}
    for series in found:
        known = newest.get(series.case)
        if known is None or _newest(series) > _newest(known):
            newest[series.case] = series
    return tuple(s for s in found if s.host == newest[s.case].host)


def change_points(values: Sequence[float], errors: Sequence[float | None]) -> tuple[Step, ...]:
    """Find where the level of a series of logarithms changes; nothing below FEWEST_POINTS points.

    ``errors`` are the points' standard errors, None where not known. Optimal partitioning (Jackson et al. 2005) of the
    weighted squared error, exact; every point is weighted by its own noise: what the runs differ by beyond their
    standard errors, plus its own.
    """
    if len(values) < FEWEST_POINTS:
        return ()
    sds = noise(values, errors)
    breaks = partition(values, sds, penalty=_FACTOR * (1 + _SMALL / len(values)) * math.log(len(values)))
    edges = [0, *breaks, len(values)]
    return tuple(
        _step(values, sds, start, middle, end) for start, middle, end in zip(edges, edges[1:], edges[2:], strict=False)
    )


def noise(values: Sequence[float], errors: Sequence[float | None]) -> list[float]:
    """Standard deviation of each point about its level.

    All together from the differences between neighbours, which a change of level touches in one place only: the
    smallest _KEPT of them, divided by what that share of a normal distribution has. Never below a point's own error.
    """
    sizes = sorted(abs(b - a) for a, b in itertools.pairwise(values))
    kept = max(1, math.floor(_KEPT * len(sizes)))
    share = kept / (len(sizes) + 1)
    normal = statistics.NormalDist()
    edge = normal.inv_cdf((1 + share) / 2)
    truncated = 1 - 2 * edge * normal.pdf(edge) / share
    total = statistics.fmean(s**2 for s in sizes[:kept]) / truncated / 2
    known = [e for e in errors if e is not None]
    typical = statistics.median(known) if known else 0.0
    between = max(0.0, total - typical**2)
    return [max(_RESOLUTION, math.sqrt(between + (typical if e is None else e) ** 2)) for e in errors]


def partition(values: Sequence[float], sds: Sequence[float], *, penalty: float) -> tuple[int, ...]:
    """Places where new levels begin, so that sum ((x - level) / sd)^2 + penalty * changes is smallest.

    Exact, by dynamic programming over all places; a level lasts at least SHORTEST points.
    """
    import numpy as np

    count = len(values)
    x = np.asarray(values, dtype=float) - statistics.median(values)
    w = 1 / np.asarray(sds, dtype=float) ** 2
    # Running sums of weights, weighted values and squares: the cost of any stretch is then one expression.
    sums = [np.concatenate([[0.0], np.cumsum(w * x**power)]) for power in range(3)]
    best = np.full(count + 1, np.inf)
    best[0] = -penalty
    last = np.zeros(count + 1, dtype=int)
    for end in range(SHORTEST, count + 1):
        starts = np.arange(end - SHORTEST + 1)
        weight, first, second = (s[end] - s[starts] for s in sums)
        costs = best[starts] + penalty + second - first**2 / weight
        last[end] = int(np.argmin(costs))
        best[end] = costs[last[end]]
    found, end = [], int(last[count])
    while end > 0:
        found.append(end)
        end = int(last[end])
    return tuple(reversed(found))


def _step(values: Sequence[float], sds: Sequence[float], start: int, middle: int, end: int) -> Step:
    """Difference of two neighbouring levels; the interval is at least as wide as their own scatter asks for."""
    weights = [1 / sd**2 for sd in sds]
    levels, precisions, chi2 = [], [], 0.0
    for one, other in ((start, middle), (middle, end)):
        w, x = weights[one:other], values[one:other]
        level = math.fsum(a * b for a, b in zip(w, x, strict=True)) / math.fsum(w)
        chi2 += math.fsum(a * (b - level) ** 2 for a, b in zip(w, x, strict=True))
        levels.append(level)
        precisions.append(math.fsum(w))
    df = end - start - 2
    se = math.sqrt(sum(1 / p for p in precisions) * max(1.0, chi2 / df))
    size, half = levels[1] - levels[0], t_quantile(1 - ALPHA / 2, df) * se
    return Step(middle, math.exp(size), math.exp(size - half), math.exp(size + half), ALPHA)


def _with_steps(series: Series) -> Series:
    ratios = [(p.log_ratio, p.ratio.se if p.ratio else None) for p in series.points]
    values = [(p.log_value, p.value_error) for p in series.points]
    return replace(series, ratio_steps=_steps(series, ratios), value_steps=_steps(series, values))


def _steps(series: Series, numbers: Sequence[tuple[float | None, float | None]]) -> tuple[Step, ...]:
    """Change points within each stretch that asks one question; their places are those in the series."""
    stretches: list[list[int]] = [[]]
    for place, point in enumerate(series.points):
        if point.breaks:
            stretches.append([])
        if numbers[place][0] is not None:
            stretches[-1].append(place)
    found = []
    for places in stretches:
        values = [value for i in places if (value := numbers[i][0]) is not None]
        steps = change_points(values, [numbers[i][1] for i in places])
        found += [replace(step, index=places[step.index]) for step in steps]
    return tuple(found)


def _points(members: Sequence[tuple[RunRecord, CaseRecord]], metric: str, side: str, against: str) -> tuple[Point, ...]:
    points: list[Point] = []
    asked: CaseRecord | None = None
    for run, record in members:
        same = (r for r in record.results if (r.comparison.metric, r.side, r.against) == (metric, side, against))
        result, value = next(same, None), record_values(record).get((metric, side))
        changed = run_differences(points[-1].run, run).record_only if points else ()
        breaks = case_differences(asked, record) if asked is not None else ()
        points.append(Point(run, record, result, value if result or not against else None, changed, breaks))
        asked = record
    return tuple(points)


def _comparisons(record: CaseRecord, metric: str) -> list[tuple[str, str]]:
    """(side, against) of every comparison that has the metric; of imported values (side, "")."""
    if record.results:
        return [(r.side, r.against) for r in record.results if r.comparison.metric == metric]
    return [(side, "") for name, side in record_values(record) if name == metric]


def _newest(series: Series) -> str:
    return max(point.run.started for point in series.points)
