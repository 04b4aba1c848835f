"""Reads an nsys sqlite export: which GPU work and host calls lie inside each side's range.

What must not live here: summing any of it up (activity.py), cleaning the export (scrub.py).

Works on the schemas 3.0.0 (nsys 2022.4) and 3.20 (2025.3) alike. Tables are absent when they would be empty.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aiperf.profilers.activity import Call, DeviceWork, Scene, cut_notes, kernel_kind, rows_of, side_of, spans_of
from aiperf.profilers.intervals import Interval, inside, union, within
from aiperf.profilers.reading import Pass, Reading, UnreadableReport
from aiperf.records.profiled import CounterRow, Kind, ProfileNote

_PROCESS = 0xFFFFFFFFFF000000 - (1 << 64)
"""Mask of the process in a global thread id, as the signed number that sqlite keeps."""
_PUSH_POP, _START_END, _DOMAIN_CREATED = 59, 60, 75
_S = 1e-9
_DIRECTIONS = {1: "HtoD", 2: "DtoH", 8: "DtoD", 9: "HtoH", 10: "PtoP", 11: "unified HtoD", 12: "unified DtoH"}
_MEMORY = {0: "pageable", 1: "pinned", 4: "managed"}
_LOST = re.compile(r"not all|dropped|lost|overflow|incomplete", re.IGNORECASE)
_ERROR = 3
_MOST_OS_ROWS = 30
_MOST_NAMES = 10
_COMMON = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid")
_NO_DEVICE = (1 << 31) - 1


def read_nsys(path: Path, launched: Sequence[Pass]) -> Reading:
    """Rows, summaries and bars of every side in a report, whose launches described themselves in ``launched``.

    A side without any range of its own gets no row and a note. Raises UnreadableReport.
    """
    with _opened(path) as report:
        return report.read(launched)


def nsys_ranges(path: Path, domain: str) -> tuple[str, ...]:
    """Names of a domain's start/end ranges, else of its push/pop ranges, in the order of their first begin.

    Raises UnreadableReport.
    """
    with _opened(path) as report:
        ranges = report.all_ranges(domain) or report.all_ranges(domain, kind=_PUSH_POP)
        return tuple(dict.fromkeys(found.name for found in ranges))


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[_Report]:
    try:
        with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as base:
            # A process may hand over any bytes as a name.
            base.text_factory = lambda data: data.decode("utf-8", errors="replace")
            yield _Report(base)
    except (sqlite3.Error, TypeError, ValueError, OverflowError) as error:
        raise UnreadableReport(f"{path.name} is not an nsys export ({error})") from None


@dataclass(frozen=True)
class _Range:
    name: str
    start: float
    end: float | None
    """None when the trace ended before it."""
    pid: int


class _Report:
    """One export, opened."""

    def __init__(self, base: sqlite3.Connection) -> None:
        self._base = base
        self._tables = {row[0] for row in self._rows("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")}
        if "StringIds" not in self._tables:
            raise UnreadableReport("the file has no table StringIds: it is not an nsys export")
        self._launches = self._launch_calls()
        self._timeless = 0
        self._recorded: set[tuple[int, int]] = set()

    def read(self, launched: Sequence[Pass]) -> Reading:
        """Everything of every side."""
        # The calls come after the work: only then is it known which of them left a record.
        work = self._work()
        calls = self._host_calls("CUPTI_ACTIVITY_KIND_RUNTIME", "r.correlationId")
        system = self._host_calls("OSRT_API")
        orphans = sum(w.launched is None for w in work)
        parts, notes = [], []
        for one in launched:
            found = self._ranges_for(one)
            gang, noted = _gang(one, found)
            ranges = _ranges(gang, found)
            notes += [*noted, *_doubts(gang, found, ranges, self._all_names(one.domains))]
            if ranges:
                lost = self._lost(orphans)
                parts.append(_side(gang, ranges, work, calls, system, lost=lost, settled=bool(one.ranks)))
        return Reading(
            rows=tuple(row for part in parts for row in part.rows),
            sides=tuple(side for part in parts for side in part.sides),
            spans=tuple(span for part in parts for span in part.spans),
            notes=(*notes, *(note for part in parts for note in part.notes)),
            facts={"schema": self._schema(), "without_launch": orphans, "gpu_records": len(work), **self._gpus()},
        )

    def _ranges_for(self, one: Pass) -> list[_Range]:
        """Start/end ranges; of a program that is not aiperf's, push/pop ranges where the name has no others."""
        found: list[_Range] = []
        for domain in one.domains:
            for kind in (_START_END,) if one.ranks else (_START_END, _PUSH_POP):
                found = self.all_ranges(domain, kind=kind)
                if any(r.name in one.names for r in found):
                    return found
        return found

    def _all_names(self, first: Sequence[str]) -> list[str]:
        """Every range as ``--range`` would name it, those of the domains ``first`` before others."""
        named = {(place, f"{place}@{mark[1]}") for kind in (_START_END, _PUSH_POP) for mark, place in self._marks(kind)}
        return [label for _, label in sorted(named, key=lambda n: (n[0] not in first, n[1]))]

    def all_ranges(self, domain: str, *, kind: int = _START_END) -> list[_Range]:
        """Ranges of one kind and domain, by begin."""
        return [
            _Range(name, start * _S, None if end is None else end * _S, _pid(process))
            for (_, name, start, end, process), place in self._marks(kind)
            if place == domain
        ]

    def _marks(self, kind: int) -> list[tuple[tuple[int, str, int, int | None, int], str]]:
        """Ranges of a kind, by begin, with the name of their domain, which is empty for the one without a name."""
        table = self._resolve("NVTX_EVENTS")
        if table is None:
            return []
        text = "coalesce(e.text, (SELECT value FROM StringIds WHERE id = e.textId))"
        query = (
            f"SELECT e.domainId, {text}, e.start, e.end, e.globalTid & {_PROCESS} FROM {table} e WHERE e.eventType = ?"
        )
        domains = {(row[4], row[0]): str(row[1]) for row in self._rows(query, _DOMAIN_CREATED)}
        marks = [(row[0], str(row[1]), *row[2:]) for row in self._rows(f"{query} ORDER BY e.start", kind)]
        # Domain 0 is the one without a name; those that nothing created belong to nobody.
        return [(m, domains[m[4], m[0]] if m[0] else "") for m in marks if not m[0] or (m[4], m[0]) in domains]

    # ---- GPU work and host calls -----------------------------------------------------------------------------------

    def _work(self) -> list[DeviceWork]:
        found = self._kernels() + self._copies() + self._sets() + self._graphs()
        return sorted(found, key=lambda w: w.start)

    def _launch_calls(self) -> dict[tuple[int, int], tuple[float, float | None, int]]:
        """(process, correlation) -> begin, end and thread of the call on the host."""
        table = self._resolve("CUPTI_ACTIVITY_KIND_RUNTIME")
        rows = self._rows(f"SELECT correlationId, globalTid, start, end FROM {table}") if table else []
        return {(tid & _PROCESS, c): (a * _S, None if b is None else b * _S, tid) for c, tid, a, b in rows}

    def _activity(self, name: str, *columns: str) -> list[tuple[Any, ...]]:
        """Rows of a table with GPU work; a column that this schema has not is NULL."""
        table = self._resolve(name)
        if table is None:
            return []
        known = {row[1] for row in self._rows(f"PRAGMA table_info({table})")}
        asked = [*_COMMON, *columns]
        wanted = [c if all(word in known for word in re.findall(r"[a-z]\w+", c)) else "NULL" for c in asked]
        rows = self._rows(f"SELECT {', '.join(wanted)} FROM {table}")
        self._recorded.update((row[5], row[4]) for row in rows)
        # Both times are 0 where the driver has none, and a device beyond every number means the host.
        timed = [row for row in rows if row[1] and row[1] > row[0] and row[2] != _NO_DEVICE]
        self._timeless += len(rows) - len(timed)
        return timed

    def _made(self, kind: Kind, name: str, common: Sequence[Any], **more: Any) -> DeviceWork:
        start, end, device, stream, correlation, process = common
        began, ended, thread = self._launches.get((process, correlation), (None, None, None))
        return DeviceWork(
            kind, name, start * _S, end * _S, device, stream or 0, _pid(process), began,
            launched_end=ended, thread=thread, **more,
        )  # fmt: skip

    def _kernels(self) -> list[DeviceWork]:
        rows = self._activity(
            "CUPTI_ACTIVITY_KIND_KERNEL",
            "shortName",
            "gridX * gridY * gridZ",
            "blockX * blockY * blockZ",
            "registersPerThread",
            "staticSharedMemory + dynamicSharedMemory",
        )
        names = self._names({row[len(_COMMON)] for row in rows})
        return [
            self._made(
                kernel_kind(names[name]),
                names[name],
                common,
                grid=grid,
                block=block,
                registers=regs,
                shared_bytes=shared,
            )
            for *common, name, grid, block, regs, shared in rows
        ]

    def _names(self, numbers: set[int | None]) -> dict[int | None, str]:
        known = dict(self._rows("SELECT id, value FROM StringIds"))
        return {number: str(known.get(number, "a kernel without a name")) for number in numbers}

    def _copies(self) -> list[DeviceWork]:
        rows = self._activity("CUPTI_ACTIVITY_KIND_MEMCPY", "bytes", "copyKind", "srcKind", "dstKind")
        return [
            self._made("memcpy", _copy_name(kind, source, target), common, bytes=_float(size))
            for *common, size, kind, source, target in rows
        ]

    def _sets(self) -> list[DeviceWork]:
        rows = self._activity("CUPTI_ACTIVITY_KIND_MEMSET", "bytes")
        return [self._made("memset", "memset", common, bytes=_float(size)) for *common, size in rows]

    def _graphs(self) -> list[DeviceWork]:
        return [self._made("graph", "CUDA graph", row) for row in self._activity("CUPTI_ACTIVITY_KIND_GRAPH_TRACE")]

    def _host_calls(self, name: str, number: str = "NULL") -> list[Call]:
        """Calls of a table; ``number`` is the column that ties a call to the GPU work that it launched."""
        table = self._resolve(name)
        if table is None:
            return []
        rows = self._rows(
            f"SELECT s.value, r.start, r.end, r.globalTid, {number} FROM {table} r JOIN StringIds s ON s.id = r.nameId"
        )
        return [
            Call(
                re.sub(r"_v\d+$", "", str(name)), start * _S, end * _S, _pid(tid & _PROCESS), tid,
                recorded=tied is None or (tid & _PROCESS, tied) in self._recorded,
            )
            for name, start, end, tid, tied in rows
            if end is not None
        ]  # fmt: skip

    # ---- about the report ------------------------------------------------------------------------------------------

    def _lost(self, orphans: int) -> str:
        said = [f"{orphans} GPU records have no launch"] if orphans else []
        said += [f"{self._timeless} GPU records have no times"] if self._timeless else []
        table = self._resolve("DIAGNOSTIC_EVENT")
        if table is not None:
            rows = self._rows(f"SELECT severity, text FROM {table}")
            said += [" ".join(str(text).split()) for level, text in rows if level == _ERROR or _LOST.search(str(text))]
        return "; ".join(dict.fromkeys(said))

    def _schema(self) -> str:
        for table in ("META_DATA_EXPORT", "EXPORT_META_DATA"):
            if table in self._tables:
                for (value,) in self._rows(f"SELECT value FROM {table} WHERE name = 'EXPORT_SCHEMA_VERSION'"):
                    return str(value)
        return ""

    def _gpus(self) -> dict[str, Any]:
        if "TARGET_INFO_GPU" not in self._tables:
            return {}
        rows = self._rows("SELECT name, memoryBandwidth, smCount FROM TARGET_INFO_GPU ORDER BY id")
        return {"gpus": [{"name": n, "memory_bytes_per_s": b, "sm": count} for n, b, count in rows]}

    def _resolve(self, name: str) -> str | None:
        """A table by its name, or by that of a newer schema: NVTX_EVENTS_V2."""
        if name in self._tables:
            return name
        newer = [t for t in self._tables if re.fullmatch(rf"{name}_V\d+", t)]
        return max(newer, key=lambda t: int(t.rpartition("V")[2]), default=None)

    def _rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        return self._base.execute(sql, values).fetchall()


def _gang(one: Pass, found: Sequence[_Range]) -> tuple[Pass, list[ProfileNote]]:
    """Number the ranks of a program that is not aiperf's: processes that were in the range at the same time."""
    times: dict[int, list[Interval]] = {}
    for item in found:
        if item.name in one.names and item.end is not None:
            times.setdefault(item.pid, []).append((item.start, item.end))
    latest = max((min(parts)[0] for parts in times.values()), default=0.0)
    together = all(max(end for _, end in parts) > latest for parts in times.values())
    if one.ranks or len(times) < 2 or not together:
        return one, []
    note = ProfileNote("taken_as_ranks", {"side": one.side, "processes": sorted(times)})
    return replace(one, ranks={pid: rank for rank, pid in enumerate(sorted(times))}), [note]


def _ranges(one: Pass, found: Sequence[_Range]) -> dict[int, list[Interval]]:
    """Rank -> the ranges of a side; a process that is not a rank of this launch belongs to another side."""
    ranges: dict[int, list[Interval]] = {}
    for item in found:
        rank = _rank_of(one, item)
        if item.name in one.names and rank is not None and item.end is not None and item.end > item.start:
            ranges.setdefault(rank, []).append((item.start, item.end))
    return {rank: union(parts) for rank, parts in ranges.items()}


def _rank_of(one: Pass, item: _Range) -> int | None:
    return one.ranks.get(item.pid, None if one.ranks else 0)


def _doubts(
    one: Pass, found: Sequence[_Range], ranges: Mapping[int, list[Interval]], all_names: Sequence[str]
) -> list[ProfileNote]:
    """Ranges that are not there, never ended, or belong to other processes."""
    mine = [item for item in found if item.name in one.names and _rank_of(one, item) is not None]
    notes = []
    if any(item.end is None for item in mine):
        notes.append(ProfileNote("range_unended", {"side": one.side}))
    absent = sorted(set(one.ranks.values()) - set(ranges)) if ranges else []
    if absent:
        notes.append(ProfileNote("no_range_in_rank", {"tool": "nsys", "side": one.side, "ranks": absent}))
    if not ranges and not notes:
        others = sorted({item.pid for item in found if item.name in one.names})
        where = {"seen": list(all_names[:_MOST_NAMES]), "processes": others}
        notes.append(ProfileNote("no_range", {"tool": "nsys", "side": one.side, **where}))
    return notes


def _side(
    one: Pass,
    ranges: Mapping[int, list[Interval]],
    work: Sequence[DeviceWork],
    calls: Sequence[Call],
    system: Sequence[Call],
    *,
    lost: str,
    settled: bool,
) -> Reading:
    """A side's part: what was launched, from any thread, inside its ranges."""
    rank_of = one.ranks or dict.fromkeys({w.rank for w in work} | {c.rank for c in (*calls, *system)}, 0)
    mine = [
        replace(w, rank=rank_of[w.rank])
        for w in work
        if w.rank in rank_of and w.launched is not None and inside(w.launched, ranges.get(rank_of[w.rank], []))
    ]
    called = _within(calls, ranges, rank_of)
    scene = Scene(one.side, one.iterations, dict(ranges), tuple(mine), tuple(called), lost, settled)
    rows = (*rows_of(scene, tool="nsys"), *_host_rows(one.side, "call", called, ranges))
    summary = side_of(scene, tool="nsys")
    if not mine:
        waits = _clipped(system, ranges, rank_of)
        scene = replace(scene, calls=(*called, *waits))
        # A call to the operating system is of no rank's own: the work of a row is only its time.
        rows += _host_rows(one.side, "op", [replace(wait, rank=0) for wait in waits], [0])[:_MOST_OS_ROWS]
    return Reading(rows, (summary,), spans_of(scene), cut_notes(scene))


def _within(calls: Sequence[Call], ranges: Mapping[int, list[Interval]], rank_of: Mapping[int, int]) -> list[Call]:
    return [
        replace(c, rank=rank_of[c.rank])
        for c in calls
        if c.rank in rank_of and inside(c.start, ranges.get(rank_of[c.rank], []))
    ]


def _clipped(calls: Sequence[Call], ranges: Mapping[int, list[Interval]], rank_of: Mapping[int, int]) -> list[Call]:
    """The parts of calls that lie in the ranges: a thread of a pool waits from before the side until after it."""
    return [
        replace(c, rank=rank, start=start, end=end)
        for c in calls
        if (rank := rank_of.get(c.rank)) is not None
        for start, end in within(c.start, c.end, ranges.get(rank, []))
    ]


def _host_rows(side: str, kind: Kind, calls: Sequence[Call], ranks: Iterable[int]) -> tuple[CounterRow, ...]:
    """One row for each call's name and rank, the longest first; none of them is on a device."""
    work = [DeviceWork(kind, c.name, c.start, c.end, 0, 0, c.rank, c.start) for c in calls]
    rows = rows_of(Scene(side, 0, {rank: [] for rank in ranks}, tuple(work)), tool="nsys")
    return tuple(replace(row, device=None) for row in rows)


def _copy_name(kind: int | None, source: int | None, target: int | None) -> str:
    direction = _DIRECTIONS.get(kind or 0, f"copy kind {kind}")
    host = source if direction.endswith("HtoD") else target if direction.endswith("DtoH") else None
    memory = _MEMORY.get(host, "") if host is not None else ""
    return f"{direction} {memory}".strip()


def _float(size: int | None) -> float | None:
    return None if size is None else float(size)


def _pid(process: int) -> int:
    return process >> 24 & 0xFFFFFF
