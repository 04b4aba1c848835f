"""The GEMM that CUTLASS's templates make, compiled by nvcc in set-up from the headers of the package nvidia-cutlass.

What must not live here: other products, which tile is best, timing.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from aiperf.workloads.contract import SkipSide
from aiperf.workloads.linalg import prepared
from aiperf.workloads.shared.compiled_library import find_nvcc

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
    # Headers of another version may lie in the same folder.
    version = f"-DHEADERS={_version()}"
    named = [] if schedule == "auto" else [f"-DSCHEDULE={schedule.capitalize()}"]
    return prepared.build_kept(SOURCE, [find_nvcc(), *_FLAGS, *named, version, *included], folder, kept="cutlass")


def _version() -> str:
    try:
        return importlib.metadata.version("nvidia-cutlass")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def product(
    a: Any, b: Any, out: Any, *, folder: Path, schedule: str = "auto"
) -> tuple[Callable[[], Any], dict[str, Any]]:
    """A function that launches the product on torch's current stream, and the kernel's registers and memory. a is [m,
    k], b [k, n] and out [m, n], row by row, in fp16. ``schedule`` as in ``build``. Raises SkipSide
    without Hopper, CUTLASS or nvcc."""
    if not a.is_cuda or torch.cuda.get_device_capability(a.device) != (9, 0):
        raise SkipSide("this GEMM of CUTLASS is made for GPUs of compute capability 9.0")
    n, k = b.shape[1], a.shape[1]
    if n % _ALIGNED or k % _ALIGNED:
        raise ValueError(f"cutlass takes n and k in multiples of {_ALIGNED}, not {n}, {k}")
    run, facts = prepared.prepare(prepared.load(build(folder, schedule)), a, b, out, maker="CUTLASS")
    return run, {**facts, "warp_schedule": schedule, "cutlass": _version()}
