"""nccl-tests' table: the mean of all iterations, for every size, out of place and in place.

What must not live here: other tools, what becomes of the numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aiperf.formats.document import ForeignError, Node
from aiperf.store.importers.common import Benchmark, Foreign, ToolFigures, ToolFormat, ToolSummary, fault_of

TOOL, UNIT = "nccl-tests", "iteration"
_HEADER = re.compile(r"^#[ \t]+(size[ \t]+count[ \t]+type[ \t].*)$", re.M)
_ROW = re.compile(r"^[ \t]*(\d+[ \t]+\d+[ \t]+[a-z]\S*[ \t].*)$", re.M)
_NAME = re.compile(r"^# Collective test starting: (\S+)", re.M)
_VERSION = re.compile(r"^# nccl-tests version (\S+)", re.M)
_NCCL = re.compile(r"nccl-library=(\d+)")
_ITERATIONS = re.compile(r"^# nThread .*? iters: (\d{1,9}) agg", re.M)
_RANK = re.compile(r"^#[ \t]+Rank +\d+ .*?\bon +(\S+) +device +\d+ +\[\S+\] +(\S.*)$", re.M)
_TIMES = ("time", "cputime")
_PLACES = ("out-of-place", "in-place")
_WRONG = "#wrong"


def _recognises(document: Node) -> bool:
    """Whether the text has the header of nccl-tests' table."""
    return isinstance(document.value, str) and _HEADER.search(document.value) is not None


def _read(document: Node, _: Path) -> Foreign:
    """Read what one of the ``*_perf`` programs printed. Raises ForeignError."""
    if not isinstance(document.value, str):
        raise document.wrong("the table that an nccl-tests program printed")
    text = document.value
    header = _HEADER.search(text)
    if header is None:
        raise ForeignError("it has no line that names the columns size, count and type")
    columns = header[1].split()
    name = _found(_NAME, text).removesuffix("_perf") or "collective"
    iterations = int(_found(_ITERATIONS, text) or 0)
    ranks = _RANK.findall(text)
    library = _found(_NCCL, text)
    return Foreign(
        TOOL,
        _found(_VERSION, text),
        tuple(b for row in _ROW.findall(text) for b in _benchmarks(row.split(), columns, name, iterations)),
        hostname=ranks[0][0] if len({host for host, _ in ranks}) == 1 else "",
        machine={"gpus": [model.strip() for _, model in ranks]} if ranks else {},
        software={"nccl": library} if library else {},
    )


def _found(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    return match[1] if match else ""


def _benchmarks(row: list[str], columns: list[str], name: str, iterations: int) -> Iterator[Benchmark]:
    """Both places of a size; a row that is shorter by one of them holds only what ran in place."""
    starts = [place for place, column in enumerate(columns) if column in _TIMES]
    if len(starts) != len(_PLACES):
        raise ForeignError(f"its header has {len(starts)} columns of times, not {len(_PLACES)}")
    width = starts[1] - starts[0]
    shared = dict(zip(columns[: starts[0]], row, strict=False))
    places = _PLACES if len(row) >= starts[1] + width else _PLACES[1:]
    for number, place in enumerate(places):
        at = starts[0] + number * width
        cells = dict(zip(columns[starts[0] : starts[1]], row[at : at + width], strict=False))
        if len(cells) < width:
            raise ForeignError(f"the row of size {row[0][:20]} has {len(row)} values for {len(columns)} columns")
        yield _benchmark(shared, cells, place, name, iterations)


def _benchmark(shared: dict[str, str], cells: dict[str, str], place: str, name: str, iterations: int) -> Benchmark:
    axes: dict[str, Any] = {"size": int(shared["size"]), "type": shared["type"]}
    axes |= {key: shared[key] for key in ("redop", "root") if shared.get(key) not in (None, "none", "-1")}
    axes |= {"place": place}
    title = f"{name} {' '.join(map(str, axes.values()))}"
    time = next(column for column in _TIMES if column in cells)
    seconds = _number(cells[time], title) * 1e-6
    others = tuple(f"{unit} {cells[unit]} GB/s" for unit in ("algbw", "busbw") if unit in cells)
    wrong = cells.get(_WRONG, "N/A")
    bad = wrong != "N/A" and _number(wrong, title) > 0
    notes = ["the table holds means only: values without spread"]
    notes += ["the time is the CPU's, without waiting for the GPU (cputime)"] if time == "cputime" else []
    return Benchmark(
        title,
        UNIT,
        summary=ToolSummary(seconds, samples=iterations),
        base=name,
        axes=axes,
        own=ToolFigures(seconds, None, iterations, others=others),
        notes=tuple(notes),
        skipped=fault_of([seconds]),
        failed=f"{wrong} elements of the result are wrong" if bad else "",
    )


def _number(text: str, where: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ForeignError(f"{where} has {text[:20]!r} where a number belongs") from None


FORMAT = ToolFormat(TOOL, "nccl-tests: the table that a *_perf program prints", _recognises, _read)
