"""How the quantities of a comparison are written: values, ratios, intervals, changes, shares.

What must not live here: records, tables, any layout.
"""

from __future__ import annotations

import math
import re

from aiperf.units import MINUS, format_bytes, format_percent, format_rate, format_time, signed, significant

DASH = "–"
"""Stands for a quantity that was not measured."""
_ESCAPE = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|.)")
_NEAR_ONE = 0.1
_MORE_DECIMALS = 4
_PREFIXES = ((1e-6, 1e9, "n"), (1e-3, 1e6, "µ"), (1.0, 1e3, "m"))


def clean(text: str) -> str:
    """``text`` on one line and without control characters, whatever a worker printed."""
    if text.isprintable():  # most are
        return " ".join(text.split())
    spaced = "".join(" " if c.isspace() else c for c in _ESCAPE.sub("", text))
    return " ".join("".join(c for c in spaced if c.isprintable()).split())


def counted(number: int, thing: str) -> str:
    """``1 case``, ``3 cases``."""
    return f"{number} {thing}{'' if number == 1 else 's'}"


def known(value: float | None) -> bool:
    """Whether there is a finite number to print."""
    return value is not None and math.isfinite(value)


def format_value(value: float | None, unit: str) -> str:
    """One side's value with its unit, three significant digits; a dash when it was not measured."""
    if value is None or not math.isfinite(value):
        return DASH
    if unit == "s":
        return format_time(value)
    if unit in ("B", "bytes"):
        return format_bytes(value)
    if unit.endswith("/s"):
        return format_rate(value, unit)
    if unit == "J":
        return format_si(value, unit)
    return f"{significant(value)} {unit}".rstrip()


def format_si(value: float | None, unit: str) -> str:
    """``12.3 mJ``: three significant digits and a decimal prefix; a dash when it was not measured."""
    if value is None:
        return DASH
    size = abs(value)
    for limit, scale, prefix in _PREFIXES if unit and size else ():
        if float(f"{size:.3g}") < limit:
            return f"{significant(value * scale)} {prefix}{unit}"
    if size < 1 and not unit:
        return f"{value:.3g}".replace("-", MINUS)
    return f"{MINUS if value < 0 else ''}{format_rate(size, unit)}".rstrip()


def format_interval(low: float | None, high: float | None) -> str:
    """``2.77 … 2.84``: three significant digits, and as many more as separate the ends."""
    if low is None or high is None or not math.isfinite(low) or not math.isfinite(high):
        return DASH
    decimals = interval_decimals(low, high)
    return f"{low:.{decimals}f} … {high:.{decimals}f}"


def interval_decimals(low: float, high: float) -> int:
    """Count the decimals that show both ends of an interval apart, from three significant digits upwards; no more than
    those where nothing would.

    An end that would round to 1 gets one more, so that the reader sees on which side of 1 it lies.
    """
    first = 2 if low <= 1 <= high else _decimals(math.sqrt(max(low, 0.0) * high))
    apart = (d for d in range(first, first + _MORE_DECIMALS) if f"{low:.{d}f}" != f"{high:.{d}f}")
    decimals = next(apart, first)
    hides_one = any(end != 1 and float(f"{end:.{decimals}f}") == 1 for end in (low, high))
    return decimals + 1 if hides_one else decimals


def format_ratio(ratio: float | None, low: float | None = None, high: float | None = None) -> str:
    """``2.81×``: three significant digits; near 1 three decimals, and never fewer than its interval shows."""
    if ratio is None or not math.isfinite(ratio):
        return DASH
    decimals = 3 if abs(ratio - 1) < _NEAR_ONE else _decimals(ratio)
    if low is not None and high is not None and math.isfinite(low) and math.isfinite(high):
        decimals = max(decimals, interval_decimals(low, high))
    return f"{ratio:.{decimals}f}×"


def format_change(change: float | None) -> str:
    """Write a relative change with its sign: ``−64.4 %``, ``+0.31 %``."""
    if change is None or not math.isfinite(change):
        return DASH
    text = _percent_digits(abs(change) * 100)
    if float(text) == 0:
        return "0 %"
    return f"{'+' if change > 0 else MINUS}{text} %"


def whole_change(change: float) -> str:
    """``+50``: a relative change in whole per cents, for a column whose head has the unit."""
    return signed(change * 100, 0)


def format_change_interval(low: float | None, high: float | None) -> str:
    """``−13.1 … −11.6 %``: the interval of a relative change."""
    if low is None or high is None or not math.isfinite(low) or not math.isfinite(high):
        return DASH
    size = max(abs(low), abs(high)) * 100
    first = 0 if size >= 100 else 1 if size >= 10 else 2
    shown = [_ends(low, high, decimals) for decimals in range(first, first + _MORE_DECIMALS)]
    ends = next((ends for ends in shown if ends[0] != ends[1]), shown[0] if size else ("0", "0"))
    return f"{ends[0]} … {ends[1]} %"


def _ends(low: float, high: float, decimals: int) -> tuple[str, str]:
    return signed(low * 100, decimals), signed(high * 100, decimals)


def format_share(share: float | None) -> str:
    """Share of a limit: whole per cent, one decimal below ten."""
    if share is None or not math.isfinite(share):
        return DASH
    size = share * 100
    if 0 < size < 0.1:
        return "< 0.1 %"
    return f"{size:.0f} %" if size >= 9.95 else f"{size:.1f} %"


def confidence(alpha: float) -> str:
    """``98.4 %``: how sure an interval with the two-sided error ``alpha`` is."""
    return format_percent(1 - alpha)


def _decimals(value: float) -> int:
    """Decimals that show three significant digits of ``value``, at most six."""
    if value <= 0:
        return 2
    return min(6, max(0, 2 - math.floor(math.log10(float(f"{value:.3g}")))))


def _percent_digits(size: float) -> str:
    if size >= 99.95:
        return f"{size:.0f}"
    return f"{size:.1f}" if size >= 9.995 else f"{size:.2f}"
