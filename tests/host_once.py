"""The state of the host, which every run reads before its first pair, is read once for all tests of a process.

What must not live here: what a test expects of a finding. A test that changes what is found reads anew.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest

from aiperf.host import health
from aiperf.host.facts import HostFacts
from aiperf.host.health import HealthReading
from aiperf.host.probes.reader import Phase

_READ = health.read_health
_KEPT: dict[Any, HealthReading] = {}


def _remembered(ids: Collection[str], *, host: HostFacts, phase: Phase = "start", data: Path = Path()) -> HealthReading:
    asked = (frozenset(ids), host.hostname, host.cpus, host.gpus, phase)  # its free memory differs at each look
    if asked not in _KEPT:
        _KEPT[asked] = _READ(ids, host=host, phase=phase, data=data)
    return _KEPT[asked]


@pytest.fixture(scope="session", autouse=True)
def the_host_is_looked_at_once() -> Iterator[None]:
    """This reading is a third of a scripted run's time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(health, "read_health", _remembered)
        yield


@pytest.fixture
def host_read_anew(the_host_is_looked_at_once: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a test that changes what is found, or leaves something for the next run to find."""
    monkeypatch.setattr(health, "read_health", _READ)
