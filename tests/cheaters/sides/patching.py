"""How a side replaces functions and methods of the worker that it runs in.

What must not live here: what they are replaced with.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any


def worker_modules() -> Iterator[Any]:
    return (m for name, m in list(sys.modules.items()) if name.startswith("aiperf.worker") and m is not None)


def patch(name: str, make: Callable[[Any], Any]) -> None:
    """Replace what the modules of the worker call by this name, wherever they do."""
    for module in worker_modules():
        if name in vars(module):
            with suppress(Exception):
                setattr(module, name, make(vars(module)[name]))


def patch_methods(name: str, make: Callable[[Any], Any]) -> None:
    """Replace a method of every class of the worker that has one by this name."""
    for module in worker_modules():
        for each in list(vars(module).values()):
            if isinstance(each, type) and each.__module__.startswith("aiperf.worker") and name in vars(each):
                with suppress(Exception):
                    setattr(each, name, make(vars(each)[name]))
