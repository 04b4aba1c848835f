"""What an NVTX range costs when it is off, and when it is on and nobody listens.

What must not live here: profiled runs.
"""

from __future__ import annotations

from pathlib import Path

from aiperf.worker.ranges import Ranges, cost_per_range
from tests.bench.figures import Figure, seconds, under
from tests.bench.shell import keep, machine, say

OFF_LIMIT_S = 200e-9


def measure(out: Path) -> list[Figure]:
    """Seconds per iteration range, the loop around it included."""
    off, on = cost_per_range(on=False), cost_per_range(on=True)
    backend = Ranges.open(force=True).backend
    keep(out / "ranges.json", {**machine(), "off_s": off, "on_s": on, "backend": backend})
    say(f"range off {seconds(off)}, on through {backend} {seconds(on)}")
    return [
        under("NVTX range, off", off, OFF_LIMIT_S, seconds),
        Figure(f"NVTX range, on through {backend}, no tool attached", "shown", seconds(on)),
    ]
