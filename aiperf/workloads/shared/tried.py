"""A product of torch is tried once before it is a side: what this host's torch cannot do becomes a reason to skip.

What must not live here: the products, and any opinion on which of them a scenario needs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiperf.workloads.contract import SkipSide


def tried(run: Callable[[], Any], fault: str) -> Callable[[], Any]:
    """``run`` after one call; what that call could not do is told behind ``fault``. Raises SkipSide."""
    try:
        run()
    except (RuntimeError, NotImplementedError, ValueError) as error:
        raise SkipSide(f"{fault}: {first_line(error)}") from error
    return run


def first_line(error: Exception) -> str:
    """What an exception says first."""
    return (str(error).splitlines() or [type(error).__name__])[0]
