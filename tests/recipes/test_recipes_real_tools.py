"""The profilers themselves over a shipped scenario, each where this machine has it; the end of the test run says which.

Elsewhere the same test holds that the reason is told in the profile, with the way out.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from recipes_made import HOST, make_settings

from aiperf.launch.guardian import Guardian
from aiperf.plan.suites import plan_selected
from aiperf.profilers.profiler import ToolStatus
from aiperf.profilers.registry import statuses
from aiperf.recipes.profile_case import ProfileRequest, profile_case
from aiperf.records import Case
from aiperf.records.profiled import Profile

pytestmark = pytest.mark.long
SCENARIO = "strided-gather-vs-contiguous-copy"
TOKEN = "hunter2-5f3a9c-planted"
ITEMS = 1 << 22


@pytest.fixture(scope="module")
def guardian() -> Iterator[Guardian]:
    with Guardian() as running:
        yield running


@pytest.fixture
def stranger(tmp_path: Path) -> Iterator[None]:
    """A process that has nothing to do with the profile but a secret, which nsys may read."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(120)"], env={"API": TOKEN}) as process:
        yield
        process.kill()


def scenario() -> Case:
    (case,) = plan_selected([SCENARIO], None, HOST, make_settings(), only={}).cases
    # Smaller than the scenario has it, for the time.
    return replace(case, sides=tuple(replace(side, params={**side.params, "n": ITEMS}) for side in case.sides))


def profiled(case: Case, status: ToolStatus, folder: Path, guardian: Guardian) -> Profile:
    scratch = folder / "scratch"
    scratch.mkdir()
    request = ProfileRequest((status,), limit=90.0, seed=3)
    return profile_case(case, request, scratch=scratch, raw=folder / "raw", guardian=guardian, note=lambda _: None)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("tool", ["nsys", "torch"])
@pytest.mark.usefixtures("stranger")
def test_a_tool_reads_both_sides_of_a_shipped_scenario_and_keeps_no_secret(
    tool: str, tmp_path: Path, guardian: Guardian, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MY_TOKEN", TOKEN)
    status = next(status for status in statuses(HOST) if status.tool == tool)
    case = scenario()
    told = profiled(case, status, tmp_path, guardian)
    if not status.usable:
        (artefact,) = told.artefacts
        assert (artefact.status, artefact.reason.startswith(status.reason)) == ("skipped", True)
        assert status.fix
        return
    assert [(a.side, a.status) for a in told.artefacts] == [("before", "read"), ("after", "read")], told.artefacts
    sides = {side.side: side for side in told.sides if side.tool == tool}
    assert list(sides) == ["before", "after"]
    for side in sides.values():
        assert side.iterations >= 1
        assert side.peak_bytes is not None
        assert side.peak_bytes > 4 * ITEMS
        assert side.wall_s is not None
        # Four million floats: 32 MB to and fro, at the memory bandwidth of any machine and of none.
        assert 1e-5 < side.wall_s / side.iterations < 5.0
    assert [m.counter for m in told.mechanism] == ["cache_misses"]
    raw = tmp_path / "raw"
    kept = list(raw.iterdir()) if raw.exists() else []
    assert TOKEN not in json.dumps(asdict(told), default=str)
    assert [path.name for path in kept if TOKEN.encode() in path.read_bytes()] == []
    assert {file for artefact in told.artefacts for file in artefact.files} == {path.name for path in kept}
