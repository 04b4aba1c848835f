"""Hosts of every kind, made by hand.

What must not live here: tests.
"""

from __future__ import annotations

from aiperf.host.facts import Gpu, HostFacts

GIB = 1024**3


def make_host(gpus: int = 0, **facts) -> HostFacts:
    cards = tuple(Gpu(i, "NVIDIA H200", f"GPU-{i}", "9.0", 140 * GIB, 100 * GIB) for i in range(gpus))
    known = {"hostname": "h", "system": "Linux", "cpu_model": "c", "cpus": (0, 1), "memory_total": 24 * GIB}
    known |= {
        "memory_available": 20 * GIB,
        "libraries": {"torch": "2.11.0"},
        "gpus": cards,
        "gpu_problem": "" if gpus else "no NVML library",
    }
    return HostFacts(**{**known, **facts})
