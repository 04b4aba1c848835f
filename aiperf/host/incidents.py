"""Judges what telemetry saw of the environment while a pair ran: which of it voids the pair, which is only reported.

What must not live here: reading anything, and statistics over the sides' times.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from aiperf.host.telemetry import GpuProcess, Telemetry
from aiperf.records import Incident
from aiperf.units import format_percent

_STEAL = 0.02
_COST = 0.01
"""Share of one core from which the reading itself is reported as a disturbance."""
_JUDGED_S = 1.0
"""A shorter pair is over after a reading or two, of which one more or less is a share of its own."""
_VOIDING = {
    "hw_thermal": ("thermal", "the GPU was too hot (hardware thermal slowdown)"),
    "sw_thermal": ("thermal", "the GPU was too hot (software thermal slowdown)"),
    "hw_power_brake": ("power_brake", "the power supply made the GPU slow down"),
    "hw_slowdown": ("hw_slowdown", "the hardware slowed the GPU down"),
}


def is_phase(mark: str) -> bool:
    """Whether a mark names a phase in words rather than a side, whose names hold no space."""
    return " " in mark


def judge(telemetry: Telemetry, own_pids: Collection[int]) -> tuple[Incident, ...]:
    """What of the environment touched the pair, per METHOD 7.

    Heat, a power brake, another process on the GPU, changed clocks: the pair is void. The power cap is a cost of the
    code itself, and stolen CPU time is noise of both sides: reported, not void. ``own_pids``: aiperf and its workers;
    their descendants are own too.
    """
    incidents = [*_slowdowns(telemetry), *_foreign(telemetry, set(own_pids))]
    incidents += [Incident("clock", "", change, voids=True) for change in telemetry.changes]
    incidents += [Incident("xid", "", error, voids=True) for error in telemetry.xids]
    for side, values in telemetry.sides.items():
        if values.get("cpu_steal", 0.0) > _STEAL and not is_phase(side):
            share = f"{format_percent(values['cpu_steal'])} of the CPU time went to other virtual machines"
            incidents.append(Incident("steal", side, share))
    if telemetry.cost > _COST and telemetry.seconds >= _JUDGED_S:
        share = f"reading clocks and counters took {format_percent(telemetry.cost)} of one core"
        incidents.append(Incident("sampling_cost", "", share))
    if telemetry.problem:
        incidents.append(Incident("telemetry", "", telemetry.problem))
    return tuple(incidents)


def _slowdowns(telemetry: Telemetry) -> list[Incident]:
    incidents = []
    for side, counts in telemetry.reasons.items():
        total = telemetry.readings.get(side, 0)
        for reason, (kind, sentence) in _VOIDING.items():
            if counts.get(reason):
                incidents.append(Incident(kind, side, f"{sentence}: {counts[reason]} of {total} readings", voids=True))
        if side and not is_phase(side) and counts.get("sw_power_cap"):
            detail = f"the GPU was at its power limit in {counts['sw_power_cap']} of {total} readings"
            incidents.append(Incident("power_cap", side, detail))
    return incidents


def _foreign(telemetry: Telemetry, own: set[int]) -> list[Incident]:
    """One incident a process, whichever GPUs and turns it was seen in; a side only when it met no other."""
    foreign: dict[int, list[GpuProcess]] = defaultdict(list)
    for seen in telemetry.processes:
        if seen.pid not in own and not own & set(seen.owners):
            foreign[seen.pid].append(seen)
    incidents = []
    for pid, places in foreign.items():
        sides = {side for place in places for side in place.sides}
        gpus = ", ".join(str(place.gpu) for place in places)
        detail = f"process {pid} ({places[0].command}) used GPU {gpus}"
        incidents.append(Incident("foreign_gpu_process", sides.pop() if len(sides) == 1 else "", detail, voids=True))
    return incidents
