"""Compiled modules, kept in the user's cache folder where those of PyTorch do not lie beside their sources.

Images often forbid or prevent that they are written: every process would compile all of PyTorch again. What must not
live here: what is imported.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import shutil
import stat
import sys
import time
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path

from aiperf.workloads.shared.user_cache import cache_folder

LARGEST = "torch"
"""The library that shows whether compiled modules lie beside sources."""
_IN_USE_S = 3600.0
"""A folder that a process used within so many seconds may be used again."""


@contextlib.contextmanager
def kept_compiled() -> Iterator[None]:
    """Modules imported inside are read from the cache folder and written there, if torch's would be compiled anew."""
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
    """The folder of this environment and its installed versions; making it clears those of other versions.

    Python trusts a compiled module by size and time of its source, which images may have set alike for two versions.
    Raises OSError when the folder is not this user's alone.
    """
    versions = sorted({path.name for place in sys.path for path in Path(place).glob("*.dist-info")})
    environment = _digest(sys.prefix, str(spec.origin))
    folder = cache_folder("bytecode") / f"{environment}-{_digest(sys.version, *versions)}"
    new = not folder.is_dir()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    facts = folder.stat()
    if facts.st_uid != os.geteuid() or facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH) or not os.access(folder, os.W_OK):
        raise PermissionError(f"{folder} is not this user's alone")
    os.utime(folder)
    if new:
        _clear_old(folder, environment)
    return folder


def _clear_old(folder: Path, environment: str) -> None:
    """Remove the folders of other versions of an environment, unless one was used within the last hour, as by another
    side."""
    for other in folder.parent.iterdir():
        own, _, versions = other.name.partition("-")
        outdated = own == environment or not versions
        with contextlib.suppress(OSError):
            if other != folder and outdated and time.time() - other.stat().st_mtime > _IN_USE_S:
                shutil.rmtree(other, ignore_errors=True)


def _digest(*parts: str) -> str:
    return hashlib.sha256(os.fsencode("\0".join(parts))).hexdigest()[:12]
