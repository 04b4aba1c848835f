"""Older records brought to today's schema, one step per version, on the plain dict before it is decoded.

What must not live here: files, checking what a record holds (codec.py), changing any number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from aiperf.records import SCHEMA_VERSION

Step = Callable[[dict[str, Any]], dict[str, Any]]
FIRST_VERSION = 1


def _only_added(plain: dict[str, Any]) -> dict[str, Any]:
    """A version that only added fields: their defaults say what the older record did or could not know."""
    return plain


STEPS: dict[int, Step] = {
    # 2 added Summary.log_sd, Side.folder, CaseRecord.replicate and a status that version 1 never wrote.
    1: _only_added,
}
"""Version -> the function that makes a plain case or run record of it one of the next version."""


def migrated(plain: dict[str, Any], *, steps: Mapping[int, Step] = STEPS, to: int = SCHEMA_VERSION) -> dict[str, Any]:
    """Return ``plain`` as version ``to`` holds it: every step from its own version upwards, in order.

    Its ``schema_version`` must lie between FIRST_VERSION and ``to``; a record of today comes back untouched.
    """
    for version in range(plain["schema_version"], to):
        plain = {**steps[version](plain), "schema_version": version + 1}
    return plain
