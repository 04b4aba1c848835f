"""Imports the workload function that a side names, and calls it.

What must not live here: checking parameters (the parent did that from the source).
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aiperf.errors import CalledInWorker
from aiperf.protocol.messages import SetUpRequest, WorkloadCall
from aiperf.worker.plain import NotAWorkload, plain_workload
from aiperf.workloads.contract import Context, Workload, no_outputs

_OPTIONAL = ("inputs", "redraw", "reset", "prepare", "reference", "counters", "close")
_NAMED = '"out": out'
_LINES = {
    "inputs": 'lambda: {"x": x}',
    "redraw": "lambda seed: ...",
    "reference": f"lambda: {{{_NAMED}}}",
    "counters": 'lambda: {"launches": 1}',
}


def workload_function(reference: str) -> Callable[..., Any]:
    """The function behind ``family.function``, ``/path/file.py:function`` or ``module:function``."""
    if ":" in reference:
        place, _, name = reference.rpartition(":")
        module = _module_from(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    else:
        family, _, name = reference.rpartition(".")
        module = importlib.import_module(f"aiperf.workloads.{family}.workload")
    try:
        function = functools.reduce(getattr, name.split("."), module)
    except AttributeError:
        if cut := getattr(module, "__aiperf_cut__", ""):
            raise NotAWorkload(f"{name} is not defined above the call: {cut}") from None
        raise
    if not callable(function):
        raise NotAWorkload(f"{reference} is {type(function).__name__}, not a function. Write def {name}(...):")
    return function


def make(call: WorkloadCall, context: Context) -> Workload:
    """The workload that a side calls for. Raises NotAWorkload when what it names does not keep the contract."""
    if not call.plain:
        return set_up(call.workload, context, call.params)
    setup = workload_function(call.setup) if call.setup else None
    return plain_workload(workload_function(call.workload), setup, call, context)


def _module_from(path: Path) -> Any:
    """The module of a file; one of a package is imported as such, so that its relative imports hold."""
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    if (path.parent / "__init__.py").is_file():
        root = next(parent for parent in path.parents if not (parent / "__init__.py").is_file())
        if str(root) not in sys.path:
            sys.path.insert(0, str(root))
        parts = path.relative_to(root).with_suffix("").parts
        return importlib.import_module(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    if path.stem in sys.modules and getattr(sys.modules[path.stem], "__file__", None) == str(path):
        return sys.modules[path.stem]
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except CalledInWorker as cut:
        # A script that measures its own functions: those above the call are there.
        module.__aiperf_cut__ = str(cut)  # type: ignore[attr-defined]
    return module


def set_up(reference: str, context: Context, params: dict[str, Any]) -> Workload:
    """Call the workload function. Raises NotAWorkload when what comes back does not keep the contract."""
    workload = workload_function(reference)(context, **params)
    if not isinstance(workload, Workload):
        what = f"{reference} returned {type(workload).__name__}, not an aiperf Workload"
        raise NotAWorkload(f"{what}. Write return Workload(step=step, outputs=lambda: {{{_NAMED}}})")
    for name, line in (("step", "step=step"), ("outputs", f"outputs=lambda: {{{_NAMED}}}")):
        if not callable(getattr(workload, name)):
            what = f"{reference}: {name} is {type(getattr(workload, name)).__name__}, not a function"
            raise NotAWorkload(f"{what}. Write {line}")
    for name in _OPTIONAL:
        value = getattr(workload, name)
        if value is not None and not callable(value):
            what = f"{reference}: {name} is {type(value).__name__}, not a function"
            raise NotAWorkload(f"{what}. Write {name}={_LINES.get(name, f'{name}')}, or leave it out")
    return workload


def with_outputs(workload: Workload, request: SetUpRequest) -> Workload:
    """The workload, if it gives outputs where they are compared. Raises NotAWorkload."""
    if workload.outputs is no_outputs and request.check.kind != "none":
        what = f"{request.call.workload} gives no outputs, so nothing could be checked"
        raise NotAWorkload(
            f'{what}. Write outputs=lambda: {{"out": out}}, or in the scenario check: {{kind: none, reason: why}}'
        )
    return workload
