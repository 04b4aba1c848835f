"""Outputs that have another type or size than those they are compared with, in words; errors of outputs as text.

What must not live here: whether an output is right.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from aiperf.records import CheckResult, OutputChange
from aiperf.report.numbers import clean

_LISTED = 3


def format_error(error: float | None) -> str:
    """``3.1e-3``; empty for none, and for what is equal."""
    if not error:
        return ""
    if not math.isfinite(error):
        return "inf"
    mantissa, exponent = f"{error:.1e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def change_sentences(checks: Iterable[CheckResult]) -> list[str]:
    """``out: float32 -> bfloat16, largest error 3.1e-3``, the largest over all checks for each such output."""
    found: dict[OutputChange, list[float]] = {}
    for change in (change for check in checks for change in check.changes):
        errors = found.setdefault(replace(change, max_error=None), [])
        errors += [] if change.max_error is None else [change.max_error]
    said = [_sentence(replace(change, max_error=max(errors, default=None))) for change, errors in found.items()]
    more = [f"{len(said) - _LISTED} more outputs changed likewise"] if len(said) > _LISTED else []
    return said[:_LISTED] + more


def _sentence(change: OutputChange) -> str:
    parts = [" -> ".join(change.dtypes)] if len(set(change.dtypes)) > 1 else []
    if len(set(change.elements)) > 1:
        parts.append(" -> ".join(f"{count:,}".replace(",", " ") for count in change.elements) + " elements")
    if error := format_error(change.max_error):
        parts.append(f"largest error {error}")
    return clean(f"{change.name}: {', '.join(parts)}")
