"""The arrays that a function works with besides its arguments: those of its closure, its defaults, the globals and
attributes that its code names, and of what these hold.

What must not live here: running any code of a side (no property, no iterator of its own), and what an array holds
(unnamed.py).
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cached_property, partial
from itertools import islice
from types import BuiltinFunctionType, CodeType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any

from aiperf.worker.arrays import LazyOutput, kind

_MOST_VALUES, _MOST_ITEMS, _DEEPEST = 20_000, 4_096, 24
"""Values that are looked at, items of each container, and steps from the function to a value: more are left out."""
_PLAIN = (type(None), bool, int, float, complex, str, bytes, bytearray, range, slice, type, ModuleType)
_LIBRARIES = {"cupy", "cupyx", "jax", "numba", "numpy", "scipy", "torch", "torchvision", "triton"}
"""Roots of modules whose objects have attributes of their own purposes, beside those of Python itself."""
_WRAPPED = ("__wrapped__", "_torchdynamo_orig_callable")
"""Attributes of a function under which a decorator keeps the one that it wraps."""
_CALLED = ("__call__", "__getitem__", "forward")
"""Methods that are called without their name."""
_OF_MODULES = ("_parameters", "_buffers", "_modules")


def reachable_arrays(function: Callable[..., object]) -> list[Any]:
    """The arrays of torch, numpy and cupy that ``function`` can use without being given them, in no particular order.
    Attributes count where some code that was met names them. Never raises."""
    walk = _Walk()
    with suppress(Exception):
        walk.go(function)
    return walk.arrays


class _Walk:
    """What was met on the way from one function."""

    def __init__(self) -> None:
        self.arrays: list[Any] = []
        self._seen: dict[int, Any] = {}
        self._next: deque[tuple[Any, int]] = deque()
        self._names: set[str] = set()
        self._waiting: dict[str, list[tuple[Any, int]]] = {}
        """Attribute that no code has named yet -> values and how far away they are."""
        self._left = _MOST_VALUES

    def go(self, start: Any) -> None:
        self._add((start,), 0)
        while self._next:
            value, depth = self._next.popleft()
            with suppress(Exception):  # an odd object hides what it holds
                self._add(self._parts(value, depth), depth + 1)

    def _add(self, values: Iterable[Any], depth: int) -> None:
        for value in islice(values, _MOST_ITEMS):
            if id(value) in self._seen or issubclass(type(value), _PLAIN):
                continue
            self._left -= 1
            if self._left < 0 or depth > _DEEPEST:
                return
            self._seen[id(value)] = value
            if _is_array(value):
                self.arrays.append(value)
            else:
                self._next.append((value, depth))

    def _parts(self, value: Any, depth: int) -> Iterator[Any]:
        which = type(value)
        if issubclass(which, dict):
            yield from dict.values(value)
        elif (own := next((c for c in (list, tuple, set, frozenset, deque) if issubclass(which, c)), None)) is not None:
            yield from own.__iter__(value)
        elif which is FunctionType:
            yield from self._of_function(value)
        elif which is MethodType:
            yield from (value.__func__, value.__self__)
        elif which is BuiltinFunctionType:
            yield value.__self__
        elif issubclass(which, partial):
            yield from (value.func, value.args, value.keywords)
        else:
            yield from self._of_object(value, depth)

    def _of_function(self, function: FunctionType) -> Iterator[Any]:
        for cell in function.__closure__ or ():
            with suppress(ValueError):  # empty
                yield cell.cell_contents
        yield from function.__defaults__ or ()
        yield from (function.__kwdefaults__ or {}).values()
        yield from (function.__dict__[name] for name in _WRAPPED if name in function.__dict__)
        if not _is_library(function.__module__):
            names = _names_of(function.__code__)
            self._learn(names)
            yield from (function.__globals__[name] for name in names if name in function.__globals__)

    def _of_object(self, value: Any, depth: int) -> Iterator[Any]:
        held: dict[str, Any] = {}
        with suppress(AttributeError):
            held = object.__getattribute__(value, "__dict__")
        yield from (held[name] for name in _WRAPPED if name in held)
        torch = sys.modules.get("torch.nn")
        if torch is not None and issubclass(type(value), torch.Module):
            yield from (held[name] for name in _OF_MODULES if name in held)
        for owner in type(value).__mro__:
            if not _is_library(owner.__module__):
                yield from self._of_class(owner, value, depth)
        if not _is_library(type(value).__module__):
            for name, each in list(held.items()):
                self._when_named(name, each, depth)

    def _of_class(self, owner: type, value: Any, depth: int) -> Iterator[Any]:
        """Methods, slots and attributes of a class that ``value`` has from it."""
        for name, each in list(vars(owner).items()):
            found = each
            if type(each) is MemberDescriptorType:
                try:
                    found = each.__get__(value)
                except AttributeError:  # not set
                    continue
            elif type(each) is property:
                found = each.fget
            elif type(each) is cached_property:
                found = each.func
            elif type(each) in (staticmethod, classmethod):
                found = each.__func__
            if name in _CALLED:
                yield found
            else:
                self._when_named(name, found, depth)

    def _when_named(self, name: str, value: Any, depth: int) -> None:
        """Look at an attribute if some code names it, now or when that is met."""
        if name in self._names:
            self._add((value,), depth + 1)
        elif not issubclass(type(value), _PLAIN) and self._left > 0:
            self._left -= 1
            self._waiting.setdefault(name, []).append((value, depth))

    def _learn(self, names: set[str]) -> None:
        for name in names - self._names:
            self._names.add(name)
            for value, depth in self._waiting.pop(name, ()):
                self._add((value,), depth + 1)


def _is_array(value: Any) -> bool:
    try:
        return bool(kind(value))
    except LazyOutput:
        return False


def _is_library(module: Any) -> bool:
    root = module.partition(".")[0] if isinstance(module, str) else ""
    return root in sys.stdlib_module_names or root in _LIBRARIES


def _names_of(code: CodeType) -> set[str]:
    """Globals, attributes and methods that a function's code names, and the functions inside it."""
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= _names_of(constant)
    return found
