"""Values of axes as text: in case names, in file names, in selectors.

What must not live here: files, faults.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from typing import Any

_LONGEST = 40


def axis_text(value: Any) -> str:
    """A value of an axis as a case's name shows it: ``1MiB``, ``true``, ``1024x768``.

    Two values with equal text cannot stand in one axis: their records would share a file. So characters that file
    names should not hold are replaced, and a long text is cut and made unique by a hash.
    """
    if isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, list):
        text = "x".join(axis_text(v) for v in value)
    else:
        text = "null" if value is None else str(value)
    safe = "".join(c if c.isalnum() or c in "-_.=" else "_" for c in text)
    if len(safe) > _LONGEST:
        return f"{safe[: _LONGEST - 9]}_{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    return safe


def point_text(point: Mapping[str, Any]) -> str:
    """A point of the axes as the brackets of a case's id show it: ``size=1MiB,direction=h2d``."""
    return ",".join(f"{k}={axis_text(v)}" for k, v in point.items())


def chosen_texts(text: str, values: Collection[str]) -> list[str]:
    """The axis values that ``text`` names, as case names show them: one of ``values``, or several between commas."""
    whole = axis_text(text)
    return [whole] if whole in values else list(dict.fromkeys(axis_text(part) for part in text.split(",")))


def ref_text(ref: str) -> str:
    """A ref as a sentence has it: of a full commit the first twelve digits, and the working tree in words."""
    if ref == "working-tree":
        return "the working tree"
    return ref[:12] if len(ref) == 40 and all(digit in "0123456789abcdef" for digit in ref) else ref
