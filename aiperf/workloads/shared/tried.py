"""A product of torch is tried once before it is a side: what this host's torch cannot do becomes a reason to skip.

What must not live here: the products, and any opinion on which of them a scenario needs.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from aiperf.workloads.contract import SkipSide


def attempt(make: Callable[[], Any], fault: str) -> Any:
    """What ``make`` gives. Raises SkipSide with ``fault`` and what torch says where it cannot."""
    try:
        return make()
    except (RuntimeError, NotImplementedError, ValueError, AttributeError) as error:
        # A function that this torch does not have; any other missing attribute is a fault of the workload.
        if isinstance(error, AttributeError) and not isinstance(error.obj, ModuleType):
            raise
        raise SkipSide(f"{fault}: {(str(error).splitlines() or [type(error).__name__])[0]}") from error


def tried(run: Callable[[], Any], fault: str) -> Callable[[], Any]:
    """``run`` after one call. Raises SkipSide with ``fault`` and what torch says where that call fails."""
    attempt(run, fault)
    return run
