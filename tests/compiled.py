"""Compiled modules are kept also where the environment forbids to write them: hundreds of processes start in the tests,
and each process of pytest would compile, with its own asserts, what was imported before it is configured.

What must not live here: imports of anything that is to be kept.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from _pytest.assertion import rewrite

sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def keep(config: Any) -> None:
    """Compile what pytest changes the asserts of, in as many processes as there are cores, where that is not kept yet:
    each process of a suite would do it for itself, all at the same time."""
    root = Path(__file__).resolve().parent
    found = {*root.rglob("test_*.py"), *root.rglob("conftest.py"), *(root.parent / "aiperf").rglob("*.py")}
    missing = sorted(file for file in found if not _is_kept(file))
    shares = [missing[first :: os.cpu_count()] for first in range(os.cpu_count() or 1)]
    children = [_apart(config, share) for share in shares if share]
    for child in children:
        os.waitpid(child, 0)


def _place(file: Path) -> Path:
    return rewrite.get_cache_dir(file) / f"{file.stem}{rewrite.PYC_TAIL}"


def _is_kept(file: Path) -> bool:
    try:
        return _place(file).stat().st_mtime >= file.stat().st_mtime
    except FileNotFoundError:
        return False


def _apart(config: Any, files: list[Path]) -> int:
    if child := os.fork():
        return child
    try:
        state = config.stash[rewrite.assertstate_key]
        for file in files:
            if rewrite.try_makedirs(_place(file).parent):
                digest, code = rewrite._rewrite_test(file, config)
                rewrite._write_pyc(state, code, digest, _place(file))
    finally:
        os._exit(0)  # a file that cannot be compiled is told when it is imported
