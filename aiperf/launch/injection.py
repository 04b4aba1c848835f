"""The libraries that the CUDA driver and NVTX load into a program: compiled once, and the variables that name them.

What must not live here: what the libraries leave behind (injected_records.py), and starting programs.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from aiperf.errors import AiperfError
from aiperf.paths import cache_folder
from aiperf.records import Case, Side

RECORDS_VARIABLE = "AIPERF_RECORDS"
"""Folder into which an injected library writes."""
_CUPTI_VARIABLE = "AIPERF_CUPTI"
_GPU_VARIABLE = "CUDA_INJECTION64_PATH"
_NVTX_VARIABLE = "NVTX_INJECTION64_PATH"
_SOURCES = Path(__file__).resolve().parent / "injected"
_LINKED = ("-ldl", "-lpthread")
_COMPILE_S = 60.0
_IN_TOOLKIT = ("extras/CUPTI/lib64", "lib64", "lib", f"targets/{platform.machine()}-linux/lib")
_IN_WHEELS = ("nvidia/cu13/lib", "nvidia/cu12/lib", "nvidia/cuda_cupti/lib", "triton/backends/nvidia/lib/cupti")
_FEWEST_NAMED = 2


class InjectionMissing(AiperfError):
    """This host cannot look into programs; the message is the reason, and what to do."""


def wants_gpu(case: Case) -> bool:
    """Whether the GPU time of a case's programs is asked for."""
    return case.measure.clock == "gpu"


def wants_ranges(side: Side) -> bool:
    """Whether the ranges of a side's program are asked for."""
    return any(metric.range for metric in side.metrics)


def injected_variables(case: Case, side: Side, folder: Path, *, env: Mapping[str, str]) -> dict[str, str]:
    """What a side's environment ``env`` gets so that its processes leave their records in ``folder``, which is made.

    Empty where none are asked for. Raises InjectionMissing.
    """
    found: dict[str, str] = {}
    if wants_gpu(case):
        found |= {_GPU_VARIABLE: str(library("gpu_time")), _CUPTI_VARIABLE: os.pathsep.join(map(str, cupti_places()))}
    if wants_ranges(side):
        found[_NVTX_VARIABLE] = str(library("nvtx_ranges"))
    for name in (_GPU_VARIABLE, _NVTX_VARIABLE):
        if name in found and env.get(name):
            raise InjectionMissing(f"{name} is already set to {env[name]}: unset it, or leave these metrics out")
    if found:
        folder.mkdir(parents=True, exist_ok=True)
        found[RECORDS_VARIABLE] = str(folder)
    return found


@cache
def library(name: str) -> Path:
    """The compiled library of ``injected/NAME.c``, from the user's cache or made now. Raises InjectionMissing."""
    compiler = next(filter(None, map(shutil.which, (os.environ.get("CC", ""), "cc", "gcc", "clang"))), None)
    sources = [_SOURCES / f"{name}.c", _SOURCES / "record_file.h"]
    content = b"\0".join([platform.machine().encode(), *(source.read_bytes() for source in sources)])
    target = cache_folder() / "injected" / f"{name}-{hashlib.sha256(content).hexdigest()[:16]}.so"
    if target.is_file():
        return target
    if compiler is None:
        raise InjectionMissing("no C compiler was found (cc, gcc or clang on PATH, or CC), which these metrics need")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            made = Path(folder) / target.name
            words = [compiler, "-O2", "-shared", "-fPIC", "-o", str(made), str(sources[0]), *_LINKED]
            done = subprocess.run(words, capture_output=True, text=True, timeout=_COMPILE_S, check=False)
            if done.returncode:
                said = " ".join((done.stderr or done.stdout).split())[-300:]
                raise InjectionMissing(f"{compiler} could not compile {sources[0].name}: {said}")
            made.replace(target)
    except (OSError, subprocess.SubprocessError) as error:
        raise InjectionMissing(f"{sources[0].name} could not be compiled into {target.parent}: {error}") from None
    return target


@cache
def cupti_places() -> tuple[Path, ...]:
    """Every libcupti that this host has, the likeliest first: named, the toolkit's, those of wheels.

    Raises InjectionMissing where there is none.
    """
    found = dict.fromkeys(path.resolve() for folder in _folders() for path in _newest_first(folder))
    if named := os.environ.get(_CUPTI_VARIABLE):
        found = dict.fromkeys([Path(named), *found])
    if not found:
        raise InjectionMissing(
            "libcupti, which times kernels, was not found: it comes with the CUDA toolkit (extras/CUPTI/lib64) and the "
            f"wheel nvidia-cuda-cupti; set {_CUPTI_VARIABLE} to its path"
        )
    return tuple(found)


def _newest_first(folder: Path) -> list[Path]:
    versions = [path for path in folder.glob("libcupti.so.*") if path.name.count(".") == _FEWEST_NAMED]
    by_version = sorted(versions, key=lambda path: int(path.suffix[1:]) if path.suffix[1:].isdecimal() else 0)
    return by_version[::-1] or [path for path in (folder / "libcupti.so",) if path.is_file()]


def _folders() -> Iterator[Path]:
    homes = [os.environ.get(name, "") for name in ("CUDA_HOME", "CUDA_PATH")]
    toolkits = [Path(home) for home in homes if home]
    toolkits += [Path("/usr/local/cuda"), *sorted(Path("/usr/local").glob("cuda-*"), reverse=True), Path("/opt/cuda")]
    yield from (toolkit / part for toolkit in toolkits for part in _IN_TOOLKIT)
    yield from (Path(place) / part for place in sys.path if place for part in _IN_WHEELS)
    yield Path("/usr/lib") / f"{platform.machine()}-linux-gnu"
