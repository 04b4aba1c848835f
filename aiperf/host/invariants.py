"""What must not change while a case is measured: clocks and limits that were set, error counts, the governor.

What must not live here: judging a change, and what moves with the load (telemetry.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aiperf.host import proc
from aiperf.host.nvml import Nvml


def invariants(nvml: Nvml | None, handles: dict[int, Any], *, cpus: Sequence[int], root: Path) -> dict[str, str]:
    """Name (with its unit) -> value of what must not change within a pair; without what the machine does not show."""
    found = {name: f"{value:.15g}" for name, value in _of_gpus(nvml, handles).items() if value is not None}
    if governors := sorted({name for cpu in cpus if (name := proc.governor(cpu, root))}):
        found["governor of the CPUs"] = ", ".join(governors)
    return found


def changes(before: dict[str, str], after: dict[str, str]) -> tuple[str, ...]:
    """One sentence for each value that is another one now."""
    moved = (name for name, value in before.items() if after.get(name, value) != value)
    return tuple(f"{name} went from {before[name]} to {after[name]}" for name in moved)


def _of_gpus(nvml: Nvml | None, handles: dict[int, Any]) -> dict[str, float | None]:
    values: dict[str, Any] = {}
    if nvml is None:
        return values
    sm = nvml.constant("NVML_CLOCK_SM", 1)
    uncorrected, volatile = nvml.constant("NVML_MEMORY_ERROR_TYPE_UNCORRECTED", 1), 0
    policy = nvml.constant("NVML_PERF_POLICY_THERMAL", 1)
    for index, handle in handles.items():
        thermal = nvml.ask("nvmlDeviceGetViolationStatus", handle, policy)
        errors = nvml.ask("nvmlDeviceGetTotalEccErrors", handle, uncorrected, volatile)
        values |= {
            f"application clock of GPU {index} (MHz)": nvml.ask("nvmlDeviceGetApplicationsClock", handle, sm),
            f"power limit of GPU {index} (mW)": nvml.ask("nvmlDeviceGetEnforcedPowerLimit", handle),
            f"uncorrected ECC errors of GPU {index}": errors,
            f"time of GPU {index} under thermal slowdown (ns)": getattr(thermal, "violationTime", None),
        }
    return values
