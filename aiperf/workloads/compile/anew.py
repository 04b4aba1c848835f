"""A step that meets a compiler which has compiled nothing yet: what torch.compile remembers and keeps in files.

What must not live here: what is compiled, timing.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import torch


def _forget() -> None:
    """Drop all compiled code and the compiler's totals: the harness takes a growing total for a side that still warms
    up."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()


@contextlib.contextmanager
def _kept_files(folder: Path) -> Iterator[None]:
    """Inductor's and Triton's files in a folder that stays; what Inductor has in memory is dropped."""
    from torch._inductor.utils import clear_caches

    clear_caches()
    places = {"TORCHINDUCTOR_CACHE_DIR": str(folder), "TRITON_CACHE_DIR": str(folder / "triton")}
    before = {name: os.environ.get(name) for name in places}
    os.environ |= places
    try:
        yield
    finally:
        clear_caches()
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextlib.contextmanager
def begun_anew(backend: str, scratch: Path, *, kept: bool = False) -> Iterator[None]:
    """No compiled code on entry and on exit; for Inductor with an empty cache folder in between, or one that is
    kept."""
    _forget()
    with contextlib.ExitStack() as inside:
        if kept:
            inside.enter_context(_kept_files(scratch / "compiled"))
        elif backend == "inductor":
            from torch._inductor.utils import fresh_cache

            inside.enter_context(fresh_cache(dir=str(scratch)))
        yield
    _forget()


def try_vector_instructions() -> None:
    """Of this CPU; the compiler does it once a process."""
    from torch._inductor.cpu_vec_isa import pick_vec_isa

    pick_vec_isa()
