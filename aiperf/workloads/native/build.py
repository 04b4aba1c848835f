"""A C++ source of native/ made into a shared library with the host's own compiler, once for all sides that share it.

What must not live here: any workload, timing, flags that nobody asked for beyond -shared and -fPIC.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiperf.workloads.contract import SkipSide
from aiperf.workloads.shared.compiled_library import build_library, run_compiler

SOURCES = Path(__file__).parent
_CANDIDATES = ("c++", "g++", "clang++")


@dataclass(frozen=True)
class Library:
    """A built source."""

    path: Path
    compiler: str
    """First line of ``--version``."""
    command: str
    """Flags and defines as given to the compiler."""
    code_sha: str
    """Of the machine code: equal for two builds that do not differ."""

    def entry(self, name: str) -> Any:
        """An exported function of the common form; raises ValueError when the source has none of that name."""
        try:
            function = getattr(ctypes.CDLL(str(self.path)), name)
        except AttributeError:
            raise ValueError(f"{self.path.stem} exports no entry {name}") from None
        pointers, numbers = ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_int64)
        function.argtypes = [pointers, pointers, ctypes.c_int64, ctypes.c_int64, numbers]
        function.restype = None
        return function


def build(source: str, *, flags: Sequence[str], defines: Mapping[str, Any], folder: Path) -> Library:
    """Compile ``source`` of native/ (or an absolute path) into ``folder`` with $CXX, or the first C++ compiler on PATH.
    Raises ValueError for a source that does not exist, SkipSide without a compiler, RuntimeError with its first
    error."""
    path = SOURCES / source
    if not path.is_file():
        known = ", ".join(sorted(p.name for p in SOURCES.iterdir()))
        raise ValueError(f'source "{source}" is not in native/; it holds {known}')
    wanted = [os.environ["CXX"]] if os.environ.get("CXX") else _CANDIDATES
    compiler = next(filter(None, map(shutil.which, wanted)), None)
    if compiler is None:
        raise SkipSide(f"no C++ compiler: looked for {', '.join(wanted)} on PATH")
    options = [*flags, *(f"-D{name}={value}" for name, value in sorted(defines.items()))]
    built = build_library(path, [compiler, "-std=c++17", "-shared", "-fPIC", "-pthread", *options], folder)
    version = run_compiler([compiler, "--version"]).stdout.partition("\n")[0]
    return Library(built, version, " ".join(options), hashlib.sha256(built.read_bytes()).hexdigest()[:16])
