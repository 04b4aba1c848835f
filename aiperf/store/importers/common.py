"""What every reader of a foreign file shares: the shape it returns, and checked access to the JSON it reads.

What must not live here: knowledge of one tool's format, records of this store.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aiperf.errors import AiperfError

_SHOWN = 40
_MOST = 2**48
"""Beyond any number of iterations; two such factors would not fit a column of samples."""
_LARGEST = 1e300
_YEARS = range(1971, 2200)
_DATES = ("%Y-%m-%d %H:%M:%S", "%Y/%m/%d-%H:%M:%S", "%Y-%m-%d %H:%M:%S.%f")


class ForeignError(AiperfError):
    """The file is not what its tool writes; the text names the place and what is there."""


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


@dataclass(frozen=True)
class Node:
    """A value of a JSON document with its place; every access is checked and raises ForeignError."""

    value: Any
    at: str = ""

    def __getitem__(self, key: str) -> Node:
        found = self.maybe(key)
        if found is None:
            raise ForeignError(f"{self.at or 'the file'} has no {key}")
        return found

    def maybe(self, key: str) -> Node | None:
        """Return a member of an object, None when it is absent or null."""
        if not isinstance(self.value, dict):
            raise self.wrong("an object")
        value = self.value.get(key)
        return None if value is None else Node(value, f"{self.at}.{key}".lstrip("."))

    def items(self) -> list[Node]:
        """Return the items of this value, which is a list."""
        if not isinstance(self.value, list):
            raise self.wrong("a list")
        return [Node(item, f"{self.at}[{place}]") for place, item in enumerate(self.value)]

    def members(self, key: str) -> Node:
        """Return an object member, an empty object when it is absent or null."""
        found = self.maybe(key)
        if found is None:
            return Node({}, f"{self.at}.{key}".lstrip("."))
        if not isinstance(found.value, dict):
            raise found.wrong("an object")
        return found

    def each(self, key: str) -> list[Node]:
        """Return the items of a list member, none when it is absent or null."""
        found = self.maybe(key)
        return [] if found is None else found.items()

    def maybe_number(self, key: str) -> float | None:
        """Return a number member, None when there is none that is a number: figures that only inform."""
        value = self.value.get(key) if isinstance(self.value, dict) else None
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return float(value) if abs(value) < _LARGEST else None

    def text(self, key: str, default: str = "") -> str:
        """Return a text member; numbers are taken as their text."""
        found = self.maybe(key)
        if found is None:
            return default
        if isinstance(found.value, bool) or not isinstance(found.value, str | int | float):
            raise found.wrong("text")
        return str(found.value)

    def number(self, key: str) -> float:
        """Return a number member. NaN and infinity pass: whether they are times is for ``fault_of`` to say."""
        return self[key].as_number()

    def numbers(self, key: str) -> list[float]:
        """Return the numbers of a list member, none when it is absent or null."""
        found = self.maybe(key)
        # A list may hold millions: what is plain is taken at once.
        if found is not None and isinstance(found.value, list) and all(type(item) is float for item in found.value):
            return list(found.value)
        return [item.as_number() for item in self.each(key)]

    def whole(self, key: str, default: int = 1) -> int:
        """Return a whole number above zero; ``default`` when it is absent or null."""
        found = self.maybe(key)
        if found is None:
            return default
        if type(found.value) is not int or not 0 < found.value < _MOST:
            raise found.wrong("a whole number above zero")
        return found.value

    def fact(self, key: str) -> int:
        """Return a whole number that only informs; 0 where there is no sensible one."""
        value = self.value.get(key) if isinstance(self.value, dict) else None
        return value if type(value) is int and 0 < value < 2**63 else 0

    def as_number(self) -> float:
        """Return the value itself as a number."""
        if isinstance(self.value, bool) or not isinstance(self.value, int | float):
            raise self.wrong("a number")
        try:
            return float(self.value)
        except OverflowError:
            raise self.wrong("a number that a computer can hold") from None

    def wrong(self, wanted: str) -> ForeignError:
        """Build the error that says what stands here instead of ``wanted``."""
        try:
            shown = repr(self.value)[:_SHOWN]
        except ValueError:  # an integer with more digits than Python prints
            shown = "a very long number"
        return ForeignError(f"{self.at or 'the file'} is {shown}, not {wanted}")


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
        return found.replace(tzinfo=UTC), "the file names no time zone: the date is taken as UTC"
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
    return f"the {unit}s are of one process: their spread does not hold what differs between processes"
