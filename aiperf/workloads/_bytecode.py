"""Compiled modules, kept in the user's cache folder where those of PyTorch do not lie beside their sources.

Images are often built without them and forbid (PYTHONDONTWRITEBYTECODE) or prevent that they are written: every process
then compiles all of PyTorch again, which takes longer than importing it. What must not live here: what is imported.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import stat
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path

from aiperf.workloads._user_cache import cache_folder

LARGEST = "torch"
"""The library that tells whether compiled modules lie beside sources."""


@contextlib.contextmanager
def kept_compiled() -> Iterator[None]:
    """Modules imported inside are read from the cache folder and written there, if torch's would be compiled anew.

    What is imported later, and what this process starts, finds everything as it was.
    """
    before = sys.pycache_prefix, sys.dont_write_bytecode
    if folder := _needed():
        sys.pycache_prefix, sys.dont_write_bytecode = folder, False
    try:
        yield
    finally:
        sys.pycache_prefix, sys.dont_write_bytecode = before


def kept_variables() -> dict[str, str]:
    """The same for a process that is about to be started, as environment variables, and for all that it imports; none
    where torch's modules need no other place.
    """
    folder = _needed()
    return {"PYTHONPYCACHEPREFIX": folder, "PYTHONDONTWRITEBYTECODE": ""} if folder else {}


def _needed() -> str:
    """The cache folder, if torch's modules would be compiled anew and it can be had; else empty."""
    with contextlib.suppress(OSError, RuntimeError, ValueError):
        spec = importlib.util.find_spec(LARGEST)
        if spec is not None and _never_compiled(spec):
            return str(_folder(spec))
    return ""


def _never_compiled(spec: ModuleSpec) -> bool:
    """Whether a library's own module is not compiled yet and never will be."""
    if sys.pycache_prefix is not None or spec.origin is None or not spec.has_location:
        return False
    compiled = Path(importlib.util.cache_from_source(spec.origin))
    if compiled.is_file():
        return False
    nearest = next(path for path in compiled.parents if path.is_dir())
    return sys.dont_write_bytecode or not os.access(nearest, os.W_OK)


def _folder(spec: ModuleSpec) -> Path:
    """One for each interpreter and set of installed versions: Python trusts a compiled module by size and time of its
    source, which images may have set alike for two versions. Raises OSError when it is not this user's alone.
    """
    versions = sorted({path.name for place in sys.path for path in Path(place).glob("*.dist-info")})
    told = os.fsencode("\0".join([sys.version, sys.prefix, str(spec.origin), *versions]))
    folder = cache_folder("bytecode") / hashlib.sha256(told).hexdigest()[:16]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    facts = folder.stat()
    if facts.st_uid != os.geteuid() or facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH) or not os.access(folder, os.W_OK):
        raise PermissionError(f"{folder} is not this user's alone")
    return folder
