"""What holds for every session of these tests."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

import pytest
from host_once import host_read_anew, the_host_is_looked_at_once  # noqa: F401 - fixtures

from aiperf.host.placement import place
from aiperf.host.probes.reader import HostReader
from aiperf.recipes import cpu_choice


@pytest.fixture(scope="session", autouse=True)
def _a_short_look_for_quiet_cpus() -> Iterator[None]:
    """Which CPUs are quiet is looked for in each session, for a third of a second unless it is shortened."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu_choice, "place", functools.partial(place, probe_seconds=0.01))
        patch.setattr(HostReader, "readings", 2)
        yield


@pytest.fixture(autouse=True)
def _in_no_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run asks git five times about the folder that it is started in, which takes long in a large checkout."""
    monkeypatch.chdir(tmp_path)
