"""The words of a profile: quantities of a side, states of a claim, numbers as a table writes them.

What must not live here: layout, and any class being decided.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from aiperf.records.profiled import SideProfile
from aiperf.report.numbers import DASH, format_change, format_ratio, format_share, format_si, format_value, known
from aiperf.units import significant

_TENFOLD = 10.0
_NEGLIGIBLE = 0.001
"""Of a side's wall."""
RESULT = {
    "moved": "as claimed",
    "did_not_move": "did not move",
    "opposite": "against the claim",
    "not_readable": "not readable here",
}
"""State of a mechanism -> its word."""


@dataclass(frozen=True)
class Quantity:
    """One line of the side summary."""

    name: str
    unit: str
    """s, B, FLOP, %, or empty for a count."""
    read: Callable[[SideProfile], float | None]
    each: bool = False
    """Whether it is of one call: however short, no part of the wall."""


def _total(field: str) -> Callable[[SideProfile], float | None]:
    def read(side: SideProfile) -> float | None:
        value: float | None = getattr(side, field)
        return value / max(1, side.iterations) if value is not None else None

    return read


def _plain(field: str) -> Callable[[SideProfile], float | None]:
    def read(side: SideProfile) -> float | None:
        value: float | None = getattr(side, field)
        return value

    return read


def _idle(side: SideProfile) -> float | None:
    if side.gpu_busy_s is None or not side.gpu_span_s:
        return None
    return 100 * (1 - side.gpu_busy_s / side.gpu_span_s)


QUANTITIES = (
    Quantity("wall", "s", _total("wall_s")),
    Quantity("GPU span", "s", _total("gpu_span_s")),
    Quantity("GPU busy", "s", _total("gpu_busy_s")),
    Quantity("GPU idle, of its span", "%", _idle),
    Quantity("GPU waits for a launch", "s", _total("host_wait_s")),
    Quantity("GPU waits otherwise", "s", _total("other_wait_s")),
    Quantity("computation", "s", _total("compute_s")),
    Quantity("copies and sets", "s", _total("copy_s")),
    Quantity("copies hidden", "%", _plain("copy_overlap_pct")),
    Quantity("operations at a time", "", _plain("concurrency")),
    Quantity("launches", "", _total("launches")),
    Quantity("launch interval, mean", "s", _plain("launch_interval_s"), each=True),
    Quantity("kernels", "", _total("kernels")),
    Quantity("kernel, mean", "s", _plain("mean_kernel_s"), each=True),
    Quantity("waiting calls", "", _total("syncs")),
    Quantity("time in waiting calls", "s", _total("sync_s")),
    Quantity("communication", "s", _total("communication_s")),
    Quantity("communication exposed", "s", _total("exposed_s")),
    Quantity("communication hidden", "%", _plain("overlap_pct")),
    Quantity("skew of ranks", "s", _total("skew_s")),
    Quantity("launching threads", "", _plain("threads")),
    Quantity("ranks", "", lambda side: side.ranks if side.ranks > 1 else None),
    Quantity("peak memory", "B", _plain("peak_bytes")),
)


def written(value: float | None, unit: str) -> str:
    """A quantity as a table writes it; a dash when it was not read."""
    if unit == "%":
        return percent(value)
    if unit == "FLOP":
        return format_si(value if known(value) else None, unit)
    if unit:
        return format_value(value, unit)
    return count(value)


def count(value: float | None) -> str:
    """``300``, or three significant digits of a mean."""
    if value is None or not known(value):
        return DASH
    return f"{value:.0f}" if value == round(value) else significant(value)


def percent(value: float | None) -> str:
    """``88 %``: a percentage of 0 to 100."""
    return format_share(None if value is None else value / 100)


def points(value: float | None) -> str:
    """A percentage without its sign, for a column that has it in its title."""
    return percent(value).removesuffix(" %")


def change(before: float | None, after: float | None) -> str:
    """Relative change, from tenfold on as a ratio; a dash where one is missing or it would be of nothing."""
    if before is None or after is None or not before:
        return DASH
    ratio = after / before
    return format_ratio(ratio) if ratio >= _TENFOLD else format_change(ratio - 1)


def joined(cells: Sequence[str]) -> str:
    """The same quantity of several sides in one cell."""
    return DASH if all(cell == DASH for cell in cells) else " → ".join(cells)


def side_change(quantity: Quantity, before: SideProfile, after: SideProfile) -> str:
    """How a quantity changed from side to side.

    Of two shares the reader subtracts by eye: a change of a share in per cent would be misread. Of two times that are
    both next to nothing of their side's wall, a change would be one of noise.
    """
    first, last = quantity.read(before), quantity.read(after)
    if quantity.unit == "%":
        return ""
    if quantity.unit == "s" and not quantity.each and _negligible(first, before) and _negligible(last, after):
        return DASH
    return change(first, last)


def _negligible(seconds: float | None, side: SideProfile) -> bool:
    wall = _total("wall_s")(side)
    return seconds is not None and bool(wall) and seconds < _NEGLIGIBLE * (wall or 0.0)
