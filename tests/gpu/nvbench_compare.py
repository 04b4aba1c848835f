"""Times the same kernels with nvbench (package cuda-bench) and with aiperf's device clock, and prints both as JSON.

Run on a GPU machine: python3 tests/gpu/nvbench_compare.py [--timeout 10] [--samples 400]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))

from aiperf.worker.clocks import DeviceClock, quiet_interpreter
from aiperf.workloads.contract import Context, Workload
from aiperf.workloads.cuda import workload as cuda
from aiperf.workloads.linalg import workload as linalg
from aiperf.workloads.transfer import workload as transfer

ABOVE_S, RELATIVE, ABSOLUTE_S = 100e-6, 0.01, 0.5e-6
"""Agreement asked for: within RELATIVE above ABOVE_S, within ABSOLUTE_S below."""


def kernels(context: Context) -> dict[str, Workload]:
    """The kernels to compare, set up once and shared by both clocks."""
    arrays = {"a": {"role": "input"}, "b": {"role": "input"}, "out": {"role": "output"}}
    given: dict[str, Any] = {"source": "elementwise.cu", "args": ["a", "b", "out"], "arrays": arrays}
    return {
        "copy_2x256MiB": transfer.copy(context, direction="d2d", size=256 << 20),
        "gemm_4096_bf16": linalg.matmul(context, m=4096, n=4096, k=4096, dtype="bf16"),
        "gemm_1024_bf16": linalg.matmul(context, m=1024, n=1024, k=1024, dtype="bf16"),
        "add_4KiB": cuda.kernel(context, entry="add", n=1024, **given),
        "triad_3x256MiB": cuda.kernel(context, entry="triad", n=1 << 26, items=8, **given),
    }


def by_nvbench(workloads: dict[str, Workload], *, timeout: float) -> dict[str, dict[str, float]]:
    """Name -> median and number of nvbench's cold samples, seconds of GPU time."""
    import cuda.bench as bench
    from cuda.bench.results import BenchmarkResult

    def register(name: str, workload: Workload) -> None:
        def measured(state: Any) -> None:
            stream = torch.cuda.ExternalStream(state.get_stream().addressof())
            with torch.cuda.stream(stream):
                # Handles and workspaces of this stream must exist before nvbench holds it back.
                for _ in range(3):
                    workload.step()
            stream.synchronize()

            def launcher(launch: Any) -> None:
                with torch.cuda.stream(torch.cuda.ExternalStream(launch.get_stream().addressof())):
                    workload.step()

            state.exec(launcher, batched=False)

        # nvbench takes a benchmark's name from its function.
        measured.__name__ = name
        bench.register(measured)

    for name, workload in workloads.items():
        register(name, workload)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "nvbench.json"
        arguments = ["nvbench_compare", "--devices", "0", "--timeout", str(timeout), "--jsonbin", str(path), "--quiet"]
        bench.run_all_benchmarks(arguments)
        result = BenchmarkResult.from_json(path)
        samples = {name: next(iter(result[name])).samples for name in workloads}
    return {name: {"median_s": statistics.median(s), "samples": len(s)} for name, s in samples.items() if s}


def by_aiperf(workloads: dict[str, Workload], *, device: str, samples: int) -> dict[str, dict[str, float]]:
    """Name -> median and number of cold samples of aiperf's device clock, seconds.

    With nvbench's own state of the cache, which its flush leaves full of lines to be written back, and with the time of
    an empty pair of events, which nvbench leaves in.
    """
    found = {}
    flush = torch.empty(torch.cuda.get_device_properties(device).L2_cache_size, dtype=torch.int8, device=device)
    for name, workload in workloads.items():
        clock = DeviceClock(device, hold=True)
        seconds: list[float] = []
        with quiet_interpreter():
            for _ in range(samples + 50):
                reading = clock.read(workload.step, 1, ready=flush.zero_)
                seconds.append(float(reading.device_s or 0.0) + clock.empty_s)
        kept = seconds[50:]
        found[name] = {"median_s": statistics.median(kept), "samples": len(kept), "unheld": clock.unheld}
    return found


def agreement(nvbench: float, ours: float) -> dict[str, Any]:
    """How far the two medians lie apart, and whether that is near enough."""
    apart = ours - nvbench
    near = abs(apart) <= (RELATIVE * nvbench if nvbench >= ABOVE_S else ABSOLUTE_S)
    return {"difference_s": apart, "ratio": ours / nvbench, "agrees": near}


def main() -> int:
    """Print the JSON; exit 1 when a kernel's medians lie too far apart."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--timeout", type=float, default=10.0, help="seconds that nvbench may spend on a kernel")
    parser.add_argument("--samples", type=int, default=400, help="cold samples of aiperf's clock per kernel")
    options = parser.parse_args()
    context = Context(device="cuda:0", seed=1, gpus=1)
    workloads = kernels(context)
    # Ours on both sides of nvbench's, so that heat and clocks cannot favour one of them unseen.
    first = by_aiperf(workloads, device=context.device, samples=options.samples)
    theirs = by_nvbench(workloads, timeout=options.timeout)
    second = by_aiperf(workloads, device=context.device, samples=options.samples)
    table = {}
    for name in theirs:
        ours = (first[name]["median_s"] + second[name]["median_s"]) / 2
        table[name] = {"nvbench": theirs[name], "aiperf": [first[name], second[name]]}
        table[name] |= agreement(theirs[name]["median_s"], ours)
    print(json.dumps({"device": torch.cuda.get_device_name(0), "kernels": table}, indent=1))
    return 0 if len(table) == len(workloads) and all(row["agrees"] for row in table.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
