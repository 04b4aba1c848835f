"""Whether two sets of results say the same, where one was stored before a field existed.

What must not live here: statistics, reading records.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from aiperf.records import Result
from aiperf.store.codec import to_plain

LATER = {"log_sd", "replicates"}
"""Fields that records of an older schema version lack: None there means "not known", not "none"."""

WORDING = {"sentence"}
"""Fields that word what other fields hold; a later version may word it better."""

_ROUNDING, _NOTHING = 1e-9, 1e-15


def same_results(stored: Sequence[Result], fresh: Sequence[Result]) -> bool:
    """Whether ``fresh`` says what was ``stored``: every field but the wording, and a field of LATER where both know it.

    Numbers are compared as they are stored: an interval without an end is not a number, and so equals itself. They may
    differ by rounding: another Python adds floats up another way (3.12 compensates), and another numpy may.
    """
    return _same(to_plain(stored), to_plain(fresh))


def _same(stored: Any, fresh: Any) -> bool:
    if isinstance(stored, dict) and isinstance(fresh, dict):
        return stored.keys() == fresh.keys() and all(
            _same(stored[name], fresh[name])
            for name in stored
            if name not in WORDING and (name not in LATER or None not in (stored[name], fresh[name]))
        )
    if isinstance(stored, list) and isinstance(fresh, list):
        return len(stored) == len(fresh) and all(map(_same, stored, fresh))
    if isinstance(stored, float) and isinstance(fresh, float):
        return math.isclose(stored, fresh, rel_tol=_ROUNDING, abs_tol=_NOTHING)
    return bool(stored == fresh)
