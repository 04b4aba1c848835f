"""What profilers counted of the claims in scenarios' ``moves:``, a line for each counter of a case.

What must not live here: profiling, and how a counter is read or judged (aiperf/profilers).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from aiperf.store.counted import COUNTED, CountedClaim, read_counted
from aiperf.store.profiles import read_profiles
from aiperf.store.read import find_runs, open_run
from tests.bench.figures import Figure
from tests.bench.recorded import RUNS
from tests.bench.shell import say

FILE = RUNS / COUNTED
STATES = {"moved": "as claimed", "did_not_move": "not moved", "opposite": "the other way"}


def measure(results: Path) -> list[Figure]:
    """Keep what the profile runs of a results folder counted, and say what became of all claims that are kept."""
    found = [line for run in find_runs(results) for line in of_run(run, results)]
    lines = merged(read_counted(FILE), found)
    FILE.write_text("".join(json.dumps(asdict(line)) + "\n" for line in lines), encoding="utf-8")
    return figures(lines)


def of_run(run: Path, results: Path) -> Iterator[CountedClaim]:
    """What profilers read of the claims of a run's cases. A run whose commit is not known, or was changed, has none."""
    record = open_run(run, results=results).record
    commit = record.git.get("sha", "")
    if not commit or "diff" in record.git:
        say(f"left out, no clean commit: {run.name}")
        return
    parts = [*dict.fromkeys(gpu["name"] for gpu in record.host.get("gpus", ())), record.host.get("cpu_model", "")]
    where = {"commit": commit[:8], "host": ", ".join(filter(None, parts)), "when": record.started[:10]}
    profiles, damaged = read_profiles(run, spans=False)
    for spoilt in damaged:
        say(spoilt.sentence)
    for profile in profiles:
        for one in profile.mechanism:
            # What workloads count themselves is in every record.
            if one.before is not None and one.after is not None and one.tool != "aiperf":
                values = (one.before, one.after)
                about = (profile.case, str(profile.facts.get("scenario", "")))
                yield CountedClaim(*about, one.counter, one.claimed, *values, one.unit, one.tool, **where)


def merged(old: Iterable[CountedClaim], new: Iterable[CountedClaim]) -> list[CountedClaim]:
    """By case and counter, the latest line of each."""
    lines = {(line.case, line.counter): line for line in sorted([*old, *new], key=lambda line: line.when)}
    return [lines[key] for key in sorted(lines)]


def figures(lines: Sequence[CountedClaim]) -> list[Figure]:
    """How many claims came to what."""
    states = Counter(line.held.state for line in lines)
    cases = len({line.case for line in lines})
    said = ", ".join(f"{states[state]} {words}" for state, words in STATES.items())
    return [Figure(f"mechanisms: {len(lines)} claims of {cases} cases, by a profiler", "shown", said)]
