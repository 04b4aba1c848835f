"""The highest rate of a real server whose answer is known in closed form: how often the interval of a sitting holds it.

What must not live here: the search itself, and what other servers can hold.
"""

from __future__ import annotations

import math
import os
import platform
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aiperf.analysis.estimates import value_interval
from aiperf.records import Comparison
from aiperf.store.read import find_runs, open_run
from tests.bench.figures import Figure, at_least
from tests.bench.serving import BEYOND_S, Plan, is_whole, keep_line, read_lines
from tests.bench.shell import ROOT, aiperf_within, machine, say

SERVICE, LIMIT, SHARE = 0.01, 0.05, 0.9
KNOWN = 1 / SERVICE - math.log(1 / (1 - SHARE)) / LIMIT
"""Of M/M/1 the time in the system is exponential, with the rate of the service less that of the requests."""
_SCENARIO = """\
title: The highest rate of a queue
workload: serve.load
params:
  model: small
  trace: {{arrivals: poisson, rate: 30, requests: 1500, prompt_tokens: 4, output_tokens: 1}}
  slo: {{end_to_end: {limit:g}s}}
  find: max_rate
  share: {share:g}
  segments: 12
before: {{server: "{server}"}}
after: {{server: "{server}"}}
needs: {{cpus: 2}}
measure: {{metric: max_rate, clock: wall, max_pairs: {pairs}}}
expect: equivalent
"""
_COVERED = 0.9
_PAIRS, _MINUTES = 6, 20.0
"""Of a sitting, at most."""


def measure(out: Path, plan: Plan) -> list[Figure]:
    """Sit until there are as many sittings as asked for; the rows of the table, of all processes."""
    folder = out / "knee"
    folder.mkdir(parents=True, exist_ok=True)
    known = {line["seed"] for line in read_lines(folder) if is_whole(line)}
    for seed in range(plan.seed, plan.seed + plan.sittings)[plan.shard :: plan.shards]:
        if seed not in known:
            keep_line(folder, plan, _sit(folder, seed, plan, state=out / f"state-{plan.shard}"))
    return figures(read_lines(folder))


def figures(lines: Sequence[Mapping[str, Any]]) -> list[Figure]:
    """In how many sittings each side's interval holds the known rate, and the interval of their ratio 1. A sitting that
    came to no interval holds nothing; those that were cut off are left out."""
    lines = [*filter(is_whole, lines)]
    if not lines:
        return []
    sides = [side for line in lines for side in line["sides"]]
    held = sum(_holds(side, KNOWN) for side in sides)
    equal = sum(_holds(line["ratio"], 1.0) for line in lines)
    return [
        at_least("max_rate of M/M/1: interval of a side holds it", held, len(sides), math.ceil(_COVERED * len(sides))),
        at_least("max_rate of M/M/1: ratio holds 1", equal, len(lines), math.ceil(_COVERED * len(lines))),
    ]


def _holds(interval: Sequence[float | None], value: float) -> bool:
    low, _, high = interval
    return low is not None and high is not None and low <= value <= high


def _sit(folder: Path, seed: int, plan: Plan, *, state: Path) -> dict[str, Any]:
    """The line of a sitting; without numbers where it came to no estimate."""
    place = folder / str(seed)
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    program = ROOT / "tests" / "programs" / "openai_server.py"
    server = f"{sys.executable} {program} --port {{port}} --service {SERVICE:g} --slots 1 --exponential"
    file = place / "queue.yaml"
    pairs, limit = min(_PAIRS, plan.pairs), 60 * (plan.minutes or _MINUTES)
    file.write_text(_SCENARIO.format(limit=LIMIT, share=SHARE, server=server, pairs=pairs), encoding="utf-8")
    precision = place / "precision.yaml"
    standard = (ROOT / "configs" / "measure" / "standard.yaml").read_text(encoding="utf-8")
    precision.write_text(standard.replace("case_seconds: 300", f"case_seconds: {limit:g}"), encoding="utf-8")
    say(f"max_rate, seed {seed}")
    began = machine()
    arguments = ("--precision", str(precision), "--budget", f"{limit:g}s", "--seed", str(seed), "--no-peaks", "--json")
    done = aiperf_within(
        limit + BEYOND_S, "run", str(file), *arguments, "--results", str(place / "results"), state=state
    )
    found = _found(place / "results")
    if found is None:
        say(f"aiperf run ended with {done.code} and no rate: {done.err.strip()[-500:]}")
    return {
        "seed": seed, "sides": [_interval(found, side) for side in ("before", "after")],
        "ratio": [found.low, found.ratio, found.high] if found else [None] * 3, "pairs": found.pairs if found else 0,
        "known": KNOWN, "seconds": round(done.seconds, 1), "limit": limit, "cut": done.cut, **began,
        "host": platform.node(), "cpus": len(os.sched_getaffinity(0)),
    }  # fmt: skip


def _found(results: Path) -> Comparison | None:
    for run in find_runs(results):
        for record in open_run(run, results=results).read_cases()[0]:
            for result in record.results:
                if result.comparison.metric == "max_rate":
                    return result.comparison
    return None


def _interval(found: Comparison | None, side: str) -> list[float | None]:
    """Of one side; a single pair has a value and no interval."""
    if found is None:
        return [None] * 3
    summary = getattr(found, side)
    low, high = value_interval(summary, alpha=found.alpha) or (None, None)
    return [low, summary.value, high]
