"""Records to JSON and back, exactly; the schema version is checked here and older records are migrated.

What must not live here: files and folders (write.py, read.py), raw samples (samples.py), printing.
"""

from __future__ import annotations

import json
import math
import types
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from aiperf.errors import AiperfError, usage
from aiperf.records import SCHEMA_VERSION, Case, CaseRecord, RunRecord
from aiperf.store.masking import masked
from aiperf.store.migrate import FIRST_VERSION, migrated

T = TypeVar("T")
Decoder = Callable[[Any], Any]


class CorruptRecord(AiperfError):
    """A stored record that is not what its schema says; the text names the field."""


def encode_case(record: CaseRecord) -> bytes:
    """UTF-8 JSON of one case record, its pairs as they are given. NaN and infinity are written as null."""
    return _dump(record)


def encode_run(record: RunRecord) -> bytes:
    """UTF-8 JSON of a run record, which says whether its command line had secrets."""
    plain = to_plain(record)
    kept = masked(plain)
    return dump_json({**kept, "withheld": record.withheld or kept["argv"] != plain["argv"]})


def decode_case(data: bytes, *, where: str = "") -> CaseRecord:
    """CaseRecord from its JSON. Raises CorruptRecord, or UserError for a newer schema version."""
    return _load(CaseRecord, data, where)


def decode_run(data: bytes, *, where: str = "") -> RunRecord:
    """RunRecord from its JSON. Raises CorruptRecord, or UserError for a newer schema version."""
    return _load(RunRecord, data, where)


def as_stored(case: Case) -> Case:
    """The case as a record of it reads: without secrets."""
    return decode_case(encode_case(CaseRecord(case=case, status="measured"))).case


def number(value: float) -> float | None:
    """A number that JSON and SQL can hold: what is not known is null, not a NaN, which SQL takes for the largest."""
    return float(value) if math.isfinite(value) else None


def to_plain(value: Any) -> Any:
    """``value`` as JSON types only: dataclasses become dicts, tuples lists, NaN and infinity None, the rest text."""
    if value is None or isinstance(value, str | bool) or type(value) is int:
        return value.value if isinstance(value, Enum) else value
    if isinstance(value, float):
        return number(value)
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
    return dump_json(masked(to_plain(record)))


def _load(kind: type[T], data: bytes, where: str) -> T:
    return from_plain(kind, load_plain(data, where=where))


def from_plain(kind: type[T], plain: Any) -> T:
    """Make a dataclass of what ``to_plain`` made of one. Raises CorruptRecord, naming the field that does not fit."""
    try:
        return cast(T, _decoder(cast(Any, kind))(plain))
    except _Misfit as misfit:
        raise CorruptRecord(misfit.sentence) from None


def load_plain(data: bytes, *, where: str = "") -> dict[str, Any]:
    """Parse a record into the plain dict of today's schema, migrated but not checked. Raises as ``decode_case``."""
    plain = _parse(data)
    if not isinstance(plain, dict):
        raise CorruptRecord("is not a JSON object")
    version = plain.get("schema_version")
    if type(version) is not int:
        raise CorruptRecord("has no schema_version")
    if version > SCHEMA_VERSION:
        what = f"was written with schema version {version}; this aiperf reads up to {SCHEMA_VERSION}."
        raise usage(what, "Update aiperf, or read it with the version that wrote it.", where)
    if version < FIRST_VERSION:
        raise CorruptRecord(f"has schema version {version}, which never was")
    return migrated(plain)


def _parse(data: bytes) -> Any:
    """JSON as Python values. Raises CorruptRecord."""
    from pydantic_core import from_json

    try:
        # Half the time of Python's own parser, which a history of many files is made of.
        return from_json(data)
    except ValueError:
        # It refuses a lone surrogate, which the store writes; what Python's own refuses is damage.
        try:
            return json.loads(data.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            raise CorruptRecord(f"is not JSON ({error})") from None


class _Misfit(Exception):
    """A value that its field does not allow; each container that it lies in puts its own name before the path."""

    def __init__(self, what: str, at: str = "") -> None:
        super().__init__(what)
        self.what, self.at = what, at

    def inside(self, part: str) -> _Misfit:
        self.at = part + self.at
        return self

    @property
    def sentence(self) -> str:
        return f"{self.at.lstrip('.') or 'the record'} {self.what}"


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
        return _tuple(get_args(kind)[0])
    if origin is dict:
        return _dict(get_args(kind)[1])
    if kind is Any:
        return lambda value: value
    if kind is float:
        return _float
    return _exact(kind)


def _dataclass(kind: type[Any]) -> Decoder:
    hints = get_type_hints(kind)
    # Most values are of a plain type as they come: those need no call each, and a history has a million of them.
    parts = [(f.name, _as_it_comes(hints[f.name]), _decoder(hints[f.name])) for f in fields(kind)]
    required = {f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING}
    names = frozenset(name for name, _, _ in parts)
    at_once = not hasattr(kind, "__post_init__") and not hasattr(kind, "__slots__")

    def decode(value: Any) -> Any:
        _expect(type(value) is dict, "an object", value)
        if at_once and value.keys() == names:
            # A frozen dataclass sets its fields one by one, which takes longer than the rest of decoding together.
            made = object.__new__(kind)
            own = made.__dict__
            own.update(value)
            for name, plain, decoder in parts:
                if type(item := own[name]) is not plain:
                    own[name] = _inside(decoder, item, f".{name}")
            return made
        for name in (name for name, _, _ in parts if name in required and name not in value):
            raise _Misfit(f"has no {name}")
        there = [part for part in parts if part[0] in value]
        return kind(**{name: _inside(decoder, value[name], f".{name}") for name, _, decoder in there})

    return decode


def _as_it_comes(kind: Any) -> type | None:
    """The type whose values JSON hands over finished; None where each has to be looked at."""
    kinds = [k for k in get_args(kind) if k is not type(None)] if get_origin(kind) is types.UnionType else [kind]
    return kinds[0] if kinds[0] in (str, float, int, bool) else None


def _literal(allowed: tuple[Any, ...]) -> Decoder:
    one_of = f"one of {', '.join(map(str, allowed))}"

    def decode(value: Any) -> Any:
        _expect(value in allowed, one_of, value)
        return value

    return decode


def _optional(kind: Any) -> Decoder:
    (inner,) = [a for a in get_args(kind) if a is not type(None)]
    decoder = _decoder(inner)
    return lambda value: None if value is None else decoder(value)


def _tuple(item: Any) -> Decoder:
    plain, decoder = _as_it_comes(item), _decoder(item)

    def decode(value: Any) -> Any:
        _expect(type(value) is list, "a list", value)
        if item is Any or _all_of(plain, value):
            return tuple(value)
        return tuple([v if type(v) is plain else _inside(decoder, v, f"[{i}]") for i, v in enumerate(value)])

    return decode


def _dict(item: Any) -> Decoder:
    plain, decoder = _as_it_comes(item), _decoder(item)

    def decode(value: Any) -> Any:
        _expect(type(value) is dict, "an object", value)
        if item is Any or _all_of(plain, value.values()):
            return value.copy()
        return {k: v if type(v) is plain else _inside(decoder, v, f".{k}") for k, v in value.items()}

    return decode


def _all_of(plain: type | None, values: Collection[Any]) -> bool:
    """Whether values are all of one type, so that none has to be looked at by itself."""
    return not values or (plain is not None and {*map(type, values)} == {plain})


def _inside(decoder: Decoder, value: Any, part: str) -> Any:
    try:
        return decoder(value)
    except _Misfit as misfit:
        raise misfit.inside(part) from None


def _float(value: Any) -> float:
    if value is None:
        return math.nan  # the field needs a number and the writer had none that JSON can hold
    _expect(isinstance(value, int | float) and not isinstance(value, bool), "a number", value)
    try:
        return float(value)
    except OverflowError:
        raise _Misfit("is a number too large to be read") from None


def _exact(kind: Any) -> Decoder:
    allowed = {str: "text", int: "a whole number", bool: "true or false"}[kind]

    def decode(value: Any) -> Any:
        _expect(type(value) is kind, allowed, value)
        return value

    return decode


def _expect(good: bool, allowed: str, value: Any) -> None:
    if not good:
        raise _Misfit(f"is {str(value)[:40]!r}, not {allowed}")
