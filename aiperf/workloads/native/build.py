"""A C++ source of native/ made into a shared library with the host's own compiler, once for all sides that share it.

What must not live here: any workload, timing, flags that nobody asked for beyond -shared and -fPIC.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiperf.workloads.contract import SkipSide
from aiperf.workloads.shared.page_cache import fill_once

SOURCES = Path(__file__).parent
_CANDIDATES = ("c++", "g++", "clang++")
_SHOWN = 6
"""Lines of the compiler's own words that an error repeats."""


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


def find_compiler() -> str:
    """The C++ compiler: $CXX, else the first of c++, g++ and clang++ on PATH. Raises SkipSide where there is none."""
    wanted = os.environ.get("CXX", "")
    found = [path for name in ((wanted,) if wanted else _CANDIDATES) if (path := shutil.which(name))]
    if not found:
        raise SkipSide(f"no C++ compiler: looked for {wanted or ', '.join(_CANDIDATES)} on PATH")
    return found[0]


def build(source: str, *, flags: Sequence[str], defines: Mapping[str, Any], folder: Path) -> Library:
    """Compile ``source`` of native/ (or an absolute path) into ``folder``; equal builds are made once.

    Raises ValueError for a source that is not there, RuntimeError with the compiler's first error when it does not
    compile.
    """
    path = SOURCES / source
    if not path.is_file():
        known = ", ".join(sorted(p.name for p in SOURCES.iterdir()))
        raise ValueError(f'source "{source}" is not in native/; it holds {known}')
    compiler = find_compiler()
    version = _run([compiler, "--version"]).stdout.partition("\n")[0]
    options = [*flags, *(f"-D{name}={value}" for name, value in sorted(defines.items()))]
    # a library made for the processor at hand must not be reused on another one
    key = "\0".join([version, *options, path.read_text(), platform.node()])
    target = folder / f"native-{path.stem}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    name = f"{path.stem}.so"

    def make(draft: Path) -> None:
        command = [compiler, "-std=c++17", "-shared", "-fPIC", "-pthread", *options, str(path), "-o", str(draft / name)]
        done = _run(command)
        if done.returncode:
            raise RuntimeError(_fault(compiler, path, done.stderr))

    fill_once(target, make)
    digest = hashlib.sha256((target / name).read_bytes()).hexdigest()[:16]
    return Library(target / name, version, " ".join(options), digest)


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)


def _fault(compiler: str, source: Path, told: str) -> str:
    """``dot.cc:12:5: error: ...`` first: what the user has to look at."""
    lines = [line.replace(f"{source.parent}/", "") for line in told.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line] or lines
    return f"{Path(compiler).name} cannot compile {source.name}: " + "; ".join(errors[:_SHOWN])
