"""A workload function's signature, read from its source text; nothing is imported or run.

What must not live here: values of a scenario, places in a YAML file.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, get_args

from aiperf.errors import usage
from aiperf.paths import workload_folder
from aiperf.records import Better, Signature
from aiperf.scenario.source import (
    HOPS,
    Module,
    annotation_text,
    find,
    functions,
    may_bind,
    parse,
    source_of_module,
    value,
)
from aiperf.scenario.wording import allowed, nearest, shown, shown_path

_SHIPPED = re.compile(r"([A-Za-z_]\w*)\.([A-Za-z_]\w*)\Z")
_OWN = re.compile(r"(.+\.py):([A-Za-z_][\w.]*)\Z", re.DOTALL)
_MODULE = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_][\w.]*)\Z")
_ENTRY = "workload.py"
"""The module of a family's package whose functions scenarios name."""
_FORM = "Write ./file.py:function or module:function for your own, or family.function for a shipped workload."
_CONTEXTS = ("", "ctx", "context")
"""What a workload calls its first parameter, underscores aside, where no annotation shows what it is."""


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
        if base.joinpath(f"{family}.py").is_file():
            what = f"{shown(workload)}: there is no workload family {family}."
            raise usage(what, f"Write {family}:{function} for the function in {family}.py.")
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
        return f"Name its function too: {workload}:function."
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
        _refuse_missing(workload, function)
        return _UNSEEN
    module = parse(path, path.stat().st_mtime_ns)
    if "." in function:
        return _of_class(workload, module, function)
    found = find(module, function, HOPS)
    shipped = path.is_relative_to(workload_folder())
    if found is not None and isinstance(found[1], ast.FunctionDef):
        return (_of_shipped if shipped else _signature)(workload, found[0], found[1])
    _refuse_async(workload, module.tree, function)
    if not shipped and ((found is not None and _makes_function(found[1])) or _is_imported(module.tree, function)):
        return _UNSEEN
    names = functions(module)
    what = f"{shown(workload)}: {path.name} has no function {function}; allowed: {allowed(names) or 'none'}."
    raise usage(what, nearest(function, names) or f"Write def {function}(...): in {path.name}, or name another.")


_UNSEEN = Signature({}, {}, plain=True, open=True)


def _of_class(workload: str, module: Module, function: str) -> Signature:
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
        hint = f"Add def run(): return {owners[-1]}().{name}() to the file, and name run."
        raise usage(f"{shown(workload)}: {name} is a method, which needs an object of its class.", hint)
    return _signature(workload, module, method, bound="classmethod" in kinds)


def _refuse_missing(workload: str, function: str) -> None:
    """Refuse a name that an installed module clearly has not."""
    name = workload.partition(":")[0]
    path = source_of_module(name)
    if path is None or "." in function or hasattr(sys.modules.get(name), function):
        return
    module = parse(path, path.stat().st_mtime_ns)
    if name in sys.modules or (find(module, function, 0) is None and not may_bind(module.tree, function)):
        names = functions(module)
        raise usage(f"{shown(workload)}: {path} has no function {function}.", nearest(function, names) or _FORM)


def _refuse_async(workload: str, tree: ast.Module, function: str) -> None:
    if any(isinstance(node, ast.AsyncFunctionDef) and node.name == function for node in tree.body):
        hint = f"Add def run(): return asyncio.run({function}()) to the file, and name run."
        raise usage(f"{shown(workload)}: {function} is async, so calling it does not run it yet.", hint)


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
    found = find(Module(Path(), tree), function, 0)
    if found is None:
        return "" if may_bind(tree, function) else f"no function {function}"
    node = found[1]
    if not isinstance(node, ast.FunctionDef) or node.decorator_list or node.args.kwarg is not None:
        return ""
    positional = [*node.args.posonlyargs, *node.args.args]
    known = {argument.arg for argument, _ in _pairs(node.args, positional)[0 if plain else 1 :]}
    unknown = [name for name in params if name not in known]
    return f"no parameter {' and '.join(unknown)} of {function}" if unknown else ""


def _source_of(family: str) -> Path | None:
    folder = workload_folder()
    path = folder / family / _ENTRY
    return path if path.is_file() else None


def _workloads_of(family: str) -> list[str]:
    path = _source_of(family)
    if path is None:
        return []
    module = parse(path, path.stat().st_mtime_ns)
    names = {*functions(module), *_lent(module)}
    return sorted(name for name in names if _makes_workload(find(module, name, HOPS)))


def _lent(module: Module) -> list[str]:
    found = find(module, "__all__", 0)
    if found is None or not isinstance(found[1], ast.List | ast.Tuple):
        return []
    return [name for name in value(module, found[1]) if isinstance(name, str)]


def _makes_workload(found: tuple[Module, ast.FunctionDef | ast.expr] | None) -> bool:
    if found is None or not isinstance(found[1], ast.FunctionDef):
        return False
    return annotation_text(found[0], found[1].returns).rpartition(".")[2] == "Workload"


def _signature(workload: str, module: Module, function: ast.FunctionDef, *, bound: bool = False) -> Signature:
    """``bound``: its first parameter is given already, as a class method's is."""
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    plain = bound or _is_plain(module, function)
    if not plain and not positional:
        hint = f"Write def {function.name}(context: Context, ...) -> Workload:"
        raise usage(f"{shown(workload)}: {function.name} returns a Workload but takes no context.", hint)
    parameters: dict[str, str] = {}
    defaults: dict[str, Any] = {}
    for argument, default in _pairs(arguments, positional)[1 if bound or not plain else 0 :]:
        parameters[argument.arg] = annotation_text(module, argument.annotation)
        if default is not None:
            defaults[argument.arg] = value(module, default)
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


def _metrics_of(module: Module, function: str) -> dict[str, tuple[str, Better]]:
    """What the module's ``METRICS`` declares for a function; entries that are not (unit, better) are left out."""
    found = find(module, "METRICS", 0)
    declared = value(module, found[1]) if found is not None and isinstance(found[1], ast.expr) else {}
    own = declared.get(function) if isinstance(declared, dict) else None
    return {
        name: entry
        for name, entry in (own.items() if isinstance(own, dict) else ())
        if isinstance(entry, tuple) and len(entry) == 2 and entry[1] in get_args(Better)
    }


def _is_plain(module: Module, function: ast.FunctionDef) -> bool:
    """Whether a call of it is a step, and does not make a Workload: it neither says so nor takes a context."""
    if annotation_text(module, function.returns).rpartition(".")[2].strip("'\" ") == "Workload":
        return False
    first = next(iter([*function.args.posonlyargs, *function.args.args]), None)
    if first is None:
        return True
    annotation = annotation_text(module, first.annotation).rpartition(".")[2]
    return annotation != "Context" and (annotation != "Any" or first.arg.strip("_") not in _CONTEXTS)


def _pairs(arguments: ast.arguments, positional: list[ast.arg]) -> list[tuple[ast.arg, ast.expr | None]]:
    gap: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults))
    return [
        *zip(positional, gap + list(arguments.defaults), strict=True),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
