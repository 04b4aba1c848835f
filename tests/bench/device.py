"""The figures that need a GPU: equal sides on the device clock, the clock against nvbench, transfers against peaks.

What must not live here: anything a machine without a GPU could measure.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from aiperf.host.read import read_host
from tests.bench import calibrate
from tests.bench.figures import Figure, percent
from tests.bench.shell import ROOT, aiperf, keep, kept, machine, run, say

CONTROLS = ROOT / "scenarios" / "controls-gpu"
PEAK_SPECS = {"pageable-vs-pinned-copy": ("h2d", 0.95), "strided-vs-coalesced-access": ("stride=1", 0.92)}
"""Scenario -> the cases that promise a share of the measured limit (a part of their id), and that share."""


def measure(out: Path, *, sessions: int, power_sessions: int) -> list[Figure]:
    """Every figure of the device, or the one row that says why there is none."""
    host = read_host()
    if not host.gpus:
        why = f"no GPU here ({host.gpu_problem})" if host.gpu_problem else "no GPU here"
        return [Figure("device clock, A/A on a GPU, shares of the limits", "measured", why)]
    own = out / "device"
    for scenario in sorted(p.stem for p in CONTROLS.glob("*.yaml")):
        calibrate.measure(own, scenario=scenario, sessions=sessions, power_sessions=power_sessions)
    rows = calibrate.figures(own / "calibrate")
    return [*rows, *_nvbench(own), *(row for scenario in PEAK_SPECS for row in _roof(scenario, own))]


def _nvbench(own: Path) -> list[Figure]:
    data = kept(own / "nvbench.json")
    if data is None:
        say("the device clock against nvbench")
        done = run(sys.executable, "tests/gpu/nvbench_compare.py")
        try:
            data = {**machine(), **json.loads(done.out)}
        except ValueError:
            return [Figure("device clock against nvbench", "measured", done.err.strip()[-120:] or "no answer", False)]
        keep(own / "nvbench.json", data)
    return [
        Figure(
            f"device clock against nvbench, {name}",
            "1 % above 100 us, 0.5 us below",
            f"{row['difference_s'] * 1e6:+.3f} us ({percent(row['ratio'] - 1)})",
            bool(row["agrees"]),
        )
        for name, row in data["kernels"].items()
    ]


def _roof(scenario: str, own: Path) -> list[Figure]:
    part, share = PEAK_SPECS[scenario]
    path = own / f"{scenario}.json"
    rows: list[dict[str, Any]] | None = kept(path)
    if rows is None:
        say(f"{scenario} against the measured limits")
        done = aiperf("run", scenario, "--json", "--quiet", "--results", str(own / "results"), state=own / "state")
        try:
            rows = json.loads(done.out)["rows"]
        except (ValueError, KeyError):
            return [Figure(scenario, f">= {percent(share)}", done.err.strip()[-120:] or "no answer", False)]
        keep(path, rows)
    found = [r for r in rows if r["primary"] and part in r["case"] and r["limit_share"] is not None]
    if not found:
        return [Figure(f"{scenario}, {part}", f">= {percent(share)}", "no case has a share", False)]
    best = max(found, key=lambda r: r["limit_share"])
    name = f"{best['case']}: share of {best['limit_peak']}"
    return [Figure(name, f">= {percent(share)}", percent(best["limit_share"]), best["limit_share"] >= share)]
