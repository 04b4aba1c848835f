"""The guide's table of the book's own programs, from what book.sh left: book_table.py FOLDER.

Below it, a line for every pair whose ratio is not within 1 % or that took 30 s. Exit 1 where one of them has no known
reason.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

from aiperf.units import format_time

WIDTH, SECONDS = 0.01, 30.0
KNOWN = {
    ("fusion", "measured"): "its kernels wait for pages of managed memory, which takes another time in every launch",
    ("persistent-kernel", "failed"): "its after fails",
}
"""Pairs of which no narrow ratio can come, as what their record says, with the reason."""


def rows_of(record: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Metric -> result of the record."""
    return {result["comparison"]["metric"]: result for result in record["results"]}


def table_row(record: dict[str, Any]) -> str:
    """The pair as a row."""
    title = record["case"]["title"].partition(": ")[2].replace(" against ", ", ")
    seconds = f"{record['seconds']:.0f} s"
    if record["status"] != "measured":
        why = (record["failure"] or {}).get("message") or record["skip_reason"]
        return f"| {title} | | | | | {seconds} | {record['status']}: {why} |"
    rows = rows_of(record)
    busy, kernels = rows["gpu_busy"]["comparison"], rows["gpu_kernels"]["comparison"]
    counts = ", ".join(f"{kernels[side]['value']:.0f}" for side in ("before", "after"))
    times = ", ".join(format_time(busy[side]["value"]) for side in ("before", "after"))
    ratios = " … ".join(f"{busy[end]:.4g}" for end in ("low", "high"))
    word = rows["gpu_busy"]["verdict"]["word"]
    return f"| {title} | {counts} | {times} | {busy['ratio']:.4g}× | {ratios} | {seconds} | {word} |"


def miss(record: dict[str, Any]) -> str:
    """What the pair misses; empty when nothing."""
    if record["status"] != "measured":
        return str(record["status"])
    busy = rows_of(record)["gpu_busy"]["comparison"]
    half = (math.log(busy["high"]) - math.log(busy["low"])) / 2
    found = [
        f"± {100 * half:.2f} %" if half > WIDTH else "",
        f"{record['seconds']:.0f} s" if record["seconds"] >= SECONDS else "",
    ]
    return ", ".join(text for text in found if text)


def main() -> int:
    """Print the table. Exit 1 for a miss without a known reason, or where nothing was measured."""
    (run,) = sorted((Path(sys.argv[1]) / "results").glob("*/cases"))[-1:] or (None,)
    records = [json.loads(path.read_text()) for path in sorted(run.glob("*.json"))] if run else []
    print("| before, after | kernels | GPU busy | ratio | 98.7 % interval | took | verdict |")
    print("|---|---:|---:|---:|---:|---:|---|")
    for record in records:
        print(table_row(record))
    print()
    unknown = not records
    for record in records:
        name = record["case"]["id"].removeprefix("book-program-")
        if missed := miss(record):
            reason = KNOWN.get((name, record["status"]), "")
            unknown = unknown or not reason
            print(f"{name}: {missed}{f' ({reason})' if reason else ''}")
    return int(unknown)


if __name__ == "__main__":
    sys.exit(main())
