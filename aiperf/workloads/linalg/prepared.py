"""Products in shared libraries that nvcc builds in set-up: where they are kept, how one is prepared and launched.

What must not live here: the sources, their flags, and what shapes they take.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from aiperf.workloads.shared.compiled_library import build_library
from aiperf.workloads.shared.user_cache import cache_folder


def build_kept(source: Path, command: Sequence[str], folder: Path, *, kept: str) -> Path:
    """``source`` as a shared library, made by ``command`` and kept for other runs under the name ``kept`` where the
    user's cache can be written, else in ``folder``. Raises RuntimeError with nvcc's words."""
    cache = cache_folder(kept)
    with contextlib.suppress(OSError):
        cache.mkdir(parents=True, exist_ok=True)
    return build_library(source, command, cache if os.access(cache, os.W_OK) else folder)


def load(path: Path) -> Any:
    """The library with its functions declared."""
    library = ctypes.CDLL(str(path))
    pointer, operands = ctypes.c_void_p, [ctypes.c_void_p] * 3 + [ctypes.c_int] * 3
    library.workspace_bytes.argtypes, library.workspace_bytes.restype = operands, ctypes.c_size_t
    library.prepare.argtypes = [*operands, pointer, ctypes.POINTER(ctypes.c_char_p)]
    library.prepare.restype = pointer
    library.run.argtypes, library.run.restype = [pointer, pointer], ctypes.c_int
    return library


def prepare(library: Any, a: Any, b: Any, out: Any, *, maker: str) -> tuple[Callable[[], Any], dict[str, Any]]:
    """A function that launches the product on torch's current stream, and the kernel's registers and memory. Raises
    RuntimeError, naming the ``maker``, where the library refuses the product."""
    (m, k), n = a.shape, b.shape[1]
    operands = (a.data_ptr(), b.data_ptr(), out.data_ptr(), m, n, k)
    workspace = torch.empty(max(1, library.workspace_bytes(*operands)), dtype=torch.uint8, device=a.device)
    said = ctypes.c_char_p()
    ready = library.prepare(*operands, workspace.data_ptr(), ctypes.byref(said))
    if not ready:
        raise RuntimeError(f"{maker} cannot prepare this product: {(said.value or b'').decode()}")
    current = torch.cuda.current_stream

    def run() -> Any:
        if status := library.run(ready, current().cuda_stream):
            raise RuntimeError(f"{maker} could not launch its product: status {status}")
        return out

    facts = {
        "registers": library.registers(),
        "shared_bytes": library.shared_bytes(),
        "workspace_bytes": workspace.nbytes,
    }
    return run, facts
