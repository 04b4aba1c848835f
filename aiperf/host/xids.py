"""Xid errors: what the driver reports of a GPU while a pair runs (a fault of the program, the memory or a link).

What must not live here: what an error means for the pair.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiperf.host.nvml import Nvml

_XID_EVENT = 8
"""nvmlEventTypeXidCriticalError (nvml.h)."""


class XidWatch:
    """Collects the Xid events of some GPUs; does nothing where the driver has no events (a MIG slice, some VMs)."""

    def __init__(self, nvml: Nvml | None, handles: Mapping[int, Any]) -> None:
        self._nvml = nvml
        self._events = nvml.ask("nvmlEventSetCreate") if nvml is not None and handles else None
        self._uuids: dict[str, int] = {}
        if nvml is None or self._events is None:
            return
        kind = nvml.constant("nvmlEventTypeXidCriticalError", _XID_EVENT)
        for index, handle in handles.items():
            supported = nvml.ask("nvmlDeviceGetSupportedEventTypes", handle) or 0
            if supported & kind:
                nvml.ask("nvmlDeviceRegisterEvents", handle, kind, self._events)
                self._uuids[nvml.uuid(handle)] = index

    @property
    def watching(self) -> bool:
        """Whether any GPU reports its errors."""
        return bool(self._uuids)

    def seen(self) -> list[str]:
        """``GPU 0 reported Xid 13`` for every error since the last look. Does not wait."""
        found: list[str] = []
        if self._nvml is None or not self._uuids:
            return found
        # A timeout is an error of NVML's, so None: nothing happened.
        while (event := self._nvml.ask("nvmlEventSetWait_v2", self._events, 0)) is not None:
            index = self._uuids.get(self._nvml.uuid(event.device))
            found.append(f"GPU {'?' if index is None else index} reported Xid {int(event.eventData)}")
        return found

    def close(self) -> None:
        """Let the events go."""
        if self._nvml is not None and self._events is not None:
            self._nvml.ask("nvmlEventSetFree", self._events)
            self._events, self._uuids = None, {}
