"""How messages are written: one line of JSON each, ``{"type": "TurnRequest", "tag": "9f3c", "side": "before", ...}``.

What must not live here: pipes, and what a message means.
"""

from __future__ import annotations

import json
import types
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from aiperf.protocol.messages import Message

M = TypeVar("M", bound=Message)
_PROTOCOL = f"{__package__}."


class ProtocolError(ValueError):
    """A line that is not a message of the kind that is due; the text says what is wrong with it."""


def encode(message: Message, *, tag: str = "") -> str:
    """One line of JSON with its newline. Arrays and numbers of numpy and torch become JSON's own, other types text.

    ``tag``: names a request, and the reply to it.
    """
    return json.dumps({"type": type(message).__name__, "tag": tag, **vars(message)}, default=_plain) + "\n"


def decode(line: str | bytes, kind: type[M], *, tag: str = "") -> M:
    """The message of this kind, or of a subclass, on a line. Raises ProtocolError, also for another tag."""
    message, found = decode_tagged(line, kind)
    if found != tag:
        raise ProtocolError(f"its tag is {found!r} instead of {tag!r}: it answers another request, or none")
    return message


def decode_tagged(line: str | bytes, kind: type[M]) -> tuple[M, str]:
    """The message of this kind on a line, and its tag. Raises ProtocolError."""
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        raise ProtocolError("not JSON") from None
    if not isinstance(values, dict):
        raise ProtocolError("not an object")
    name, tag = values.pop("type", None), values.pop("tag", "")
    found = Message.types.get(name) if isinstance(name, str) else None
    if found is None:
        raise ProtocolError(f"unknown message type {name!r}")
    if not issubclass(found, kind):
        raise ProtocolError(f"{name} instead of {kind.__name__}")
    if not isinstance(tag, str):
        raise ProtocolError("tag must be text")
    message = _read(found, values, name)
    assert isinstance(message, kind)
    return message, tag


def _plain(value: Any) -> Any:
    if type(value).__module__.startswith(_PROTOCOL):
        return vars(value)
    return value.tolist() if hasattr(value, "tolist") else str(value)


@cache
def _fields_of(kind: type) -> tuple[dict[str, Any], frozenset[str]]:
    """Name -> type of every field, and those without a default."""
    hints, has = get_type_hints(kind), fields(kind)
    needed = (each.name for each in has if each.default is MISSING and each.default_factory is MISSING)
    return {each.name: hints[each.name] for each in has}, frozenset(needed)


def _read(hint: Any, value: Any, where: str) -> Any:
    """``value`` as the type ``hint``: what the fields of messages are made of, and no more."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if isinstance(hint, type) and is_dataclass(hint):
        return _read_fields(hint, value, where)
    if origin in (Union, types.UnionType):
        return None if value is None else _read(arguments[0], value, where)
    if origin is tuple and isinstance(value, list):
        if arguments[0] is float and set(map(type, value)) <= {float}:  # latencies may be many
            return tuple(value)
        return tuple(_read(arguments[0], each, where) for each in value)
    if origin is dict and isinstance(value, dict):
        return {name: _read(arguments[1], each, f"{where}.{name}") for name, each in value.items()}
    if origin is Literal and value in arguments:
        return value
    simple = (int, float) if hint is float else hint
    if origin is None and isinstance(value, simple) and (hint is bool or not isinstance(value, bool)):
        return value
    raise ProtocolError(f"{where} must be {getattr(hint, '__name__', hint)}, not {repr(value)[:80]}")


def _read_fields(kind: type, values: Any, where: str) -> Any:
    if not isinstance(values, dict):
        raise ProtocolError(f"{where} must be an object, not {repr(values)[:80]}")
    hints, needed = _fields_of(kind)
    if unknown := sorted(values.keys() - hints.keys()):
        raise ProtocolError(f"{where} has no field {', '.join(unknown)}")
    if missing := sorted(needed - values.keys()):
        raise ProtocolError(f"{where} lacks {', '.join(missing)}")
    return kind(**{name: _read(hints[name], value, f"{where}.{name}") for name, value in values.items()})
