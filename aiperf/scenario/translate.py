"""What the schema finds wrong, said in aiperf's voice: place, value, what is allowed, what to do.

What must not live here: reading files, and rules of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from aiperf.errors import Fault
from aiperf.scenario.document import Document, KeyPath
from aiperf.scenario.schema import CheckFile, CitationFile, ExpectationFile, MeasureFile, NeedsFile, ScenarioFile
from aiperf.scenario.wording import allowed, dotted, nearest, shown
from aiperf.units import InvalidValue

_MODELS: dict[KeyPath, type[BaseModel]] = {
    (): ScenarioFile,
    ("measure",): MeasureFile,
    ("needs",): NeedsFile,
    ("check",): CheckFile,
}
_ENTRIES: dict[str | int, type[BaseModel]] = {"book": CitationFile, "expect": ExpectationFile}
_TYPES = {
    "string_type": ("text", 'Quote it if it is meant as text, e.g. "1".'),
    "int_type": ("a whole number", "Write digits only, without a unit."),
    "int_from_float": ("a whole number", "Write digits only, without a unit."),
    "float_type": ("a number", "Write digits only, without a unit or a % sign."),
    "finite_number": ("a finite number", ""),
    "bool_type": ("true or false", "Write true or false, without quotes."),
    "list_type": ("a list", "Write [first, second]."),
    "dict_type": ("a mapping", "Write {key: value}, or key: value lines below it."),
    "model_type": ("a mapping", "Write {key: value}, or key: value lines below it."),
}
_BOUNDS = {
    "greater_than": ("above", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("below", "lt"),
    "less_than_equal": ("at most", "le"),
}


def schema_faults(document: Document, error: ValidationError, *, below: KeyPath = ()) -> list[Fault]:
    """One fault for each error of the schema; ``below`` is where the validated part begins."""
    return [_fault(document, e, (*below, *e["loc"])) for e in error.errors(include_url=False)]


def _fault(document: Document, error: ErrorDetails, path: KeyPath) -> Fault:
    kind, value = error["type"], error["input"]
    name = dotted(path)
    if path[-1:] == ("[key]",):
        return _bad_name(document, path[:-1])
    if kind == "missing":
        return document.fault(path[:-1], f"{name} is missing.", f"Write {name}:.")
    if kind == "extra_forbidden":
        return _unknown(document, path)
    if value is None:
        return document.fault(path, f"{name} has no value.", _hint(kind, error) or "Write one, or remove the key.")
    if kind == "value_error":
        invalid = error["ctx"]["error"]
        assert isinstance(invalid, InvalidValue)
        return document.fault(path, f"{name}: {invalid.what}", invalid.hint)
    return document.fault(path, f"{name}: {shown(value)} {_wrong(kind, error)}", _hint(kind, error))


def _bad_name(document: Document, path: KeyPath) -> Fault:
    hint = "Start with a letter or digit; go on with letters, digits, -, _ and ." if path[0] == "ladder" else ""
    if "env" in path:
        hint = "Write a variable's name: letters, digits and _, not beginning with a digit."
    return document.fault(path, f"{dotted(path[:-1])}: {shown(path[-1])} is not a name.", hint, key=True)


def _unknown(document: Document, path: KeyPath) -> Fault:
    model = _ENTRIES.get(path[0]) or _MODELS.get(path[:-1])
    names = list(model.model_fields) if model else []
    parent = dotted(path[:-1]) or "a scenario"
    what = f"{dotted(path)}: {shown(path[-1])} is not a key of {parent}; allowed: {allowed(names)}."
    return document.fault(path, what, nearest(path[-1], names), key=True)


def _wrong(kind: str, error: ErrorDetails) -> str:
    context: Mapping[str, Any] = error.get("ctx", {})
    if kind in _TYPES:
        return f"is not {_TYPES[kind][0]}."
    if kind in _BOUNDS:
        word, key = _BOUNDS[kind]
        return f"is out of range; it must be {word} {context[key]:g}."
    if kind == "literal_error":
        return f"is not allowed; allowed: {_options(error)}."
    if kind in ("too_short", "string_too_short"):
        return "is empty."
    return f"cannot be used: {error['msg']}."


def _hint(kind: str, error: ErrorDetails) -> str:
    if kind == "list_type" and isinstance(error["input"], str | int | float):
        return f"Write [{error['input']}]."
    if kind in _TYPES:
        return _TYPES[kind][1]
    if kind == "literal_error":
        return nearest(error["input"], _options(error).split(", ")) or f"Write one of {_options(error)}."
    if kind in ("too_short", "string_too_short"):
        return "Write at least one value, or remove the key."
    return ""


def _options(error: ErrorDetails) -> str:
    return str(error["ctx"]["expected"]).replace("'", "").replace(" or ", ", ")
