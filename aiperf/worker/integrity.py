"""Notices when a side replaced a function that its measurement and its audits rest on.

What must not live here: what follows from it, and any defence against code that changes memory without Python.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterator
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

_OURS = ("aiperf.worker", "aiperf.protocol")
_BUILTINS = (
    "abs", "all", "any", "bool", "bytes", "dict", "enumerate", "float", "getattr", "int", "isinstance", "len", "list",
    "map", "max", "min", "range", "set", "sorted", "str", "sum", "tuple", "type", "zip",
)  # fmt: skip
_OTHERS = {
    "time": ("perf_counter", "perf_counter_ns", "process_time", "monotonic", "time", "sleep"),
    "gc": ("disable", "enable", "isenabled"),
    "json": ("dumps", "loads"),
    "hashlib": ("blake2b",),
    "resource": ("getrusage",),
    "numpy": ("arange", "asarray", "ascontiguousarray", "empty", "isfinite", "isnan"),
    "torch": ("isfinite", "isnan", "randn", "tensor"),
    "torch.cuda": ("Event", "_sleep", "current_stream", "synchronize", "set_device"),
    "torch._C": ("_cuda_synchronize", "_cuda_sleep", "_cuda_getCurrentStream"),
}
_METHODS = {
    ("torch.cuda", "Event"): ("elapsed_time", "record", "synchronize"),
    ("torch", "Tensor"): ("clone", "copy_", "cpu", "detach", "fill_", "isfinite", "numpy", "to"),
}


class Integrity:
    """What the functions were when they were first seen; ``look`` again when modules may have been added."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[Any, Any]] = {}
        self.look()

    def look(self) -> None:
        """Take down whatever has been imported since. To be called before a side's own code runs."""
        for name, found in _watched():
            self._seen.setdefault(name, found)

    def replaced(self) -> tuple[str, ...]:
        """Dotted names of functions that are not what they were."""
        now = dict(_watched())
        return tuple(name for name, was in self._seen.items() if not _same(was, now.get(name)))


def _same(was: tuple[Any, Any], now: tuple[Any, Any] | None) -> bool:
    return now is not None and was[0] is now[0] and was[1] is now[1]


def _watched() -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Dotted name -> the object, and the code of a Python function, which can be exchanged inside it."""
    for name in _BUILTINS:
        yield f"builtins.{name}", (getattr(builtins, name, None), None)
    for module_name, names in _OTHERS.items():
        if (module := sys.modules.get(module_name)) is not None:
            for name in names:
                yield f"{module_name}.{name}", _identity(getattr(module, name, None))
    for (module_name, class_name), names in _METHODS.items():
        if (owner := getattr(sys.modules.get(module_name), class_name, None)) is not None:
            for name in names:
                yield f"{module_name}.{class_name}.{name}", _identity(getattr(owner, name, None))
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith(_OURS) and module is not None:
            yield from _of_ours(module_name, module)


def _of_ours(module_name: str, module: ModuleType) -> Iterator[tuple[str, tuple[Any, Any]]]:
    for name, value in list(vars(module).items()):
        if isinstance(value, (FunctionType, BuiltinFunctionType, type)):
            yield f"{module_name}.{name}", _identity(value)
        if isinstance(value, type) and value.__module__ == module_name:
            for attribute, inner in list(vars(value).items()):
                if isinstance(inner, (FunctionType, staticmethod, classmethod, property)):
                    yield f"{module_name}.{name}.{attribute}", _identity(inner)


def _identity(value: Any) -> tuple[Any, Any]:
    return value, getattr(value, "__code__", None)
