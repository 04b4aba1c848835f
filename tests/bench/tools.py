"""One session with one tool: two programs in, ratio, interval and word out.

What must not live here: which programs, in which order, how often.
"""

from __future__ import annotations

import importlib.util
import json
import math
import shlex
import shutil
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.bench.known import Pair
from tests.bench.shell import Done, aiperf, run

RUNS, PROCESSES = 10, 10
CONFIDENCE = 0.95


def missing(tool: str) -> str:
    """Why the tool cannot be used here; empty when it can."""
    if tool == "hyperfine" and shutil.which("hyperfine") is None:
        return "hyperfine is not installed"
    if tool == "pyperf" and importlib.util.find_spec("pyperf") is None:
        return "pyperf is not installed"
    return ""


def sit(tool: str, pair: Pair, *, out: Path, seed: int) -> dict[str, Any]:
    """One session; a tool that fails gives the word ``failed`` and the tail of what it said."""
    if tool == "aiperf":
        return by_aiperf(pair, out=out, seed=seed)
    return by_hyperfine(pair) if tool == "hyperfine" else by_pyperf(pair)


def by_aiperf(pair: Pair, *, out: Path, seed: int) -> dict[str, Any]:
    """``aiperf ab`` with its default settings."""
    done = aiperf(
        "ab",
        *(shlex.join(pair.before), shlex.join(pair.after)),
        *("--json", "--quiet", "--seed", str(seed), "--results", str(out / "results")),
        state=out / "state",
    )
    row = _headline(done.out)
    if row is None:
        return _failed(done)
    chosen = {k: row[k] for k in ("ratio", "low", "high", "pairs", "mde", "reason", "sentence")}
    return {"word": row["verdict"], "seconds": done.seconds, "exit": done.code, **chosen}


def _headline(text: str) -> dict[str, Any] | None:
    try:
        rows = json.loads(text)["rows"]
    except (ValueError, KeyError):
        return None
    return next((r for r in rows if r["primary"] and r["status"] == "measured"), None)


def by_hyperfine(pair: Pair) -> dict[str, Any]:
    """hyperfine, 10 runs a side, no shell between; its own +- and Welch's interval (its scripts/welch_ttest.py)."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "hyperfine.json"
        sides = (shlex.join(pair.before), shlex.join(pair.after))
        options = ("-N", "--runs", str(RUNS), "--style", "none", "--export-json", str(path))
        done = run("hyperfine", *options, *sides)
        if done.code != 0 or not path.is_file():
            return _failed(done)
        before, after = (result["times"] for result in json.loads(path.read_text())["results"])
    ratio, low, high = welch_ratio(before, after)
    word = "different" if low > 1 or high < 1 else "same"
    own = ratio * math.hypot(*(statistics.stdev(x) / statistics.fmean(x) for x in (before, after)))
    return {"word": word, "ratio": ratio, "low": low, "high": high, "plus_minus": own, "seconds": done.seconds}


def welch_ratio(before: Sequence[float], after: Sequence[float]) -> tuple[float, float, float]:
    """Ratio of the means and Welch's 95 % interval of the difference, as a share of the after side's mean."""
    from scipy.stats import t

    parts = [statistics.variance(x) / len(x) for x in (before, after)]
    df = sum(parts) ** 2 / sum(p**2 / (len(x) - 1) for p, x in zip(parts, (before, after), strict=True))
    half = float(t.ppf((1 + CONFIDENCE) / 2, df)) * math.sqrt(sum(parts))
    first, second = statistics.fmean(before), statistics.fmean(after)
    return first / second, (first - half) / second, (first + half) / second


def by_pyperf(pair: Pair) -> dict[str, Any]:
    """pyperf, 10 processes a side, everything else as it comes; its own word on significance."""
    with tempfile.TemporaryDirectory() as folder:
        spent, paths = 0.0, []
        for name, program in (("before", pair.before), ("after", pair.after)):
            path = Path(folder) / f"{name}.json"
            options = ("--quiet", "-p", str(PROCESSES), "--name", "known", "-o", str(path))
            done = run(sys.executable, "-m", "pyperf", "command", *options, "--", *program)
            spent += done.seconds
            if done.code != 0 or not path.is_file():
                return _failed(done)
            paths.append(path)
        done = run(sys.executable, "-m", "pyperf", "compare_to", "-v", *map(str, paths))
        ratio = _mean(paths[0]) / _mean(paths[1])
    if done.code != 0:
        return _failed(done)
    word = "same" if "Not significant" in done.out else "different"
    return {"word": word, "ratio": ratio, "low": None, "high": None, "seconds": spent, "said": done.out.strip()}


def _mean(path: Path) -> float:
    import pyperf  # type: ignore[import-untyped]

    return float(pyperf.Benchmark.load(str(path)).mean())


def _failed(done: Done) -> dict[str, Any]:
    tail = (done.err or done.out).strip()[-800:]
    return {
        "word": "failed",
        "ratio": None,
        "low": None,
        "high": None,
        "seconds": done.seconds,
        "exit": done.code,
        "said": tail,
    }
