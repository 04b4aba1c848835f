"""Strict YAML: one mapping of plain data, with the place of every key and value and all faults at once.

What must not live here: knowledge of a scenario's keys.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from aiperf.errors import Fault, UserError
from aiperf.scenario.wording import arranged, dotted, shown_path

MAX_BYTES = 1024 * 1024
_MAX_DEPTH = 12
_LOADER: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# The core schema of YAML 1.2, so that on, off, yes, no and 1:30 stay what they look like: text.
_NULL = re.compile(r"(?:null|Null|NULL|~|)\Z")
_BOOL = re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z")
_INT = re.compile(r"(?:[-+]?[0-9]{1,40}|0o[0-7]{1,40}|0x[0-9a-fA-F]{1,40})\Z")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_ENDLESS = re.compile(r"(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z")
_TAB = re.compile(r"^( *)\t[\t ]*[^\s#]")

KeyPath = tuple[str | int, ...]
Place = tuple[int, int]


@dataclass(frozen=True)
class Document:
    """A YAML file as plain data; ``data`` holds what could be read even where ``faults`` were found."""

    path: Path
    data: dict[str, Any]
    keys: dict[KeyPath, Place] = field(default_factory=dict)
    """Path of a value -> line and column of its key (or list entry), counted from 1."""
    values: dict[KeyPath, Place] = field(default_factory=dict)
    texts: dict[KeyPath, str] = field(default_factory=dict)
    """Path of a scalar -> its text as written, before it became a number or a boolean."""
    faults: tuple[Fault, ...] = ()

    def fault(self, at: KeyPath, what: str, hint: str = "", *, key: bool = False) -> Fault:
        """A fault at a value, at its key, or at the nearest parent that the file has."""
        places = self.keys if key else self.values
        while at and at not in places:
            at = at[:-1]
        line, column = places.get(at, (1, 1))
        return Fault(f"{shown_path(self.path)}:{line}:{column}", what, hint, line, column)


def read_document(path: Path) -> Document:
    """Read a scenario file strictly.

    Raises UserError when there is nothing to go on with: no such file, too large, not UTF-8, not YAML, empty, not a
    mapping. Faults that leave the rest readable (duplicate keys, tags, anchors) are in the document.
    """
    text = _text(path)
    if (path, text) not in _READ:
        document = _parsed(path, text)
        if document.faults:
            return document
        _READ[path, text] = document
    return _READ[path, text]


_READ: dict[tuple[Path, str], Document] = {}
"""Files without faults as they were read: one command lists, plans and cites the same hundreds of them."""


def _parsed(path: Path, text: str) -> Document:
    tabs = [
        _at(path, n, len(m.group(1)) + 1, "is indented with a tab.", "Indent with spaces; YAML allows no tabs there.")
        for n, line in enumerate(text.split("\n"), 1)
        if (m := _TAB.match(line))
    ]
    builder = _Builder(path)
    try:
        root = builder.document(iter(yaml.parse(text, Loader=_LOADER)))
    except yaml.YAMLError as error:
        raise UserError(arranged([*builder.faults, *(tabs or [_syntax(path, error)])])) from None
    builder.faults += tabs
    if root is None:
        builder.faults.append(_at(path, 1, 1, "is empty.", "Start with aiperf new NAME, or copy a shipped scenario."))
    elif not isinstance(root, dict):
        hint = "Write key: value lines, starting with title:."
        builder.faults.append(_at(path, 1, 1, "is not a mapping of keys.", hint))
    if not isinstance(root, dict):
        raise UserError(arranged(builder.faults))
    return replace(builder.result(root), faults=tuple(builder.faults))


def _text(path: Path) -> str:
    where = shown_path(path)
    try:
        if path.is_dir():
            raise UserError(Fault(where, "is a folder, not a scenario file."))
        if not path.exists():
            raise UserError(Fault(where, "does not exist.", "aiperf list shows the available scenarios."))
        if not path.is_file():
            raise UserError(Fault(where, "is not a regular file.", "Give a file that ends in .yaml."))
        size = path.stat().st_size
        if size > MAX_BYTES:
            what = f"is {size / MAX_BYTES:.1f} MiB long; the limit for a scenario file is 1 MiB."
            raise UserError(Fault(where, what, "Move data to a file that the workload reads."))
        return path.read_bytes()[: MAX_BYTES + 1].decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        what = f"is not UTF-8 text: byte 0x{error.object[error.start]:02x} cannot be read."
        raise UserError(_at(path, line, 1, what, "Save the file as UTF-8.")) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(Fault(where, f"cannot be read: {reason}.")) from None


def _at(path: Path, line: int, column: int, what: str, hint: str = "") -> Fault:
    return Fault(f"{shown_path(path)}:{line}:{column}", what, hint, line, column)


def _place(event: Any) -> Place:
    return event.start_mark.line + 1, event.start_mark.column + 1


def _syntax(path: Path, error: yaml.YAMLError) -> Fault:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    if isinstance(error, yaml.reader.ReaderError):
        what = f"contains a character that YAML does not allow (code {error.character})."
        return _at(path, line, column, what, "Remove it, or write it as an escape in double quotes.")
    problem = getattr(error, "problem", None) or "it cannot be parsed"
    hint = "Check for a missing colon, quote or bracket, or wrong indentation, on this line or the one before."
    if path.suffix == ".py":
        way = f"Create one with aiperf new, and name functions as its sides: before: ./{path.name}:FUNCTION."
        return Fault(shown_path(path), "this is a Python file, but a scenario is a .yaml file.", way)
    return _at(path, line, column, f"is not valid YAML: {problem}.", hint)


class _Builder:
    """Turns parser events into plain data: no aliases, no tags, no repeats, bounded depth."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.faults: list[Fault] = []
        self.keys: dict[KeyPath, Place] = {}
        self.values: dict[KeyPath, Place] = {}
        self.texts: dict[KeyPath, str] = {}

    def result(self, data: dict[str, Any]) -> Document:
        return Document(self.path, data, self.keys, self.values, self.texts)

    def document(self, events: Iterator[Any]) -> Any:
        root: Any = None
        documents = 0
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents == 2:
                    self._fault(event, "starts a second document.", "Keep one scenario per file: remove the ---.")
                    break
            elif isinstance(event, yaml.NodeEvent):
                root = self._node(event, events, ())
        return root

    def _fault(self, event: Any, what: str, hint: str = "") -> None:
        self.faults.append(_at(self.path, *_place(event), what, hint))

    def _node(self, event: Any, events: Iterator[Any], path: KeyPath) -> Any:
        self.values[path] = _place(event)
        name = dotted(path) or "the file"
        if isinstance(event, yaml.AliasEvent):
            self._fault(event, f"{name}: the alias *{event.anchor} is not allowed.", "Write the value out.")
            return None
        if event.anchor is not None:
            self._fault(event, f"{name}: the anchor &{event.anchor} is not allowed.", "Write the value out.")
        if event.tag is not None:
            tag = event.tag.replace("tag:yaml.org,2002:", "!!")
            self._fault(event, f"{name}: the tag {tag} is not allowed.", "Write plain text, numbers or lists.")
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event, path)
        if len(path) >= _MAX_DEPTH:
            self._fault(event, f"is nested more than {_MAX_DEPTH} levels deep.", "A scenario needs three or four.")
            raise UserError(arranged(self.faults))
        return self._mapping(events, path) if isinstance(event, yaml.MappingStartEvent) else self._list(events, path)

    def _list(self, events: Iterator[Any], path: KeyPath) -> list[Any]:
        items: list[Any] = []
        for event in events:
            if isinstance(event, yaml.SequenceEndEvent):
                break
            place = (*path, len(items))
            self.keys[place] = _place(event)
            items.append(self._node(event, events, place))
        return items

    def _mapping(self, events: Iterator[Any], path: KeyPath) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for event in events:
            if isinstance(event, yaml.MappingEndEvent):
                break
            key = self._key(event, events, path, found)
            value = self._node(next(events), events, (*path, f"{event.value} (again)" if key is None else key))
            if key is not None:
                found[key] = value
        return found

    def _key(self, event: Any, events: Iterator[Any], path: KeyPath, found: dict[str, Any]) -> str | None:
        """The key's text; None for a repeated one, whose value is read and dropped."""
        if not isinstance(event, yaml.ScalarEvent):
            self._fault(event, "a key is a list, a mapping or an alias.", "Write a plain word as the key.")
            if not isinstance(event, yaml.AliasEvent):
                self._node(event, events, (*path, "?"))
            event.value = "?"
            return None
        place = (*path, str(event.value))
        if event.anchor is not None or event.tag is not None:
            self._fault(event, f"{dotted(place)}: a key has an anchor or a tag.", "Write a plain word as the key.")
        if event.value in found:
            line = self.keys[place][0]
            self._fault(event, f"{dotted(place)} appears twice, first on line {line}.", "Remove one of the two.")
            return None
        self.keys[place] = _place(event)
        return str(event.value)

    def _scalar(self, event: Any, path: KeyPath) -> Any:
        text: str = event.value
        self.texts[path] = text
        if "\0" in text:
            self._fault(event, f"{dotted(path)} contains a NUL character.", "Remove it.")
            return text.replace("\0", "")
        if not event.implicit[0]:
            return text
        if _ENDLESS.match(text):
            self._fault(event, f"{dotted(path)}: {text} is not a finite number.", "Write a number, or quote the text.")
            return text
        return _plain(text)


def _plain(text: str) -> Any:
    if _NULL.match(text):
        return None
    if _BOOL.match(text):
        return text.lower() == "true"
    if _INT.match(text):
        return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
    if _FLOAT.match(text):
        value = float(text)
        return value if math.isfinite(value) else text
    return text
