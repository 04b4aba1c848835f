"""The GEMM that CUTLASS's templates make, compiled by nvcc in set-up from the headers of the package nvidia-cutlass.

What must not live here: other products, which tile is best, timing.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.metadata
import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from aiperf.workloads.contract import SkipSide
from aiperf.workloads.shared.compiled_library import build_library, find_nvcc
from aiperf.workloads.shared.user_cache import cache_folder

SOURCE = Path(__file__).with_name("cutlass_gemm.cu")
DTYPE = "fp16"
_ALIGNED = 8
"""Neighbours that every row comes in: 16 bytes."""
_FLAGS = ("-std=c++17", "-O3", "-DNDEBUG", "-arch=sm_90a", "--expt-relaxed-constexpr", "-shared", "-Xcompiler=-fPIC")


def headers() -> list[Path]:
    """CUTLASS's folders of headers. Raises SkipSide where the package is not installed."""
    found = importlib.util.find_spec("cutlass_library")
    if found is None or not found.submodule_search_locations:
        raise SkipSide("the headers of CUTLASS are not installed (package nvidia-cutlass)")
    root = Path(found.submodule_search_locations[0]) / "source"
    folders = [root / "include", root / "tools" / "util" / "include"]
    if missing := [str(folder) for folder in folders if not folder.is_dir()]:
        raise SkipSide(f"the package nvidia-cutlass here has no headers in {missing[0]}")
    return folders


def build(folder: Path, schedule: str = "auto") -> Path:
    """cutlass_gemm.cu as a shared library whose warps work by ``schedule`` (auto, cooperative or pingpong), kept for
    other runs where the user's cache can be written, else in ``folder``. Raises SkipSide without CUTLASS or nvcc,
    RuntimeError with nvcc's words."""
    included = [f"-I{path}" for path in headers()]
    cache = cache_folder("cutlass")
    with contextlib.suppress(OSError):
        cache.mkdir(parents=True, exist_ok=True)
    # Headers of another version may lie in the same folder.
    version = f"-DHEADERS={_version()}"
    named = [] if schedule == "auto" else [f"-DSCHEDULE={schedule.capitalize()}"]
    return build_library(
        SOURCE, [find_nvcc(), *_FLAGS, *named, version, *included], cache if os.access(cache, os.W_OK) else folder
    )


def _version() -> str:
    try:
        return importlib.metadata.version("nvidia-cutlass")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def load(path: Path) -> Any:
    """The library with its functions declared."""
    library = ctypes.CDLL(str(path))
    pointer, operands = ctypes.c_void_p, [ctypes.c_void_p] * 3 + [ctypes.c_int] * 3
    library.workspace_bytes.argtypes, library.workspace_bytes.restype = operands, ctypes.c_size_t
    library.prepare.argtypes = [*operands, pointer, ctypes.POINTER(ctypes.c_char_p)]
    library.prepare.restype = pointer
    library.run.argtypes, library.run.restype = [pointer, pointer], ctypes.c_int
    return library


def product(
    a: Any, b: Any, out: Any, *, folder: Path, schedule: str = "auto"
) -> tuple[Callable[[], Any], dict[str, Any]]:
    """A function that launches the product on torch's current stream, and the kernel's registers and memory. a is [m,
    k], b [k, n] and out [m, n], row by row, in fp16. ``schedule`` as in ``build``. Raises SkipSide
    without Hopper, CUTLASS or nvcc."""
    if not a.is_cuda or torch.cuda.get_device_capability(a.device) != (9, 0):
        raise SkipSide("this GEMM of CUTLASS is made for GPUs of compute capability 9.0")
    (m, k), n = a.shape, b.shape[1]
    if n % _ALIGNED or k % _ALIGNED:
        raise ValueError(f"cutlass takes n and k in multiples of {_ALIGNED}, not {n}, {k}")
    library = load(build(folder, schedule))
    operands = (a.data_ptr(), b.data_ptr(), out.data_ptr(), m, n, k)
    workspace = torch.empty(max(1, library.workspace_bytes(*operands)), dtype=torch.uint8, device=a.device)
    said = ctypes.c_char_p()
    ready = library.prepare(*operands, workspace.data_ptr(), ctypes.byref(said))
    if not ready:
        raise RuntimeError(f"CUTLASS cannot prepare this product: {(said.value or b'').decode()}")
    current = torch.cuda.current_stream

    def run() -> Any:
        if status := library.run(ready, current().cuda_stream):
            raise RuntimeError(f"CUTLASS could not launch its product: status {status}")
        return out

    facts = {
        "registers": library.registers(),
        "shared_bytes": library.shared_bytes(),
        "workspace_bytes": workspace.nbytes,
        "warp_schedule": schedule,
        "cutlass": _version(),
    }
    return run, facts
