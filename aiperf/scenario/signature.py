"""A workload function's signature, read from its source text; nothing is imported or run.

What must not live here: values of a scenario, places in a YAML file.
"""

from __future__ import annotations

import ast
import re
import tokenize
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, get_args

from aiperf.errors import usage
from aiperf.paths import workload_folder
from aiperf.records import Better, Signature
from aiperf.scenario.annotation import of_class
from aiperf.scenario.wording import allowed, nearest, shown, shown_path

_SHIPPED = re.compile(r"([A-Za-z_]\w*)\.([A-Za-z_]\w*)\Z")
_OWN = re.compile(r"(.+\.py):([A-Za-z_][\w.]*)\Z", re.DOTALL)
_MODULE = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_][\w.]*)\Z")
_PACKAGE = "aiperf.workloads"
_ENTRY = "workload.py"
"""The module of a family's package whose functions scenarios name."""
_HOPS = 4
_DYNAMIC = ("*", "__getattr__", "globals", "setattr", "exec", "vars")
"""Names by which a module may come to functions that its text does not show."""
_FORM = "Write ./file.py:function or module:function for your own, or family.function for a shipped workload."
_CONTEXTS = ("", "ctx", "context")
"""What a workload calls its first parameter, underscores aside, where no annotation shows what it is."""


@dataclass(frozen=True)
class _Module:
    """One parsed source file."""

    path: Path
    tree: ast.Module


def resolve_workload(workload: str, *, base: Path) -> tuple[str, Path | None, str]:
    """The workload's full name, source file and function. ``base`` is the folder of the scenario file.

    A module of ``base`` is its file; of another module the file is None: only an import could find it. Raises UserError
    (without a place) for a name that is not one, a family or a file that is not there.
    """
    if own := _OWN.match(workload):
        path = Path(own.group(1)).expanduser()
        path = (path if path.is_absolute() else base / path).resolve()
        if not path.is_file():
            raise usage(
                f"{shown(workload)}: there is no file {shown_path(path)}.", "The path is relative to the scenario."
            )
        return f"{path}:{own.group(2)}", path, own.group(2)
    if module := _MODULE.match(workload):
        beside = base.joinpath(*module.group(1).split(".")).with_suffix(".py").resolve()
        return (f"{beside}:{module.group(2)}", beside, module.group(2)) if beside.is_file() else (
            workload, None, module.group(2)
        )  # fmt: skip
    shipped = _SHIPPED.match(workload)
    if shipped is None:
        raise usage(f"{shown(workload)} is not a workload.", _likely(workload))
    family, function = shipped.groups()
    source = _source_of(family)
    if source is None:
        names = families()
        raise usage(
            f"{shown(workload)}: there is no workload family {family}; allowed: {allowed(names)}.",
            nearest(family, names) or _FORM,
        )
    return workload, source, function


def _likely(workload: str) -> str:
    """What to write instead of something that names no function."""
    if " " in workload:
        return f"Write {{command: {workload}}} for a program, or ./file.py:function."
    if workload.endswith(".py"):
        return f"Name its function, too: {workload}:function."
    return f"Write ./file.py:{workload}, with the file that defines it." if workload.isidentifier() else _FORM


def families() -> list[str]:
    """Names of the shipped workload families."""
    folder = workload_folder()
    return sorted(path.parent.name for path in folder.glob(f"*/{_ENTRY}"))


def shipped_workloads() -> list[str]:
    """``family.function`` of all that ``workload:`` may name of what is shipped, by name.

    They are the public functions of a family, or those that its ``__all__`` lends from elsewhere, that return a
    Workload.
    """
    return [f"{family}.{name}" for family in families() for name in _workloads_of(family)]


def read_signature(workload: str, *, base: Path) -> Signature:
    """Parameters, annotations and defaults of ``family.function``, ``./file.py:function`` or ``module:function``.

    What only an import could show is a plain function that takes anything. Raises UserError (without a place) when
    there is no such function or its source cannot be read.
    """
    _, path, function = resolve_workload(workload, base=base)
    if path is None:
        return _UNSEEN
    module = _parse(path, path.stat().st_mtime_ns)
    if "." in function:
        return _of_class(workload, module, function)
    found = _find(module, function, _HOPS)
    shipped = path.is_relative_to(workload_folder())
    if found is not None and isinstance(found[1], ast.FunctionDef):
        return (_of_shipped if shipped else _signature)(workload, found[0], found[1])
    _refuse_async(workload, module.tree, function)
    if not shipped and ((found is not None and _makes_function(found[1])) or _is_imported(module.tree, function)):
        return _UNSEEN
    names = _functions(module)
    what = f"{shown(workload)}: {path.name} has no function {function}; allowed: {allowed(names) or 'none'}."
    raise usage(what, nearest(function, names) or f"Write def {function}(...): in {path.name}, or name another.")


_UNSEEN = Signature({}, {}, plain=True, open=True)


def _of_class(workload: str, module: _Module, function: str) -> Signature:
    """Signature of a static or class method, ``Class.method``."""
    *owners, name = function.split(".")
    body = module.tree.body
    for owner in owners:
        found = next((node for node in body if isinstance(node, ast.ClassDef) and node.name == owner), None)
        body = found.body if found else []
    method = next((node for node in body if isinstance(node, ast.FunctionDef) and node.name == name), None)
    if method is None:
        raise usage(f"{shown(workload)}: {module.path.name} has no function {function}.", _FORM)
    kinds = {ast.unparse(decorator) for decorator in method.decorator_list}
    if not kinds & {"staticmethod", "classmethod"}:
        hint = f"Write def run(): return {owners[-1]}().{name}() beside it, and name run."
        raise usage(f"{shown(workload)}: {name} is a method, which needs an object of its class.", hint)
    return _signature(workload, module, method, bound="classmethod" in kinds)


def _refuse_async(workload: str, tree: ast.Module, function: str) -> None:
    if any(isinstance(node, ast.AsyncFunctionDef) and node.name == function for node in tree.body):
        hint = f"Write def run(): return asyncio.run({function}()) beside it, and name run."
        raise usage(f"{shown(workload)}: {function} is async: a call of it computes nothing yet.", hint)


def _makes_function(value: ast.AST) -> bool:
    """Whether an assigned expression may be a function: another one's name, what a call returned, a lambda."""
    return isinstance(value, ast.Name | ast.Attribute | ast.Call | ast.Lambda)


def _is_imported(tree: ast.Module, name: str) -> bool:
    imports = (node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom))
    return any((alias.asname or alias.name) == name for node in imports for alias in node.names)


def lacking(text: str, function: str, params: Iterable[str], *, plain: bool = False) -> str:
    """What a source text, of another commit, lacks for a call of ``function`` with these parameters, e.g. ``no function
    f``; empty when it lacks nothing, or when only running it could show it. ``plain``: it takes no context.
    """
    if "." in function:
        return ""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    found = _find(_Module(Path(), tree), function, 0)
    if found is None:
        return "" if _may_bind(tree, function) else f"no function {function}"
    node = found[1]
    if not isinstance(node, ast.FunctionDef) or node.decorator_list or node.args.kwarg is not None:
        return ""
    positional = [*node.args.posonlyargs, *node.args.args]
    known = {argument.arg for argument, _ in _pairs(node.args, positional)[0 if plain else 1 :]}
    unknown = [name for name in params if name not in known]
    return f"no parameter {' and '.join(unknown)} of {function}" if unknown else ""


def _may_bind(tree: ast.Module, name: str) -> bool:
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


def _source_of(family: str) -> Path | None:
    folder = workload_folder()
    path = folder / family / _ENTRY
    return path if path.is_file() else None


@lru_cache(maxsize=256)
def _parse(path: Path, _mtime: int) -> _Module:
    try:
        with tokenize.open(path) as file:
            return _Module(path, ast.parse(file.read()))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None) or 1
        reason = getattr(error, "msg", None) or str(error)
        raise usage(f"{shown_path(path)}:{line} is not valid Python: {reason}.") from None
    except OSError as error:
        raise usage(f"{shown_path(path)} cannot be read: {error.strerror}.") from None


def _workloads_of(family: str) -> list[str]:
    path = _source_of(family)
    if path is None:
        return []
    module = _parse(path, path.stat().st_mtime_ns)
    names = {*_functions(module), *_lent(module)}
    return sorted(name for name in names if _makes_workload(_find(module, name, _HOPS)))


def _lent(module: _Module) -> list[str]:
    found = _find(module, "__all__", 0)
    if found is None or not isinstance(found[1], ast.List | ast.Tuple):
        return []
    return [name for name in _value(module, found[1]) if isinstance(name, str)]


def _makes_workload(found: tuple[_Module, ast.FunctionDef | ast.expr] | None) -> bool:
    if found is None or not isinstance(found[1], ast.FunctionDef):
        return False
    return _annotation(found[0], found[1].returns).rpartition(".")[2] == "Workload"


def _functions(module: _Module) -> list[str]:
    return [n.name for n in module.tree.body if isinstance(n, ast.FunctionDef) and not n.name.startswith("_")]


def _find(module: _Module, name: str, hops: int) -> tuple[_Module, ast.FunctionDef | ast.expr] | None:
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
                    return _find(_parse(source, source.stat().st_mtime_ns), alias.name, hops - 1)
    return None


def _assigned(node: ast.stmt, name: str) -> ast.expr | None:
    if isinstance(node, ast.Assign):
        return node.value if any(isinstance(t, ast.Name) and t.id == name for t in node.targets) else None
    if isinstance(node, ast.AnnAssign):
        return node.value if isinstance(node.target, ast.Name) and node.target.id == name else None
    return None


def _imported(module: _Module, node: ast.ImportFrom) -> Path | None:
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


def _signature(workload: str, module: _Module, function: ast.FunctionDef, *, bound: bool = False) -> Signature:
    """``bound``: its first parameter is given already, as a class method's is."""
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    plain = bound or _is_plain(module, function)
    if not plain and not positional:
        hint = f"Write def {function.name}(context: Context, ...) -> Workload:"
        raise usage(f"{shown(workload)}: {function.name} returns a Workload and takes no context.", hint)
    parameters: dict[str, str] = {}
    defaults: dict[str, Any] = {}
    for argument, default in _pairs(arguments, positional)[1 if bound or not plain else 0 :]:
        parameters[argument.arg] = _annotation(module, argument.annotation)
        if default is not None:
            defaults[argument.arg] = _value(module, default)
    return Signature(
        parameters,
        defaults,
        ast.get_docstring(function) or "",
        plain=plain,
        open=plain and (arguments.kwarg is not None or bool(function.decorator_list)),
        metrics=_metrics_of(module, function.name),
    )


_of_shipped = lru_cache(maxsize=256)(_signature)
"""Many scenarios name the same workload, and no file of the package changes while a command runs."""


def _metrics_of(module: _Module, function: str) -> dict[str, tuple[str, Better]]:
    """What the module's ``METRICS`` declares for a function; entries that are not (unit, better) are left out."""
    found = _find(module, "METRICS", 0)
    declared = _value(module, found[1]) if found is not None and isinstance(found[1], ast.expr) else {}
    own = declared.get(function) if isinstance(declared, dict) else None
    return {
        name: entry
        for name, entry in (own.items() if isinstance(own, dict) else ())
        if isinstance(entry, tuple) and len(entry) == 2 and entry[1] in get_args(Better)
    }


def _is_plain(module: _Module, function: ast.FunctionDef) -> bool:
    """Whether a call of it is a step, and does not make a Workload: it neither says so nor takes a context."""
    if _annotation(module, function.returns).rpartition(".")[2].strip("'\" ") == "Workload":
        return False
    first = next(iter([*function.args.posonlyargs, *function.args.args]), None)
    if first is None:
        return True
    annotation = _annotation(module, first.annotation).rpartition(".")[2]
    return annotation != "Context" and (annotation != "Any" or first.arg.strip("_") not in _CONTEXTS)


def _pairs(arguments: ast.arguments, positional: list[ast.arg]) -> list[tuple[ast.arg, ast.expr | None]]:
    gap: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults))
    return [
        *zip(positional, gap + list(arguments.defaults), strict=True),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]


def _annotation(module: _Module, node: ast.expr | None) -> str:
    if node is None:
        return "Any"
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return ast.unparse(_Aliases(module).visit(ast.parse(ast.unparse(node), mode="eval").body))


class _Aliases(ast.NodeTransformer):
    """Replaces names that the module assigns (``Pages = Literal[...]``) by what they stand for."""

    def __init__(self, module: _Module, hops: int = _HOPS) -> None:
        self.module = module
        self.hops = hops

    def visit_Name(self, node: ast.Name) -> ast.expr:
        found = _find(self.module, node.id, _HOPS) if self.hops else None
        if found is None or isinstance(found[1], ast.FunctionDef):
            return node
        copy = ast.parse(ast.unparse(found[1]), mode="eval").body
        replaced: ast.expr = _Aliases(found[0], self.hops - 1).visit(copy)
        return replaced


def _value(module: _Module, node: ast.expr, hops: int = _HOPS) -> Any:
    """A default as data; a text for what only running the module could show."""
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        pass
    if isinstance(node, ast.Name) and hops:
        found = _find(module, node.id, _HOPS)
        return _value(found[0], found[1], hops - 1) if found and isinstance(found[1], ast.expr) else node.id
    if isinstance(node, ast.BinOp):
        return _arithmetic(node, _value(module, node.left, hops), _value(module, node.right, hops))
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
