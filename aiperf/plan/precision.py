"""Precisions from configs/measure/*.yaml or a user's file like them, read as strictly as a scenario.

What must not live here: what a precision is (settings.py), and the flags of a command.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from aiperf.errors import UserError
from aiperf.paths import config_file, config_names
from aiperf.scenario.document import Document, read_document
from aiperf.scenario.keys import KeyReader
from aiperf.scenario.wording import arranged, nearest, unknown_config
from aiperf.settings import Precision
from aiperf.units import share_number

_LONGEST_S = 30 * 24 * 3600.0
"""A month: whoever asks for more has mistyped a number."""
_MOST = 100_000
"""Pairs, rounds, audits, readings."""
_WIDEST = 100.0
_SHARES = ("alpha", "delta")


def load_precision(name: str) -> Precision:
    """Precision from ``configs/measure/NAME.yaml`` or from a path to such a file. Raises UserError with every fault."""
    path = config_file("measure", name)
    if not path.is_file():
        raise unknown_config("precision", name, config_names("measure"))
    reader = _PrecisionReader(_document(path), kind="precision")
    values = reader.settings()
    if reader.faults:
        raise UserError(arranged(reader.faults))
    return Precision(name=path.stem, **values)


def _document(path: Path) -> Document:
    # A file that changes nothing is the standard precision under its own name.
    return read_document(path) if path.stat().st_size else Document(path, {})


class _PrecisionReader(KeyReader):
    """Reads the keys of a precision, each judged by the kind of its default."""

    def settings(self) -> dict[str, Any]:
        known = {f.name: f.default for f in fields(Precision) if f.name != "name"}
        values: dict[str, Any] = {}
        for key, value in self.document.data.items():
            if key not in known:
                hint = nearest(key, known) or f"Allowed: {', '.join(known)}."
                self.fault((key,), f'"{key}" is not a setting.', hint, key=True)
                continue
            plain = share_number(value) if key in _SHARES and isinstance(value, str) else value
            if wanted := _misfit(key, plain, known[key]):
                self.fault((key,), f'{key}: "{str(value)[:40]}" is not {wanted}.')
            else:
                values[key] = tuple(plain) if isinstance(plain, list) else plain
        looks = values.get("looks", (3,))
        if not _rising(looks):
            self.fault(("looks",), "looks must be rising numbers of pairs, the first at least 3.")
        return values


def _misfit(key: str, value: Any, default: Any) -> str:
    """What a value should be; empty when it is that."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    if isinstance(default, bool):
        return "" if isinstance(value, bool) else "true or false"
    if isinstance(default, tuple):
        fits = isinstance(value, list) and all(type(v) is int and v <= _MOST for v in value)
        return "" if fits else f"a list of whole numbers of at most {_MOST}"
    if isinstance(default, int):
        least = 0 if key == "audits" else 1
        return "" if whole and least <= value <= _MOST else f"a whole number of at least {least}, at most {_MOST}"
    most = 1.0 if key in _SHARES else _WIDEST if key == "width" else _LONGEST_S
    fits = (whole or isinstance(value, float)) and 0 < value < most
    return "" if fits else f"a number above 0 and below {most:.10g}"


def _rising(looks: Sequence[int]) -> bool:
    return bool(looks) and list(looks) == sorted(set(looks)) and looks[0] >= 3
