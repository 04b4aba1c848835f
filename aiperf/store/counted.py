"""Counters of claims that profilers read, kept beside the reference runs: a line of JSON for each counter of a case.

What must not live here: profiling, judging a counter, sentences.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import get_args

from aiperf.errors import usage
from aiperf.profilers.counters import Claim, held
from aiperf.records.profiled import Mechanism

COUNTED = Path("figures") / "mechanisms.jsonl"
"""In the folder of the reference runs."""


@dataclass(frozen=True)
class CountedClaim:
    """One counter of one case, per iteration of each side, and where it was read."""

    case: str
    scenario_hash: str
    """Of the file whose sides were profiled."""
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
    def origin(self) -> str:
        """``perf on AMD EPYC at c7bf7da0, 2026-12-01``."""
        return f"{self.tool} on {self.host} at {self.commit}, {self.when}"

    @property
    def held(self) -> Mechanism:
        """The claim and the values, judged by today's rule."""
        return held(self.counter, self.claimed, self.before, self.after, unit=self.unit, tool=self.tool)


def read_counted(file: Path) -> list[CountedClaim]:
    """The lines of a file; none where there is no file. Raises UserError."""
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise usage(f"{file} cannot be read: {error}.") from None
    lines = enumerate(text.splitlines(), start=1)
    return [_line(line, f"{file}:{number}") for number, line in lines if line.strip()]


def _line(text: str, where: str) -> CountedClaim:
    try:
        found = CountedClaim(**json.loads(text))
    except (ValueError, TypeError):
        wanted = ", ".join(f.name for f in fields(CountedClaim))
        raise usage(f"{where}: is not the JSON of one counter, which has {wanted}.") from None
    if found.claimed not in get_args(Claim):
        raise usage(f'{where}: claims "{found.claimed}" (allowed: {", ".join(get_args(Claim))}).')
    if not all(isinstance(value, int | float) and math.isfinite(value) for value in (found.before, found.after)):
        raise usage(f"{where}: before and after must be finite numbers.")
    return found
