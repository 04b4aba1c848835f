"""How long tests wait for what must happen, however busy the machine is: only a hang gets there.

What must not live here: pauses, and the limits that a test is about.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

PATIENCE_S = 60.0
"""Half of what pytest gives a test, so that the test itself says what did not happen."""


def until(true: Callable[[], Any], *, seconds: float = PATIENCE_S) -> Any:
    """Wait for something to become true; its value, false when the time is up."""
    deadline = time.monotonic() + seconds
    while not (value := true()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return value
