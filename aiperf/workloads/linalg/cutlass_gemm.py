"""The GEMM that CUTLASS's templates make, compiled by nvcc in set-up from the headers of the package nvidia-cutlass.

What must not live here: other products, which tile is best, timing.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from aiperf.workloads.contract import SkipSide
from aiperf.workloads.linalg import prepared
from aiperf.workloads.shared.compiled_library import find_nvcc

SOURCE = Path(__file__).with_name("cutlass_gemm.cu")
DTYPE = "fp16"
_ALIGNED = 8
"""Neighbours that every row comes in: 16 bytes."""
_FLAGS = ("-std=c++17", "-O3", "-DNDEBUG", "-arch=sm_90a", "--expt-relaxed-constexpr", "-shared", "-Xcompiler=-fPIC")


class Choice(NamedTuple):
    """What the templates are given."""

    schedule: str = "auto"
    """How warps work: auto, cooperative or pingpong."""
    tile_m: int = 128
    tile_n: int = 128
    """Rows and columns of the result that a block computes at a time."""
    cluster: int = 2
    """Blocks, one above the other, that fetch their piece of B together."""

    def defines(self) -> list[str]:
        """Flags for the compiler; none for what the source has by itself."""
        named = [] if self.schedule == "auto" else [f"-DSCHEDULE={self.schedule.capitalize()}"]
        numbers = {"TILE_M": self.tile_m, "TILE_N": self.tile_n, "CLUSTER": self.cluster}
        usual = {"TILE_M": 128, "TILE_N": 128, "CLUSTER": 2}
        return named + [f"-D{name}={value}" for name, value in numbers.items() if value != usual[name]]


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


def build(folder: Path, choice: Choice) -> Path:
    """cutlass_gemm.cu as a shared library by ``choice``, kept for other runs where the user's cache can be written,
    else in ``folder``. Raises SkipSide without CUTLASS or nvcc, RuntimeError with nvcc's words."""
    included = [f"-I{path}" for path in headers()]
    # Headers of another version may lie in the same folder.
    version = f"-DHEADERS={_version()}"
    command = [find_nvcc(), *_FLAGS, *choice.defines(), version, *included]
    return prepared.build_kept(SOURCE, command, folder, kept="cutlass")


def _version() -> str:
    try:
        return importlib.metadata.version("nvidia-cutlass")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def product(a: Any, b: Any, out: Any, *, folder: Path, choice: Choice) -> tuple[Callable[[], Any], dict[str, Any]]:
    """A function that launches the product on torch's current stream, and the kernel's registers and memory. a is [m,
    k], b [k, n] and out [m, n], row by row, in fp16. Raises SkipSide without Hopper, CUTLASS or nvcc."""
    if not a.is_cuda or torch.cuda.get_device_capability(a.device) != (9, 0):
        raise SkipSide("this GEMM of CUTLASS is made for GPUs of compute capability 9.0")
    n, k = b.shape[1], a.shape[1]
    if n % _ALIGNED or k % _ALIGNED:
        raise ValueError(f"cutlass takes n and k in multiples of {_ALIGNED}, not {n}, {k}")
    library = prepared.load(build(folder, choice))
    run, facts = prepared.prepare(library, a, b, out, maker="CUTLASS")
    made = {"local_bytes": library.local_bytes(), "stages": library.stages()}
    asked = {"warp_schedule": choice.schedule, "tile": [choice.tile_m, choice.tile_n], "cluster": choice.cluster}
    return run, {**facts, **made, **asked, "cutlass": _version()}
