"""Compiled modules, kept in the user's cache folder where they do not lie beside their sources.

Images are often built without them and forbid (PYTHONDONTWRITEBYTECODE) or prevent that they are written: every process
then compiles all of PyTorch again, which takes longer than importing it. What must not live here: what is imported.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from contextlib import suppress
from pathlib import Path

LARGEST = "torch"
"""The library that tells whether compiled modules lie beside sources."""


def keep_compiled() -> None:
    """Let this process alone read and write them in the cache folder; what it starts sees the environment as it was."""
    if not _missing(LARGEST):
        return
    base = os.environ.get("XDG_CACHE_HOME", "")
    with suppress(OSError, RuntimeError):
        folder = (Path(base) if base else Path.home() / ".cache") / "aiperf" / "bytecode"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            sys.pycache_prefix, sys.dont_write_bytecode = str(folder), False


def _missing(name: str) -> bool:
    """Whether a library's own module is compiled at every start: it is not compiled yet, and never will be."""
    spec = importlib.util.find_spec(name)
    if sys.pycache_prefix is not None or spec is None or spec.origin is None:
        return False
    try:
        compiled = Path(importlib.util.cache_from_source(spec.origin))
    except NotImplementedError:
        return False
    if compiled.is_file():
        return False
    nearest = next(path for path in compiled.parents if path.is_dir())
    return sys.dont_write_bytecode or not os.access(nearest, os.W_OK)
