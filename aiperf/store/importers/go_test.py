"""``go test -bench``: its text, or the JSON lines of ``-json``; every ``-count`` is a replicate.

What must not live here: other tools, what becomes of the numbers.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiperf.formats.document import ForeignError, Node
from aiperf.store.importers.common import (
    Benchmark,
    Foreign,
    Replicate,
    Timing,
    ToolFigures,
    ToolFormat,
    fault_of,
    one_process,
)

TOOL, UNIT = "go-test", "run"
_RESULT = re.compile(
    r"^(Benchmark[^\s-]\S*?)(?:-(\d{1,4}))?[ \t]+(\d{1,14})((?:[ \t]+[-+.\w]+ [^\s\d]\S*)+)[ \t]*$", re.M
)
_OUTCOME = re.compile(r"^--- (FAIL|SKIP): (Benchmark\S+?)(?:-\d{1,4})?(?: \(.*)?$", re.M)
_HEAD = re.compile(r"^(goos|goarch|pkg|cpu): (.*)$", re.M)
_TIME = "ns/op"


@dataclass
class _Runs:
    """What was found of one benchmark."""

    timings: list[Timing] = field(default_factory=list)
    others: list[dict[str, str]] = field(default_factory=list)
    """Of each run, unit -> value, as printed."""
    procs: set[str] = field(default_factory=set)


def _recognises(document: Node) -> bool:
    """Whether the text has a line of a benchmark with its times."""
    return isinstance(document.value, str) and _RESULT.search(_text(document.value)) is not None


def _text(text: str) -> str:
    """What the test printed; of JSON lines, the joined ``Output`` of their events."""
    if not text.startswith("{"):
        return text
    printed = []
    for line in text.splitlines():
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict) and isinstance(event.get("Output"), str):
            printed.append(event["Output"])
    return "".join(printed)


def _read(document: Node, _: Path) -> Foreign:
    """Read the output of one ``go test -bench``. Raises ForeignError."""
    if not isinstance(document.value, str):
        raise document.wrong("text that go test -bench printed")
    text = _text(document.value)
    heads: dict[str, list[str]] = defaultdict(list)
    for head in _HEAD.finditer(text):
        heads[head[1]].append(head[2].strip())
    several = len(set(heads["pkg"])) > 1
    benchmarks = (*_benchmarks(text, several_packages=several), *_without_time(text))
    cpu = heads["cpu"][0] if heads["cpu"] else ""
    # The text holds neither a version nor a date.
    return Foreign(TOOL, "", benchmarks, machine={"cpu_model": cpu} if cpu else {}, software=_system(heads))


def _system(heads: dict[str, list[str]]) -> dict[str, str]:
    return {key: heads[key][0] for key in ("goos", "goarch") if heads[key]}


def _benchmarks(text: str, *, several_packages: bool) -> tuple[Benchmark, ...]:
    found: dict[tuple[str, str, str], _Runs] = {}
    procs: dict[str, set[str]] = defaultdict(set)
    package = ""
    for line in re.finditer(f"{_RESULT.pattern}|^pkg: (?P<pkg>.*)$", text, re.M):
        if line["pkg"] is not None:
            package = line["pkg"].strip() if several_packages else ""
            continue
        name, cores, number, rest = line[1], line[2] or "", line[3], line[4].split()
        values = dict(zip(rest[1::2], rest[::2], strict=False))
        runs = found.setdefault((package, name, cores), _Runs())
        procs[name].add(cores)
        if (nanoseconds := values.pop(_TIME, None)) is not None:
            runs.timings.append(Timing(_number(nanoseconds, name) * 1e-9, max(int(number), 1)))
        runs.others.append(values)
    return tuple(_benchmark(key, runs, len(procs[key[1]]) > 1) for key, runs in found.items())


def _number(text: str, name: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ForeignError(f"{name} took {text[:20]!r} ns/op, not a number") from None


def _benchmark(key: tuple[str, str, str], runs: _Runs, several_procs: bool) -> Benchmark:
    package, name, cores = key
    base, axes = _axes(name)
    if several_procs:
        axes["procs"] = cores or "1"
    base = f"{package}.{base}" if package else base
    title = f"{name}-{cores}" if cores else name
    times = [t.seconds for t in runs.timings]
    own = None
    if len(runs.others) == 1:
        mean, number = (times[0], runs.timings[0].iterations) if times else (None, 0)
        own = ToolFigures(mean, None, number, others=tuple(f"{v} {u}" for u, v in runs.others[0].items()))
    units = sorted({unit for values in runs.others for unit in values})
    left_out = [f"{', '.join(units)} of its {len(runs.others)} runs left out"] if units and own is None else []
    return Benchmark(
        f"{package}.{title}" if package else title,
        UNIT,
        tuple(Replicate((timing,)) for timing in runs.timings),
        base=base,
        axes=axes,
        own=own,
        notes=(one_process(UNIT), *left_out),
        skipped=fault_of(times) if times else f"it printed no {_TIME}",
    )


def _axes(name: str) -> tuple[str, dict[str, Any]]:
    """``BenchmarkSort/n=100/quick`` -> ``BenchmarkSort/quick`` and ``n``: the form that Go's own tools read."""
    first, *parts = name.split("/")
    pairs = [part.partition("=") for part in parts]
    axes = {key: value for key, equals, value in pairs if equals and key}
    return "/".join((first, *(part for part in parts if not (part.partition("=")[1] and part[0] != "=")))), axes


def _without_time(text: str) -> tuple[Benchmark, ...]:
    """Those that failed or skipped themselves."""
    found = {match[2]: match[1] for match in _OUTCOME.finditer(text)}
    return tuple(
        Benchmark(
            name, UNIT, failed="go test says that it failed" if how == "FAIL" else "", skipped="it skipped itself"
        )
        for name, how in found.items()
    )


FORMAT = ToolFormat(TOOL, "go test -bench: its text, or -json lines", _recognises, _read)
