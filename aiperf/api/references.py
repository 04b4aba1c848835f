"""From a function object to the name by which a fresh process imports it, or to why there is none.

What must not live here: importing anything, and calling the function.
"""

from __future__ import annotations

import builtins
import functools
import os
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from types import MethodType, ModuleType
from typing import Any

from aiperf.errors import UserError, usage
from aiperf.scenario.signature import read_signature, resolve_workload
from aiperf.scenario.wording import shown

Function = Callable[..., Any] | str
"""A function of a module or file, or its name: ``"file.py:function"``, ``"module:function"``."""

_WAY_OUT = (
    "Put it into a file: begin the cell with %%writefile mine.py, then import mine and pass mine.{name}; or pass "
    '"mine.py:{name}".'
)


def reference_of(function: Function, *, role: str = "function") -> str:
    """``/path/file.py:function`` or ``module:function``. Raises UserError for what no fresh process can import.

    ``role`` is what the caller names it, for messages: before, after, setup.
    """
    if isinstance(function, str):
        if ":" not in function:
            hint = 'Pass the function itself, without calling it, or a text such as "mine.py:parse".'
            raise usage(f"{role}: {shown(function)} does not name a function.", hint)
        reference, path, _ = resolve_workload(function, base=Path.cwd())
        signature = read_signature(function, base=Path.cwd())
        if path is not None and not signature.plain:
            raise usage(f"{role}: {function} makes a Workload.", "Name it in a scenario, as workload.")
        return reference
    if not callable(function):
        raise usage(f"{role}: {type(function).__name__} is not a function.", "Pass a function, or its name as text.")
    if isinstance(function, functools.partial):
        hint = "Write def run(...): return f(...) in a file and pass run, or give the arguments by args= or setup=."
        raise usage(f"{role}: a functools.partial has no name to import it by.", hint)
    module = sys.modules.get(str(getattr(function, "__module__", "") or "builtins"))
    name = _name_in(module, function)
    if module is None or not name:
        raise _nameless(function, role)
    path = _file_of(module)
    if path is None and module.__name__ == "__main__":
        raise _nameless(function, role)
    return f"{module.__name__}:{name}" if path is None else f"{path}:{name}"


def source_of(reference: str) -> str:
    """The file that a reference names; empty for one by a module."""
    path = reference.rpartition(":")[0]
    return path if path.endswith(".py") else ""


def import_environment() -> dict[str, str]:
    """Folders from which this process imports and a fresh one would not, as the variable that gives it them."""
    known = {os.getcwd(), "", *os.environ.get("PYTHONPATH", "").split(os.pathsep)}
    own = [place for place in sys.path if place not in known and Path(place).is_dir() and not _installed(Path(place))]
    kept = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    return {"PYTHONPATH": os.pathsep.join([*own, *kept])} if own else {}


def _name_in(module: ModuleType | None, function: Any) -> str:
    """The name that gives this very function in its module, a class's function as Class.name; empty for none."""
    qualified = str(getattr(function, "__qualname__", ""))
    try:
        found = functools.reduce(getattr, qualified.split("."), module)
    except AttributeError:
        found = None
    if found is function or (isinstance(found, MethodType) and found == function):
        return "" if isinstance(found, MethodType) and not isinstance(found.__self__, type) else qualified
    return next((name for name, value in vars(module).items() if value is function), "") if module else ""


def _file_of(module: ModuleType) -> Path | None:
    """The file of a module; None for one that is installed, or that no file holds."""
    path = getattr(module, "__file__", None)
    if not path or not str(path).endswith(".py") or not Path(path).is_file():
        return None
    path = Path(path).resolve()
    return None if _installed(path) and module.__name__ != "__main__" else path


def _installed(path: Path) -> bool:
    if {"site-packages", "dist-packages"} & {*path.parts}:
        return True
    return any(path.is_relative_to(Path(folder).resolve()) for folder in _library_folders())


@functools.cache
def _library_folders() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    return tuple({paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")})


def _is_interactive() -> bool:
    """Whether this is a notebook or a prompt."""
    return hasattr(sys, "ps1") or "get_ipython" in vars(builtins)


def _nameless(function: Any, role: str) -> UserError:
    shown = str(getattr(function, "__name__", type(function).__name__))
    name = shown if shown.isidentifier() else "run"
    if shown == "<lambda>":
        what = f"{role}: a lambda has no name that a fresh process could import."
        in_cell = f" {_WAY_OUT.format(name=name)}" if _is_interactive() else ""
        return usage(what, f"Write def {name}(...): return ... at the top of a file and pass {name}.{in_cell}")
    if "<locals>" in str(getattr(function, "__qualname__", "")):
        what = f"{role}: {shown} is defined inside another function, where a fresh process cannot import it."
        return usage(what, "Move it to the top of its file.")
    if getattr(function, "__module__", "") == "__main__":
        what = f"{role}: {shown} is defined in a notebook cell or at a prompt, which a fresh process cannot import."
        return usage(what, _WAY_OUT.format(name=name))
    what = f"{role}: {shown} cannot be imported by its name from {getattr(function, '__module__', None)}."
    return usage(what, "Write def run(...): ... in a file, which calls it, and pass run.")
