"""Keeps what A/A calibration found on this host, per mode and scenario.

What must not live here: running sessions, and the statistics over them.
"""

from __future__ import annotations

from dataclasses import asdict

from aiperf.host import state_file
from aiperf.records.calibration import Calibration

_KIND = "calibration"


def load_calibration(host_id: str) -> tuple[Calibration, ...]:
    """Every stored calibration of this host; entries that this version cannot read are left out."""
    return tuple(state_file.load_as(Calibration, _KIND, host_id, renamed={"sittings": "sessions"}).values())


def save_calibration(host_id: str, calibration: Calibration) -> None:
    """Store, replacing the one of the same mode and scenario. Raises OSError."""
    key = f"{calibration.mode}/{calibration.scenario}"
    state_file.update(state_file.path_of(_KIND, host_id), {key: asdict(calibration)})
