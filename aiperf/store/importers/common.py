"""What every reader of a foreign file shares: the shape it returns.

What must not live here: knowledge of one tool's format, records of this store.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aiperf.formats.document import Node

_SHOWN = 40
_YEARS = range(1971, 2200)
_DATES = ("%Y-%m-%d %H:%M:%S", "%Y/%m/%d-%H:%M:%S", "%Y-%m-%d %H:%M:%S.%f")


@dataclass(frozen=True, slots=True)
class Timing:
    """One timed reading."""

    seconds: float
    """Time per iteration."""
    iterations: int = 1
    peak_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Replicate:
    """One unit of the tool's replication with its readings."""

    timings: tuple[Timing, ...]
    started: float = 0.0
    """Seconds since the epoch; 0 when the file does not say."""
    seconds: float = 0.0


@dataclass(frozen=True)
class ToolSummary:
    """What is left where a file holds no single readings: their mean, seconds per iteration."""

    mean: float
    low: float = math.nan
    high: float = math.nan
    samples: int = 0


@dataclass(frozen=True)
class ToolFigures:
    """What the tool itself states of a benchmark, as the file holds it; never computed here."""

    mean: float | None = None
    median: float | None = None
    n: int = 0
    """How many readings the tool counts; 0 when the file does not say."""
    unit: str = "s"
    others: tuple[str, ...] = ()
    """Figures that have no column of their own, for people: ``busbw 21.4 GB/s``."""


@dataclass(frozen=True)
class Benchmark:
    """One benchmark of a foreign file, in seconds."""

    name: str
    """As the tool calls it."""
    unit: str
    """The tool's unit of replication: process, run, round, repetition, sample."""
    replicates: tuple[Replicate, ...] = ()
    summary: ToolSummary | None = None
    """Used where there are no replicates."""
    device: bool = False
    """Whether the readings are the device's clock; the wall clock was not read then."""
    base: str = ""
    """Name without its parameters; empty takes ``name``."""
    axes: dict[str, Any] = field(default_factory=dict)
    own: ToolFigures | None = None
    notes: tuple[str, ...] = ()
    skipped: str = ""
    """Why there is no time."""
    failed: str = ""
    """The tool's own word that it failed."""


@dataclass(frozen=True)
class Foreign:
    """One foreign file."""

    tool: str
    version: str
    benchmarks: tuple[Benchmark, ...]
    started: datetime | None = None
    finished: datetime | None = None
    hostname: str = ""
    machine: dict[str, Any] = field(default_factory=dict)
    """What makes this machine comparable with another: cpu_model, cpus, gpus; never what changes from run to run."""
    software: dict[str, str] = field(default_factory=dict)
    git: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """Said of every benchmark."""

    @property
    def source(self) -> str:
        """Tool and version for people."""
        return f"{self.tool} {self.version}".strip()


@dataclass(frozen=True)
class ToolFormat:
    """One tool's format."""

    tool: str
    outline: str
    """What shows that a file is of it, for people."""
    recognises: Callable[[Node], bool]
    """Whether a document has its outline: JSON, or the text of a file that is none. Raises ForeignError for one that
    it cannot be."""
    read: Callable[[Node, Path], Foreign]
    """The content of a document, with the path of its file. Raises ForeignError."""


def fault_of(times: list[float]) -> str:
    """Say why these times cannot be compared as ratios; empty when they can."""
    bad = [t for t in times if not (math.isfinite(t) and t > 0)]
    if not times:
        return "it holds no time"
    return f"{len(bad)} of its {len(times)} times are {bad[0]:g} s: no ratio can be taken" if bad else ""


def moment(text: str) -> tuple[datetime | None, str]:
    """Read a tool's date and return it with an offset, and a note where the file leaves something open."""
    if not text:
        return None, ""
    found = _parsed(text)
    if found is None or found.year not in _YEARS:
        return None, f'the date "{text[:_SHOWN]}" could not be read'
    if found.tzinfo is None:
        return found.replace(tzinfo=UTC), "the file names no time zone: the date is read as UTC"
    return found, ""


def _parsed(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        pass
    for form in _DATES:
        try:
            return datetime.strptime(text, form)
        except ValueError:
            continue
    return None


def count(number: int, thing: str) -> str:
    """``1 run``, ``3 runs``."""
    ending = "" if number == 1 else "es" if thing.endswith("s") else "s"
    return f"{number} {thing}{ending}"


def one_process(unit: str) -> str:
    """Say what the spread of replicates of one process leaves out."""
    return f"the {unit}s are from one process: their spread leaves out differences between processes"
