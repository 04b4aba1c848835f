"""The book's checklist as data: which items there are, and how each can be checked.

What must not live here: checking an item, scenarios, printing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import yaml

from aiperf.errors import AiperfError
from aiperf.paths import config_folder

Auto = Literal["probe", "scenario", "process"]
_LOADER: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Item:
    """One item of the checklist, in our words."""

    id: str
    section: str
    """Of the book's appendix."""
    item: str
    lines: str
    """Of the book's text."""
    auto: Auto
    """How it is checked: a probe reads it, a scenario shows it, a team answers for it."""
    pair: str = ""
    """The before/after row of the catalogue that shows what it is worth."""
    see: tuple[str, ...] = ()
    """Scenarios that come close to that row."""
    ask: str = ""
    """The question for the team, of a process item."""
    parent: str = ""
    """The item that this single setting was split from."""

    @property
    def book(self) -> str:
        """Section and lines, for people."""
        return f"{self.section}, line{'s' if '-' in self.lines else ''} {self.lines}"


def load_checklist() -> tuple[Item, ...]:
    """Every item, in the order of the book. Raises AiperfError when the project's own file is damaged."""
    path = config_folder() / "doctor" / "checklist.yaml"
    try:
        plain = yaml.load(path.read_text(encoding="utf-8"), Loader=_LOADER)
        entries = [(block["section"], entry) for block in plain for entry in block["items"]]
        return tuple(Item(section=section, **{**e, "see": tuple(e.get("see", ()))}) for section, e in entries)
    except (OSError, yaml.YAMLError, TypeError, KeyError, AttributeError) as error:
        raise AiperfError(f"the checklist {path} cannot be read: {error}") from None


def by_id(items: Iterable[Item]) -> dict[str, Item]:
    """Id -> item."""
    return {item.id: item for item in items}
