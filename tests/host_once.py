"""The state of the host, which every run reads before its first pair, is read once for all tests of a process.

What must not live here: what a test expects of a finding. A test that changes what is found reads anew.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from aiperf.host import health
from aiperf.host.facts import HostFacts
from aiperf.host.health import HealthReading
from aiperf.host.probes.reader import Phase


@contextmanager
def health_is_read_once() -> Iterator[Callable[..., HealthReading]]:
    """This reading is a third of a scripted run's time. Yields the function that reads the host anew."""
    read, kept = health.read_health, dict[Any, HealthReading]()

    def remembered(ids: Collection[str], *, host: HostFacts, phase: Phase = "start", data: Path) -> HealthReading:
        asked = (frozenset(ids), host.hostname, host.cpus, host.gpus, phase)  # its free memory differs at each look
        if asked not in kept:
            kept[asked] = read(ids, host=host, phase=phase, data=data)
        return kept[asked]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(health, "read_health", remembered)
        yield read
