"""Holding a value against a parameter's annotation: is it allowed, and what is it in bytes, seconds, numbers.

What must not live here: reading source files, places in a YAML file.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from typing import Any

from aiperf.records import Signature
from aiperf.scenario.annotation import LISTS, MAPPINGS, in_words, name_of, options_of, parts_of, tree_of, typed_keys
from aiperf.scenario.wording import allowed, nearest, shown
from aiperf.units import InvalidValue, parse_size, parse_time


def convert(value: Any, annotation: str) -> Any:
    """``value`` as YAML gave it -> the typed value that the workload receives.

    Sizes become bytes, times seconds; lists and mappings go element by element; an annotation that aiperf does not
    know lets everything through. Raises InvalidValue.
    """
    return _convert(value, tree_of(annotation))


def entry_annotation(annotation: str, entry: str) -> str | None:
    """Annotation of the entry of a mapping parameter; None when the parameter is no mapping, or has no such key."""
    options = [option for option in options_of(tree_of(annotation)) if name_of(option) in MAPPINGS]
    node = options[0] if options else tree_of(annotation)
    if keys := typed_keys(node):
        return ast.unparse(keys[entry]) if entry in keys else None
    if name_of(node) in ("Any", ""):
        return "Any"
    if name_of(node) not in MAPPINGS:
        return None
    parts = parts_of(node)
    return ast.unparse(parts[1]) if len(parts) == 2 else "Any"


def missing(signature: Signature, given: set[str]) -> list[str]:
    """Parameters without a default that nobody gave."""
    return [p for p in signature.parameters if p not in signature.defaults and p not in given]


def bind(signature: Signature, values: dict[str, Any]) -> dict[str, Any]:
    """Typed values of one side. Raises InvalidValue for a name or value that the signature does not allow."""
    for name in values:
        if name not in signature.parameters and not signature.open:
            raise InvalidValue(f"{shown(name)} is not a parameter; allowed: {allowed(signature.parameters)}.")
    return {name: convert(value, signature.parameters.get(name, "Any")) for name, value in values.items()}


def _convert(value: Any, node: ast.expr) -> Any:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return _union(value, [node.left, node.right])
    if isinstance(node, ast.Constant) and node.value is None:
        return _none(value)
    name = name_of(node)
    if name in ("Optional", "Union"):
        return _union(value, parts_of(node) + ([ast.Constant(None)] if name == "Optional" else []))
    if value is None and name not in ("Any", ""):
        raise InvalidValue("null is not a value.", "Write one, or remove the key.")
    if name == "Literal":
        return _literal(value, [p.value for p in parts_of(node) if isinstance(p, ast.Constant)])
    if name in (*LISTS, *MAPPINGS):
        return _container(value, name, node)
    return _PLAIN[name](value) if name in _PLAIN else value


def _union(value: Any, options: list[ast.expr]) -> Any:
    if value is None and any(isinstance(o, ast.Constant) and o.value is None for o in options):
        return None
    problems: dict[str, InvalidValue] = {}
    for option in options:
        try:
            return _convert(value, option)
        except InvalidValue as error:
            problems[name_of(option)] = error
    # What a list or a mapping holds is wrong, where one of them is allowed; else the value as a whole.
    inside = LISTS if isinstance(value, list) else MAPPINGS if isinstance(value, dict) else ()
    if near := next((problem for name, problem in problems.items() if name in inside), None):
        raise near
    named = [option for option in options if not (isinstance(option, ast.Constant) and option.value is None)]
    if len(named) == 1 or not isinstance(value, list | dict):
        raise next(iter(problems.values()))
    words = in_words(" | ".join(ast.unparse(option) for option in options))
    raise InvalidValue(f"{shown(value)} is not allowed; allowed: {words}.", "Write one of them.")


def _none(value: Any) -> None:
    if value is not None:
        raise InvalidValue(f"{shown(value)} is not allowed.", "Leave the value out, or write null.")


def _literal(value: Any, options: list[Any]) -> Any:
    for option in options:
        if option == value and type(option) is type(value):
            return value
    hint = nearest(value, options) or f"Write one of {allowed(options)}."
    if not isinstance(value, str) and str(value).lower() in [o.lower() for o in options if isinstance(o, str)]:
        hint = f'Quote it: "{str(value).lower()}".'
    raise InvalidValue(f"{shown(value)} is not allowed; allowed: {allowed(options)}.", hint)


def _entry(key: Any, value: Any, keys: dict[str, ast.expr]) -> Any:
    if key not in keys:
        raise InvalidValue(f"{shown(key)} is not a key; allowed: {allowed(keys)}.", nearest(key, keys))
    try:
        return _convert(value, keys[key])
    except InvalidValue as error:
        raise InvalidValue(f"{key}: {error.what}", error.hint) from None


def _container(value: Any, name: str, node: ast.expr) -> Any:
    parts = parts_of(node)
    if name in MAPPINGS:
        if not isinstance(value, dict):
            nested = len(parts) == 2 and name_of(parts[1]) in MAPPINGS
            form = "{name: {key: value}}" if nested else "{key: value}"
            raise InvalidValue(f"{shown(value)} is not a mapping.", f"Write {form}.")
        if keys := typed_keys(node):
            return {key: _entry(key, each, keys) for key, each in value.items()}
        return {k: _convert(v, parts[1]) for k, v in value.items()} if len(parts) == 2 else value
    if not isinstance(value, list):
        raise InvalidValue(f"{shown(value)} is not a list.", f"Write [{_bare(value)}].")
    fixed = [p for p in parts if not (isinstance(p, ast.Constant) and p.value is Ellipsis)]
    if name == "tuple" and fixed and len(fixed) == len(parts):
        if len(value) != len(parts):
            raise InvalidValue(f"{shown(value)} has {len(value)} entries.", f"Write {len(parts)}.")
        return [_convert(v, p) for v, p in zip(value, parts, strict=True)]
    return [_convert(v, fixed[0]) for v in value] if fixed else value


def _bare(value: Any) -> str:
    return value if isinstance(value, str) else shown(value)


def _int(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidValue(f"{shown(value)} is not a whole number.", "Write digits only, without a unit.")
    return value


def _float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidValue(f"{shown(value)} is not a number.", "Write digits only, without a unit.")
    try:
        return float(value)
    except OverflowError:
        raise InvalidValue(f"{shown(value)} is too large for a float.", "Write a smaller number.") from None


def _bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidValue(f"{shown(value)} is not true or false.", "Write true or false, without quotes.")
    return value


def _str(value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidValue(f"{shown(value)} is not text.", f'Quote it: "{_bare(value)}".')
    return value


_PLAIN: dict[str, Callable[[Any], Any]] = {
    "Size": parse_size,
    "Seconds": parse_time,
    "int": _int,
    "float": _float,
    "bool": _bool,
    "str": _str,
}
