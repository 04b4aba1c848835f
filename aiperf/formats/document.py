"""Checked access to the JSON of a file that another tool wrote.

What must not live here: any tool's format, reading files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aiperf.errors import AiperfError

_SHOWN = 40
_MOST = 2**48
"""Beyond any number of iterations; two such factors would not fit a column of samples."""
_LARGEST = 1e300


class ForeignError(AiperfError):
    """The file is not what its tool writes; the text names the place and what is there."""


@dataclass(frozen=True)
class Node:
    """A value of a JSON document with its place; every access is checked and raises ForeignError."""

    value: Any
    at: str = ""

    def __getitem__(self, key: str) -> Node:
        found = self.maybe(key)
        if found is None:
            raise ForeignError(f"{self.at or 'the file'} has no {key}")
        return found

    def maybe(self, key: str) -> Node | None:
        """Return a member of an object, None when it is absent or null."""
        if not isinstance(self.value, dict):
            raise self.wrong("an object")
        value = self.value.get(key)
        return None if value is None else Node(value, f"{self.at}.{key}".lstrip("."))

    def items(self) -> list[Node]:
        """Return the items of this value, which is a list."""
        if not isinstance(self.value, list):
            raise self.wrong("a list")
        return [Node(item, f"{self.at}[{place}]") for place, item in enumerate(self.value)]

    def members(self, key: str) -> Node:
        """Return an object member, an empty object when it is absent or null."""
        found = self.maybe(key)
        if found is None:
            return Node({}, f"{self.at}.{key}".lstrip("."))
        if not isinstance(found.value, dict):
            raise found.wrong("an object")
        return found

    def each(self, key: str) -> list[Node]:
        """Return the items of a list member, none when it is absent or null."""
        found = self.maybe(key)
        return [] if found is None else found.items()

    def maybe_number(self, key: str) -> float | None:
        """Return a number member, None when there is none that is a number: figures that only inform."""
        value = self.value.get(key) if isinstance(self.value, dict) else None
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return float(value) if abs(value) < _LARGEST else None

    def text(self, key: str, default: str = "") -> str:
        """Return a text member; numbers are taken as their text."""
        found = self.maybe(key)
        if found is None:
            return default
        if isinstance(found.value, bool) or not isinstance(found.value, str | int | float):
            raise found.wrong("text")
        return str(found.value)

    def number(self, key: str) -> float:
        """Return a number member. NaN and infinity pass: whether they are times is for ``fault_of`` to say."""
        return self[key].as_number()

    def numbers(self, key: str) -> list[float]:
        """Return the numbers of a list member, none when it is absent or null."""
        found = self.maybe(key)
        # A list may hold millions: what is plain is taken at once.
        if found is not None and isinstance(found.value, list) and all(type(item) is float for item in found.value):
            return list(found.value)
        return [item.as_number() for item in self.each(key)]

    def whole(self, key: str, default: int = 1) -> int:
        """Return a whole number above zero; ``default`` when it is absent or null."""
        found = self.maybe(key)
        if found is None:
            return default
        if type(found.value) is not int or not 0 < found.value < _MOST:
            raise found.wrong("a whole number above zero")
        return found.value

    def fact(self, key: str) -> int:
        """Return a whole number that only informs; 0 where there is no sensible one."""
        value = self.value.get(key) if isinstance(self.value, dict) else None
        return value if type(value) is int and 0 < value < 2**63 else 0

    def as_number(self) -> float:
        """Return the value itself as a number."""
        if isinstance(self.value, bool) or not isinstance(self.value, int | float):
            raise self.wrong("a number")
        try:
            return float(self.value)
        except OverflowError:
            raise self.wrong("a number that a computer can hold") from None

    def wrong(self, wanted: str) -> ForeignError:
        """Build the error that says what stands here instead of ``wanted``."""
        try:
            shown = repr(self.value)[:_SHOWN]
        except ValueError:  # an integer with more digits than Python prints
            shown = "a very long number"
        return ForeignError(f"{self.at or 'the file'} is {shown}, not {wanted}")
