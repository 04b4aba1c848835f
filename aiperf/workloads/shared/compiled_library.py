"""C++ and CUDA sources made into shared libraries by a compiler of this host, equal builds once.

What must not live here: which flags a library is built with, and what it exports.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from aiperf.workloads.contract import SkipSide
from aiperf.workloads.shared.page_cache import fill_once

_SHOWN = 6
"""Lines of the compiler's own words that an error repeats."""


def find_nvcc() -> str:
    """Nvcc on PATH or below CUDA_HOME or CUDA_PATH. Raises SkipSide where there is none."""
    homes = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    for place in (None, *(f"{home}/bin" for home in homes)):
        if found := shutil.which("nvcc", path=place):
            return found
    raise SkipSide("CUDA C++ with host code needs nvcc: it is neither on PATH nor below CUDA_HOME")


def run_compiler(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """What a compiler says, without input and whatever its status."""
    return subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)


def build_library(source: Path, command: Sequence[str], folder: Path) -> Path:
    """``source`` as a shared library below ``folder``, made by ``command``, which begins with the compiler.

    Builds of one source, command, compiler version and host are made once: a library for the processor at hand must not
    be used on another one. Raises RuntimeError with the compiler's first errors.
    """
    version = run_compiler([command[0], "--version"]).stdout
    key = "\0".join([version, *command[1:], source.read_text(encoding="utf-8"), platform.node()])
    name = f"{source.stem}.so"

    def make(draft: Path) -> None:
        done = run_compiler([*command, str(source), "-o", str(draft / name)])
        if done.returncode:
            log = (done.stderr + done.stdout).replace(f"{source.parent}/", "")
            lines = [line for line in log.splitlines() if line.strip()]
            errors = [line for line in lines if "error" in line] or lines
            raise RuntimeError(f"{Path(command[0]).name} cannot compile {source.name}: {'; '.join(errors[:_SHOWN])}")

    return fill_once(folder / f"{source.stem}-{hashlib.sha256(key.encode()).hexdigest()[:16]}", make) / name
