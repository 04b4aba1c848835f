"""From pairs to one number per side and pair, and to one log-ratio per pair.

What must not live here: anything that looks across pairs to judge them.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from operator import attrgetter, truediv
from typing import TypeVar, cast

from aiperf.analysis.energy import gross_joules
from aiperf.analysis.metrics import LATENCIES, Metric, case_metrics
from aiperf.analysis.percentiles import fewest_units, percentile
from aiperf.errors import AiperfError
from aiperf.records import Case, Pair, Sample, SideRun, Statistic
from aiperf.records.measured import CLOCKED

T = TypeVar("T")
_ITERATIONS = attrgetter("iterations")


class ComparisonError(AiperfError):
    """The pairs do not hold what a comparison of this metric needs; the message says what is missing where."""


@dataclass(frozen=True)
class MetricSource:
    """How one metric of one case is read from every pair."""

    metric: Metric
    field: str
    """Field of Sample; empty for a number of the launch."""
    statistic: Statistic
    by_round: bool
    """True: a pair's log-ratio is the median over rounds, paired within the round."""


def valid(pairs: Sequence[Pair]) -> tuple[Pair, ...]:
    """Keep the pairs that count, in pair order: those that no incident voids."""
    return tuple(sorted((p for p in pairs if not p.void), key=lambda p: p.index))


def case_clock(case: Case) -> str:
    """``device`` or ``wall``: the case's clock with auto resolved by what it needs."""
    if case.measure.clock != "auto":
        return case.measure.clock
    return "device" if case.needs.gpus else "wall"


def reading(pairs: Sequence[Pair], case: Case, *, metric: str) -> MetricSource:
    """Decide once, for all pairs and sides, which field holds a metric: clocks are never mixed in one comparison.

    With the statistic ``median`` a wall-clock ratio is the median over rounds of the round's log-ratio: the two
    turns of a round are neighbours in time, so a drift or burst hits both and cancels before the median is taken.
    The device clock does not see the host's bursts, and exclusive sides share no rounds: there it is the median over
    samples of each side. Raises ComparisonError for an unknown metric.
    """
    known = case_metrics(case)
    if metric not in known:
        raise ComparisonError(f'"{metric}" is not a metric. Allowed: {", ".join(known)}.')
    declared = known[metric]
    if not declared.readings:
        return MetricSource(declared, "", case.measure.statistic, by_round=False)
    field = declared.readings[-1]
    if "device_s" in declared.readings and case_clock(case) == "device":
        everywhere = all(counted(pair, side, "device_s") for pair in pairs for side in pair.order)
        field = "device_s" if everywhere else field
    by_round = case.measure.statistic == "median" and field == "wall_s" and not case.measure.exclusive
    return MetricSource(declared, field, case.measure.statistic, by_round)


def counted(pair: Pair, side: str, field: str = "") -> tuple[Sample, ...]:
    """The samples of one side that statistics of a field may use: no audits, and of each field its own kind."""
    return pair.plain.get((side, field if field in CLOCKED else ""), ())


def side_value(pair: Pair, side: str, *, how: MetricSource) -> float | None:
    """T of a side in a pair, unit of the metric; None when it was not measured.

    ``mean`` is the arithmetic mean over iterations (sum of times / sum of iterations: the total is what is paid),
    ``median`` the median over samples of time per iteration.
    """
    return once(pair, ("value", side, how.metric.name, how.field, how.statistic), lambda: _side_value(pair, side, how))


def once(pair: Pair, key: Hashable, derive: Callable[[], T]) -> T:
    """What ``derive`` makes of the samples of a pair, made at the first call with this key only."""
    if key not in pair.derived:
        pair.derived[key] = derive()
    return cast(T, pair.derived[key])


def _side_value(pair: Pair, side: str, how: MetricSource) -> float | None:
    if not how.field:
        return _launch_value(pair, side, how)
    samples, read = counted(pair, side, how.field), attrgetter(how.field)
    if not samples or None in map(read, samples):
        return None
    if how.statistic == "median":
        return float(statistics.median(per_iteration(samples, how.field)))
    return _mean(samples, how.field)


def per_iteration(samples: Sequence[Sample], field: str) -> list[float]:
    """Time per iteration of each sample, seconds."""
    return list(map(truediv, map(attrgetter(field), samples), map(_ITERATIONS, samples)))


def _mean(samples: Sequence[Sample], field: str) -> float:
    total = math.fsum(map(attrgetter(field), samples))
    return total / sum(s.iterations for s in samples)


def _launch_value(pair: Pair, side: str, how: MetricSource) -> float | None:
    metric = how.metric.name
    if metric == "energy":
        return gross_joules(pair.energy.get(side))
    if metric in LATENCIES:
        return _latency(pair, side, metric)
    run = side_run(pair, side)
    if run is not None and metric in run.values:
        middle = statistics.median if how.statistic == "median" else statistics.fmean
        return float(middle(run.values[metric]))
    if metric == "first_iteration":
        return run.warmup.first_iteration_s if run and run.warmup else None
    if metric == "gpu_memory":
        return run.peak_gpu_bytes if run else None
    if metric != "peak_memory":
        return None
    peaks = [s.peak_bytes for s in counted(pair, side)] + [run.peak_bytes if run else None]
    return max((p for p in peaks if p is not None), default=None)


def latencies(pair: Pair, side: str, series: str) -> dict[int, list[float]]:
    """Rank -> how long each unit of work of a side took in a pair, seconds, in the order reported; ranks stay apart,
    because those that work on one request together would report it more than once."""
    found: dict[int, list[float]] = {}
    for sample in counted(pair, side):
        for part in sample.latencies:
            if part.series == series:
                found.setdefault(part.rank, []).extend(part.seconds)
    return found


def _latency(pair: Pair, side: str, metric: str) -> float | None:
    """The percentile of the slowest rank; None where one has too few units."""
    about, ranks = LATENCIES[metric], latencies(pair, side, LATENCIES[metric].series).values()
    if not ranks or min(map(len, ranks)) < fewest_units(about.share):
        return None
    return max(percentile(units, about.share) for units in ranks)


def side_run(pair: Pair, side: str) -> SideRun | None:
    """Find the report of one side of a pair besides its samples."""
    return next((r for r in pair.runs if r.side == side), None)


def done_outside(pairs: Sequence[Pair], side: str) -> dict[str, str]:
    """``reason``: why a side does or keeps elsewhere what another one does not, by its workload; empty without one."""
    runs = (run for pair in pairs if (run := side_run(pair, side)) is not None and run.coverage is not None)
    reason = next((run.coverage.done_outside for run in runs if run.coverage), "")
    return {"reason": reason} if reason else {}


def has_metric(pairs: Sequence[Pair], case: Case, *, metric: str, sides: Sequence[str]) -> bool:
    """Whether every pair that counts holds a positive number of this metric for each of the sides."""
    used = valid(pairs)
    how = reading(used, case, metric=metric)
    return bool(used) and all((side_value(p, s, how=how) or 0) > 0 for p in used for s in sides)


def lacks_primary_metric(pair: Pair, case: Case) -> tuple[str, str]:
    """The first side of which a pair lacks the metric that the case is about, and a sentence; both empty when none."""
    metric = case.measure.metric
    how = reading([pair], case, metric=metric)
    for side in (s.name for s in case.sides):
        if pair.void or (side_value(pair, side, how=how) or 0) > 0:
            continue
        reported = side_value(pair, side, how=how) is not None
        what = "is 0, which has no ratio" if reported else "was not reported"
        sentence = f"{metric} is the metric of this case, but {what}"
        if metric == "peak_memory":
            sentence += "; it is unknown for a program smaller than aiperf"
        if metric in LATENCIES:
            about = LATENCIES[metric]
            units = min(map(len, latencies(pair, side, about.series).values()), default=0)
            needed = fewest_units(about.share)
            found = f"a launch reported {units}: {needed - units} are missing"
            if not units:
                found = f"the workload reports no series {about.series} (latencies)"
            sentence = f"{metric} is the metric of this case and needs {needed} timed units of work, but {found}"
        return side, sentence
    return "", ""


def values(pairs: Sequence[Pair], side: str, *, how: MetricSource) -> list[float]:
    """``side_value`` of every pair. Raises ComparisonError where one is missing, zero or not finite."""
    return [_positive(side_value(p, side, how=how), p, side, how) for p in pairs]


def _positive(value: float | None, pair: Pair, side: str, how: MetricSource) -> float:
    label = how.metric.label
    if value is None:
        raise ComparisonError(f"pair {pair.index} holds no {label} of {side}.")
    if not (math.isfinite(value) and value > 0):
        raise ComparisonError(f"{label} of {side} in pair {pair.index} is {value:g}: no ratio can be taken.")
    return value


def log_ratios(
    pairs: Sequence[Pair], case: Case, *, metric: str, side: str, against: str
) -> tuple[list[float], list[int]]:
    """Log-ratio d and position o of every pair that counts, in pair order.

    d_p = ln T_against - ln T_side for a metric where lower is better, else its negative: above 0 is better.
    o_p as ``positions`` (METHOD 2).
    Raises ComparisonError when a number is missing or not positive.
    """
    used = valid(pairs)
    how = reading(used, case, metric=metric)
    sign = 1.0 if how.metric.better == "lower" else -1.0
    d = [sign * _log_ratio(p, side=side, against=against, how=how) for p in used]
    return d, positions(used, side=side, against=against)


def positions(pairs: Sequence[Pair], *, side: str, against: str) -> list[int]:
    """+1 for a pair in which ``against`` went first, else -1."""
    return [1 if p.order.index(against) < p.order.index(side) else -1 for p in pairs]


def _log_ratio(pair: Pair, *, side: str, against: str, how: MetricSource) -> float:
    if how.by_round:
        key = ("rounds", side, against, how.field)
        return once(pair, key, lambda: round_log_ratio(pair, side=side, against=against, field=how.field))
    value, base = (values([pair], s, how=how)[0] for s in (side, against))
    return math.log(base) - math.log(value)


def round_log_ratio(pair: Pair, *, side: str, against: str, field: str = "wall_s") -> float:
    """Median over rounds of ln(T_against / T_side), T the mean time per iteration of a side's turn in that round.

    Rounds that one of the sides lacks are left out. Raises ComparisonError when none is left or a time is zero.
    """
    turns = {name: _by_round(pair, name) for name in (side, against)}
    shared = sorted(turns[side].keys() & turns[against].keys())
    if not shared:
        raise ComparisonError(f"pair {pair.index} has no round that holds both {against} and {side}.")
    logs = []
    for number in shared:
        mine, base = (_mean(turns[name][number], field) for name in (side, against))
        if mine <= 0 or base <= 0:
            raise ComparisonError(f"round {number} of pair {pair.index} holds a time of zero: no ratio can be taken.")
        logs.append(math.log(base) - math.log(mine))
    return float(statistics.median(logs))


def _by_round(pair: Pair, side: str) -> dict[int, list[Sample]]:
    return once(pair, ("by_round", side), lambda: _turns(counted(pair, side)))


def _turns(samples: Sequence[Sample]) -> dict[int, list[Sample]]:
    rounds: dict[int, list[Sample]] = {}
    for sample in samples:
        rounds.setdefault(sample.round, []).append(sample)
    return rounds
