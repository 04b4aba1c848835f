"""The profilers that aiperf knows. A new one is a module that declares a ``Profiler``, and its line here.

What must not live here: what any of them does.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from aiperf.errors import usage
from aiperf.host.facts import HostFacts
from aiperf.profilers.ncu import NCU
from aiperf.profilers.nsys import NSYS
from aiperf.profilers.perf import PERF
from aiperf.profilers.profiler import Profiler, Shows, ToolStatus
from aiperf.profilers.torch_profiler import TORCH

PROFILERS: tuple[Profiler, ...] = (
    NSYS,
    NCU,
    TORCH,
    PERF,
)
"""In the order in which they run: a tracer may spare the others work."""
NAMES = tuple(profiler.name for profiler in PROFILERS)
OWN_COUNTS = "aiperf"
"""Stands in a record for a tool where the workload itself counted."""


def _that_show(what: Shows) -> tuple[str, ...]:
    return tuple(profiler.name for profiler in PROFILERS if profiler.shows == what)


TRACERS = _that_show("trace")
KERNEL_COUNTERS = _that_show("kernels")
EVENT_COUNTERS = (*_that_show("events"), OWN_COUNTS)
READING_ORDER = (*TRACERS, *KERNEL_COUNTERS, *EVENT_COUNTERS)
"""The order in which a profile shows the tools."""


def profiler_named(name: str) -> Profiler:
    """The profiler of this name, which is one of NAMES."""
    return PROFILERS[NAMES.index(name)]


def statuses(
    host: HostFacts, *, environ: Mapping[str, str] | None = None, root: Path = Path("/")
) -> tuple[ToolStatus, ...]:
    """What each profiler can do here, in the order of PROFILERS. ``root`` replaces the file system of /proc."""
    env = os.environ if environ is None else environ
    return tuple(profiler.status(host, env, root) for profiler in PROFILERS)


def chosen(found: Sequence[ToolStatus], wanted: str) -> tuple[ToolStatus, ...]:
    """The tools that an option names, usable or not; ``all`` or nothing: every usable one. Raises UserError."""
    if wanted in ("", "all"):
        return tuple(status for status in found if status.usable)
    names = [name.strip() for name in wanted.split(",") if name.strip()]
    for name in names:
        if name not in NAMES:
            raise usage(f'unknown profiler "{name}".', f"Choose from {', '.join(NAMES)}, or all.")
    return tuple(status for status in found if status.tool in names)


def passed_over(found: Sequence[ToolStatus], wanted: str) -> tuple[str, ...]:
    """What ``chosen`` leaves out though the user asked for all that is usable, each with the reason and the fix."""
    if wanted not in ("", "all"):
        return ()
    return tuple(f"{status.tool} is not used: {status.why_not}" for status in found if not status.usable)


def known_endings() -> dict[str, Profiler]:
    """Ending of a report file -> the profiler that reads it."""
    return {ending: profiler for profiler in PROFILERS for ending in profiler.endings}
