"""What programs_gpu.sh left, held against what must come out: judge.py FOLDER. Exit 1 when something did not."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(sys.argv[1])
BAD = {
    "too-large": "cudaLaunchCooperativeKernel returned error",
    "illegal": "returned error 700 (illegal address)",
    "unfinished": "lasted 0",
    "quick-exit": "ended by a signal or by _exit",
    "no-kernel": "launched no kernel",
    "no-gpu": "used no GPU",
}


ONLY_TWO = (FOLDER / "two-gpus.exit").exists() and not (FOLDER / "matmul.exit").exists()
"""Whether ONLY left all others out."""


def rows(name: str) -> dict[str, Any]:
    try:
        found = json.loads((FOLDER / f"{name}.json").read_text())["rows"]
    except (OSError, ValueError):
        return {}
    return {row.get("metric") or "": row for row in found}


def two_gpus() -> Iterator[tuple[str, bool, str]]:
    """Of machines with two GPUs: one process with both, a process for each, all on one."""
    shown = (FOLDER / "two-gpus.show").read_text()
    apart = re.findall(r"on 2 GPUs \(10 kernels, (\S+ µs) busy; 20 kernels, (\S+ µs) busy\)", " ".join(shown.split()))
    yield "two GPUs: told apart on both sides", len(apart) == 2, str(apart)
    yield "two GPUs: their processes counted", "in 2 processes" in " ".join(shown.split()), ""
    for name in ("two-gpus", "two-gpus-or-one"):
        kernels, busy, span = (rows(name).get(metric, {}) for metric in ("gpu_kernels", "gpu_busy", "gpu_span"))
        seen = (kernels.get("before"), kernels.get("after"))
        yield f"{name}: kernels summed", seen == (30, 30), f"{seen}"
        ratio = busy.get("ratio") or 0
        yield f"{name}: busy time summed", abs(ratio - 1) < 0.05, f"{ratio} (span {span.get('ratio')})"


def checks() -> Iterator[tuple[str, bool, str]]:
    """Name, whether it holds, what was seen."""
    if (FOLDER / "two-gpus.exit").exists():
        yield from two_gpus()
    if not ONLY_TWO:
        yield from one_gpu()


def one_gpu() -> Iterator[tuple[str, bool, str]]:
    """Of any machine with a GPU."""
    for name, other in (("matmul", "events"), ("uneven", "events")):
        found = rows(name)
        if "gpu_busy" not in found or other not in found:
            yield name, False, "no such rows"
            continue
        busy, seen = found["gpu_busy"]["ratio"], found[other]["ratio"]
        yield f"{name}: ratio by CUPTI as by events", abs(busy / seen - 1) < 0.02, f"{busy:.3f} and {seen:.3f}"
        yield f"{name}: verdict", found["gpu_busy"]["verdict"] == "improved", found["gpu_busy"]["verdict"]
        low, high = found["gpu_busy"]["low"], found["gpu_busy"]["high"]
        yield f"{name}: interval within 1 %", high / low < 1.02, f"{low:.3f} ... {high:.3f}"
    same = rows("same").get("gpu_busy", {})
    yield "same: equivalent", same.get("verdict") == "equivalent", f"{same.get('ratio')} {same.get('verdict')}"
    counts = {
        "graph": (500, 500),
        "streams": (100, 100),
        "unequal": (100, 200),
        "cluster": (10, 10),
        "children": (42, 21),
    }
    for name, want in counts.items():
        row = rows(name).get("gpu_kernels", {})
        yield (
            f"{name}: kernels",
            (row.get("before"), row.get("after")) == want,
            f"{row.get('before')} {row.get('after')}",
        )
    streams = rows("streams")
    if "gpu_busy" in streams:
        busy, whole = streams["gpu_busy"]["after"], streams["gpu_kernel_time"]["after"]
        yield "streams: concurrent kernels overlap", busy < 0.7 * whole, f"busy {busy:.3g} of {whole:.3g} s"
    copied = rows("copies").get("gpu_copied", {})
    yield "copies: bytes", copied.get("before") == copied.get("after") == 2 * 16 * 4 * 2**20, str(copied.get("before"))
    torch = rows("torch")
    yield (
        "torch: kernels",
        torch.get("gpu_busy", {}).get("verdict") == "improved",
        str(torch.get("gpu_busy", {}).get("ratio")),
    )
    yield "torch: ranges", torch.get("step_count", {}).get("before") == 10, str(torch.get("step", {}).get("ratio"))
    cost = rows("cost").get("time", {})
    yield "cost on the wall under 10 %", (cost.get("ratio") or 0) > 0.9, f"{cost.get('ratio')} {cost.get('verdict')}"
    for name, words in BAD.items():
        if not (FOLDER / f"bad-{name}.exit").exists():
            yield f"{name} is a failed program", False, "left out"
            continue
        text = (FOLDER / f"bad-{name}.json").read_text()
        code = (FOLDER / f"bad-{name}.exit").read_text().split()[0]
        sentence = next((row.get("sentence", "") for row in json.loads(text)["rows"]), "") if text.strip() else ""
        yield f"{name} is a failed program", code == "5" and words in sentence, f"exit {code}: {sentence[:150]}"


def main() -> int:
    held = True
    for name, holds, seen in checks():
        held = held and holds
        print(f"{'ok ' if holds else 'BAD'} {name}: {seen}")
    print()
    for file in sorted(FOLDER.glob("*.exit")):
        name, (code, seconds) = file.stem, file.read_text().split()
        for metric, row in rows(name).items():
            if metric in ("gpu_busy", "gpu_span", "gpu_kernel_time", "time", "events"):
                values = " ".join(
                    f"{row[key]:.6g}" if row[key] is not None else "-"
                    for key in ("before", "after", "ratio", "low", "high")
                )
                print(f"{name} (exit {code}, {float(seconds):.0f} s) {metric}: {values} {row['verdict']}")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
