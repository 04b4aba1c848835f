"""The malloc of a helper process: the environment that asks for one, and whether the process really uses it.

What must not live here: any workload; what a helper does with the memory.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from aiperf.workloads.contract import SkipSide

_TUNING = re.compile(r"GLIBC_TUNABLES|MALLOC_\w+|TCMALLOC_\w+")
_MAPS = "print(open('/proc/self/maps').read())"


@dataclass(frozen=True)
class _Library:
    files: tuple[str, ...]
    """Names that may be preloaded, the first that is there wins."""
    packages: str


_LIBRARIES = {
    "jemalloc": _Library(("libjemalloc.so.2",), "libjemalloc2 on Debian and Ubuntu, jemalloc on Fedora"),
    "tcmalloc": _Library(
        ("libtcmalloc_minimal.so.4", "libtcmalloc.so.4"),
        "libtcmalloc-minimal4 (newer: libtcmalloc-minimal4t64) on Debian and Ubuntu, gperftools-libs on Fedora",
    ),
}


def environment(allocator: str) -> dict[str, str]:
    """This process's environment, changed so that a child gets its malloc from ``allocator``: ``inherited`` changes
    nothing, ``glibc`` lets no other be preloaded. Raises SkipSide where the library cannot be preloaded."""
    kept = {**os.environ}
    if allocator == "inherited":
        return kept
    preloaded = re.split(r"[ :]+", kept.pop("LD_PRELOAD", ""))
    others = [path for path in preloaded if path and not any(name in Path(path).name for name in _LIBRARIES)]
    own = [] if allocator == "glibc" else [_preloadable(allocator)]
    return {**kept, "LD_PRELOAD": ":".join([*own, *others])} if own or others else kept


def _preloadable(allocator: str) -> str:
    library = _LIBRARIES[allocator]
    for name in library.files:
        command = [sys.executable, "-I", "-S", "-c", _MAPS]
        done = subprocess.run(
            command, env={**os.environ, "LD_PRELOAD": name}, capture_output=True, text=True, check=False
        )
        if name in done.stdout:
            return name
    raise SkipSide(f"{' or '.join(library.files)} cannot be preloaded: install {library.packages}")


def require(allocator: str, served: Iterable[str]) -> None:
    """Raise SkipSide when a process that was asked gets its malloc from elsewhere; ``served``: files of libraries."""
    names = {"glibc": ("libc.so.6", "libc-2."), "inherited": ("",)}.get(allocator) or _LIBRARIES[allocator].files
    for file in served:
        if not Path(file).name.startswith(names):
            raise SkipSide(f"a worker's malloc is that of {file or 'an unknown library'}, not of {allocator}")


def settings() -> dict[str, str]:
    """The variables of the environment that allocators read in a child."""
    return {name: value for name, value in sorted(os.environ.items()) if _TUNING.fullmatch(name)}
