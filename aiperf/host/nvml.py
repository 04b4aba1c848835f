"""NVML behind one door: every call is feature-detected, and a host without it is no error.

What must not live here: calls that change a GPU, and judging what was read.
"""

from __future__ import annotations

from typing import Any

_REASONS = {
    9: "the NVIDIA driver is not loaded",
    12: "no NVML library (libnvidia-ml.so.1)",
    18: "the NVML library and the NVIDIA driver have different versions",
}


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
