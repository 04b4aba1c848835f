"""The recipe of `aiperf peaks`: measure peaks of this host through the ordinary launch path, and keep them.

What must not live here: which peaks exist (host/peaks.py), and holding results against them.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from aiperf.analysis.distributions import t_quantile
from aiperf.analysis.limits import PeakRate
from aiperf.errors import AiperfError, Exit
from aiperf.host.facts import HostFacts
from aiperf.host.fingerprint import fingerprint
from aiperf.host.peaks import (
    FEWEST_LAUNCHES,
    PEAK_SPECS,
    Peak,
    PeakSpec,
    better,
    kept,
    load_peaks,
    peak_case,
    peak_from,
    peak_spec,
    save_peak,
    shared_case,
)
from aiperf.launch.gang import LaunchFailed, LaunchSkipped
from aiperf.plan.needs import unmet
from aiperf.plan.order import PairPlan
from aiperf.recipes.session import MeasurementSession
from aiperf.records import Case, Check, Pair
from aiperf.settings import Settings
from aiperf.units import significant

Note = Callable[[str], None]
_ALPHA = 0.05
"""Two-sided error of a peak's interval."""
_UNSTEADY = 2.0
"""Upper end of an interval over its lower one from which a peak is to be measured again. Our own choice."""


@dataclass(frozen=True)
class PeakOutcome:
    """The result of measuring one peak."""

    spec: PeakSpec
    peak: Peak | None
    """The best that is known by now, of this occasion or of one before."""
    problem: str = ""
    """Why nothing was measured now, or why what was is not worth much."""
    fresh: bool = False
    """Whether it was measured now."""
    skipped: bool = False
    """Whether this host cannot have it, rather than that measuring it failed."""


def peaks_exit(outcomes: Sequence[PeakOutcome]) -> Exit:
    """Exit code of measuring peaks: one that was measured is enough; else a failure counts before a skip."""
    if not outcomes or any(outcome.fresh for outcome in outcomes):
        return Exit.OK
    return Exit.SKIPPED if all(outcome.skipped for outcome in outcomes) else Exit.WRONG


def peak_rates(host_id: str) -> dict[str, PeakRate]:
    """What is known of this host, as the analysis wants it: amount per second. A floor becomes its inverse.

    A peak whose launches disagree is not known: by one that a busy host gave, honest results would be impossible.
    """
    known = {}
    for name, peak in load_peaks(host_id).items():
        declared = peak_spec(name)
        if declared is None or _span(peak) > _UNSTEADY:
            continue
        floor = declared.floor
        known[name] = PeakRate(1 / peak.value if floor else peak.value, "launches/s" if floor else peak.unit)
    return known


def run_peaks(names: Sequence[str], *, host: HostFacts, settings: Settings, note: Note) -> tuple[Exit, tuple[str, ...]]:
    """Measure these peaks (all without names) in a session of their own; the exit code, and what went wrong."""
    host_id, _ = fingerprint(host)
    with MeasurementSession(host, settings) as session:
        try:
            outcomes = measure_peaks(
                names or [spec.name for spec in PEAK_SPECS], session=session, host=host, host_id=host_id, note=note
            )
        except KeyboardInterrupt:
            return Exit.INTERRUPTED, ("interrupted: the peaks measured so far are kept and shown",)
    return peaks_exit(outcomes), tuple(f"{o.spec.name}: {o.problem}" for o in outcomes if o.problem)


def measure_peaks(
    names: Iterable[str],
    *,
    session: MeasurementSession,
    host: HostFacts,
    host_id: str,
    note: Note,
    then: Sequence[PairPlan] = (),
) -> list[PeakOutcome]:
    """Measure these peaks and keep the better of old and new; ``then``: the pairs that are likely to come after."""
    chosen = [r for r in PEAK_SPECS if r.name in set(names)]
    launcher = _Launcher(session, tuple(then))
    found = _in_one_process([r for r in chosen if r.shares and not _missing(r, host)], launcher, note)
    return [_measure(r, found.get(r.name), launcher, host, host_id, note) for r in chosen]


@dataclass(frozen=True)
class _Launcher:
    """Launches cases of peaks, one after the other, and says what comes next."""

    session: MeasurementSession
    then: tuple[PairPlan, ...]

    def measure(self, plan: PairPlan, following: Sequence[PairPlan]) -> Pair:
        """One launch. Raises LaunchFailed, LaunchSkipped."""
        self.session.expect((*following, *self.then))
        return self.session.measure(plan.case, plan.index, plan.order, plan.seed, audits=0)


def over_launches(spec: PeakSpec, launches: Sequence[Peak]) -> Peak:
    """The peak of several launches of one variant, with an interval over them (Student's t of the logarithms).

    The launch is what is independent of the next one, so its best sample counts once. Two launches give no interval
    worth showing. Raises ValueError without any.
    """
    best: Peak | None = None
    for one in launches:
        best = better(spec, best, one)
    if best is None:
        raise ValueError(f"{spec.name}: no launch, no peak")
    ends = [end for one in launches for end in (one.low, one.high)]
    low, high = (max(ends), min(ends)) if spec.floor else (min(ends), max(ends))
    samples = sum(one.samples for one in launches)
    span = _interval([one.value for one in launches]) if len(launches) >= FEWEST_LAUNCHES else (0.0, 0.0)
    whole = replace(best, low=low, high=high, samples=samples, latest=best.value, launches=len(launches))
    return replace(whole, interval_low=span[0], interval_high=span[1])


def _interval(values: Sequence[float]) -> tuple[float, float]:
    logs = [math.log(value) for value in values]
    middle, error = statistics.fmean(logs), statistics.stdev(logs) / math.sqrt(len(logs))
    half = t_quantile(1 - _ALPHA / 2, len(logs) - 1) * error
    return math.exp(middle - half), math.exp(middle + half)


def _span(peak: Peak) -> float:
    """Upper end of the interval over its launches, over the lower one; 1 where there is none."""
    return peak.interval_high / peak.interval_low if peak.interval_low else 1.0


def _unsteady(peak: Peak) -> str:
    """Why the launches of a peak say little about it; empty where they agree, or where there is no interval."""
    if _span(peak) <= _UNSTEADY:
        return ""
    spans = f"the interval over its launches spans a factor of {significant(_span(peak))}"
    return f"{spans}: something disturbed them, so measure again on an idle host"


def _missing(declared: PeakSpec, host: HostFacts) -> str:
    lacking = unmet(declared.needs, host, ranks=declared.ranks)
    return lacking[0][0] if lacking else ""


def _in_one_process(specs: Sequence[PeakSpec], launcher: _Launcher, note: Note) -> dict[str, Peak]:
    """Peaks that can share a process, by name; none when that fails: then each is measured by itself."""
    if len(specs) < 2:
        return {}
    note(f"measuring the peaks {', '.join(r.name for r in specs)} of this host")
    case, of_side = shared_case(specs)
    case = _with_clock(case)
    names = tuple(side.name for side in case.sides)
    launches: dict[str, list[Peak]] = {name: [] for name in names}
    plans = [PairPlan(case, number, names, number) for number in range(FEWEST_LAUNCHES)]
    for place, plan in enumerate(plans, start=1):
        try:
            pair = launcher.measure(plan, plans[place:])
        except (LaunchFailed, LaunchSkipped) as error:
            note(f"measuring the peaks one by one, because measuring them together failed: {error}")
            return {}
        for name, (declared, _) in of_side.items():
            launches[name].append(_peak(declared, case, pair, side=name))
    found: dict[str, Peak] = {}
    for name, (declared, _) in of_side.items():
        one = over_launches(declared, launches[name])
        found[declared.name] = better(declared, found.get(declared.name), one) or one
    return found


def _measure(
    declared: PeakSpec, found: Peak | None, launcher: _Launcher, host: HostFacts, host_id: str, note: Note
) -> PeakOutcome:
    old = load_peaks(host_id).get(declared.name)
    if missing := _missing(declared, host):
        return PeakOutcome(declared, old, missing, skipped=True)
    problems: list[Exception] = []
    if found is None:
        note(f"measuring the peak {declared.name} of this host ({declared.title})")
        found, problems = _variants(declared, launcher)
    if problems:
        note(f"the peak {declared.name} was not measured as intended: {problems[-1]}")
    if found is None:
        skipped = all(isinstance(problem, LaunchSkipped) for problem in problems)
        return PeakOutcome(declared, old, str(problems[-1]), skipped=skipped)
    best = kept(declared, old, found)
    try:
        save_peak(host_id, best)
    except OSError as error:
        raise AiperfError(f"the peaks of this host cannot be kept: {error}") from None
    return PeakOutcome(declared, best, _unsteady(found), fresh=True)


def _variants(declared: PeakSpec, launcher: _Launcher) -> tuple[Peak | None, list[Exception]]:
    """Launch every variant once and the best one again, so that its launches give an interval."""
    problems: list[Exception] = []
    first = _launches(declared, launcher, [(variant, 0) for variant in range(len(declared.variants))], problems)
    best: Peak | None = None
    for one in first:
        best = better(declared, best, one)
    if best is None:
        return None, problems
    variant = first.index(best)
    again = _launches(declared, launcher, [(variant, number) for number in range(1, FEWEST_LAUNCHES)], problems)
    found = over_launches(declared, [best, *(one for one in again if one is not None)])
    return replace(found, by_size=_by_size(declared, first, variant, found)), problems


def _by_size(declared: PeakSpec, first: Sequence[Peak | None], variant: int, best: Peak) -> dict[str, float]:
    """Value of the swept parameter, in order -> best sample with it; the best one's from all its launches."""
    if not declared.sweep:
        return {}
    reached = [best if number == variant else one for number, one in enumerate(first)]
    known = {int(v[declared.sweep]): one.value for v, one in zip(declared.variants, reached, strict=True) if one}
    return {str(size): known[size] for size in sorted(known)}


def _launches(
    declared: PeakSpec, launcher: _Launcher, which: Sequence[tuple[int, int]], problems: list[Exception]
) -> list[Peak | None]:
    """The peak of each (variant, number of its launch); None, and one problem more, where it failed."""
    plans = [
        PairPlan(_with_clock(peak_case(declared, variant)), number, ("peak",), variant + 100 * number)
        for variant, number in which
    ]
    found: list[Peak | None] = []
    for place, plan in enumerate(plans, start=1):
        try:
            found.append(_peak(declared, plan.case, launcher.measure(plan, plans[place:])))
        except (LaunchFailed, LaunchSkipped) as error:
            problems.append(error)
            found.append(None)
    return found


def _peak(declared: PeakSpec, case: Case, pair: Pair, *, side: str = "peak") -> Peak:
    device = case.measure.clock == "device"
    mine = [s for s in pair.samples if s.side == side and not s.audit]
    taken = [s for s in mine if not device or s.device_s is not None]
    times = [(s.device_s if device else s.wall_s) / s.iterations for s in taken]  # type: ignore[operator]
    run = next(run for run in pair.runs if run.side == side)
    amount = float(run.work.get("peaks", {}).get(declared.name, 0.0))
    params = next(s.params for s in case.sides if s.name == side)
    conditions = {**params, "cpus": list(pair.cpus), **_plain(run.facts)}
    return peak_from(declared, times, amount=amount, conditions=conditions)


def _with_clock(case: Case) -> Case:
    clock = case.measure.clock
    if clock == "auto":
        clock = "device" if case.needs.gpus else "wall"
    return replace(case, measure=replace(case.measure, clock=clock), check=Check("none"))


def _plain(facts: Mapping[str, object]) -> dict[str, object]:
    return {key: facts[key] for key in ("torch", "threads", "device") if key in facts}
