"""What the GPU did for each program, in sentences: kernels by name side by side, launches, copies, GPUs, processes.

What must not live here: metrics and verdicts, and profiles (profile_tables.py).
"""

from __future__ import annotations

from typing import Any

from aiperf.analysis.pairs import valid
from aiperf.records import CaseRecord
from aiperf.report.numbers import DASH, clean, counted, format_value
from aiperf.units import format_bytes, format_time

_MOST = 12
"""Kernel names that are listed, those that took longest on any side."""
_LONGEST_NAME = 60
_DIRECTIONS = {"h2d": "to the GPU", "d2h": "from the GPU", "d2d": "on the GPU", "p2p": "between GPUs", "fill": "filled"}


def gpu_sentences(record: CaseRecord) -> list[str]:
    """A sentence a side, then one a kernel name; nothing of a case whose GPU time was not asked for."""
    found = _by_side(record)
    if not found:
        return []
    said = [f"{side}, one run: {_whole(work)}." for side, work in found.items()]
    names = _names(found)
    for name, by in names[:_MOST]:
        said.append(f"{_short(name)}: {', '.join(_kernel(side, by.get(side)) for side in found)}")
    left = len(names) - min(len(names), _MOST) + max(work.get("names_left_out", 0) for work in found.values())
    return [*said, *([f"{counted(left, 'more kernel name')} took less time."] if left else [])]


def _by_side(record: CaseRecord) -> dict[str, dict[str, Any]]:
    """The first run of the first pair that counts."""
    for pair in valid(record.pairs):
        found = {run.side: run.facts["gpu"] for run in pair.runs if run.facts.get("gpu")}
        if found:
            return {side.name: found[side.name] for side in record.case.sides if side.name in found}
    return {}


def _whole(work: dict[str, Any]) -> str:
    gpus = work["gpus"].values()
    kernels, plain, graphs = sum(gpu["kernels"] for gpu in gpus), work["launches"], work["graph_launches"]
    launches = f"{plain} launch{'' if plain == 1 else 'es'}"
    of_graphs = f" and {graphs} launch{'' if graphs == 1 else 'es'} of graphs" if graphs else ""
    parts = [f"{counted(kernels, 'kernel')} of {launches}{of_graphs}"]
    if len(gpus) > 1:
        # By what they did: which of them is named first is chance.
        each = sorted((gpu["kernels"], gpu["busy_s"]) for gpu in gpus)
        apart = (f"{counted(kernels, 'kernel')}, {format_time(busy)} busy" for kernels, busy in each)
        parts.append(f"on {len(gpus)} GPUs ({'; '.join(apart)})")
    if work["processes"] > 1:
        parts.append(f"in {work['processes']} processes")
    for kind, copies in work["copies"].items():
        size, name = format_bytes(copies["bytes"]), _DIRECTIONS.get(kind, kind)
        parts.append(f"{size} {name} ({copies['count']} × {format_time(copies['seconds'] / copies['count'])})")
    return ", ".join(parts)


def _names(found: dict[str, dict[str, Any]]) -> list[tuple[str, dict[str, tuple[int, float]]]]:
    """Name -> side -> count and seconds, the longest first."""
    names: dict[str, dict[str, tuple[int, float]]] = {}
    for side, work in found.items():
        for name, count, seconds in work["names"]:
            names.setdefault(name, {})[side] = (int(count), float(seconds))
    return sorted(names.items(), key=lambda one: -max(seconds for _, seconds in one[1].values()))


def _kernel(side: str, one: tuple[int, float] | None) -> str:
    if one is None:
        return f"{side} {DASH}"
    count, seconds = one
    return f"{side} {count} × {format_value(seconds / count if count else None, 's')}"


def _short(name: str) -> str:
    text = clean(name)
    return text if len(text) <= _LONGEST_NAME else f"{text[: _LONGEST_NAME - 1]}…"
