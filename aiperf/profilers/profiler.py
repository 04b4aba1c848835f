"""What a profiler is to aiperf: what it can do here, the launches that it needs, what it reads.

What must not live here: any one profiler (a module each), and which there are (registry.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from aiperf.host.facts import HostFacts
from aiperf.launch.standalone import Standalone
from aiperf.profilers.external import ProgramLaunch, Range
from aiperf.profilers.reading import Pass, Reading
from aiperf.profilers.tools import FoundTool, find_tool, variable_of
from aiperf.records import Case, Side

Shows = Literal["trace", "kernels", "events"]
"""trace: every activity on a time line; kernels: counters of each kernel; events: counts of a side as a whole."""


@dataclass(frozen=True)
class ToolStatus:
    """What one profiler can do here."""

    tool: str
    usable: bool
    where: str
    """Path and version, or what was looked for."""
    reason: str
    """What it can do here, or why it cannot be used."""
    fix: str = ""
    found: FoundTool | None = None

    @property
    def why_not(self) -> str:
        """Why it is not usable, and what helps."""
        return self.reason + (f". {self.fix}" if self.fix else "")

    @property
    def version(self) -> str:
        """``2025.3.1``; empty for a profiler that is a library."""
        return self.found.version_text if self.found else ""


@dataclass(frozen=True)
class ToolPass:
    """One launch of one side under a tool: the command around it, and what reads the outcome."""

    standalone: Standalone
    command: Callable[[list[str]], list[str]]
    read: Callable[[Pass, Mapping[str, str]], Reading]
    files: Callable[[], Sequence[Path]]
    """Raw reports worth keeping."""


@dataclass(frozen=True)
class PassRequest:
    """One side of a case, to be launched under a profiler."""

    case: Case
    side: Side
    seed: int
    scratch: Path
    tool: FoundTool | None = None

    def launch(self, name: str, **more: Any) -> Standalone:
        """Make a launch in a folder of its own below ``scratch``; ``more`` are fields of ``Standalone``."""
        return Standalone(self.case, self.side, self.scratch / f"{name}-{self.side.name}", self.seed, **more)

    @property
    def program(self) -> FoundTool:
        """The tool's program, of a profiler that is one."""
        assert self.tool is not None, "a usable profiler has been found"
        return self.tool


class ImportReport(Protocol):
    """Reads a finished report, the given ranges or all of aiperf's domain. Raises NoReport and UnreadableReport."""

    def __call__(self, path: Path, ranges: Sequence[Range], tool: FoundTool | None) -> list[Reading]:
        """Read the report at ``path``; ``tool`` is None where the tool was not found."""


class ProfileProgram(Protocol):
    """Runs a program under the tool; the readings, and the ranges that are known afterwards. Raises NoReport."""

    def __call__(
        self, launch: ProgramLaunch, tool: FoundTool, ranges: tuple[Range, ...]
    ) -> tuple[list[Reading], tuple[Range, ...]]:
        """Run it once, or once for each range."""


@dataclass(frozen=True)
class Profiler:
    """One profiler, as the registry lists it."""

    name: str
    shows: Shows
    status: Callable[[HostFacts, Mapping[str, str], Path], ToolStatus]
    """What it can do on a host with these variables and this root of /proc."""
    passes: Callable[[PassRequest], list[ToolPass]]
    """The launches that it needs for one side."""
    needs_gpu: bool = False
    endings: tuple[str, ...] = ()
    """Of its report files."""
    import_report: ImportReport | None = None
    profile_program: ProfileProgram | None = None
    """None: it is switched on and off by aiperf's own workers."""
    needs_ranges: bool = False
    """Whether it profiles a program only where the ranges are known."""


def locate(
    name: str, places: Sequence[str], env: Mapping[str, str], install: str, *, help_words: Sequence[Sequence[str]]
) -> FoundTool | ToolStatus:
    """Find a profiler's program; where there is none, the status that says what to do. ``install``: what to install."""
    found = find_tool(name, places=places, help_words=help_words, environ=env)
    if found is not None:
        return found
    variable = variable_of(name)
    if path := env.get(variable, ""):
        reason = f"{variable} names {path}, which does not answer as {name}"
        return ToolStatus(name, False, path, reason, f"Correct {variable}, or unset it to search for {name}.")
    fix = f"{install}, or set {variable} to its path."
    return ToolStatus(name, False, "It is neither on PATH nor in the usual places", f"{name} was not found", fix)
