"""Sizes, times and ratios: parsing what users write, formatting what they read.

What must not live here: knowledge of scenarios or metrics.
"""

from __future__ import annotations

import math
import re

_SIZE = {"B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3, "TiB": 1024**4, "kB": 10**3, "KB": 10**3}
_SIZE |= {"MB": 10**6, "GB": 10**9, "TB": 10**12}
_TIME = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0}
_NUMBER = re.compile(r"^\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-zµ]*)\s*$")


MINUS = "−"
"""The sign of a negative number wherever people read it; formats for programs keep ``-``."""


class InvalidValue(ValueError):
    """A value that is not allowed: one sentence that shows it, and one of advice."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(f"{what} {hint}".rstrip())
        self.what, self.hint = what, hint


def _parse(text: str, table: dict[str, float], kind: str, advice: str) -> float:
    match = _NUMBER.match(text)
    if match and not match.group(2):
        advice = f"It has no unit: write {text}s, {text}min or {text}h, or with ns, us, ms."
    if match is None or match.group(2) not in table:
        raise InvalidValue(f'"{text}" is not a {kind}.', advice)
    return float(match.group(1)) * table[match.group(2)]


def parse_size(value: str | int) -> int:
    """Bytes from ``256MiB``; a bare integer is bytes. Raises InvalidValue."""
    advice = "Write a number with B, KiB, MiB or GiB, e.g. 256MiB."
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise InvalidValue(f'"{value}" is not a size.', advice)
    if isinstance(value, int):
        if value < 0:
            raise InvalidValue(f'"{value}" is not a size.', advice)
        return value
    size = _parse(value, {**{k: float(v) for k, v in _SIZE.items()}, "": 1.0}, "size", advice)
    if size != int(size):
        raise InvalidValue(f'"{value}" is not a whole number of bytes.', advice)
    return int(size)


def parse_time(value: str) -> float:
    """Seconds from ``2ms``; the unit is required. Raises InvalidValue."""
    advice = "Write a number with ns, us, ms, s, min or h, e.g. 2ms or 10min."
    if not isinstance(value, str):
        raise InvalidValue(f'"{value}" is not a time.', advice)
    return _parse(value, _TIME, "time", advice)


def share_number(value: object) -> float:
    """The share that ``0.02``, ``2%`` or ``2 %`` stands for; NaN for what is no number."""
    text = value.strip() if isinstance(value, str) else value
    try:
        if isinstance(text, str):
            return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        return float(text) if isinstance(text, int | float) and not isinstance(text, bool) else math.nan
    except ValueError:
        return math.nan


def parse_share(value: str | float) -> float:
    """A share above 0 and below 1 from ``0.02``, or from ``2%`` and ``2 %`` as text. Raises InvalidValue."""
    share = share_number(value)
    if not 0 < share < 1:
        advice = (
            f"For {share:g} % write {share:g}% or {share / 100:g}."
            if 1 <= share < 100 and "%" not in str(value)
            else ""
        )
        raise InvalidValue(f'"{value}" is not a share above 0 and below 1.', advice or "For 2 % write 2% or 0.02.")
    return share


def significant(value: float, digits: int = 3) -> str:
    """``value`` with a number of significant digits, never in exponent notation."""
    if value == 0:
        return "0"
    text = f"{value:.{digits}g}"
    if "e" in text:
        text = f"{float(text):f}".rstrip("0").rstrip(".")
    elif "." not in text and len(text.lstrip("-")) < digits:
        text += "." + "0" * (digits - len(text.lstrip("-")))
    elif "." in text:
        shown = len(text.lstrip("-").replace(".", "").lstrip("0"))
        text += "0" * max(0, digits - shown)
    return text.replace("-", MINUS)


def signed(value: float, decimals: int) -> str:
    """``+3.0`` or ``−3.0``: a difference with a number of decimals."""
    return f"{value:+.{decimals}f}".replace("-", MINUS)


def format_time(seconds: float) -> str:
    """Three significant digits and a unit: ``88.1 µs``."""
    size = abs(seconds)
    for limit, unit, scale in ((1e-6, "ns", 1e9), (1e-3, "µs", 1e6), (1.0, "ms", 1e3)):
        if float(f"{size:.3g}") < limit:
            return f"{significant(seconds * scale)} {unit}"
    return f"{significant(seconds)} s"


def format_percent(share: float, digits: int = 3) -> str:
    """Write a share or a threshold: ``2 %``, ``0.5 %``, ``98.4 %``."""
    text = significant(share * 100, digits)
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} %"


def format_bytes(size: float) -> str:
    """Three significant digits and a binary unit: ``256 MiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return (
                f"{significant(size).rstrip('0').rstrip('.') if '.' in significant(size) else significant(size)} {unit}"
            )
        size /= 1024
    return f"{significant(size)} TiB"


def format_rate(rate: float, unit: str = "B/s") -> str:
    """Three significant digits with a decimal prefix: ``4.10 TB/s``."""
    for prefix in ("", "k", "M", "G", "T"):
        if abs(rate) < 1000 or prefix == "T":
            return f"{significant(rate)} {prefix}{unit}"
        rate /= 1000
    raise AssertionError("unreachable")


def format_duration(seconds: float) -> str:
    """A wall duration for people: ``4 m 12 s``, ``2 h 46 m``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole >= 3600:
        minutes = round(seconds / 60)
        return f"{minutes // 60} h {minutes % 60:02d} m"
    return f"{whole // 60} m {whole % 60:02d} s"


def write_size(size: int) -> str:
    """Bytes as a scenario writes them, exactly: ``256MiB``, ``100B``; the inverse of ``parse_size``."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size and size % _SIZE[unit] == 0:
            return f"{size // _SIZE[unit]}{unit}"
    return f"{size}B" if size else "0"


def unit_factor(unit: str) -> tuple[str, float]:
    """The unit that numbers are kept in and what one is multiplied by: ``s`` and 0.001 for ``ms``; others stay."""
    times = {"sec": 1.0, "secs": 1.0, "second": 1.0, "seconds": 1.0} | {k: v for k, v in _TIME.items() if k != "m"}
    if unit in times:
        return "s", times[unit]
    return ("B", float(_SIZE[unit])) if unit in _SIZE else (unit, 1.0)
