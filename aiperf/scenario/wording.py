"""How faults speak: showing a value, listing what is allowed, guessing the name that was meant.

What must not live here: knowledge of any key, and raising.
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from aiperf.errors import Fault, UserError, usage
from aiperf.paths import YAML_SUFFIXES

_SHOWN = 60
_FAULTS = 50


def shown(value: Any) -> str:
    """A value as an error shows it: text in quotes, null and booleans as YAML writes them, cut when long."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        text = f'"{value}"'
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def allowed(names: Iterable[object]) -> str:
    """``a, b, c`` for a sentence that lists what may be written."""
    return ", ".join(str(n) if not isinstance(n, bool) else str(n).lower() for n in names)


def closest(name: object, names: Iterable[object]) -> str:
    """The one of ``names`` that was probably meant, or an empty string when none is close."""
    options = {str(n).lower(): str(n) for n in names}
    close = difflib.get_close_matches(str(name).lower()[:200], list(options), n=1, cutoff=0.6)
    return options[close[0]] if close else ""


def nearest(name: object, names: Iterable[object]) -> str:
    """``Did you mean X?`` for the closest of ``names``, or an empty string when none is close."""
    close = closest(name, names)
    return f"Did you mean {close}?" if close else ""


def unknown_config(kind: str, name: str, known: Iterable[str]) -> UserError:
    """The mistake of naming a configuration of a kind that is neither shipped nor a file."""
    names = list(known)
    way = f"{nearest(name, names)} Choose one of {', '.join(names)}, or the path of a file like them.".lstrip()
    if "/" in name or name.endswith(YAML_SUFFIXES):
        return usage(f"{kind}: there is no file {shown(name)}.", way)
    return usage(f'{kind} "{name}" is not known.', way)


def dotted(path: Iterable[object]) -> str:
    """``before.size`` from the keys that lead to a value; list places are counted from 1: ``axes.size[2]``."""
    text = ""
    for key in path:
        text += f"[{key + 1}]" if isinstance(key, int) else f".{key}"
    return text.lstrip(".")


def shown_path(path: Path) -> str:
    """``path`` relative to the working folder when it lies inside it."""
    try:
        relative = os.path.relpath(path)
    except (ValueError, OSError):
        return str(path)
    return str(path) if relative.startswith("..") else relative


def arranged(faults: Iterable[Fault]) -> list[Fault]:
    """Faults by line and column, without repeats, at most as many as somebody would read."""
    ordered = sorted(set(faults), key=lambda f: (f.line, f.column, f.where, f.what))
    if len(ordered) <= _FAULTS:
        return ordered
    rest = Fault(ordered[-1].where.split(":")[0], f"has {len(ordered) - _FAULTS} further faults.", "Fix these first.")
    return [*ordered[:_FAULTS], rest]
