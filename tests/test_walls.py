"""The walls between the rooms: who may import whom, and what the parent process never loads."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from package_sources import PACKAGE, sources, statements

GROUND = {"errors", "units", "records", "settings", "paths", "protocol", "formats"}
ROOMS = ("scenario", "host", "plan", "launch", "profilers", "analysis", "store", "report", "recipes", "api", "cli")
"""In the order in which data flows: a module imports from its own room and those before it."""
CHILD_ROOMS = {"worker": {"worker", "workloads", "errors", "units", "protocol"}, "workloads": {"workloads", "formats"}}
PURE = {"analysis"} | GROUND
"""Rooms that read no file, start nothing and know no host."""
HEAVY = {"torch", "cupy", "kvikio", "triton", "numpy", "scipy", "pandas", "pyarrow", "pydantic", "rich"} | {
    "duckdb",
    "jinja2",
}
SIDE_LIBRARIES = {"torch", "cupy", "kvikio", "triton"}
LOOSE = {"__init__", "__main__", "errors", "units", "paths", "settings", "protocol"}
"""Modules that may lie at the root of the package."""


def modules() -> tuple[tuple[str, ast.Module], ...]:
    """(dotted path below the package, parsed source) of every module."""
    return tuple((_name(path), tree) for path, _, tree in sources() if not path.startswith("data/"))


def _name(path: str) -> str:
    parts = Path(path).with_suffix("").parts
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


def imported(tree: ast.AST, nodes: Callable[[ast.AST], Iterator[ast.AST]] = statements) -> set[str]:
    """Dotted names that a tree imports; of ``from aiperf.x import y`` both ``aiperf.x`` and ``aiperf.x.y``."""
    found = set()
    for node in nodes(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute"
            found |= {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def own_rooms(tree: ast.AST) -> set[str]:
    names = {name.split(".")[1] for name in imported(tree) if name.startswith("aiperf.")}
    return names - {"__version__"}


def allowed_rooms(room: str) -> set[str]:
    if room in GROUND:
        return GROUND
    if room in ROOMS:
        return {*ROOMS[: ROOMS.index(room) + 1]} | GROUND
    return CHILD_ROOMS.get(room, {"api"} if room == "__init__" else {"cli"})


def roots(names: set[str]) -> set[str]:
    return {name.split(".")[0] for name in names}


def functions_in(tree: ast.AST) -> Iterator[ast.AST]:
    """Every statement inside a function of the tree, asynchronous ones too."""
    for function in statements(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from (node for node in statements(function) if node is not function)


def at_the_top(tree: ast.AST) -> Iterator[ast.AST]:
    assert isinstance(tree, ast.Module)
    yield from tree.body


def test_a_module_imports_only_from_its_own_room_and_those_above_it() -> None:
    rooms = {name: (name.split(".")[0], tree) for name, tree in modules()}
    assert {n: bad for n, (room, tree) in rooms.items() if (bad := own_rooms(tree) - allowed_rooms(room))} == {}


def test_nothing_lies_loose_at_the_root_but_the_ground() -> None:
    assert {path.stem for path in PACKAGE.glob("*.py")} - LOOSE == set()


def test_what_only_computes_reads_no_file_and_starts_nothing() -> None:
    doing = {"subprocess", "socket", "multiprocessing", "asyncio", "tempfile", "shutil", "threading", "logging"}
    pure = [(name, tree) for name, tree in modules() if name.split(".")[0] in PURE - {"paths", "settings"}]
    assert len(pure) > 10
    assert {name: bad for name, tree in pure if (bad := roots(imported(tree)) & doing)} == {}
    calls = {
        name: sorted(c for c in called(tree) if c in {"open", "print", "read_text", "write_text", "input"})
        for name, tree in pure
    }
    assert {name: bad for name, bad in calls.items() if bad} == {}
    analysis = [(name, tree) for name, tree in pure if name.split(".")[0] == "analysis"]
    assert {n: bad for n, tree in analysis if (bad := own_rooms(tree) & {"host", "launch", "profilers"})} == {}


def called(tree: ast.AST) -> set[str]:
    functions = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return {f.id if isinstance(f, ast.Name) else f.attr for f in functions if isinstance(f, ast.Name | ast.Attribute)}


def test_only_workers_and_workloads_touch_the_libraries_of_a_side() -> None:
    parents = [(name, tree) for name, tree in modules() if name.split(".")[0] not in CHILD_ROOMS]
    assert {name: bad for name, tree in parents if (bad := roots(imported(tree)) & SIDE_LIBRARIES)} == {}


def test_the_protocol_imports_only_pythons_own_modules() -> None:
    own = {name: imported(tree) for name, tree in modules() if name.split(".")[0] == "protocol"}
    assert len(own) > 2
    outside = {n: {m for m in names if not m.startswith("aiperf.protocol")} for n, names in own.items()}
    assert {n: bad for n, names in outside.items() if (bad := roots(names) - sys.stdlib_module_names)} == {}


def test_heavy_libraries_are_imported_where_they_are_used() -> None:
    free = {"worker": HEAVY, "workloads": HEAVY, "scenario": {"pydantic"}}
    found = {
        name: roots(imported(tree, at_the_top)) & (HEAVY - free.get(name.split(".")[0], set()))
        for name, tree in modules()
    }
    assert {name: bad for name, bad in found.items() if bad} == {}


def test_own_modules_are_imported_at_the_top() -> None:
    inside = {name: imported(tree, functions_in) for name, tree in modules()}
    assert {
        name: bad for name, names in inside.items() if (bad := {n for n in names if roots({n}) == {"aiperf"}})
    } == {}


def test_the_walls_see_every_way_to_import() -> None:
    text = "async def f():\n    import aiperf.store.read\n    from aiperf import report\n"
    tree = ast.parse(text)
    assert own_rooms(tree) == {"store", "report"}
    assert imported(tree, functions_in) >= {"aiperf.store.read", "aiperf.report"}


def test_no_module_imports_itself_through_others() -> None:
    graph = {f"aiperf.{name}": {m for m in imported(tree) if m.startswith("aiperf.")} for name, tree in modules()}
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, f"import cycle: {' -> '.join((*trail, name))}"
        if name in done or name not in graph:
            return
        for other in graph[name] - {name}:
            visit(other, (*trail, name))
        done.add(name)

    for name in graph:
        visit(name, ())


def test_the_parent_process_loads_no_library_of_a_side() -> None:
    doors = (path for room in ("cli", "api") for path in (PACKAGE / room).glob("*.py") if path.stem != "__init__")
    commands = sorted(f"aiperf.{path.parent.name}.{path.stem}" for path in doors)
    assert len(commands) > 15
    code = (
        f"import sys, {', '.join(commands)}; "
        "bad = {'torch', 'cupy', 'pandas', 'scipy', 'aiperf.worker', 'aiperf.workloads'} & set(sys.modules); "
        "print(sorted(bad)); sys.exit(bool(bad))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
