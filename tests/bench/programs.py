"""Programs as a user has them: a loop of 0.4 s behind whatever ``python3`` is here, equal or 4 % apart, and one that
keeps the kernel busy, whose time must hold its CPU time.

What must not live here: programs whose ratio is known to better than a per cent (known.py).
"""

from __future__ import annotations

import json
import shlex
import shutil
import time
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench.figures import Figure, at_least, seconds, under
from tests.bench.shell import aiperf, keep, kept, machine, run, say

_SECONDS, _RATIO = 0.4, 1.04
_LIMIT_S, _MOST_SD = 60.0, 0.05
_FIRST_TURNS = 2_000_000
_TRIES = 7
_KERNEL = ('python3 -c "x=bytearray(200_000_000)"', 'python3 -c "x=bytearray(1_000_000)"')
_SMALL = ("python3 -S -c pass", "python3 -S -c pass")


def measure(out: Path, *, sessions: int) -> list[Figure]:
    """All sessions that are not kept yet, then their figures."""
    folder = out / "programs"
    base = _turns(folder / "turns.json")
    for number in range(1, sessions + 1):
        for kind, ratio in (("equal", 1.0), ("plus4", _RATIO)):
            _session(folder, kind, number, (_loop(round(base * ratio)), _loop(base)), out)
    for kind, programs in (("kernel", _KERNEL), ("small", _SMALL)):
        _session(folder, kind, 1, programs, out)
    rows = [kept(path) for path in sorted(folder.glob("session-*.json"))]
    return [*_loops(rows, sessions), *_times(rows), *_peaks(rows)]


def _loop(turns: int) -> str:
    return shlex.join(("python3", "-c", f"for i in range({turns}): pass"))


def _turns(path: Path) -> int:
    """Turns of the loop that take 0.4 s here, start-up left out."""
    if (data := kept(path)) is None:
        began = [_seconds_of(_FIRST_TURNS) - _seconds_of(0) for _ in range(_TRIES)]
        data = {**machine(), "turn_s": median(began) / _FIRST_TURNS, "python3": shutil.which("python3")}
        keep(path, data)
    return round(_SECONDS / data["turn_s"])


def _seconds_of(turns: int) -> float:
    began = time.perf_counter()
    run(*shlex.split(_loop(turns)))
    return time.perf_counter() - began


def _session(folder: Path, kind: str, number: int, programs: tuple[str, str], out: Path) -> None:
    path = folder / f"session-{kind}-{number:02d}.json"
    if path.is_file():
        return
    around = machine()
    done = aiperf(
        *("ab", programs[0], programs[1], "--budget", "50s", "--json", "--quiet"),
        *("--name", "ab", "--seed", str(number), "--results", str(out / "results")),
        state=out / "state",
    )
    if done.code not in (0, 3):
        keep(path, {"kind": kind, "word": "failed", "said": (done.err or done.out)[-800:], **around})
        return
    found = json.loads(done.out)
    record = json.loads((out / "results" / found["run"]["run"] / "cases/ab.json").read_text())
    result = next(r for r in record["results"] if r["primary"])
    facts = [run["facts"] for pair in record["pairs"] for run in pair["runs"]]
    row = {
        "kind": kind, "seconds": done.seconds, "word": result["verdict"]["word"], **around,
        **{key: result["comparison"][key] for key in ("ratio", "low", "high", "sd", "pairs")},
        "sliced": facts[0]["sliced"], "why": facts[0]["why"], "resolved": facts[0].get("program", ""),
        "values": {r["comparison"]["metric"]: r["comparison"]["before"]["value"] for r in record["results"]},
        "notes": [note["code"] for note in record["notes"]],
        "impossible": sum(i["kind"] == "impossible_time" for pair in record["pairs"] for i in pair["incidents"]),
    }  # fmt: skip
    keep(path, row)
    say(
        f"{kind} {number:2d} {row['word']:12} {row['ratio']:.4f} s {row['sd']:.4f} sliced {row['sliced']} "
        f"({row['why']}) {done.seconds:.0f} s"
    )


def _loops(rows: list[dict[str, Any]], sessions: int) -> list[Figure]:
    plus = [row for row in rows if row["kind"] == "plus4"]
    equal = [row for row in rows if row["kind"] == "equal"]
    spreads = [row["sd"] for row in (*plus, *equal) if "sd" in row]
    if not spreads:
        return [Figure("ab of a loop of 0.4 s", "measured", "every session failed", False)]
    found = sum(row["word"] == "improved" and row["seconds"] <= _LIMIT_S for row in plus)
    wrong = sum(row["word"] in ("improved", "regressed") for row in equal)
    return [
        under("ab of a loop of 0.4 s: s of a pair, median", median(spreads), _MOST_SD, lambda sd: f"{sd:.3g}"),
        at_least(f"ab: true 4 % improved in {_LIMIT_S:g} s", found, len(plus), round(0.9 * sessions)),
        Figure("ab: equal programs called different", f"<= {round(0.05 * sessions)}", f"{wrong} of {len(equal)}",
               wrong <= round(0.05 * sessions)),
    ]  # fmt: skip


def _times(rows: list[dict[str, Any]]) -> list[Figure]:
    row = next((row for row in rows if row["kind"] == "kernel" and "values" in row), None)
    if row is None:
        return [Figure("ab: time of a program that the kernel works for", "its CPU time", "failed", False)]
    cpu_s = row["values"].get("user", 0.0) + row["values"].get("system", 0.0)
    wall_s = row["values"]["time"]
    what = f"{seconds(wall_s)}, sliced {row['sliced']}, {row['impossible']} refused"
    return [
        Figure(
            "ab: time of a program that the kernel works for", f">= {seconds(cpu_s)} (CPU)", what, wall_s > 0.95 * cpu_s
        )
    ]


def _peaks(rows: list[dict[str, Any]]) -> list[Figure]:
    row = next((row for row in rows if row["kind"] == "small" and "values" in row), None)
    shown = "failed" if row is None else f"{row['values'].get('peak_memory', 0) / 2**20:.1f} MiB"
    said = row is not None and ("peak_memory" in row["values"] or "memory_below" in row["notes"])
    return [Figure("ab: peak memory of a small program", "a row, or why not", shown, said)]
