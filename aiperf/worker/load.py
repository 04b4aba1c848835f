"""Imports the workload function that a side names, and calls it.

What must not live here: checking parameters (the parent did that from the source).
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aiperf.workloads.contract import Context, Workload

_OPTIONAL = ("inputs", "redraw", "reset", "prepare", "reference", "counters", "close")


class NotAWorkload(TypeError):
    """The named function returned something else than a Workload."""


def workload_function(reference: str) -> Callable[..., Any]:
    """The function behind ``family.function`` or ``/path/file.py:function``."""
    if ":" in reference:
        path, _, name = reference.rpartition(":")
        module = _module_from(Path(path))
    else:
        family, _, name = reference.rpartition(".")
        module = importlib.import_module(f"aiperf.workloads.{family}.workload")
    function = getattr(module, name)
    if not callable(function):
        raise NotAWorkload(f"{reference} is not a function")
    return function


def _module_from(path: Path) -> Any:
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def set_up(reference: str, context: Context, params: dict[str, Any]) -> Workload:
    """Call the workload function. Raises NotAWorkload when what comes back does not keep the contract."""
    workload = workload_function(reference)(context, **params)
    if not isinstance(workload, Workload):
        raise NotAWorkload(f"{reference} returned {type(workload).__name__}, not an aiperf Workload")
    for name in ("step", "outputs"):
        if not callable(getattr(workload, name)):
            raise NotAWorkload(f"{reference}: {name} is {type(getattr(workload, name)).__name__}, not a function")
    for name in _OPTIONAL:
        value = getattr(workload, name)
        if value is not None and not callable(value):
            raise NotAWorkload(f"{reference}: {name} is {type(value).__name__}, not a function")
    return workload
