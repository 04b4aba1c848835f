"""Programs and reports that are not aiperf's own: the ranges in them, and a program's launch under a profiler.

What must not live here: a tool's commands and formats.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aiperf.errors import usage
from aiperf.launch.environment import side_environment
from aiperf.launch.guardian import Guardian
from aiperf.launch.standalone import run_to_end
from aiperf.profilers.environment import profiled_environment, with_libraries
from aiperf.profilers.reading import NoReport, Pass
from aiperf.profilers.tool_errors import complaint
from aiperf.profilers.tools import FoundTool

DOMAIN = "aiperf"


@dataclass(frozen=True)
class Range:
    """A range of a program: the name of a side, in an NVTX domain."""

    name: str
    domain: str | None = DOMAIN
    """Empty: the nameless one. None: aiperf's, else the nameless one."""
    push_pop: bool = False
    """Whether push/pop ranges count as well: programs that are not aiperf's mark theirs so."""


def parse_range(text: str) -> Range:
    """``NAME`` in the domain aiperf or in none, ``DOMAIN@NAME`` in another, ``@NAME`` in none. Raises UserError."""
    domain, mark, name = text.rpartition("@")
    if not name:
        what = f'"{text}" does not name a range.'
        raise usage(what, "Write NAME, DOMAIN@NAME, or @NAME for the default domain.", "--range")
    return Range(name, domain if mark else None, push_pop=True)


def own_ranges(names: Sequence[str]) -> tuple[Range, ...]:
    """Ranges of aiperf's domain, by name."""
    return tuple(Range(name, push_pop=True) for name in names)


def range_passes(ranges: Sequence[Range]) -> list[Pass]:
    """Each range as one iteration: how many a range of a program holds is not known."""
    return [Pass(one.name, 1, domain=one.domain) for one in ranges]


@dataclass(frozen=True)
class ProgramLaunch:
    """A program that is run once under each tool."""

    command: tuple[str, ...]
    folder: Path
    guardian: Guardian
    limit: float
    """Seconds for one run."""
    gpu: bool

    def run(self, argv: list[str], tool: FoundTool) -> tuple[dict[str, str], str]:
        """Run ``argv``; its environment, and the end of what it and the tool printed. Raises NoReport at the limit."""
        # What a profiler leaves in its temporary folder holds environments, so it goes with ours.
        (self.folder / "tmp").mkdir(exist_ok=True)
        env = with_libraries(profiled_environment(side_environment({}, seed=0)), [tool.libraries])
        env["TMPDIR"] = str(self.folder / "tmp")
        log = self.folder / f"{tool.name}.log"
        ended, tail = run_to_end(argv, env=env, log=log, limit=self.limit, guardian=self.guardian)
        if ended is None:
            raise NoReport(f"timed out after {self.limit:g} s; {complaint(tail)}")
        return env, tail
