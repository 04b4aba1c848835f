"""Runs one step of the scenarios that compile kernels of their own under compute-sanitizer, several side by side.

``python tests/gpu/sanitize.py [NAME ...]`` prints a line for each scenario and tool; exit 1 when any found something.
A process takes several scenarios where the tool is quick, because starting one takes longer than most steps; when that
was not clean, each of them runs again alone, so that a kernel that writes where it must not ruins no other. Kernels are
the scenario's, sizes are smaller where it allows that: a race shows in few blocks as in many, and the tools are slow.
What must not live here: whether the sides compute the right thing (see library.py).
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from aiperf.host.read import read_host
from aiperf.plan.cases import expand
from aiperf.records import Side
from aiperf.scenario.load import load_scenario
from aiperf.worker.load import set_up
from aiperf.workloads.contract import Context, SkipSide, Workload
from aiperf.workloads.gpu.jobs import CHAINED
from tests.library_check.ledger import LEDGER, keep, seen_at

FOLDER = Path(__file__).parents[2] / "scenarios/gpu"
KERNELS = Path(__file__).parents[2] / "aiperf/workloads/cuda/kernels"
TOGETHER = {"memcheck": 6, "synccheck": 6, "racecheck": 1}
"""Tool -> scenarios that share a process; the slowest last."""
JOBS = max(2, len(os.sched_getaffinity(0)) * 3 // 4)
LIMIT_S = 480.0
_OTHERS = "kns=at::native,kns=at6native,kns=cutlass,kns=cublas,kns=nvjet"
"""Kernels that come with PyTorch are run and not looked at: they are not this project's."""
_ONE_AT_A_TIME = "--force-blocking-launches"
_LOST = "Internal Sanitizer Error"
_ALONE = {"memcheck": {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}}
"""Each array an allocation of its own: in a pool's block, an index too large reaches what the tool takes for valid."""
_SMALL = {"rounds": 100, "repeat": 20, "iterations": 5, "ITERATIONS": 20, "total_bytes": 16 << 20}
"""Enough of what a workload does again and again, or splits into pieces; capitals among the defines of a kernel."""
_EDGES = (2048, 4096, 8192, 16384)
_EVERY_LANE = "EVERY_LANE_ARRIVES"
_BUILT = f"built with {_EVERY_LANE}"
"""Other code than what is measured, where it matters: see cuda/kernels/async.cuh. It cannot show a missing
__syncwarp."""
_CAPTURED = "cudaErrorStreamCaptureUnsupported"
_WRONG = re.compile(r"^========= (Invalid|Error: Race|Barrier error|Misaligned)", re.MULTILINE)
"""What a tool says of a kernel before it has come to its summary."""
_BLIND = "is not supported by the selected tool"
_SUMMARY = re.compile(r"(?:ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard)")


@dataclass(frozen=True)
class Found:
    """What one tool said of one scenario."""

    name: str
    tool: str
    status: str
    """clean, found, skipped or failed."""
    detail: str
    took: float


def names() -> list[str]:
    """Every scenario whose sides run kernels of this project."""
    return sorted(p.stem for p in FOLDER.glob("*.yaml") if any(map(compiles, _sides(p))))


def compiles(side: Side) -> bool:
    """Whether a side runs kernels that this project compiles; what it does else comes with PyTorch."""
    family, params = side.workload.partition(".")[0], side.params
    if family == "gpu":
        return params.get("share") not in ("processes", "mps") and bool(set(CHAINED) & set(params["jobs"]))
    if family == "stream":
        return params.get("kernel") not in ("train_step", "decode")
    if family == "linalg":
        return str(params.get("backend", "")).startswith("hand_")
    placed = side.workload == "memory.placement"
    return family == "cuda" or placed or (family == "launch" and params.get("api") == "cuda")


def _sides(path: Path) -> Sequence[Side]:
    return expand(load_scenario(path), on_gpu=True)[0].sides


def judge(output: str, status: int, tool: str) -> tuple[str, str]:
    """(status, detail) of what a tool printed: clean only when it came to its summary and that says zero.

    ``captured``: all that it found is that something allocates while a graph is captured.
    """
    counts = [int(a or b) for a, b in _SUMMARY.findall(output)]
    said = [
        line.lstrip("= ")
        for line in output.splitlines()
        if line.startswith("=========") and line.strip("= ") not in ("", "COMPUTE-SANITIZER")
    ]
    if _WRONG.search(output):
        return "found", " | ".join(said[:6])[:600]
    if lost := [line for line in said if line.startswith(_LOST)]:
        return "failed", lost[0]
    ended = bool(counts) and status == 0
    blind = [line for line in said if _BLIND in line]
    if blind and sum(counts) == len(blind) and ended and "## done" in output:
        # The tool counts its own remark as a hazard.
        return "skipped", blind[0]
    if any(counts):
        captured = sum(line.startswith("Program hit") and _CAPTURED in line for line in said)
        return "captured" if captured == sum(counts) else "found", " | ".join(said[:6])[:600]
    if ended and "## skipped" in output:
        return "skipped", output.partition("## skipped")[2].splitlines()[0].strip()
    if ended and "## done" in output:
        return "clean", ""
    return "failed", f"{tool} ended with {status}: " + " | ".join(output.splitlines()[-4:])[:600]


def smaller(params: Mapping[str, object]) -> Iterator[dict[str, object]]:
    """The same parameters with less to do, then with less of a cut, then as they are: not every kernel takes any size.

    First a 64th of long arrays, a 16th of a matrix's edge, and a quarter of the tiles, or a 32nd where that makes
    fewer blocks of as much work; then a quarter of edges and tiles.
    """
    less = _fewer(params)
    n = params.get("n")
    if isinstance(n, int) and n in _EDGES and '"n, n"' in json.dumps(params):
        yield {**less, "n": max(n // 16, 256)}
        less["n"] = n // 4
    elif isinstance(n, int) and n >= 1 << 20:
        less["n"] = n // 64
    elif n in _EDGES:
        if re.search(r"\bn\b", str(params.get("grid", ""))):
            yield {**less, "n": int(n) // 32}  # fewer tiles are fewer blocks, of which each does what it did
        less["n"] = int(n) // 4  # of tiles: each block still works on several
    yield less
    yield dict(params)


def _fewer(params: Mapping[str, object]) -> dict[str, object]:
    less = dict(params)
    for key, most in _SMALL.items():
        if isinstance(value := params.get(key), int):
            less[key] = min(value, most)
    if isinstance(defines := params.get("defines"), Mapping):
        less["defines"] = _fewer(defines)
    return less


def check(names: Sequence[str], tool: str) -> list[Found]:
    """Run the first cases of scenarios under a tool: together, and each alone when that was not clean."""
    began = time.monotonic()
    status, detail = _run(names, tool, _ALONE.get(tool, {}))
    if detail.startswith(_LOST) and len(names) == 1:
        # Of launches by several threads at a time, say.
        why, (status, detail) = detail, _run(names, tool, _ALONE.get(tool, {}), _ONE_AT_A_TIME)
        detail = f"{detail} with {_ONE_AT_A_TIME}; without: {why}".lstrip()
    if status != "clean" and len(names) > 1:
        each = [found for name in names for found in check([name], tool)]
        if status != "found" or any(found.status != "clean" for found in each):
            return each
        # Seen once, and by none alone: seen all the same.
        together = Found(" ".join(names), tool, status, detail, time.monotonic() - began)
        print(f"{status:8} {tool:9} {together.name} {detail}", flush=True)
        return [*each, together]
    if status == "captured":
        # What is captured into a graph must not allocate, and without a pool it does.
        why, (status, detail) = detail, _run(names, tool, {})
        detail = f"{detail} with the caching allocator only; without it: {why}".lstrip()
    status = "found" if status == "captured" else status
    took = time.monotonic() - began
    for name in names:
        print(f"{status:8} {tool:9} {name} {took:.0f} s {detail}".rstrip(), flush=True)
    return [Found(name, tool, status, detail, took) for name in names]


def _run(names: Sequence[str], tool: str, environment: Mapping[str, str], *more: str) -> tuple[str, str]:
    looked_at = ["compute-sanitizer", "--tool", tool, "--print-limit", "3", "--kernel-name-exclude", _OTHERS, *more]
    # timeout ends the program under the tool too, also when this process has gone.
    ended = ["setpriv", "--pdeathsig", "TERM", "timeout", "--signal=KILL", str(LIMIT_S)]
    argv = [*ended, *looked_at, sys.executable, __file__, "--child", tool, *names]
    env = {**os.environ, **environment}
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env, check=False)
    found, detail = judge(done.stdout, done.returncode, tool)
    return found, f"{detail} ({_BUILT})".lstrip() if _BUILT in done.stdout else detail


def _set_up(side: Side, context: Context, tool: str) -> Workload:
    given = dict(side.params)
    if tool == "racecheck" and "ARRIVALS" in _source_of(given):
        given["defines"] = {**given.get("defines", {}), _EVERY_LANE: 1}
        print(f"## {_BUILT}", flush=True)
    *fewer, whole = smaller(given)
    for params in fewer:
        try:
            return set_up(side.workload, context, params)
        except (ValueError, TypeError) as error:
            print(f"## {side.name} not at {params.get('n')}: {str(error).splitlines()[0]}", flush=True)
    return set_up(side.workload, context, whole)


def _source_of(params: Mapping[str, object]) -> str:
    path = KERNELS / str(params.get("source", "."))
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _child(tool: str, *names: str) -> None:
    """Set up each side of the first cases and run two steps of it; nothing is compared."""
    import torch

    if tool in _ALONE:
        with contextlib.suppress(ImportError):
            import cupy

            cupy.cuda.set_allocator(None)
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            context = Context(device="cuda:0", seed=5, scratch=place, shared_scratch=place, pad=768, gpus=1)
            for side in _sides(FOLDER / f"{name}.yaml"):
                try:
                    workload = _set_up(side, context, tool)
                except SkipSide as skip:
                    print(f"## skipped {name}, {side.name}: {skip}", flush=True)
                    return
                for _ in range(2):
                    if workload.prepare is not None:
                        workload.prepare()
                    workload.step()
                    torch.cuda.synchronize()
                if workload.close is not None:
                    workload.close()
                del workload
                gc.collect()
                torch.cuda.empty_cache()
    print("## done", flush=True)


def main() -> int:
    """Check what was named, or everything; returns the exit status."""
    if shutil.which("compute-sanitizer") is None:
        print("compute-sanitizer is not on PATH: it comes with the CUDA toolkit")
        return 2
    parser = argparse.ArgumentParser(prog="python tests/gpu/sanitize.py", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="scenarios; all that compile kernels without any")
    parser.add_argument("--keep", type=Path, metavar="FILE", help=f"enter what came of them, e.g. in {LEDGER.name}")
    options = parser.parse_args()
    wanted, seen = options.names or names(), seen_at(read_host())
    parts = [(wanted[at : at + n], tool) for tool, n in TOGETHER.items() for at in range(0, len(wanted), n)]
    found = []
    with ThreadPoolExecutor(JOBS) as pool:
        for part in as_completed([pool.submit(check, *part) for part in parts]):
            found += part.result()
            for one in part.result() if options.keep else ():
                # What only several together showed is each one's.
                told = dict.fromkeys(one.name.split(), (one.status, one.detail))
                keep(options.keep, one.tool, told, seen=seen)
    print({s: sum(f.status == s for f in found) for s in ("clean", "found", "skipped", "failed")})
    return 1 if any(f.status in ("found", "failed") for f in found) else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        _child(*sys.argv[2:])
    else:
        sys.exit(main())
