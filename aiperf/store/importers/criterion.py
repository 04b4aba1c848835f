"""criterion.rs: the folder ``target/criterion``, or one ``sample.json`` of it; samples of one process.

What must not live here: other tools, what becomes of the numbers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
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
from aiperf.units import format_time

TOOL, UNIT = "criterion", "sample"
_FOLDER = "criterion"
_NANO = 1e-9
_PARTS = ("benchmark", "sample", "estimates")
_MOST = 10_000


def gather(folder: Path) -> bytes | None:
    """One document of all benchmarks below ``folder``; None when it holds none. Raises OSError, ForeignError."""
    newest = sorted(p.parent for p in folder.rglob("sample.json") if p.parent.name == "new")
    if len(newest) > _MOST:
        raise ForeignError(f"it holds {len(newest)} benchmarks; at most {_MOST} are read")
    entries = [_parts(own) | {"written": (own / "sample.json").stat().st_mtime} for own in newest]
    return json.dumps({_FOLDER: entries}).encode() if entries else None


def _parts(folder: Path) -> dict[str, Any]:
    """The three files of one benchmark that are read; what is absent or no JSON is left out."""
    found: dict[str, Any] = {"folder": str(folder.parent.name)}
    for part in _PARTS:
        try:
            found[part] = json.loads((folder / f"{part}.json").read_bytes())
        except (OSError, ValueError, RecursionError):
            continue
    return found


def _recognises(document: Node) -> bool:
    """Whether the document is what ``gather`` made, or one ``sample.json``."""
    if document.maybe(_FOLDER) is not None:
        return bool(document.each(_FOLDER))
    return document.maybe("iters") is not None and document.maybe("times") is not None


def _read(document: Node, path: Path) -> Foreign:
    """Read what ``cargo bench`` wrote. Raises ForeignError."""
    entries = document.each(_FOLDER) or [Node(_parts(path.parent) | {"sample": document.value})]
    written = [at for entry in entries if (at := entry.maybe_number("written")) is not None]
    # The files hold neither a version nor a date nor anything of the machine.
    return Foreign(TOOL, "", tuple(_benchmark(entry) for entry in entries), **_dates(written))


def _dates(written: list[float]) -> dict[str, Any]:
    try:
        first, last = (datetime.fromtimestamp(int(end(written)), UTC) for end in (min, max))
    except (ValueError, OverflowError, OSError):
        return {}
    note = "the files have no date: their modification times are used"
    return {"started": first, "finished": last, "notes": (note,)}


def _benchmark(entry: Node) -> Benchmark:
    about, sample, estimates = (entry.members(part) for part in _PARTS)
    if not sample.value:
        raise sample.wrong("the content of sample.json")
    totals, counts = sample.numbers("times"), [_iterations(item) for item in sample.each("iters")]
    if len(totals) != len(counts):
        raise ForeignError(f"{sample.at or 'the file'} has {len(counts)} iters and {len(totals)} times")
    times = [total * _NANO / n for total, n in zip(totals, counts, strict=True)]
    base = "/".join(p for p in (about.text("group_id"), about.text("function_id")) if p)
    value = about.text("value_str")
    return Benchmark(
        about.text("full_id") or entry.text("folder", "benchmark"),
        UNIT,
        tuple(Replicate((Timing(t, n),)) for t, n in zip(times, counts, strict=True)),
        base=base,
        axes={"value": value} if value and base else {},
        own=_figures(estimates, len(times)),
        notes=(one_process(UNIT),),
        skipped=fault_of(times),
    )


def _iterations(item: Node) -> int:
    found = item.as_number()
    if not (found.is_integer() and 0 < found < 2**48):
        raise item.wrong("a whole number above zero")
    return int(found)


def _figures(estimates: Node, samples: int) -> ToolFigures | None:
    points = {name: value for name in ("mean", "median", "slope") for value in _point(estimates, name)}
    if not points:
        return None
    slope = (f"slope {format_time(points['slope'])}",) if "slope" in points else ()
    return ToolFigures(points.get("mean"), points.get("median"), samples, others=slope)


def _point(estimates: Node, name: str) -> Iterator[float]:
    value = estimates.members(name).maybe_number("point_estimate")
    if value is not None:
        yield value * _NANO


FORMAT = ToolFormat(
    TOOL, 'criterion: the folder target/criterion, or a sample.json ("iters" and "times")', _recognises, _read
)
