"""The words of a profile: quantities of a side, states of a claim, numbers as a table writes them.

What must not live here: layout, and any class being decided.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aiperf.profilers.coverage import SideNumber, per_iteration, plain, share
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
    read: SideNumber
    each: bool = False
    """Whether it is of one call: however short, no part of the wall."""


QUANTITIES = (
    Quantity("wall", "s", per_iteration("wall_s")),
    Quantity("GPU span", "s", per_iteration("gpu_span_s")),
    Quantity("GPU busy", "s", per_iteration("gpu_busy_s")),
    Quantity("GPU idle, of its span", "%", share("gpu_busy_s", "gpu_span_s", rest=True)),
    Quantity("GPU waits for a launch", "s", per_iteration("host_wait_s")),
    Quantity("GPU waits otherwise", "s", per_iteration("other_wait_s")),
    Quantity("computation", "s", per_iteration("compute_s")),
    Quantity("copies and sets", "s", per_iteration("copy_s")),
    Quantity("copies hidden", "%", plain("copy_overlap_pct")),
    Quantity("operations at a time", "", plain("concurrency")),
    Quantity("launches", "", per_iteration("launches")),
    Quantity("launch interval, mean", "s", plain("launch_interval_s"), each=True),
    Quantity("kernels", "", per_iteration("kernels")),
    Quantity("kernel, mean", "s", plain("mean_kernel_s"), each=True),
    Quantity("waiting calls", "", per_iteration("syncs")),
    Quantity("time in waiting calls", "s", per_iteration("sync_s")),
    Quantity("communication", "s", per_iteration("communication_s")),
    Quantity("communication exposed", "s", per_iteration("exposed_s")),
    Quantity("communication hidden", "%", plain("overlap_pct")),
    Quantity("skew of ranks", "s", per_iteration("skew_s")),
    Quantity("launching threads", "", plain("threads")),
    Quantity("ranks", "", lambda side: side.ranks if side.ranks > 1 else None),
    Quantity("peak memory", "B", plain("peak_bytes")),
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
    wall = per_iteration("wall_s")(side)
    return seconds is not None and bool(wall) and seconds < _NEGLIGIBLE * (wall or 0.0)
