"""The CUDA state of another process, suspended and resumed by the driver.

What must not live here: what the process computes (holder.py), timing.
"""

from __future__ import annotations

import ctypes
from typing import Any, Literal

_STATES = ("running", "locked", "checkpointed", "failed")
"""CUprocessState of cuda.h, in the order of its values."""
_ARGUMENT_WORDS = 8
"""64-bit words in each of the argument structs; all but the lock's timeout stay zero, its default."""
_LOCK_TIMEOUT_MS = 60_000
_CALLS = ("Lock", "Checkpoint", "Restore", "Unlock")


class CudaStateError(RuntimeError):
    """The driver has no such call, refused it, or left the process in another state."""


class CudaState:
    """That of process ``pid``, which must have made its CUDA context. Raises CudaStateError."""

    def __init__(self, pid: int, *, library: Any = None) -> None:
        """``library``: libcuda, loaded by default."""
        try:
            self._library = library or ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise CudaStateError(f"the CUDA driver cannot be loaded: {error}") from None
        self._pid = pid
        missing = [name for name in (*_CALLS, "GetState") if not hasattr(self._library, f"cuCheckpointProcess{name}")]
        if missing:
            raise CudaStateError(f"the driver has no cuCheckpointProcess{missing[0]}; 570 and newer ones have it")
        # Restoring needs an initialised driver in the process that asks for it.
        self._raise_for("cuInit", self._library.cuInit(0))

    def suspend(self) -> None:
        """Copy all of its GPU memory to host memory and release the GPU; its calls of CUDA block meanwhile."""
        self._call("Lock", timeout_ms=_LOCK_TIMEOUT_MS)
        self._call("Checkpoint")

    def resume(self) -> None:
        """Copy the memory back to where it was, and let the process go on."""
        self._call("Restore")
        self._call("Unlock")

    def require(self, wanted: Literal["running", "checkpointed"]) -> None:
        """Raise CudaStateError where the driver says that the process is in another state."""
        found = ctypes.c_int()
        code = self._library.cuCheckpointProcessGetState(self._pid, ctypes.byref(found))
        self._raise_for("cuCheckpointProcessGetState", code)
        if found.value != _STATES.index(wanted):
            state = _STATES[found.value] if 0 <= found.value < len(_STATES) else str(found.value)
            raise CudaStateError(f"the process is {state} where it should be {wanted}")

    def _call(self, name: str, *, timeout_ms: int = 0) -> None:
        arguments = (ctypes.c_uint64 * _ARGUMENT_WORDS)(timeout_ms)
        call = getattr(self._library, f"cuCheckpointProcess{name}")
        self._raise_for(f"cuCheckpointProcess{name}", call(self._pid, ctypes.byref(arguments)))

    def _raise_for(self, call: str, code: int) -> None:
        if not code:
            return
        text = ctypes.c_char_p()
        self._library.cuGetErrorName(code, ctypes.byref(text))
        raise CudaStateError(f"{call} returned {(text.value or b'an unknown error').decode()} ({code})")
