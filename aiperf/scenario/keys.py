"""Reading a document key by key: the values that every configuration file has, and all its faults at once.

What must not live here: the keys of any one kind of file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from aiperf.paths import YAML_SUFFIXES
from aiperf.scenario.document import Document, KeyPath
from aiperf.scenario.wording import allowed, nearest, shown


class KeyReader:
    """Reads one document key by key and collects what is wrong with it."""

    def __init__(self, document: Document, *, kind: str) -> None:
        """``kind`` is what the file describes, as in ``is not a key of a gate``."""
        self.document, self._kind = document, kind
        self.faults = list(document.faults)

    def fault(self, at: KeyPath, what: str, hint: str = "", *, key: bool = False) -> None:
        """Note a mistake at a value, or at its key."""
        self.faults.append(self.document.fault(at, what, hint, key=key))

    def unknown(self, at: KeyPath, known: Iterable[str]) -> None:
        """Note a key that there is not, with the nearest one that there is."""
        known = list(known)
        hint = nearest(at[-1], known) or f"Allowed: {allowed(known)}."
        self.fault(at, f'"{at[-1]}" is not a key of a {self._kind}.', hint, key=True)

    def values(self, readers: Mapping[str, Callable[[KeyPath, Any], Any]]) -> dict[str, Any]:
        """Every known key of the file, as its reader takes it."""
        found = {}
        for key, value in self.document.data.items():
            if key in readers:
                found[key] = readers[key]((key,), value)
            else:
                self.unknown((key,), readers)
        return found

    def text(self, at: KeyPath, value: Any) -> str:
        """A text; empty, with a fault, for anything else."""
        # A ref or a word that looks like a number is still text.
        text = self.document.texts.get(at, value) if not isinstance(value, bool | None) else value
        if isinstance(text, str) and text.strip():
            return text
        self.fault(at, f"{at[-1]}: {shown(value)} is not a text.")
        return ""

    def texts(self, at: KeyPath, value: Any, *, noun: str = "a list") -> tuple[str, ...]:
        """A list of texts."""
        if not isinstance(value, list):
            self.fault(at, f"{at[-1]}: {shown(value)} is not {noun}.", "Write [name, ...].")
            return ()
        return tuple(self.text((*at, place), entry) for place, entry in enumerate(value))

    def selectors(self, at: KeyPath, value: Any) -> tuple[str, ...]:
        """A list of names, tags, patterns and paths; the paths are taken from the file's folder."""
        texts = self.texts(at, value, noun="a list of names, tags or paths")
        return tuple(self.from_here(text) if os.sep in text or text.endswith(YAML_SUFFIXES) else text for text in texts)

    def from_here(self, path: str) -> str:
        """A path as it stands in the file, from the file's folder."""
        return os.path.normpath(self.document.path.parent / Path(path).expanduser())
