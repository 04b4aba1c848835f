"""Keeps what A/A calibration found on this host, per mode and scenario.

What must not live here: running sittings, and the statistics over them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from aiperf.host import keep
from aiperf.records import Case

_KIND = "calibration"


@dataclass(frozen=True)
class Calibration:
    """The outcome of one ``aiperf calibrate``."""

    mode: str
    """Isolation and clock: ``process+wall``."""
    scenario: str
    sittings: int
    false_positives: int
    """Sittings with a verdict beyond the threshold, though both sides were equal."""
    bound: float
    """Clopper-Pearson upper bound (95 %) of the false-positive rate."""
    tau: float
    """Between-sitting standard deviation of the log-ratio."""
    threshold: float
    """Effective threshold, as a ratio minus 1: never below twice tau."""
    when: str
    """ISO 8601, UTC."""
    excludes_one: int = 0
    """Sittings whose interval excluded 1."""
    tau_upper: float = 0.0
    """Upper 90 % bound of tau, for gates (METHOD 9); 0 where it was not kept."""
    scale: float = 1.0
    """Factor on the standard error that the sittings' z values ask for."""
    power: dict[str, float] = field(default_factory=dict)
    """Injected slowdown (``0.05``) -> share of sittings that found it."""


def mode_of(case: Case) -> str:
    """The name under which a case's way of measuring is calibrated."""
    return "command" if case.is_command else f"{case.measure.isolation}+{case.measure.clock}"


def load_calibration(host_id: str) -> tuple[Calibration, ...]:
    """Every stored calibration of this host; entries that this version cannot read are left out."""
    entries = keep.load(keep.path_of(_KIND, host_id))
    return tuple(c for entry in entries.values() if (c := _calibration(entry)) is not None)


def save_calibration(host_id: str, calibration: Calibration) -> None:
    """Store, replacing the one of the same mode and scenario. Raises OSError."""
    key = f"{calibration.mode}/{calibration.scenario}"
    keep.update(keep.path_of(_KIND, host_id), {key: asdict(calibration)})


def calibration_for(stored: Iterable[Calibration], *, mode: str, scenario: str) -> Calibration | None:
    """The one of this very scenario, else the noisiest of the same mode, else None."""
    same = [c for c in stored if c.mode == mode]
    own = [c for c in same if c.scenario == scenario]
    return max(own or same, key=lambda c: c.threshold, default=None)


def of_case(case: Case, stored: Iterable[Calibration]) -> Calibration | None:
    """The calibration that speaks for a case's way of measuring; None when it was never calibrated."""
    return calibration_for(stored, mode=mode_of(case), scenario=case.scenario)


def _calibration(entry: Any) -> Calibration | None:
    names = {f.name for f in fields(Calibration)}
    try:
        return Calibration(**{name: value for name, value in entry.items() if name in names})
    except (TypeError, AttributeError):
        return None
