"""The blocks of a document that rules look at, readable in whatever state the file is.

What must not live here: faults.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aiperf.scenario.document import Document, KeyPath
from aiperf.scenario.schema import RESERVED

AXIS_KEYS = ("ranks", "nodes", "python", "venv", "ref")
"""Side keys that may be swept as they are; env is swept one variable at a time, as env.NAME."""
OF_A_SIDE = ("command", "prepare", "workload")
"""Keys that only a side has."""
_SHARED = tuple(k for k in RESERVED if k not in OF_A_SIDE)


@dataclass(frozen=True)
class RawSide:
    """One side as the file has it."""

    name: str
    path: KeyPath
    data: dict[str, Any]

    @property
    def params(self) -> dict[str, Any]:
        """The keys that belong to the workload."""
        return {k: v for k, v in self.data.items() if k not in RESERVED}

    @property
    def is_command(self) -> bool:
        """Whether the side is a program."""
        return "command" in self.data


@dataclass(frozen=True)
class Outline:
    """Sides, shared parameters, axes and gpu block; a block of a wrong type counts as empty."""

    sides: tuple[RawSide, ...]
    params: dict[str, Any]
    """Shared parameters of the workload, without the keys that are aiperf's own."""
    shared: dict[str, Any]
    """The whole params block."""
    axes: dict[str, list[Any]]
    gpu: dict[str, Any]
    gpus_needed: bool
    given: tuple[str, ...] = ()
    """Metrics that the workload of the sides declares."""

    @property
    def is_command(self) -> bool:
        """Whether every side is a program."""
        return bool(self.sides) and all(s.is_command for s in self.sides)


def outline(document: Document) -> Outline:
    """The outline of a document."""
    data = document.data
    sides = [RawSide(k, (k,), data[k]) for k in ("before", "after") if isinstance(data.get(k), dict)]
    for name, value in _mapping(data, "ladder").items():
        if isinstance(value, dict):
            sides.append(RawSide(name, ("ladder", name), value))
    shared = _mapping(data, "params")
    gpus = _mapping(data, "needs").get("gpus")
    return Outline(
        sides=tuple(sides),
        params={k: v for k, v in shared.items() if k not in _SHARED},
        shared=shared,
        axes={k: v for k, v in _mapping(data, "axes").items() if isinstance(v, list)},
        gpu=_mapping(data, "gpu"),
        gpus_needed=isinstance(gpus, int) and not isinstance(gpus, bool) and gpus >= 1,
    )


def head(key: str) -> str:
    """``defines`` of the axis ``defines.UNROLL``."""
    return key.partition(".")[0]


def entry(key: str) -> str:
    """``UNROLL`` of the axis ``defines.UNROLL``; empty for a whole parameter."""
    return key.partition(".")[2]


def holds(block: dict[str, Any], key: str) -> bool:
    """Whether a block gives a value to an axis key, ``name`` or ``name.entry``."""
    value = block.get(head(key))
    if head(key) not in block:
        return False
    return not entry(key) or not isinstance(value, dict) or entry(key) in value


def _mapping(data: dict[str, Any], key: str) -> dict[str, Any]:
    value = data.get(key)
    return value if isinstance(value, dict) else {}
