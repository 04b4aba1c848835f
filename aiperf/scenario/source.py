"""A Python source file: what the names at its top mean, and where an installed module has its own. Nothing is imported.

What must not live here: what a workload is, values of a scenario.
"""

from __future__ import annotations

import ast
import sys
import tokenize
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from typing import Any

from aiperf.errors import usage
from aiperf.paths import workload_folder
from aiperf.scenario.annotation import of_class
from aiperf.scenario.wording import shown_path

HOPS = 4
"""Imports and aliases that are followed from one to the next."""
_PACKAGE = "aiperf.workloads"
_DYNAMIC = ("*", "__getattr__", "globals", "setattr", "exec", "vars")
"""Names by which a module may come to functions that its text does not show."""


@dataclass(frozen=True)
class Module:
    """One parsed source file."""

    path: Path
    tree: ast.Module


@lru_cache(maxsize=256)
def parse(path: Path, _mtime: int) -> Module:
    """A source file, read again when it was edited. Raises UserError for one that is not Python."""
    try:
        with tokenize.open(path) as file:
            return Module(path, ast.parse(file.read()))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None) or 1
        reason = getattr(error, "msg", None) or str(error)
        raise usage(f"{shown_path(path)}:{line} is not valid Python: {reason}.") from None
    except OSError as error:
        raise usage(f"{shown_path(path)} cannot be read: {error.strerror}.") from None


def find(module: Module, name: str, hops: int) -> tuple[Module, ast.FunctionDef | ast.expr] | None:
    """What ``name`` means at the top of a module: a function, the expression assigned to it, or the annotation that a
    TypedDict stands for; follows imports."""
    for node in module.tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return module, node
        if (value := _assigned(node, name)) is not None:
            return module, value
        if isinstance(node, ast.ClassDef) and node.name == name and (keys := of_class(node)) is not None:
            return module, keys
        if isinstance(node, ast.ImportFrom) and hops:
            for alias in node.names:
                source = _imported(module, node) if (alias.asname or alias.name) == name else None
                if source is not None:
                    return find(parse(source, source.stat().st_mtime_ns), alias.name, hops - 1)
    return None


def _assigned(node: ast.stmt, name: str) -> ast.expr | None:
    if isinstance(node, ast.Assign):
        return node.value if any(isinstance(t, ast.Name) and t.id == name for t in node.targets) else None
    if isinstance(node, ast.AnnAssign):
        return node.value if isinstance(node.target, ast.Name) and node.target.id == name else None
    return None


def _imported(module: Module, node: ast.ImportFrom) -> Path | None:
    """Source file of a ``from`` import, when it is one of the shipped workloads or a neighbour of this file."""
    if node.level:
        base = module.path.parents[node.level - 1]
        parts = (node.module or "").split(".")
    elif (node.module or "").startswith(_PACKAGE):
        base = workload_folder()
        parts = (node.module or "")[len(_PACKAGE) :].strip(".").split(".")
    else:
        return None
    target = base.joinpath(*[p for p in parts if p])
    if target.name == "contract":
        return None
    options = (target.with_suffix(".py"), target / "__init__.py")
    return next((p for p in options if p.is_file()), None)


def functions(module: Module) -> list[str]:
    """Public functions by name, in their order."""
    return [n.name for n in module.tree.body if isinstance(n, ast.FunctionDef) and not n.name.startswith("_")]


def may_bind(tree: ast.Module, name: str) -> bool:
    """Whether running a module could give it this name: by an import, an assignment, anything more dynamic."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names = {node.name}
        elif isinstance(node, ast.alias):
            names = {node.asname or node.name.partition(".")[0]}
        else:
            names = {node.id} if isinstance(node, ast.Name) else set()
        if names & {name, *_DYNAMIC}:
            return True
    return False


def annotation_text(module: Module, node: ast.expr | None) -> str:
    """An annotation with the aliases of its module written out; ``Any`` without one."""
    if node is None:
        return "Any"
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return ast.unparse(_Aliases(module).visit(ast.parse(ast.unparse(node), mode="eval").body))


class _Aliases(ast.NodeTransformer):
    """Replaces names that the module assigns (``Pages = Literal[...]``) by what they stand for."""

    def __init__(self, module: Module, hops: int = HOPS) -> None:
        self.module = module
        self.hops = hops

    def visit_Name(self, node: ast.Name) -> ast.expr:
        found = find(self.module, node.id, HOPS) if self.hops else None
        if found is None or isinstance(found[1], ast.FunctionDef):
            return node
        copy = ast.parse(ast.unparse(found[1]), mode="eval").body
        replaced: ast.expr = _Aliases(found[0], self.hops - 1).visit(copy)
        return replaced


def value(module: Module, node: ast.expr, hops: int = HOPS) -> Any:
    """A default as data; a text for what only running the module could show."""
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        pass
    if isinstance(node, ast.Name) and hops:
        found = find(module, node.id, HOPS)
        return value(found[0], found[1], hops - 1) if found and isinstance(found[1], ast.expr) else node.id
    if isinstance(node, ast.BinOp):
        return _arithmetic(node, value(module, node.left, hops), value(module, node.right, hops))
    return ast.unparse(node)


def _arithmetic(node: ast.BinOp, left: Any, right: Any) -> Any:
    """``256 * 1024`` and the like; what could grow without bound stays text."""
    if not all(isinstance(v, int | float) and abs(v) < 2**63 for v in (left, right)):
        return ast.unparse(node)
    if isinstance(node.op, ast.Mult):
        return left * right
    if isinstance(node.op, ast.Add):
        return left + right
    if isinstance(node.op, ast.Sub):
        return left - right
    if isinstance(left, int) and isinstance(right, int) and left >= 0 and 0 <= right < 64:
        if isinstance(node.op, ast.LShift):
            return left << right
        if isinstance(node.op, ast.Pow) and left < 64:
            return left**right
    return ast.unparse(node)


def source_of_module(name: str) -> Path | None:
    """None for what is not found here, or is not written in Python."""
    spec = getattr(sys.modules.get(name), "__spec__", None)  # os.path is no module of a package os
    folders = None
    for count in range(0 if spec else name.count(".") + 1):
        spec = _spec(".".join(name.split(".")[: count + 1]), folders)
        if spec is None:
            return None
        folders = list(spec.submodule_search_locations or [])
    if spec is None or not isinstance(spec.loader, SourceFileLoader):
        # Some modules of the standard library are part of the interpreter, whose sources lie beside the others.
        origin = getattr(sys.modules.get(name), "__file__", None)
        return Path(origin) if origin and origin.endswith(".py") else None
    return Path(spec.origin) if spec.origin else None


def _spec(name: str, folders: list[str] | None) -> ModuleSpec | None:
    for finder in sys.meta_path:
        # A KeyError: of a folder without __init__.py in such a folder, which nobody has imported.
        with suppress(ImportError, AttributeError, ValueError, KeyError):
            if (spec := finder.find_spec(name, folders)) is not None:
                return spec
    inside = [path for folder in folders or () if (path := Path(folder, name.rpartition(".")[2])).is_dir()]
    if not inside:
        return None
    spec = ModuleSpec(name, None, is_package=True)
    spec.submodule_search_locations = [str(path) for path in inside]
    return spec
