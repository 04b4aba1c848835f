"""What aiperf adds to its workers' own time, and the memory of its own process.

What must not live here: verdicts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aiperf.store.read import open_run
from tests.bench.figures import Figure, mebibytes, percent, under
from tests.bench.shell import aiperf_seen, keep, kept, machine, say

SCENARIOS = ("same-vs-same", "strided-gather-vs-contiguous-copy", "python-loop-vs-vectorised")
SHARE, MEMORY = 0.10, 200 * 2**20


def measure(out: Path, *, fresh: bool = False) -> list[Figure]:
    """Run the scenarios at standard precision and read their records."""
    figures = []
    for scenario in SCENARIOS:
        path = out / "overhead" / f"{scenario}.json"
        data = None if fresh else kept(path)
        if data is None:
            data = _run(scenario, out)
            if data["code"] == 0:
                keep(path, data)
        for case in data["cases"]:
            share = case["harness_seconds"] / case["seconds"]
            name = f"{case['case']} ({case['status']}, {case['pairs']} pairs, {case['seconds']:.0f} s): aiperf's part"
            figures.append(under(name, share, SHARE, percent))
        peak = data["peak_bytes"]
        name = f"{scenario}: memory of aiperf's process"
        figures.append(under(name, peak, MEMORY, mebibytes) if peak else Figure(name, "< 200 MiB", "not seen", False))
    return figures


def _run(scenario: str, out: Path) -> dict[str, Any]:
    results = out / "overhead" / "results"
    say(f"overhead: {scenario} at standard precision")
    done = aiperf_seen("run", scenario, "--results", str(results), "--quiet", state=out / "state")
    if done.code != 0:
        say(f"exit {done.code}: {done.err.strip()[-500:]}")
        return {"code": done.code, "cases": [], "peak_bytes": None}
    records, _ = open_run(results=results).read_cases()
    cases = [
        {
            "case": r.case.id,
            "status": r.status,
            "pairs": len(r.pairs),
            "seconds": r.seconds,
            "harness_seconds": r.harness_seconds,
        }
        for r in records
    ]
    peak = done.facts.get("peak_bytes")
    for case in cases:
        say(f"{case['case']}: {case['harness_seconds']:.1f} s of {case['seconds']:.1f} s, peak {mebibytes(peak or 0)}")
    return {**machine(), "code": 0, "cases": cases, "peak_bytes": peak}
