"""Which libraries a workload imports as soon as its module is loaded, read from source texts; nothing is imported.

What must not live here: whether they are installed, imports inside functions (only some parameters reach those).
"""

from __future__ import annotations

import ast
import tokenize
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from aiperf.errors import UserError
from aiperf.paths import workload_folder
from aiperf.protocol.libraries import EXTRAS
from aiperf.scenario.signature import resolve_workload

_PACKAGE = "aiperf.workloads"


def imported_libraries(workload: str, *, base: Path) -> frozenset[str]:
    """Those of ``EXTRAS`` without which the module of ``family.function`` or ``./file.py:function`` cannot be loaded.

    Follows what it imports of aiperf's workloads. ``base`` is the folder of the scenario. A source that cannot be read
    names none: loading it will say why.
    """
    try:
        _, path, _ = resolve_workload(workload, base=base)
    except UserError:
        return frozenset()
    found: set[str] = set()
    seen: set[Path] = set()
    waiting = [path] if path else []
    while waiting:
        source = waiting.pop()
        if source in seen:
            continue
        seen.add(source)
        libraries, modules = _imports(source, _changed(source))
        found |= libraries
        waiting += modules
    return frozenset(found)


def _changed(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


@lru_cache(maxsize=512)
def _imports(path: Path, _mtime: int) -> tuple[frozenset[str], tuple[Path, ...]]:
    """Libraries that one module imports when it is loaded, and the source files of workload modules."""
    try:
        with tokenize.open(path) as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset(), ()
    libraries: set[str] = set()
    modules: list[Path] = []
    for node in tree.body:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        libraries |= {name.partition(".")[0] for name in names} & EXTRAS.keys()
        modules += [source for name in names for source in _sources(name)]
    return frozenset(libraries), tuple(modules)


def _sources(name: str) -> Iterator[Path]:
    if name.startswith(f"{_PACKAGE}."):
        target = workload_folder().joinpath(*name.removeprefix(f"{_PACKAGE}.").split("."))
        yield from (path for path in (target.with_suffix(".py"), target / "__init__.py") if path.is_file())
