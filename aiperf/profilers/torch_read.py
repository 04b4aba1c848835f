"""Reads traces of torch.profiler (Kineto's Chrome format): operators of the host, and GPU work with its launches.

What must not live here: summing GPU work up (activity.py), and starting the profiler (worker/standalone.py).

The window is the host's annotation ``aiperf@SIDE``; GPU work belongs to it when the call that launched it, through the
runtime or the driver, on any thread, lies inside. Kineto's own GPU annotations miss what other threads launch.
"""

from __future__ import annotations

import gzip
import json
import math
import re
import statistics
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from aiperf.profilers.activity import (
    COLLECTIVE,
    Call,
    DeviceWork,
    Scene,
    cut_notes,
    kernel_kind,
    rows_of,
    side_of,
    spans_of,
)
from aiperf.profilers.intervals import Interval, inside, union
from aiperf.profilers.reading import Pass, Reading, UnreadableReport
from aiperf.records.profiled import CounterRow, HotSpot, Kind, ProfileNote

PREFIX = "aiperf@"
_US = 1e-6
_GPU: dict[str, Kind] = {"kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset"}
_LAUNCHERS = ("cuda_runtime", "cuda_driver")
_NAME = "torch.profiler"
_HOT = 8
_MOST_OPS = 40


def read_torch(paths: Sequence[Path], launched: Pass) -> Reading:
    """One side of a launch: one trace a rank, in rank order. Raises UnreadableReport."""
    traces = [_opened(path, launched, rank) for rank, path in enumerate(paths)]
    try:
        return _read([trace for trace in traces if trace.ranges], launched, len(paths))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise UnreadableReport(f"a trace of {launched.side} is not one of torch.profiler ({error!r})") from None


def torch_ranges(path: Path) -> tuple[str, ...]:
    """Names of the annotations ``aiperf@NAME`` of a trace, without the prefix. Raises UnreadableReport."""
    named = (str(e.get("name")) for e in _load(path) if e.get("cat") == "user_annotation")
    return tuple(dict.fromkeys(name.removeprefix(PREFIX) for name in named if name.startswith(PREFIX)))


def _opened(path: Path, launched: Pass, rank: int) -> _Trace:
    events = _load(path)
    try:
        return _Trace(events, launched, rank)
    except (KeyError, TypeError, ValueError) as error:
        raise UnreadableReport(f"{path.name} is not a torch.profiler trace ({error!r})") from None


def _read(traces: Sequence[_Trace], launched: Pass, expected: int) -> Reading:
    work: list[DeviceWork] = []
    calls: list[Call] = []
    rows: list[CounterRow] = []
    ranges: dict[int, list[Interval]] = {}
    hot: dict[str, float] = {}
    for trace in traces:
        ranges[trace.rank] = trace.ranges
        work += trace.work()
        calls += trace.calls()
        rows += trace.operators(ranked=expected > 1)
        for name, seconds in trace.self_times().items():
            hot[name] = hot.get(name, 0.0) + seconds
    if not ranges:
        return Reading(notes=(ProfileNote("no_range", {"tool": _NAME, "side": launched.side}),))
    orphans = sum(trace.orphans for trace in traces)
    absent = [rank for rank in range(expected) if rank not in ranges]
    total = sum(hot.values())
    ranked = sorted(hot.items(), key=lambda item: -item[1])[:_HOT]
    lost = f"{orphans} GPU records have no launch" if orphans else ""
    # Without a GPU there are no calls to CUDA; with one, launches of which nothing was recorded count as lost.
    scene = Scene(
        launched.side, launched.iterations, ranges, tuple(work), tuple(calls), lost, settled=bool(launched.ranks)
    )
    summary = replace(
        side_of(scene, tool="torch"),
        hot=tuple(HotSpot(name, seconds / total) for name, seconds in ranked) if total else (),
    )
    if not work:
        # Without GPU work the operators are what a timeline can show, and calls to CUDA say nothing about launches.
        scene = replace(scene, calls=tuple(call for trace in traces for call in trace.operator_calls()))
    missing = {"tool": _NAME, "side": launched.side, "ranks": absent}
    notes = (*([ProfileNote("no_range_in_rank", missing)] if absent else []), *cut_notes(scene))
    return Reading((*rows_of(scene, tool="torch"), *rows), (summary,), spans_of(scene), notes)


def _load(path: Path) -> list[dict[str, Any]]:
    try:
        data = path.read_bytes()
        document = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
        return [event for event in document["traceEvents"] if event.get("ph") == "X" and _timed(event)]
    except OSError as error:
        raise UnreadableReport(f"{path.name} cannot be read ({error.strerror or error})") from None
    except (ValueError, KeyError, TypeError, AttributeError, EOFError, RecursionError, zlib.error) as error:
        raise UnreadableReport(f"{path.name} is not a torch.profiler trace ({error})") from None


def _timed(event: dict[str, Any]) -> bool:
    """Whether an event has a begin and a length that are numbers: the writer leaves NaN where it has none."""
    times = event.get("ts"), event.get("dur")
    return all(isinstance(time, int | float) and math.isfinite(time) for time in times)


class _Trace:
    """The events of one rank."""

    def __init__(self, events: Sequence[dict[str, Any]], launched: Pass, rank: int) -> None:
        self._events, self.rank, self._side = events, rank, launched.side
        named = [e for e in events if e.get("cat") == "user_annotation"]
        # A trace that was made elsewhere may name its sides without the prefix.
        windows = [e for e in named if e["name"] == f"{PREFIX}{self._side}"] or [
            e for e in named if e["name"] == self._side
        ]
        self._pid = windows[0]["pid"] if windows else None
        self.ranges = union((e["ts"] * _US, (e["ts"] + e["dur"]) * _US) for e in windows)
        self._recorded = {e.get("args", {}).get("correlation") for e in events if e.get("cat") in _GPU}
        self.orphans = 0
        """GPU work, of any side, of which the trace has no launch; known once the work was asked for."""

    def _inside(self, events: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        return [e for e in events if inside(e["ts"] * _US, self.ranges)]

    def work(self) -> list[DeviceWork]:
        """GPU work that was launched inside the window."""
        launches: dict[int, dict[str, Any]] = {}
        for event in self._events:
            if event.get("cat") in _LAUNCHERS and event["pid"] == self._pid and "correlation" in event.get("args", {}):
                launches.setdefault(event["args"]["correlation"], event)
        found = []
        for event in self._events:
            if event.get("cat") in _GPU:
                launch = launches.get(event["args"].get("correlation"))
                if launch is None:
                    self.orphans += 1
                elif inside(launch["ts"] * _US, self.ranges):
                    found.append(self._one(event, launch))
        return found

    def _one(self, event: dict[str, Any], launch: dict[str, Any]) -> DeviceWork:
        args = event["args"]
        kind = _GPU[event["cat"]]
        name = (
            _copy_name(event["name"]) if kind == "memcpy" else "memset" if kind == "memset" else _short(event["name"])
        )
        return DeviceWork(
            kernel_kind(event["name"]) if kind == "kernel" else kind,
            name,
            event["ts"] * _US,
            (event["ts"] + event["dur"]) * _US,
            # Copies between devices say inDevice instead; the process of a GPU event is its device, too.
            int(args.get("device", args.get("inDevice", event["pid"]))),
            int(args.get("stream", event["tid"])),
            self.rank,
            launch["ts"] * _US,
            launched_end=(launch["ts"] + launch["dur"]) * _US,
            thread=launch["tid"] if isinstance(launch["tid"], int) else None,
            bytes=float(args["bytes"]) if "bytes" in args else None,
            grid=_product(args.get("grid")),
            block=_product(args.get("block")),
            registers=args.get("registers per thread"),
            shared_bytes=args.get("shared memory"),
        )

    def calls(self) -> list[Call]:
        """Calls to CUDA inside the window."""
        return self._called(
            self._inside(e for e in self._events if e.get("cat") in _LAUNCHERS and e["pid"] == self._pid)
        )

    def operator_calls(self) -> list[Call]:
        """Operators inside the window."""
        return self._called(self._host())

    def _called(self, events: Iterable[dict[str, Any]]) -> list[Call]:
        return [
            Call(
                e["name"], e["ts"] * _US, (e["ts"] + e["dur"]) * _US, self.rank,
                e["tid"] if isinstance(e["tid"], int) else 0,
                recorded=e.get("args", {}).get("correlation") in self._recorded,
            )
            for e in events
        ]  # fmt: skip

    def _host(self) -> list[dict[str, Any]]:
        return self._inside(e for e in self._events if e.get("cat") == "cpu_op" and e["pid"] == self._pid)

    def self_times(self) -> dict[str, float]:
        """Operator -> seconds in it and in no operator below it."""
        totals: dict[str, float] = {}
        for name, seconds in self._selves:
            totals[name] = totals.get(name, 0.0) + seconds
        return totals

    @cached_property
    def _selves(self) -> list[tuple[str, float]]:
        """(operator, self seconds) of every call: a thread's calls nest, so each is charged to the innermost."""
        found: list[tuple[str, float]] = []
        by_thread: dict[Any, list[dict[str, Any]]] = {}
        for event in self._host():
            by_thread.setdefault(event["tid"], []).append(event)
        for events in by_thread.values():
            open_calls: list[list[Any]] = []
            for event in sorted(events, key=lambda e: (e["ts"], -e["dur"])):
                while open_calls and open_calls[-1][1] <= event["ts"]:
                    found.append(_closed(open_calls.pop()))
                if open_calls:
                    open_calls[-1][2] -= event["dur"]
                open_calls.append([event["name"], event["ts"] + event["dur"], event["dur"]])
            found += [_closed(call) for call in open_calls]
        return found

    def operators(self, *, ranked: bool) -> list[CounterRow]:
        """One row for each operator, by self time, and for each collective that the host runs."""
        groups: dict[tuple[Kind, str], list[float]] = {}
        for name, seconds in self._selves:
            groups.setdefault(("op", name), []).append(seconds)
        for event in self._inside(e for e in self._events if e.get("cat") == "user_annotation"):
            if COLLECTIVE.search(event["name"]) and event["pid"] == self._pid:
                groups.setdefault(("collective", event["name"]), []).append(event["dur"] * _US)
        rows = [
            CounterRow(
                side=self._side,
                tool="torch",
                kind=kind,
                name=name,
                rank=self.rank if ranked else None,
                count=len(times),
                time_s=sum(times),
                median_s=statistics.median(times),
            )
            for (kind, name), times in groups.items()
        ]
        return sorted(rows, key=lambda row: -(row.time_s or 0.0))[:_MOST_OPS]


def _closed(call: Sequence[Any]) -> tuple[str, float]:
    return str(call[0]), max(0.0, float(call[2])) * _US


def _copy_name(text: str) -> str:
    """``HtoD pageable`` for ``Memcpy HtoD (Pageable -> Device)``: the names that other tools give."""
    match = re.match(r"Memcpy (\w+)(?: \((\w+) -> (\w+)\))?", text)
    if match is None:
        return text
    direction, source, target = match.groups()
    memory = source if direction == "HtoD" else target if direction == "DtoH" else None
    known = memory and memory.lower() in ("pageable", "pinned", "managed")
    return f"{direction} {memory.lower()}" if memory and known else direction


def _short(name: str) -> str:
    """A kernel's name without return type, namespaces' arguments and parameters: what nsys calls it."""
    bare = re.sub(r"^(void|static) ", "", name).replace("(anonymous namespace)::", "")
    return re.split(r"[<(]", bare, maxsplit=1)[0].rpartition("::")[2] or name


def _product(numbers: Any) -> int | None:
    if not isinstance(numbers, list) or not numbers:
        return None
    total = 1
    for number in numbers:
        total *= int(number)
    return total
