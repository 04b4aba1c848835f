"""What the host did while a case was measured, in sentences, as cells, for programs: clocks, power, faults, CPUs.

What must not live here: deciding, HTML, reading files.
"""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from aiperf.host.placement import format_cpus
from aiperf.records import CaseRecord, Pair
from aiperf.report.numbers import DASH, format_change
from aiperf.units import format_bytes, format_percent, format_rate, format_time, significant

ALL = ""
"""The mark of all readings of a pair, whoever ran."""
ALL_TEXT = "all readings"
_PHASES = ("energy of ", "warm-up of ", "slices of ")
"""Marks of phases that stand in where a side's turns are too short to be read, the longest first."""
_SHARES = {"gpu_busy", "cpu_busy", "cpu_steal"}
_UNITS = (("_mhz", "MHz"), ("_bytes_per_s", "B/s"), ("_per_s", "/s"), ("_c", "°C"), ("_w", "W"))
_WORDS = {"sm": "SM", "gpu": "GPU", "cpu": "CPU", "pcie": "PCIe", "nvlink": "NVLink"}
_OF_THE_MACHINE = ("page_faults", "major_faults", "context_switches", "disk_", "network_")
_CLOCK_DIGITS = 4
_GPU = re.compile(r"gpu\d+_")
_USAGE = {
    "minor_faults": "page faults",
    "major_faults": "major page faults (read from disk)",
    "voluntary_switches": "waits (voluntary context switches)",
    "involuntary_switches": "preemptions (involuntary context switches)",
    "read_bytes": "read from block devices",
    "written_bytes": "written to block devices",
    "user_s": "user CPU time",
    "system_s": "CPU time in the kernel",
}
_PHASES_ONLY = (
    "Where no single side is named, turns are shorter than the sampling interval, and the values come from "
    "the phases in which one side ran alone, or from all readings."
)


def meanwhile_sentences(record: CaseRecord) -> list[str]:
    """Say what was read of the host in the pairs that count; empty for a record that holds nothing of it."""
    used = [p for p in record.pairs if not p.void]
    sides = [side.name for side in record.case.sides]
    used_gpus = max([record.case.needs.gpus, *(side.ranks for side in record.case.sides)])
    readings = _by_name(used, fold=used_gpus)
    said, none, stood_in = [], list[str](), False
    for name, marks in readings.items():
        if not any(any(values) for values in marks.values()):
            none.append(label(name))
            continue
        alone = all(2 * len(marks.get(side, ())) >= len(used) for side in sides)
        chosen = sides if alone else _stand_ins(marks, sides) or [ALL]
        stood_in = stood_in or not alone
        values = [f"{mark or ALL_TEXT} {_span(name, marks[mark])}" for mark in chosen if marks.get(mark)]
        if values:
            said.append(f"{label(name)}: {', '.join(values)}.")
    said += [_PHASES_ONLY] * (stood_in and bool(said))
    said += [f"0 in every reading: {', '.join(none)}."] * bool(none)
    each = "run" if record.case.is_command else "step of its turns"
    return said + _used(used, sides, each=each) + _starts(used) + _cost(used)


def reading_cells(record: CaseRecord, marks: Sequence[str]) -> list[tuple[str, tuple[str, ...]]]:
    """(name, one value for each mark) of everything that was read and counted in the pairs that count."""
    used = [p for p in record.pairs if not p.void]
    each = "a run" if record.case.is_command else "a step"
    rows = [
        (label(name), tuple(_span(name, found[mark]) if mark in found else DASH for mark in marks))
        for name, found in _by_name(used).items()
    ]
    for name, words in _USAGE.items():
        counted = {mark: _each(used, mark, name) for mark in marks}
        if any(counted.values()):
            cells = tuple(_usage_span(name, counted[mark]) if counted[mark] else DASH for mark in marks)
            rows.append((f"{words}, {each}", cells))
    return rows


def reading_values(record: CaseRecord) -> list[dict[str, Any]]:
    """For programs: medians over the pairs that count, of each side's turns and of all readings, where any was read."""
    used = [p for p in record.pairs if not p.void]
    found, rows = _by_name(used), list[dict[str, Any]]()
    for mark in (*(side.name for side in record.case.sides), ALL):
        readings = {name: statistics.median(marks[mark]) for name, marks in found.items() if mark in marks}
        pairs = sum(bool(pair.telemetry.get(mark)) for pair in used)
        if readings:
            rows.append({"case": record.case.id, "mark": mark or ALL_TEXT, "pairs": pairs, "readings": readings})
    return rows


def placement_sentences(record: CaseRecord) -> list[str]:
    """Say on which CPUs the sides ran, on which NUMA nodes their memory lay, and with how many threads."""
    used = [p for p in record.pairs if not p.void]
    if not used:
        return []
    bound = Counter(p.cpus for p in used)
    places = [f"CPU {format_cpus(cpus)}" + _times(count, len(used)) for cpus, count in bound.items() if cpus]
    said = [f"The sides were bound to {', '.join(places)}."] if places else ["The sides were not bound to any CPU."]
    sides = [side.name for side in record.case.sides]
    memory = [f"{side} {nodes}" for side in sides if (nodes := _nodes(used, side))]
    said += [f"Memory pages were on NUMA nodes: {'; '.join(memory)}."] * bool(memory)
    threads = {side: _facts(used, side, "threads") for side in sides}
    if any(threads.values()):
        counts = ", ".join(f"{s} {'/'.join(sorted({str(n) for n in found}))}" for s, found in threads.items() if found)
        said.append(f"Torch's CPU threads: {counts}.")
    return said


def rank_sentences(record: CaseRecord) -> list[str]:
    """Say of ranks which was slowest and by how much, and of several nodes how each stood; empty without ranks."""
    used = [p for p in record.pairs if not p.void]
    ranks, nodes = list[str](), list[str]()
    for side in (side.name for side in record.case.sides):
        runs = [run for pair in used for run in pair.runs if run.side == side and run.slowest_rank is not None]
        if not runs:
            continue
        rank, count = Counter(run.slowest_rank for run in runs).most_common(1)[0]
        over = statistics.median(run.skew or 1.0 for run in runs) - 1
        ranks.append(f"{side} rank {rank} in {count} of {len(runs)} pairs, {format_percent(over)} over the median rank")
        names = dict.fromkeys(name for run in runs for name in run.node_skew)
        own = {name: statistics.median(run.node_skew[name] for run in runs if name in run.node_skew) for name in names}
        nodes += [f"{side} {', '.join(f'{name} {format_change(skew - 1)}' for name, skew in own.items())}"] * bool(own)
    said = [f"Slowest rank: {'; '.join(ranks)}."] if ranks else []
    # A collective makes ranks wait for each other: who was late is not seen in times that end together.
    said += [f"Each node's slowest rank against the median of all ranks: {'; '.join(nodes)}."] if nodes else []
    return said


def label(name: str) -> str:
    """A reading's name for people: ``SM clock``, ``GPU 1 power``."""
    gpu = _GPU.match(name)
    stem = name[gpu.end() :] if gpu else name
    for suffix, _ in _UNITS:
        stem = stem.removesuffix(suffix)
    words = [_WORDS.get(word, word) for word in stem.split("_")]
    front = [f"GPU {gpu.group()[3:-1]}"] if gpu else []
    return " ".join([*front, *words]) + " of the machine" * stem.startswith(_OF_THE_MACHINE)


def value_text(name: str, value: float) -> str:
    """A reading with its unit."""
    if name in _SHARES or _GPU.sub("", name) in _SHARES:
        return format_percent(value)
    unit = next((unit for suffix, unit in _UNITS if name.endswith(suffix)), "")
    if unit == "B/s":
        return format_rate(value)
    number = significant(value, _CLOCK_DIGITS) if unit == "MHz" else significant(value)
    return f"{number}{'' if unit == '/s' else ' '}{unit}" if unit else number


def _by_name(pairs: Sequence[Pair], *, fold: int = 0) -> dict[str, dict[str, list[float]]]:
    """Name -> mark -> one median a pair; ``fold``: the first so many GPUs of a pair under one name, their median."""
    found: dict[str, dict[str, list[float]]] = {}
    for pair in pairs:
        for mark, values in pair.telemetry.items():
            for name, several in (_folded(values, fold) if fold else {n: [v] for n, v in values.items()}).items():
                found.setdefault(name, {}).setdefault(mark, []).append(statistics.median(several))
    return found


def _folded(values: Mapping[str, float], gpus: int) -> dict[str, list[float]]:
    """Older records hold every GPU of the host: those that rest would hide what the case's own did."""
    own = sorted({int(gpu.group()[3:-1]) for name in values if (gpu := _GPU.match(name))})[:gpus]
    found: dict[str, list[float]] = {}
    for name, value in values.items():
        gpu = _GPU.match(name)
        if gpu is None or int(gpu.group()[3:-1]) in own:
            found.setdefault(_GPU.sub("", name), []).append(value)
    return found


def _stand_ins(marks: Mapping[str, object], sides: Sequence[str]) -> list[str]:
    """The phases of the kind that comes first among those that were read, in the order of the sides."""
    for kind in _PHASES:
        found = [f"{kind}{side}" for side in sides if f"{kind}{side}" in marks]
        if found := found or [mark for mark in marks if mark.startswith(kind)]:
            return found
    return []


def _span(name: str, found: Sequence[float]) -> str:
    return _with_ends(found, lambda value: value_text(name, value))


def _usage_span(name: str, found: Sequence[float]) -> str:
    shown = format_bytes if name.endswith("_bytes") else format_time if name.endswith("_s") else significant
    return _with_ends(found, shown)


def _with_ends(found: Sequence[float], shown: Callable[[float], str]) -> str:
    """Median over the pairs, and the ends where they differ."""
    low, middle, high = (shown(value) for value in (min(found), statistics.median(found), max(found)))
    return middle if low == high else f"{middle} ({low} … {high})"


def _each(pairs: Iterable[Pair], side: str, name: str) -> list[float]:
    """What a side used of it, a step, pair by pair."""
    runs = [run.usage for p in pairs for run in p.runs if run.side == side]
    return [usage[name] / usage["iterations"] for usage in runs if name in usage and usage.get("iterations")]


def _used(pairs: Sequence[Pair], sides: Sequence[str], *, each: str) -> list[str]:
    parts, none = [], []
    for name, words in _USAGE.items():
        counted = {side: _each(pairs, side, name) for side in sides}
        if any(any(values) for values in counted.values()):
            values = ", ".join(f"{s} {_usage_span(name, found)}" for s, found in counted.items() if found)
            parts.append(f"{words}: {values}")
        elif any(counted.values()):
            none.append(words)
    parts += [f"0: {', '.join(none)}"] * bool(none)
    return [f"Used by each side's own processes, per {each}: {'; '.join(parts)}."] if parts else []


def _starts(pairs: Sequence[Pair]) -> list[str]:
    said = []
    for gpu in dict.fromkeys(gpu for p in pairs for gpu in p.watch.temperatures):
        seen = [p.watch.temperatures[gpu] for p in pairs if gpu in p.watch.temperatures]
        said.append(f"{gpu} when a pair began: {_with_ends(seen, lambda value: f'{significant(value)} °C')}.")
    return said


def _cost(pairs: Sequence[Pair]) -> list[str]:
    costs = [p.watch.cost for p in pairs if p.watch.cost is not None]
    if not costs:
        return []
    homes = sorted({cpu for p in pairs for cpu in p.watch.home})
    where = f", on CPU {format_cpus(homes)}" if homes else ""
    return [f"Sampling took {_with_ends(costs, format_percent)} of one core{where}."]


def _times(count: int, total: int) -> str:
    return "" if count == total else f" in {count} of {total} pairs"


def _nodes(pairs: Sequence[Pair], side: str) -> str:
    known = [nodes for nodes in _facts(pairs, side, "memory_nodes") if isinstance(nodes, dict)]
    shares = {
        node: statistics.median(n.get(node, 0.0) for n in known)
        for node in sorted({n for nodes in known for n in nodes})
    }
    return ", ".join(f"{format_percent(share)} on {node}" for node, share in shares.items() if share)


def _facts(pairs: Iterable[Pair], side: str, name: str) -> list[object]:
    return [run.facts[name] for p in pairs for run in p.runs if run.side == side and name in run.facts]
