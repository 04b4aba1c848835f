"""What profilers counted of the claims in scenarios' ``moves:``, a line for each counter of a case.

What must not live here: profiling, and how a counter is read or judged (aiperf/profilers).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import get_args

from aiperf.profilers.counters import Claim, held
from aiperf.records.profiled import Mechanism
from aiperf.store.profiles import read_profiles
from aiperf.store.read import find_runs, open_run
from tests.bench.figures import Figure
from tests.bench.recorded import FOLDER
from tests.bench.shell import say

FILE = FOLDER / "mechanisms.jsonl"
STATES = {"moved": "as claimed", "did_not_move": "not moved", "opposite": "the other way"}


@dataclass(frozen=True)
class Counted:
    """One counter of one case, per iteration of each side, and where it was read."""

    case: str
    counter: str
    claimed: Claim
    before: float
    after: float
    unit: str
    tool: str
    commit: str
    host: str
    when: str

    @property
    def scenario(self) -> str:
        """Name of the case's scenario."""
        return self.case.partition("[")[0]

    @property
    def held(self) -> Mechanism:
        """The claim and the values, judged by today's rule."""
        return held(self.counter, self.claimed, self.before, self.after, unit=self.unit, tool=self.tool)


def measure(results: Path) -> list[Figure]:
    """Keep what the profile runs of a results folder counted, and say what became of all claims that are kept."""
    found = [line for run in find_runs(results) for line in of_run(run, results)]
    lines = merged(read(FILE), found)
    FILE.write_text("".join(json.dumps(asdict(line)) + "\n" for line in lines), encoding="utf-8")
    return figures(lines)


def of_run(run: Path, results: Path) -> Iterator[Counted]:
    """What profilers read of the claims of a run's cases. A run whose commit is not known, or was changed, has none."""
    record = open_run(run, results=results).record
    commit = record.git.get("sha", "")
    if not commit or "diff" in record.git:
        say(f"left out, no clean commit: {run.name}")
        return
    parts = [*dict.fromkeys(gpu["name"] for gpu in record.host.get("gpus", ())), record.host.get("cpu_model", "")]
    where = {"commit": commit[:8], "host": ", ".join(filter(None, parts)), "when": record.started[:10]}
    for profile in read_profiles(run, spans=False)[0]:
        for one in profile.mechanism:
            # What workloads count themselves is in every record.
            if one.before is not None and one.after is not None and one.tool != "aiperf":
                values = (one.before, one.after)
                yield Counted(profile.case, one.counter, one.claimed, *values, one.unit, one.tool, **where)


def merged(old: Iterable[Counted], new: Iterable[Counted]) -> list[Counted]:
    """By case and counter, the later line of each."""
    lines = {(line.case, line.counter): line for line in [*old, *new]}
    return [lines[key] for key in sorted(lines)]


def read(file: Path) -> list[Counted]:
    """The lines of a file; none where there is no file. Raises ValueError for a direction that no claim has."""
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    lines = [Counted(**json.loads(line)) for line in text.splitlines()]
    if wrong := [line.claimed for line in lines if line.claimed not in get_args(Claim)]:
        raise ValueError(f"{file} claims {wrong[0]!r}")
    return lines


def figures(lines: Sequence[Counted]) -> list[Figure]:
    """How many claims came to what."""
    states = Counter(line.held.state for line in lines)
    cases = len({line.case for line in lines})
    said = ", ".join(f"{states[state]} {words}" for state, words in STATES.items())
    return [Figure(f"mechanisms: {len(lines)} claims of {cases} cases, by a profiler", "shown", said)]
