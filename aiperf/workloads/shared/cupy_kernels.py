"""CUDA C++ compiled by CuPy, and its kernels launched on a stream of torch's.

What must not live here: sources, and what their kernels compute.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aiperf.workloads.contract import SkipSide


def import_cupy() -> Any:
    """CuPy. Raises SkipSide where it is not installed."""
    try:
        import cupy
    except ImportError as error:
        raise SkipSide(
            f"CuPy, which compiles CUDA C++ and calls the CUDA runtime, is not installed: {error}"
        ) from error
    return cupy


def view_stream(pointer: int) -> Any:
    """CuPy's view of the stream at ``pointer``, a context manager. Not by Stream.from_external: CuPy 14 destroys the
    stream together with the object that this returns."""
    return import_cupy().cuda.ExternalStream(pointer)


class Kernels:
    """The kernels of one source on one device; ``extern "C"``, compiled when the first of them is asked for."""

    def __init__(self, source: str, device: Any, *, options: tuple[str, ...] = ()) -> None:
        """Raises SkipSide without CuPy."""
        import torch

        cupy, self._cuda = import_cupy(), torch.cuda
        # CuPy compiles for, and launches on, the current device of the CUDA runtime.
        torch.cuda.set_device(torch.device(device))
        self._module = cupy.RawModule(code=source, options=("-std=c++17", *options), backend="nvrtc")
        self._entries: dict[str, Any] = {}
        self._streams: dict[int, Any] = {}
        self.sms = int(self._cuda.get_device_properties(torch.device(device)).multi_processor_count)

    def entry(self, name: str) -> Any:
        """The kernel called ``name`` in the source."""
        if name not in self._entries:
            self._entries[name] = self._module.get_function(name)
        return self._entries[name]

    def stream(self, pointer: int) -> Any:
        """CuPy's view of a stream, a context manager."""
        if pointer not in self._streams:
            self._streams[pointer] = view_stream(pointer)
        return self._streams[pointer]

    def launch(self, name: str, grid: tuple[int, ...], block: tuple[int, ...], arguments: tuple[Any, ...]) -> None:
        """Queue a kernel on torch's current stream; ``arguments`` are numpy scalars, addresses as uint64."""
        with self.stream(self._cuda.current_stream().cuda_stream):
            self.entry(name)(grid, block, arguments)

    def launcher(self, name: str, grid: tuple[int, ...], block: tuple[int, ...], *arguments: Any) -> Callable[[], None]:
        """A call that queues a kernel on torch's current stream; tensors pass as addresses, numbers as 32-bit ints."""
        passed = tuple(np.uint64(a.data_ptr()) if hasattr(a, "data_ptr") else np.int32(a) for a in arguments)
        return lambda: self.launch(name, grid, block, passed)
