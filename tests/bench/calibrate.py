"""Equal sides and injected slowdowns through ``aiperf calibrate``, pooled over its runs.

What must not live here: the statistics over sessions (aiperf.analysis.calibration has them).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from aiperf.analysis.calibration import SessionEstimate, calibrate, power, session_estimate
from aiperf.store.read import StoredRun, find_runs, open_run
from tests.bench.figures import Figure, calibration_figures, power_figure, sessions_figure
from tests.bench.shell import aiperf, keep, machine, say

SLOWDOWNS = (0.02, 0.05)
_CHUNK, _FEWEST = 10, 2
_ID = re.compile(r"(?P<case>.*)@(?:aa|\+(?P<percent>\d+)%)-\d+")


@dataclass
class Pool:
    """The sessions of one case."""

    equal: list[SessionEstimate] = field(default_factory=list)
    slowed: dict[float, list[SessionEstimate]] = field(default_factory=lambda: {s: [] for s in SLOWDOWNS})
    delta: float = 0.02
    """Threshold that the sessions were judged with."""
    unfinished: int = 0


def measure(out: Path, *, scenario: str, sessions: int, power_sessions: int) -> list[Figure]:
    """Sit until as many sessions are kept as asked for, then the rows of the table.

    Sessions come in runs of ten, each with a seed of its own; those of a broken run count as far as they were kept.
    """
    results = out / "calibrate" / scenario
    before = -1
    while (have := _lacking(results, sessions, power_sessions)) != (0, 0):
        done_so_far = sum(len(p.equal) for p in pools(results).values())
        if done_so_far == before:
            say(f"{scenario}: no further session could be kept; giving up")
            break
        before = done_so_far
        _run(scenario, results, out, equal=have[0], slowed=have[1])
    return figures(out / "calibrate")


def figures(folder: Path) -> list[Figure]:
    """The rows of every scenario kept under ``folder``, and all their A/A sessions together."""
    rows, flags, count = [], 0, 0
    for results in sorted(p for p in folder.glob("*") if p.is_dir()):
        for case, pool in sorted(pools(results).items()):
            if len(pool.equal) < _FEWEST:
                continue
            judged = calibrate(pool.equal, delta=pool.delta)
            rows += calibration_figures(case, judged)
            rows += [power_figure(case, power(found, slowdown=s)) for s, found in pool.slowed.items() if found]
            if pool.unfinished:
                rows.append(Figure(f"{case}: sessions without a result", "0", str(pool.unfinished), False))
            flags, count = flags + judged.beyond_threshold.count, count + len(pool.equal)
    return [*rows, sessions_figure(count, flags)]


def pools(results: Path) -> dict[str, Pool]:
    """Case -> its sessions, from every record kept in ``results``."""
    found: dict[str, Pool] = {}
    for run in _runs(results):
        for record in run.read_cases()[0]:
            match = _ID.fullmatch(record.case.id)
            if match is None:
                continue
            pool = found.setdefault(match["case"], Pool())
            primary = next((r for r in record.results if r.primary), None)
            if record.status != "measured" or primary is None:
                pool.unfinished += record.status != "interrupted"
                continue
            into = pool.equal if match["percent"] is None else pool.slowed[int(match["percent"]) / 100]
            try:
                into.append(session_estimate(primary))
            except ValueError:
                pool.unfinished += 1
            pool.delta = record.threshold
    return found


def _runs(results: Path) -> Iterable[StoredRun]:
    return (open_run(folder, results=results) for folder in find_runs(results))


def _lacking(results: Path, sessions: int, power_sessions: int) -> tuple[int, int]:
    """How many A/A sessions and how many of each slowdown are still to be taken; of every case, if there are more."""
    kept_pools = list(pools(results).values()) or [Pool()]
    equal = max(sessions - len(p.equal) for p in kept_pools)
    slowed = max(power_sessions - len(found) for p in kept_pools for found in p.slowed.values())
    return max(0, equal), max(0, slowed)


def _run(scenario: str, results: Path, out: Path, *, equal: int, slowed: int) -> None:
    chunks = max(1, -(-equal // _CHUNK))
    seed = 1000 * (1 + len(find_runs(results)))
    arguments = ["--sessions", str(max(_FEWEST, min(equal, _CHUNK))), "--seed", str(seed), "--results", str(results)]
    arguments += ["--inject", ",".join(map(str, SLOWDOWNS)) if slowed else ""]
    arguments += ["--power-sessions", str(max(_FEWEST, -(-slowed // chunks)))]
    say(f"aiperf calibrate {scenario} {' '.join(arguments)}")
    began = machine()
    done = aiperf("calibrate", scenario, *arguments, "--json", state=out / "state", show=True)
    keep(out / "calibrate" / f"{scenario}-{seed}.json", {**began, "seconds": done.seconds, "exit": done.code})
    if done.code != 0:
        say(f"aiperf calibrate ended with {done.code}: {done.err.strip()[-500:]}")
