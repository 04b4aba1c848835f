"""Which CPUs are next to which GPU, from the kernel's PCI topology or NVML.

What must not live here: choosing among those CPUs, and binding anything to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aiperf.host import proc
from aiperf.host.facts import Gpu
from aiperf.host.nvml import Nvml, open_nvml

_WORD = 64
"""CPUs in a word of nvmlDeviceGetCpuAffinity's mask."""
_MOST_CPUS = 4096


def gpu_cpus(
    gpus: Sequence[Gpu], *, allowed: Sequence[int], library: Any = None, root: Path = proc.ROOT
) -> tuple[tuple[int, ...], ...]:
    """For each GPU, in order, the allowed CPUs on its NUMA node; all allowed ones where that is unknown or none is."""
    if not gpus:
        return ()
    nvml, _ = open_nvml(library)
    if nvml is None:
        return (tuple(allowed),) * len(gpus)
    try:
        by_uuid = {nvml.uuid(handle): handle for handle in nvml.devices()}
        return tuple(_near(nvml, by_uuid.get(gpu.uuid), allowed, root) for gpu in gpus)
    finally:
        nvml.close()


def assign_cpus(near: Sequence[Sequence[int]], each: int) -> tuple[int, ...] | None:
    """``each`` CPUs for every rank out of its own GPU's, no CPU twice, so that CPU ``i`` is rank ``i % ranks``'s.

    None when the ranks' CPUs do not suffice: then nearness cannot be had for all.
    """
    left = [list(cpus) for cpus in near]
    dealt: list[int] = []
    for _ in range(each):
        for rank in range(len(left)):
            free = [cpu for cpu in left[rank] if cpu not in dealt]
            if not free:
                return None
            dealt.append(free[0])
    return tuple(dealt)


def _near(nvml: Nvml, handle: Any, allowed: Sequence[int], root: Path) -> tuple[int, ...]:
    if handle is None:
        return tuple(allowed)
    near = _of_kernel(nvml.bus_id(handle), root) or _of_driver(nvml, handle)
    return tuple(cpu for cpu in allowed if cpu in near) or tuple(allowed)


def _of_kernel(bus: str, root: Path) -> set[int]:
    text = proc.read_text(root / f"sys/bus/pci/devices/{bus}/local_cpulist") if bus else None
    try:
        return set(proc.parse_cpu_list(text.strip())) if text and text.strip() else set()
    except ValueError:
        return set()


def _of_driver(nvml: Nvml, handle: Any) -> set[int]:
    words = nvml.ask("nvmlDeviceGetCpuAffinity", handle, _MOST_CPUS // _WORD) or ()
    return {_WORD * place + bit for place, word in enumerate(words) for bit in range(_WORD) if int(word) >> bit & 1}
