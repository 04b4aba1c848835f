"""What an entry of the shelf is, and the scenario file that it becomes.

What must not live here: which entries there are (table.py, table_gpu.py), and running them (runner.py).
"""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

SIDES = Path(__file__).parent / "sides"
GROUPS = {
    "watched": "work only when watched",
    "elsewhere": "work elsewhere in time",
    "domain": "inputs that are not redrawn",
    "truth": "looser truth",
    "clock": "forged clock or channel",
    "judged": "judged by the judged",
    "harm": "harm to the other side",
    "metrics": "other metrics",
    "programs": "programs",
}
"""The classes of cheats, as the pages name them."""

Group = Literal["watched", "elsewhere", "domain", "truth", "clock", "judged", "harm", "metrics", "programs"]
Intent = Literal["accident", "purpose"]


@dataclass(frozen=True)
class Entry:
    """One pair of sides. The side ``cheater`` cheats, or with ``honest`` nobody does."""

    name: str
    group: Group
    does: str
    """What the cheating side does; of a twin, what it does that looks similar."""
    workload: str = ""
    """``module:function`` in sides/; empty for programs."""
    cheat: dict[str, Any] = field(default_factory=dict)
    """Parameters of the cheating side; of a program its ``--cheat``."""
    plain: dict[str, Any] = field(default_factory=dict)
    """Parameters of the other side."""
    intent: Intent = "purpose"
    """by ``accident``: what a programmer or a model writes who means no harm."""
    twin: str = ""
    """Name of the honest entry of the same structure."""
    honest: bool = False
    cheater: Literal["before", "after"] = "after"
    other: str = ""
    """``module:function`` of the other side, where it is not the same."""
    check: Any = "bitwise"
    metric: str = "time"
    measure: dict[str, Any] = field(default_factory=dict)
    preload: bool = False
    """Whether the cheating side runs under the library of clock.c."""
    gpus: int = 0
    file: str = ""
    """Of programs: what each run writes into their folder and the pair compares; empty compares no file."""
    fast: bool = False
    """Whether it stands for its class in the project's own tests."""

    @property
    def is_program(self) -> bool:
        """Whether its sides are programs."""
        return not self.workload


def scenario(entry: Entry, library: Path | None) -> dict[str, Any]:
    """The scenario file of an entry whose sides are functions. ``library``: clock.c, compiled."""
    cheats, plain = dict(entry.cheat), dict(entry.plain)
    if entry.other:
        plain["workload"] = _path(entry.other)
    if entry.preload and library is not None:
        cheats["env"] = {"LD_PRELOAD": str(library)}
    before, after = (plain, cheats) if entry.cheater == "after" else (cheats, plain)
    file: dict[str, Any] = {
        "title": f"{'Honest twin' if entry.honest else 'Cheater'}: {entry.name}",
        "why": f"{entry.does[:1].upper()}{entry.does[1:]}.",
        "workload": _path(entry.workload),
        "before": before,
        "after": after,
        "check": entry.check,
    }
    if before == after:
        file["expect"] = "equivalent"  # without it, sides that are the same are a mistake
    if entry.gpus:
        file["needs"] = {"gpus": entry.gpus}
    measure = dict(entry.measure)
    if entry.metric != "time":
        measure["metric"] = entry.metric
    return {**file, "measure": measure} if measure else file


def _path(reference: str) -> str:
    module, _, function = reference.partition(":")
    return f"{SIDES / module}.py:{function}"


def write(entry: Entry, folder: Path, library: Path | None) -> Path:
    """Write the scenario file of an entry into ``folder``; its path."""
    path = folder / f"{entry.name}.yaml"
    path.write_text(yaml.safe_dump(scenario(entry, library)), encoding="utf-8")
    return path


def commands(entry: Entry, state: Path) -> tuple[str, str]:
    """The command lines of an entry of programs, before and after; ``state``: a folder in which programs may leave
    something for later runs."""
    cheats, plain = (_command(params, state) for params in (entry.cheat, entry.plain))
    return (plain, cheats) if entry.cheater == "after" else (cheats, plain)


def _command(params: dict[str, Any], state: Path) -> str:
    words = [sys.executable, str(SIDES / "program.py"), "--state", str(state)]
    return shlex.join([*words, *(word for name, value in params.items() for word in (f"--{name}", str(value)))])
