"""How a serving process of server.py comes to compiled code: torch.compile with what is kept, or a package.

What must not live here: processes, sockets, timing.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

COUNTS = ("graphs", "cache_hits")
"""Graphs that a process traced, and how often a cache had what they compile to."""
_KEPT = {"cache_dir": "cache", "mega_cache": "artifacts.bin", "aot_package": "model.pt2"}
"""How code is kept -> what ``make`` leaves in its folder."""


def prepare() -> None:
    """Import the compiler and have it try out this CPU's vector instructions. Safe before a fork: it starts no
    thread."""
    from torch._inductor.cpu_vec_isa import pick_vec_isa

    pick_vec_isa()


def make(kind: str, module: Any, tokens: Any, folder: Path) -> None:
    """Leave in ``folder`` what later processes start from: a warm cache, a bundle of its artefacts, or a package."""
    if kind not in _KEPT:
        return
    kept = folder / _KEPT[kind]
    _cache_in(folder / "cache")
    with torch.inference_mode(kind != "aot_package"), torch.no_grad():
        if kind == "aot_package":
            program = torch.export.export(module, (tokens,))
            torch._inductor.aoti_compile_and_package(program, package_path=str(kept))
            return
        torch.compile(module)(tokens)
    if kind == "mega_cache":
        bundle = torch.compiler.save_cache_artifacts()
        if bundle is None:
            raise RuntimeError("torch.compiler.save_cache_artifacts found nothing to save")
        kept.write_bytes(bundle[0])


def forward_of(kind: str, module: Any, *, folder: Path, own: Path) -> Callable[[Any], Any]:
    """The forward pass of ``module`` as a new process gets it; ``own`` is a folder that no other process has used."""
    if kind == "none":
        return module
    _cache_in(folder / _KEPT[kind] if kind == "cache_dir" else own)
    if kind == "aot_package":
        return torch._inductor.aoti_load_package(str(folder / _KEPT[kind]))
    if kind == "mega_cache":
        torch.compiler.load_cache_artifacts((folder / _KEPT[kind]).read_bytes())
    return torch.compile(module)


def _cache_in(folder: Path) -> None:
    """Let all that compiling keeps on disk lie in ``folder``; torch looks at these names when it first compiles."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder)
    os.environ["TRITON_CACHE_DIR"] = str(folder / "triton")
