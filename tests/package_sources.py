"""The package's modules as they are written, read and parsed once for all tests of a process.

What must not live here: what is demanded of them.
"""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "aiperf"


@cache
def sources() -> tuple[tuple[str, str, ast.Module], ...]:
    """(path below the package, text, parsed text) of every module."""
    found = [(path, path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))]
    looked = gc.isenabled()
    gc.collect()  # what is garbage now would be kept by the freeze below
    gc.disable()  # all that is made here stays, and looking for garbage in it takes longer than parsing
    try:
        return tuple((path.relative_to(PACKAGE).as_posix(), text, ast.parse(text)) for path, text in found)
    finally:
        gc.freeze()
        if looked:
            gc.enable()


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """The tree and every statement in it: no expression holds an import, a function or a class."""
    waiting = [tree]
    while waiting:
        yield (node := waiting.pop())
        for block in ("body", "orelse", "finalbody", "handlers", "cases"):
            waiting += getattr(node, block, ())
