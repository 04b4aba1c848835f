"""aiperf, hyperfine and pyperf on programs of known ratio, in turns, so that all three meet the same noise.

What must not live here: how a tool is called, how the programs are counted.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.bench.figures import Figure, aiperf_figures, peer_figures
from tests.bench.known import WANTED, Pair, pairs
from tests.bench.shell import keep, kept, machine, say
from tests.bench.tools import missing, sit

TOOLS = ("aiperf", "hyperfine", "pyperf")


def measure(out: Path, *, sessions: int) -> list[Figure]:
    """All sessions that are not kept yet, then the rows of the table."""
    folder = out / "peers"
    absent = {tool: why for tool in TOOLS if (why := missing(tool))}
    known = {pair.kind: pair for pair in pairs(folder / "truth.json")}
    for number in range(1, sessions + 1):
        for place, kind in enumerate(WANTED):
            # Each tool goes first equally often: noise that lasts for minutes must not always meet the same one.
            first = (number + place) % len(TOOLS)
            for tool in (*TOOLS[first:], *TOOLS[:first]):
                if tool not in absent:
                    _sit_once(folder, tool, known[kind], number, out)
    rows = read(folder)
    gone = [Figure(why, "", "left out") for why in absent.values()]
    return [*aiperf_figures(rows, sessions=sessions), *peer_figures(rows), *gone]


def read(folder: Path) -> list[dict[str, Any]]:
    """Every session kept so far."""
    return [kept(path) for path in sorted(folder.glob("session-*.json"))]


def _sit_once(folder: Path, tool: str, pair: Pair, number: int, out: Path) -> None:
    path = folder / f"session-{number:02d}-{pair.kind}-{tool}.json"
    if path.is_file():
        return
    around = machine()
    found = sit(tool, pair, out=out, seed=number)
    keep(path, {"tool": tool, "kind": pair.kind, "session": number, "truth": pair.truth, **around, **found})
    interval = f"  [{found['low']:.4f}, {found['high']:.4f}]" if found["low"] is not None else ""
    ratio = f"{found['ratio']:.4f}" if found["ratio"] is not None else "-"
    say(f"{number:2d} {pair.kind:6} {tool:9} {found['word']:12} {ratio}{interval}  {found['seconds']:.0f} s")
