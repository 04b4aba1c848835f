"""The walls between the rooms: who may import whom, and what the parent process never loads."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "aiperf"
GROUND = {"errors", "units", "records", "settings", "paths", "order"}
ROOMS = ("scenario", "host", "plan", "launch", "profilers", "analysis", "store", "report", "cli")
RECIPES = {"pipeline", "runs", "campaign", "stand", "roofs", "sittings", "checkouts", "gating", "checkup"} | {
    "profiling",
    "foreign_profiles",
}
HEAVY = {"torch", "cupy", "kvikio", "triton", "numpy", "scipy", "pandas", "pyarrow", "pydantic", "rich"} | {
    "duckdb",
    "jinja2",
}
SIDE_LIBRARIES = {"torch", "cupy", "kvikio", "triton"}


def modules() -> list[Path]:
    return sorted(p for p in PACKAGE.rglob("*.py") if "data" not in p.relative_to(PACKAGE).parts[:1])


def room_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return parts[0]


def imports(path: Path, *, top_level_only: bool = False) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = tree.body if top_level_only else list(ast.walk(tree))
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module)
            if node.module == "aiperf":
                found |= {f"aiperf.{alias.name}" for alias in node.names}
    return found


def own_rooms(path: Path) -> set[str]:
    return {name.split(".")[1] for name in imports(path) if name.startswith("aiperf.")} - {"__version__"}


def allowed_rooms(room: str) -> set[str]:
    if room in GROUND:
        return GROUND
    if room in ROOMS:
        above = set(ROOMS[: ROOMS.index(room) + 1]) | GROUND
        return above | RECIPES if room == "cli" else above
    if room in RECIPES:
        return RECIPES | GROUND | set(ROOMS) - {"cli"}
    if room == "worker":
        return {"worker", "workloads", "errors", "units"}
    if room == "workloads":
        return {"workloads"}
    return {"cli"}


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_module_imports_only_from_rooms_above_it(path: Path) -> None:
    room = room_of(path)
    if room == "__init__":
        assert own_rooms(path) == set()
        return
    assert own_rooms(path) <= allowed_rooms(room), f"{path} reaches into a room below its own"


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_only_workers_and_workloads_touch_the_libraries_of_a_side(path: Path) -> None:
    touched = {name.split(".")[0] for name in imports(path)} & SIDE_LIBRARIES
    assert not touched or room_of(path) in {"worker", "workloads"}


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_heavy_libraries_are_imported_where_they_are_used(path: Path) -> None:
    allowed = {"worker": HEAVY, "workloads": HEAVY, "scenario": {"pydantic"}}.get(room_of(path), set())
    assert not {name.split(".")[0] for name in imports(path, top_level_only=True)} & (HEAVY - allowed)


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_own_modules_are_imported_at_the_top(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
    inside = [
        n.lineno
        for f in functions
        for n in ast.walk(f)
        if isinstance(n, ast.ImportFrom) and (n.module or "").startswith("aiperf")
    ]
    assert inside == []


def test_no_module_imports_itself_through_others() -> None:
    graph = {_name(p): {m for m in imports(p) if m.startswith("aiperf.")} for p in modules()}
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, f"import cycle: {' -> '.join((*trail, name))}"
        if name in done or name not in graph:
            return
        for other in graph[name]:
            visit(other, (*trail, name))
        done.add(name)

    for name in graph:
        visit(name, ())


def _name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_the_parent_process_loads_no_library_of_a_side() -> None:
    code = (
        "import sys, aiperf.cli.run, aiperf.cli.ab, aiperf.cli.calibrate, aiperf.cli.report, aiperf.cli.peaks, "
        "aiperf.cli.compare, aiperf.cli.history, aiperf.cli.query, aiperf.cli.gate, aiperf.cli.export, "
        "aiperf.cli.import_, aiperf.cli.doctor; "
        "bad = {'torch', 'cupy', 'pandas', 'scipy', 'aiperf.worker', 'aiperf.workloads'} & set(sys.modules); "
        "print(sorted(bad)); sys.exit(bool(bad))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
