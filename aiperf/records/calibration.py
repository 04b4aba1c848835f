"""What A/A calibration found on a host for one way of measuring, and which one speaks for a case.

What must not live here: running calibrations, the statistics over them, and where they are kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from aiperf.records.asked import Case


@dataclass(frozen=True)
class Calibration:
    """The outcome of one ``aiperf calibrate``."""

    mode: str
    """Isolation and clock: ``process+wall``."""
    scenario: str
    sessions: int
    false_positives: int
    """Sessions with a verdict beyond the threshold, though both sides were equal."""
    bound: float
    """Clopper-Pearson upper bound (95 %) of the false-positive rate."""
    tau: float
    """Between-session standard deviation of the log-ratio."""
    threshold: float
    """Effective threshold, as a ratio minus 1: never below twice tau."""
    when: str
    """ISO 8601, UTC."""
    excludes_one: int = 0
    """Sessions whose interval excluded 1."""
    tau_upper: float = 0.0
    """Upper 90 % bound of tau, for gates (METHOD 9); 0 where it was not kept."""
    scale: float = 1.0
    """Factor on the standard error that the sessions' z values ask for."""
    power: dict[str, float] = field(default_factory=dict)
    """Injected slowdown (``0.05``) -> share of sessions that found it."""


def mode_of(case: Case) -> str:
    """The name under which a case's way of measuring is calibrated."""
    return "command" if case.is_command else f"{case.measure.isolation}+{case.measure.clock}"


def calibration_for(stored: Iterable[Calibration], *, mode: str, scenario: str) -> Calibration | None:
    """The one of this very scenario, else the noisiest of the same mode, else None."""
    same = [c for c in stored if c.mode == mode]
    own = [c for c in same if c.scenario == scenario]
    return max(own or same, key=lambda c: c.threshold, default=None)


def of_case(case: Case, stored: Iterable[Calibration]) -> Calibration | None:
    """The calibration that speaks for a case's way of measuring; None when it was never calibrated."""
    return calibration_for(stored, mode=mode_of(case), scenario=case.scenario)
