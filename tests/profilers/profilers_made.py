"""Makers for the tests of the profilers room: nsys exports, Kineto traces and tools, all made up but for the fixtures.

What must not live here: assertions.
"""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

from aiperf.host.facts import Gpu, HostFacts
from aiperf.profilers.notes import note_sentence
from aiperf.profilers.reading import Reading
from aiperf.records.profiled import CounterRow, SideProfile

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "profilers"
SHARED = Path(__file__).resolve().parents[3] / "shared" / "fixtures" / "profilers"
"""Reports that are too large for the repository; present on some machines."""
PID = 637
_COLUMNS = {
    "StringIds": "id INTEGER PRIMARY KEY, value TEXT",
    "META_DATA_EXPORT": "name TEXT, value TEXT",
    "NVTX_EVENTS": "start, end, eventType, text, globalTid, textId, domainId",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start, end, globalTid, correlationId, nameId",
    "OSRT_API": "start, end, globalTid, correlationId, nameId",
    "CUPTI_ACTIVITY_KIND_KERNEL": "start, end, deviceId, streamId, correlationId, globalPid, shortName, gridX, gridY, "
    "gridZ, blockX, blockY, blockZ, registersPerThread, staticSharedMemory, dynamicSharedMemory",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start, end, deviceId, streamId, correlationId, globalPid, bytes, copyKind, srcKind, "
    "dstKind",
    "CUPTI_ACTIVITY_KIND_MEMSET": "start, end, deviceId, streamId, correlationId, globalPid, bytes",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "start, end, deviceId, contextId, greenContextId, streamId, correlationId, "
    "globalPid, graphId, graphExecId",
    "DIAGNOSTIC_EVENT": "severity, text",
}


def notes_of(reading: Reading) -> tuple[str, ...]:
    """The notes of a reading as sentences."""
    return tuple(map(note_sentence, reading.notes))


def tid(pid: int, thread: int = 1) -> int:
    """Global thread id, as the signed number that sqlite keeps."""
    return (0xFF000000 << 32 | pid << 24 | thread) - (1 << 64)


class Export:
    """An nsys export in the making; times are nanoseconds. A table exists as soon as it has a row, as in nsys."""

    def __init__(self, path: Path, *, newer: str = "", without: tuple[str, ...] = ()) -> None:
        self.path = path
        self.base = sqlite3.connect(path)
        self._newer, self._without = newer, without
        self._names: dict[str, int] = {}
        self._correlation = 100
        self._tables: set[str] = set()
        self.string("[Unknown]")

    def add(self, table: str, **values: Any) -> None:
        """One row; columns that are not given are NULL."""
        name = table if table == "StringIds" else table + self._newer
        if name not in self._tables:
            columns = [c for c in _COLUMNS[table].split(", ") if c not in self._without]
            self.base.execute(f"CREATE TABLE {name} ({', '.join(columns)})")
            self._tables.add(name)
        values = {key: value for key, value in values.items() if key not in self._without}
        marks = ", ".join("?" * len(values))
        self.base.execute(f"INSERT INTO {name} ({', '.join(values)}) VALUES ({marks})", tuple(values.values()))

    def string(self, text: str) -> int:
        """Number of a string."""
        if text not in self._names:
            self._names[text] = len(self._names) + 1
            self.add("StringIds", id=self._names[text], value=text)
        return self._names[text]

    def domain(self, name: str = "aiperf", *, number: int = 1, pid: int = PID) -> Export:
        """A domain created."""
        self.add("NVTX_EVENTS", start=0, eventType=75, text=name, globalTid=tid(pid), domainId=number)
        return self

    def range(
        self, name: str, start: int, end: int | None, *, number: int = 1, pid: int = PID, kind: int = 60
    ) -> Export:
        """A start/end range; ``kind`` 59 makes it push/pop."""
        self.add(
            "NVTX_EVENTS",
            start=start,
            end=end,
            eventType=kind,
            textId=self.string(name),
            globalTid=tid(pid),
            domainId=number,
        )
        return self

    def call(
        self,
        start: int,
        end: int | None = None,
        *,
        name: str = "cudaLaunchKernel_v7000",
        pid: int = PID,
        thread: int = 1,
        table: str = "CUPTI_ACTIVITY_KIND_RUNTIME",
    ) -> int:
        """A call on the host; returns its correlation."""
        self._correlation += 1
        self.add(
            table,
            start=start,
            end=start + 5 if end is None else end,
            globalTid=tid(pid, thread),
            correlationId=self._correlation,
            nameId=self.string(name),
        )
        return self._correlation

    def kernel(
        self,
        start: int,
        end: int,
        *,
        launched: int | None,
        name: str = "add",
        device: int = 0,
        pid: int = PID,
        thread: int = 1,
    ) -> Export:
        """A kernel with the call that launched it; None leaves the call out."""
        correlation = 7 if launched is None else self.call(launched, pid=pid, thread=thread)
        self.add(
            "CUPTI_ACTIVITY_KIND_KERNEL", start=start, end=end, deviceId=device, streamId=7, correlationId=correlation,
            globalPid=tid(pid, 0), shortName=self.string(name), gridX=4, gridY=2, gridZ=1, blockX=128, blockY=1,
            blockZ=1, registersPerThread=32, staticSharedMemory=16, dynamicSharedMemory=48,
        )  # fmt: skip
        return self

    def copy(
        self, start: int, end: int, size: int, *, launched: int, kind: int = 1, source: int = 1, target: int = 2
    ) -> Export:
        """A copy with its call."""
        correlation = self.call(launched, name="cudaMemcpyAsync_v3020")
        self.add(
            "CUPTI_ACTIVITY_KIND_MEMCPY", start=start, end=end, deviceId=0, streamId=7, correlationId=correlation,
            globalPid=tid(PID, 0), bytes=size, copyKind=kind, srcKind=source, dstKind=target,
        )  # fmt: skip
        return self

    def graph(self, start: int, end: int, *, launched: int, device: int = 0) -> Export:
        """A CUDA graph traced as one, as --cuda-graph-trace=graph does."""
        correlation = self.call(launched, name="cudaGraphLaunch_v10000")
        self.add(
            "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", start=start, end=end, deviceId=device, correlationId=correlation,
            globalPid=tid(PID, 0), graphId=1, graphExecId=2, streamId=13,
        )  # fmt: skip
        return self

    def done(self) -> Path:
        """The file, written."""
        self.base.commit()
        self.base.close()
        return self.path


def kineto(path: Path, events: list[dict[str, Any]]) -> Path:
    """A trace with these events, each made complete."""
    path.write_text(json.dumps({"traceEvents": [{"ph": "X", "pid": PID, "tid": 1, **event} for event in events]}))
    return path


def row(**values: Any) -> CounterRow:
    """A row of a kernel that ncu read."""
    return CounterRow(**{"side": "before", "tool": "ncu", "kind": "kernel", "name": "k", **values})


def side(**values: Any) -> SideProfile:
    """A side that nsys read: 1 s of wall, a GPU that is busy throughout."""
    told = {"wall_s": 1.0, "gpu_span_s": 1.0, "gpu_busy_s": 1.0, **values}
    return SideProfile(**{"side": "before", "tool": "nsys", "iterations": 1, **told})


def program(path: Path, script: str) -> Path:
    """An executable shell script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def host(*, gpu: bool) -> HostFacts:
    """A host with or without a GPU."""
    gpus = (Gpu(0, "NVIDIA H200", "GPU-0", "9.0", 150 << 30, 150 << 30),) if gpu else ()
    problem = "" if gpu else "no NVML library"
    return HostFacts("h", "Linux", "cpu", (0,), 1, 1, gpus=gpus, gpu_problem=problem, libraries={"torch": "2.9"})
