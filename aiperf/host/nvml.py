"""NVML behind one door: every call is feature-detected, and a host without it is not an error.

What must not live here: calls that change a GPU, and judging what was read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

_REASONS = {
    9: "the NVIDIA driver is not loaded",
    12: "no NVML library (libnvidia-ml.so.1)",
    18: "the NVML library and the NVIDIA driver have different versions",
}

SLOWDOWNS = {
    "sw_power_cap": (0x4, "power cap"),
    "hw_slowdown": (0x8, "hardware slowdown"),
    "sw_thermal": (0x20, "software thermal slowdown"),
    "hw_thermal": (0x40, "hardware thermal slowdown"),
    "hw_power_brake": (0x80, "power brake"),
}
"""Why a clock is slowed down -> its bit of nvmlClocksEventReasons (nvml.h), and the reason in words."""
FABRIC_STATES = {0: "not supported", 1: "not started", 2: "in progress", 3: "completed"}


def slowdown_words(names: Iterable[str]) -> str:
    """Names of SLOWDOWNS for people: ``power cap, power brake``."""
    return ", ".join(SLOWDOWNS[name][1] for name in names)


class Nvml:
    """An initialised NVML library: pynvml, or any object with its functions, constants and NVMLError."""

    def __init__(self, library: Any) -> None:
        self.library = library

    def ask(self, name: str, *arguments: Any) -> Any:
        """What ``name`` answers, or None when this library or this device does not support it."""
        function = getattr(self.library, name, None)
        if function is None:
            return None
        try:
            answer = function(*arguments)
        except self.library.NVMLError:
            return None
        return answer.decode() if isinstance(answer, bytes) else answer

    def constant(self, name: str, default: int) -> int:
        """A constant of the library, or its published value where an old release lacks the name."""
        value = getattr(self.library, name, default)
        # pynvml writes some of its constants with a trailing comma, which makes them tuples (NVML_P2P_CAPS_INDEX_READ).
        return int(value[0] if isinstance(value, tuple) else value)

    def devices(self) -> tuple[Any, ...]:
        """Handles of every device, in NVML's order (PCI bus)."""
        count = self.ask("nvmlDeviceGetCount") or 0
        handles = (self.ask("nvmlDeviceGetHandleByIndex", index) for index in range(count))
        return tuple(handle for handle in handles if handle is not None)

    def visible(self, text: str | None) -> tuple[Any, ...]:
        """Handles that CUDA_VISIBLE_DEVICES leaves, in its order; None means all.

        As in CUDA, the list ends at the first entry that names no device. An entry is an index or the beginning of a
        UUID. Indices follow the PCI bus, which is CUDA's own order wherever the GPUs of a host are alike.
        """
        handles = self.devices()
        if text is None:
            return handles
        chosen: list[Any] = []
        for entry in (part.strip() for part in text.split(",")):
            handle = self._named(entry, handles)
            if handle is None:
                break
            chosen.append(handle)
        return tuple(chosen)

    def _named(self, entry: str, handles: tuple[Any, ...]) -> Any:
        if entry.isdigit():
            return handles[int(entry)] if int(entry) < len(handles) else None
        if entry.startswith("MIG-"):
            return self.ask("nvmlDeviceGetHandleByUUID", entry)
        matches = [h for h in handles if entry.startswith("GPU-") and self.uuid(h).startswith(entry)]
        return matches[0] if len(matches) == 1 else None

    def uuid(self, handle: Any) -> str:
        """The device's UUID, or empty."""
        return str(self.ask("nvmlDeviceGetUUID", handle) or "")

    def compute_pids(self, handle: Any) -> tuple[int, ...]:
        """Processes with a compute context on the device, as numbered by NVML."""
        processes = self.ask("nvmlDeviceGetComputeRunningProcesses", handle) or ()
        return tuple(sorted({int(p.pid) for p in processes}))

    def whole(self, handle: Any) -> Any:
        """The GPU that a MIG slice is cut from; the handle itself when it is a whole GPU."""
        return self.ask("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", handle) or handle

    def bus_id(self, handle: Any) -> str:
        """The PCI address as /sys writes it (``0000:17:00.0``), or empty."""
        bus = getattr(self.ask("nvmlDeviceGetPciInfo", self.whole(handle)), "busId", "")
        text = bus.decode() if isinstance(bus, bytes) else str(bus)
        # NVML writes the domain with eight digits, the kernel with four.
        return text[-12:].lower()

    def slowdowns(self, handle: Any) -> tuple[str, ...] | None:
        """What slows the clocks down now, by the names of SLOWDOWNS; None when the device does not say."""
        bits = self.ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
        if bits is None:  # its name before driver 535
            bits = self.ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
        return None if bits is None else tuple(name for name, (bit, _) in SLOWDOWNS.items() if bits & bit)

    def fields(self, handle: Any, numbers: Sequence[int | tuple[int, int]]) -> dict[int, int]:
        """Number of an NVML field (or number and scope) -> its value, for those that the device answers."""
        values = self.ask("nvmlDeviceGetFieldValues", handle, list(numbers)) or ()
        return {int(v.fieldId): int(v.value.ullVal) for v in values if int(v.nvmlReturn) == 0}

    def fabric(self, handle: Any) -> tuple[str, int, str] | None:
        """State (of FABRIC_STATES), clique and cluster of the NVSwitch fabric; None when the device does not say."""
        make = getattr(self.library, "c_nvmlGpuFabricInfo_v2_t", None)
        if make is None:
            return None
        info = make()
        asked = getattr(self.library, "byref", lambda value: value)(info)
        if self.ask("nvmlDeviceGetGpuFabricInfoV", handle, asked) is None:
            return None
        state = FABRIC_STATES.get(int(info.state), f"state {int(info.state)}")
        return state, int(info.cliqueId), bytes(info.clusterUuid).hex()

    def close(self) -> None:
        """Give the library back; harmless when the driver went away meanwhile."""
        self.ask("nvmlShutdown")


def open_nvml(library: Any = None) -> tuple[Nvml | None, str]:
    """The initialised library and "", or None and the reason why this host has none."""
    if library is None:
        try:
            import pynvml
        except ImportError:
            return None, "nvidia-ml-py is not installed"
        library = pynvml
    try:
        library.nvmlInit()
    except library.NVMLError as error:
        return None, _REASONS.get(getattr(error, "value", 0), f"NVML does not start: {error}")
    return Nvml(library), ""
