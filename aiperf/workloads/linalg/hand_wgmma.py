"""The tuned GEMM for Hopper that is written by hand (hand_wgmma.cu), compiled by nvcc in set-up.

What must not live here: products that CuPy compiles, products of templates, timing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from aiperf.workloads.contract import SkipSide
from aiperf.workloads.linalg import prepared
from aiperf.workloads.shared.compiled_library import find_nvcc

SOURCE = Path(__file__).with_name("hand_wgmma.cu")
HEADERS = Path(__file__).parents[1] / "cuda" / "kernels"
"""Where async.cuh lies."""
DTYPE = "fp16"
_MULTIPLES = {"m": 256, "n": 256, "k": 64}
"""A cluster's tile, and the depth of a slice."""
FLAGS = ("-std=c++17", "-O3", "-DNDEBUG", "-gencode", "arch=compute_90a,code=sm_90a", f"-I{HEADERS}")
_SHARED = ("-shared", "-Xcompiler=-fPIC")


def build(folder: Path) -> Path:
    """hand_wgmma.cu as a shared library, kept as ``prepared.build_kept`` says. Raises SkipSide without nvcc,
    RuntimeError with nvcc's words."""
    # A build with another text of the header is another one.
    header = hashlib.sha256((HEADERS / "async.cuh").read_bytes()).hexdigest()[:16]
    command = [find_nvcc(), *FLAGS, *_SHARED, f"-DHEADERS={header}"]
    return prepared.build_kept(SOURCE, command, folder, kept="hand_wgmma")


def product(a: Any, b: Any, out: Any, *, folder: Path) -> tuple[Callable[[], Any], dict[str, Any]]:
    """A function that launches the product on torch's current stream, and the kernel's registers and memory. a is [m,
    k], b [k, n] and out [m, n], row by row, in fp16. Raises SkipSide without Hopper or nvcc, ValueError where the
    kernel would reach over an edge."""
    if not a.is_cuda or torch.cuda.get_device_capability(a.device) != (9, 0):
        raise SkipSide("hand_wgmma is made for GPUs of compute capability 9.0")
    sizes = {"m": a.shape[0], "n": b.shape[1], "k": a.shape[1]}
    if any(sizes[name] % multiple for name, multiple in _MULTIPLES.items()):
        raise ValueError(f"hand_wgmma takes m and n in multiples of 256 and k of 64, not {[*sizes.values()]}")
    return prepared.prepare(prepared.load(build(folder)), a, b, out, maker="hand_wgmma")
