"""A scenario as the rest of aiperf sees it: frozen, every field typed, checked against its workloads' signatures.

What must not live here: reading files, hosts, expanding axes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiperf.records import Check, Measure, Needs, ProgramMetric, Signature
from aiperf.scenario.citations import Citation
from aiperf.scenario.expectations import Expectation


@dataclass(frozen=True)
class Layer:
    """What one block of the file says about sides: shared ``params``, the ``gpu`` block, or one side."""

    params: Mapping[str, Any] = field(default_factory=dict)
    """Parameter -> value as the user wrote it."""
    env: Mapping[str, str] = field(default_factory=dict)
    ranks: int | None = None
    """None: this block does not say."""
    nodes: int | None = None
    python: str = ""
    """Interpreter, absolute when the file names a path; a ``venv`` has become its interpreter."""
    ref: str = ""


@dataclass(frozen=True)
class SideSpec:
    """One side before the axes are expanded."""

    name: str
    own: Layer
    workload: str = ""
    """Full name; empty for a command."""
    signature: Signature | None = None
    """None for a command."""
    setup: str = ""
    """Full name of the function that makes a plain workload's arguments; empty without one."""
    setup_signature: Signature | None = None
    command: tuple[str, ...] = ()
    prepare: tuple[str, ...] = ()
    """command: another one that runs before each of its runs, untimed."""
    metrics: tuple[ProgramMetric, ...] = ()


@dataclass(frozen=True)
class Scenario:
    """One before/after question, as loaded."""

    name: str
    """The file's stem."""
    path: Path
    hash: str
    """Of all that is measured or judged; a better title, reason or citation makes no other scenario."""
    hashes: tuple[str, ...]
    """That, and what records of the same measurement hold that expected another verdict, or are older: those hold a
    hash of prose too, without layout, comments and which side answers a row."""
    title: str
    why: str
    sides: tuple[SideSpec, ...]
    """before first; two for a pair, more for a ladder."""
    book: tuple[str, ...] = ()
    """Rows of the book's catalogue."""
    citations: tuple[Citation, ...] = ()
    """The same rows, with the sides that answer them."""
    tags: tuple[str, ...] = ()
    workload: str = ""
    """As written at the top of the file."""
    shared: Layer = field(default_factory=Layer)
    axes: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    gpu: Layer | None = None
    """Shared values replaced on a GPU; None when the file has no gpu block."""
    gpu_axes: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    needs: Needs = field(default_factory=Needs)
    measure: Measure = field(default_factory=Measure)
    check: Check = field(default_factory=Check)
    moves: Mapping[str, str] = field(default_factory=dict)
    expect: tuple[Expectation, ...] = ()
    """In the order of the file: the first that fits a case is that case's."""

    @property
    def is_command(self) -> bool:
        """Whether the sides are whole programs."""
        return bool(self.sides[0].command)

    @property
    def lane(self) -> str:
        """``gpu``: needs one; ``either``: takes one where there is one; ``cpu``."""
        if self.needs.gpus:
            return "gpu"
        return "cpu" if self.gpu is None else "either"
