"""The recipe of `aiperf peaks`: measure roofs of this host through the ordinary launch path, and keep them.

What must not live here: which roofs exist (host/peaks.py), and holding results against them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from aiperf.analysis.limits import Peak as Ceiling
from aiperf.errors import AiperfError
from aiperf.host.facts import HostFacts
from aiperf.host.peaks import ROOFS, Peak, Roof, better, load_peaks, peak_from, roof, roof_case, save_peak
from aiperf.launch.gang import LaunchFailed, LaunchSkipped
from aiperf.plan.needs import unmet
from aiperf.records import Case, Check, Pair
from aiperf.stand import Stand

Note = Callable[[str], None]


@dataclass(frozen=True)
class RoofOutcome:
    """A roof's peak, or why there is none."""

    roof: Roof
    peak: Peak | None
    problem: str = ""
    fresh: bool = False


def ceilings(host_id: str) -> dict[str, Ceiling]:
    """What is known of this host, as the analysis wants it: amount per second. A floor becomes its inverse."""
    known = {}
    for name, peak in load_peaks(host_id).items():
        declared = roof(name)
        if declared is None:
            continue
        floor = declared.floor
        known[name] = Ceiling(1 / peak.value if floor else peak.value, "launches/s" if floor else peak.unit)
    return known


def measure_roofs(
    names: Iterable[str], *, stand: Stand, host: HostFacts, host_id: str, note: Note
) -> list[RoofOutcome]:
    """Measure these roofs and keep the better of old and new."""
    return [_measure(r, stand, host, host_id, note) for r in ROOFS if r.name in set(names)]


def _measure(declared: Roof, stand: Stand, host: HostFacts, host_id: str, note: Note) -> RoofOutcome:
    missing = unmet(declared.needs, host, ranks=declared.ranks)
    if missing:
        return RoofOutcome(declared, None, missing[0][0])
    note(f"measuring the limit {declared.name} of this host, once ({declared.title})")
    best: Peak | None = load_peaks(host_id).get(declared.name)
    problem = ""
    for variant in range(len(declared.variants)):
        case = _with_clock(roof_case(declared, variant))
        try:
            pair = stand.measure(case, 0, ("peak",), variant)
        except (LaunchFailed, LaunchSkipped) as error:
            problem = str(error)
            continue
        best = better(declared, best, _peak(declared, case, pair))
    if problem:
        note(f"the limit {declared.name} was not measured as meant: {problem}")
    if best is None:
        return RoofOutcome(declared, None, problem)
    try:
        save_peak(host_id, best)
    except OSError as error:
        raise AiperfError(f"the peaks of this host cannot be kept: {error}") from None
    return RoofOutcome(declared, best, fresh=True)


def _peak(declared: Roof, case: Case, pair: Pair) -> Peak:
    device = case.measure.clock == "device"
    taken = [s for s in pair.samples if not s.audit and (not device or s.device_s is not None)]
    times = [(s.device_s if device else s.wall_s) / s.iterations for s in taken]  # type: ignore[operator]
    run = pair.runs[0]
    amount = float(run.work.get("roofs", {}).get(declared.name, 0.0))
    conditions = {**case.sides[0].params, "cpus": list(pair.cpus), **_plain(run.facts)}
    return peak_from(declared, times, amount=amount, conditions=conditions)


def _with_clock(case: Case) -> Case:
    clock = case.measure.clock
    if clock == "auto":
        clock = "device" if case.needs.gpus else "wall"
    return replace(case, measure=replace(case.measure, clock=clock), check=Check("none"))


def _plain(facts: Mapping[str, object]) -> dict[str, object]:
    return {key: facts[key] for key in ("torch", "threads", "device") if key in facts}
