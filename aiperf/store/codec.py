"""Records to JSON and back, exactly; the schema version is checked here.

What must not live here: files and folders (write.py, read.py), raw samples (samples.py), printing.
"""

from __future__ import annotations

import json
import math
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from aiperf.errors import AiperfError, usage
from aiperf.records import SCHEMA_VERSION, CaseRecord, RunRecord

T = TypeVar("T")
Decoder = Callable[[Any, str], Any]


class CorruptRecord(AiperfError):
    """A stored record that is not what its schema says; the text names the field."""


def encode_case(record: CaseRecord) -> bytes:
    """UTF-8 JSON of one case record, its pairs as they are given. NaN and infinity are written as null."""
    return _dump(record)


def encode_run(record: RunRecord) -> bytes:
    """UTF-8 JSON of a run record."""
    return _dump(record)


def decode_case(data: bytes, *, where: str = "") -> CaseRecord:
    """CaseRecord from its JSON. Raises CorruptRecord, or UserError for a newer schema version."""
    return _load(CaseRecord, data, where)


def decode_run(data: bytes, *, where: str = "") -> RunRecord:
    """RunRecord from its JSON. Raises CorruptRecord, or UserError for a newer schema version."""
    return _load(RunRecord, data, where)


def to_plain(value: Any) -> Any:
    """``value`` as JSON types only: dataclasses become dicts, tuples lists, NaN and infinity None, the rest text."""
    if value is None or isinstance(value, str | bool) or type(value) is int:
        return value.value if isinstance(value, Enum) else value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(k): to_plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(v) for v in value]
    if isinstance(value, set | frozenset):
        return sorted((to_plain(v) for v in value), key=str)
    if isinstance(value, Enum):
        return to_plain(value.value)
    if isinstance(value, int):
        return int(value)
    return to_plain(value.item()) if hasattr(value, "item") else str(value)


def dump_json(value: Any) -> bytes:
    """``value`` through ``to_plain`` as indented UTF-8 JSON with a final newline."""
    text = json.dumps(to_plain(value), ensure_ascii=False, allow_nan=False, indent=1) + "\n"
    # A lone surrogate (undecodable bytes in a worker's stderr) becomes its JSON escape, which reads back as itself.
    return text.encode("utf-8", "backslashreplace")


def _dump(record: CaseRecord | RunRecord) -> bytes:
    return dump_json(record)


def _load(kind: type[T], data: bytes, where: str) -> T:
    try:
        plain = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise CorruptRecord(f"is not JSON ({error})") from None
    if not isinstance(plain, dict):
        raise CorruptRecord("is not a JSON object")
    version = plain.get("schema_version")
    if type(version) is not int:
        raise CorruptRecord("has no schema_version")
    if version > SCHEMA_VERSION:
        what = f"was written with schema version {version}; this aiperf reads up to {SCHEMA_VERSION}."
        raise usage(what, "Update aiperf, or read it with the version that wrote it.", where)
    return cast(T, _decoder(cast(Any, kind))(plain, ""))


@cache
def _decoder(kind: Any) -> Decoder:
    """Build the function from plain JSON to ``kind``, once per type."""
    origin = get_origin(kind)
    if is_dataclass(kind) and isinstance(kind, type):
        return _dataclass(kind)
    if origin is Literal:
        return _literal(get_args(kind))
    if origin in (Union, types.UnionType):
        return _optional(kind)
    if origin is tuple:
        return _tuple(_decoder(get_args(kind)[0]))
    if origin is dict:
        return _dict(_decoder(get_args(kind)[1]))
    if kind is Any:
        return lambda value, _: value
    if kind is float:
        return _float
    return _exact(kind)


def _dataclass(kind: type[Any]) -> Decoder:
    hints = get_type_hints(kind)
    parts = [
        (f.name, _decoder(hints[f.name]), f.default is MISSING and f.default_factory is MISSING) for f in fields(kind)
    ]

    def decode(value: Any, at: str) -> Any:
        _expect(isinstance(value, dict), at, "an object", value)
        found = {}
        for name, decoder, required in parts:
            if name in value:
                found[name] = decoder(value[name], f"{at}.{name}")
            elif required:
                raise CorruptRecord(f"{at.lstrip('.') or 'the record'} has no {name}")
        return kind(**found)

    return decode


def _literal(allowed: tuple[Any, ...]) -> Decoder:
    def decode(value: Any, at: str) -> Any:
        _expect(value in allowed, at, f"one of {', '.join(map(str, allowed))}", value)
        return value

    return decode


def _optional(kind: Any) -> Decoder:
    (inner,) = [a for a in get_args(kind) if a is not type(None)]
    decoder = _decoder(inner)
    return lambda value, at: None if value is None else decoder(value, at)


def _tuple(item: Decoder) -> Decoder:
    def decode(value: Any, at: str) -> Any:
        _expect(isinstance(value, list), at, "a list", value)
        return tuple(item(v, f"{at}[{i}]") for i, v in enumerate(value))

    return decode


def _dict(item: Decoder) -> Decoder:
    def decode(value: Any, at: str) -> Any:
        _expect(isinstance(value, dict), at, "an object", value)
        return {k: item(v, f"{at}.{k}") for k, v in value.items()}

    return decode


def _float(value: Any, at: str) -> float:
    if value is None:
        return math.nan  # the field needs a number and the writer had none that JSON can hold
    _expect(isinstance(value, int | float) and not isinstance(value, bool), at, "a number", value)
    return float(value)


def _exact(kind: Any) -> Decoder:
    def decode(value: Any, at: str) -> Any:
        _expect(type(value) is kind, at, {str: "text", int: "a whole number", bool: "true or false"}[kind], value)
        return value

    return decode


def _expect(good: bool, at: str, allowed: str, value: Any) -> None:
    if not good:
        raise CorruptRecord(f"{at.lstrip('.') or 'the record'} is {str(value)[:40]!r}, not {allowed}")
