"""How soon the command answers, and what it loads for that.

What must not live here: targets of other parts.
"""

from __future__ import annotations

import statistics
from pathlib import Path

from tests.bench.figures import Figure, seconds, under
from tests.bench.shell import aiperf, aiperf_seen, keep, machine, say

RUNS = 10
LIMITS = {"--help": 0.35, "list": 0.8, "doctor": 3.0}


def measure(out: Path) -> list[Figure]:
    """Medians of whole processes, and what was in sys.modules at their end."""
    figures, data = [], machine()
    for argument, limit in LIMITS.items():
        aiperf(argument, state=out / "state")
        runs = [aiperf(argument, state=out / "state") for _ in range(RUNS)]
        times = [r.seconds for r in runs]
        seen = aiperf_seen(argument, state=out / "state")
        heavy = seen.facts.get("heavy")
        fine = all(r.code == 0 for r in runs) and seen.code == 0 and heavy == []
        data[argument] = {"seconds": times, "heavy": heavy}
        say(f"aiperf {argument}: {seconds(statistics.median(times))}")
        figures.append(under(f"aiperf {argument}", statistics.median(times), limit, seconds))
        loaded = "unknown" if heavy is None else ", ".join(heavy) or "none"
        figures.append(Figure(f"aiperf {argument}: torch, pandas, scipy loaded", "none", loaded, fine))
    keep(out / "startup.json", data)
    return figures
