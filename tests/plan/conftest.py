"""Hosts, and scenarios with a workload of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from plan_hosts import make_host

from aiperf.host.facts import HostFacts
from aiperf.scenario.load import load_scenario
from aiperf.scenario.model import Scenario

BENCH = """
def copy(ctx, *, size: Size, pinned: bool = False, n: int = 1, wait: Seconds = 0.0, defines: dict[str, int] = {}): ...
"""


@pytest.fixture
def host() -> Callable[..., HostFacts]:
    return make_host


@pytest.fixture
def scenario(tmp_path: Path) -> Callable[..., Scenario]:
    (tmp_path / "bench.py").write_text(BENCH)

    def _scenario(extra: str = "", *, name: str = "x", **blocks: str) -> Scenario:
        parts = {"title": "t", "why": "w", "workload": "./bench.py:copy", "params": "{size: 1MiB}"}
        parts |= {"before": "{pinned: false}", "after": "{pinned: true}", **blocks}
        path = tmp_path / f"{name}.yaml"
        path.write_text("".join(f"{k}: {v}\n" for k, v in parts.items() if v) + extra)
        return load_scenario(path)

    return _scenario
