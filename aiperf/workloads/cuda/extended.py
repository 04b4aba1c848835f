"""Launches with an attribute that CuPy cannot pass on: programmatic dependent launch, through the driver's own call.

What must not live here: geometry, arrays, and launches that CuPy can make.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from aiperf.workloads.cuda.geometry import Placed

_PROGRAMMATIC_STREAM_SERIALIZATION = 6
_VALUE_BYTES = 64


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute of cuda.h."""

    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_char * 4), ("value", ctypes.c_int * (_VALUE_BYTES // 4)))


class _Config(ctypes.Structure):
    """CUlaunchConfig of cuda.h."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    )


def early_launch(function: int, placed: Placed, arguments: tuple[Any, ...]) -> Callable[[int], None]:
    """A call (stream -> None) that launches ``function`` when the blocks of the kernel ahead of it have all called
    cudaTriggerProgrammaticLaunchCompletion or ended; the source waits with cudaGridDependencySynchronize."""
    launch = ctypes.CDLL("libcuda.so.1").cuLaunchKernelEx
    launch.argtypes = [ctypes.POINTER(_Config), ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    launch.restype = ctypes.c_int
    attribute = _Attribute(id=_PROGRAMMATIC_STREAM_SERIALIZATION)
    attribute.value[0] = 1
    config = _Config(placed.grid, placed.block, placed.smem, None, ctypes.pointer(attribute), 1)
    held = [ctypes.create_string_buffer(value.tobytes(), value.itemsize) for value in arguments]
    pointers = (ctypes.c_void_p * max(1, len(held)))(*(ctypes.addressof(buffer) for buffer in held))

    def call(stream: int, _kept: Any = held) -> None:
        config.stream = stream
        status = launch(ctypes.byref(config), function, pointers, None)
        if status:
            raise RuntimeError(f"cuLaunchKernelEx of {placed.entry} failed with error {status} of the CUDA driver")

    return call
