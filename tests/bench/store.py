"""How soon a long history opens and answers, and the memory that takes: one million samples in 2,000 records.

What must not live here: how the history is made (many_runs.py).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.bench.figures import Figure, mebibytes, seconds, under
from tests.bench.many_runs import make_history
from tests.bench.shell import Done, aiperf_seen, keep, machine, run, say

RUNS, CASES, PAIRS, SAMPLES = 100, 20, 10, 500
TRIES = 5
"""The best counts: what else the machine does only ever adds to a time."""
OPEN, SCAN, MEMORY = 1.0, 2.0, 500 * 2**20
SQL = "SELECT scenario, count(*), avg(wall_s), quantile_cont(wall_s, .99) FROM samples GROUP BY 1"
_OPENING = """
import json, sys, time
began = time.perf_counter()
from pathlib import Path
from aiperf.store.history import entries
imported = time.perf_counter()
count = len(entries(Path(sys.argv[1]), scenario=sys.argv[2]).entries)
spent = time.perf_counter() - imported
with open("/proc/self/status", encoding="ascii") as status:
    peak = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))
print(json.dumps({"count": count, "spent": spent, "peak_bytes": peak}))
"""


def measure(out: Path) -> list[Figure]:
    """Make the history, open it and ask it, each time in a fresh process."""
    with TemporaryDirectory(prefix="aiperf-bench-store-") as folder:
        results = Path(folder) / "results"
        say(f"store: writing {RUNS * CASES} records")
        count = make_history(results, runs=RUNS, cases=CASES, pairs=PAIRS, samples=SAMPLES)
        opened = [_opened(results) for _ in range(TRIES)]
        one = [_opened(results, "copy-1") for _ in range(TRIES)]
        asked = [_asked(results, out) for _ in range(TRIES)]
    data = {**machine(), "samples": count, "opened": opened, "one_scenario": one, "asked": asked}
    keep(out / "store.json", data)
    whole = RUNS * CASES
    fine = all(o["count"] == whole for o in opened) and count == whole * SAMPLES
    fine &= all(sum(row["count_star()"] for row in a["rows"]) == count for a in asked)
    return [
        under(f"history of {whole} records: fresh process", _best(opened, "seconds"), OPEN, seconds),
        under("  of it aiperf's reading", _best(opened, "spent"), OPEN, seconds),
        under("  memory", _worst(opened), MEMORY, mebibytes),
        under("history of one scenario of five: fresh process", _best(one, "seconds"), OPEN, seconds),
        under(f"aiperf query over {count:,} samples: whole command", _best(asked, "seconds"), SCAN, seconds),
        under("  memory", _worst(asked), MEMORY, mebibytes),
        Figure("every record and every sample was seen", "yes", "yes" if fine else "no", fine),
    ]


def _opened(results: Path, scenario: str = "") -> dict[str, Any]:
    done = run(sys.executable, "-c", _OPENING, str(results), scenario)
    return {"seconds": done.seconds, **_read(done)}


def _asked(results: Path, out: Path) -> dict[str, Any]:
    done = aiperf_seen("query", SQL, "--results", str(results), "--json", state=out / "state")
    return {"seconds": done.seconds, "rows": _read(done), **done.facts}


def _read(done: Done) -> Any:
    if done.code:
        raise RuntimeError(f"exit {done.code}: {done.err.strip()[-500:]}")
    return json.loads(done.out)


def _best(tries: list[dict[str, Any]], name: str) -> float:
    return min(t[name] for t in tries)


def _worst(tries: list[dict[str, Any]]) -> float:
    return max(t["peak_bytes"] for t in tries)
