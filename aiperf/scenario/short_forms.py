"""The short forms of a scenario file written out: a side that is only the name of a function, a workload alone.

What must not live here: faults, and the types of keys.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from aiperf.scenario.document import Document, read_document

_SIDES = ("before", "after", "ladder")


def read_scenario(path: Path) -> Document:
    """The document of a scenario file, without short forms. Raises UserError as ``read_document`` does."""
    return completed(read_document(path))


def completed(document: Document) -> Document:
    """The document with every short form written out; places stay those of the file."""
    data = dict(document.data)
    for key in ("before", "after"):
        if key in data:
            data[key] = _side(data[key])
    if isinstance(data.get("ladder"), dict):
        data["ladder"] = {name: _side(value) for name, value in data["ladder"].items()}
    if is_alone(data):
        # Held against itself it shows what the host's noise alone does.
        data |= {"before": {}, "after": {}}
        data = {"title": f"{data['workload']} against itself", "expect": "equivalent", **data}
    return replace(document, data=data)


def is_alone(data: dict[str, Any]) -> bool:
    """Whether a file names a workload and no side."""
    return "workload" in data and not any(key in data for key in _SIDES)


def _side(value: Any) -> Any:
    """``{workload: text}`` for a text that names a function; anything else as it is."""
    return {"workload": value} if isinstance(value, str) and value.strip() else value
