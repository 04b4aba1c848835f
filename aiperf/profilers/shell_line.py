"""A pass of a tool as one line for the shell, with the environment that the pass itself would have.

What must not live here: running it, and the tool's own command (its module).
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping

from aiperf.launch.environment import PAD_VARIABLE
from aiperf.launch.watchdog import LAUNCH_VARIABLE, PARENT_VARIABLE
from aiperf.profilers.environment import profiled_environment, with_libraries
from aiperf.profilers.profiler import ToolPass
from aiperf.profilers.tools import FoundTool

_MARKS = (PAD_VARIABLE, LAUNCH_VARIABLE, PARENT_VARIABLE)
"""By these aiperf knows the processes of a run of its own, and ends those that outlive it."""


def shell_line(one: ToolPass, tool: FoundTool | None, *, environ: Mapping[str, str] = os.environ) -> str:
    """One line: the allow-listed environment and no more, then the command; the spec is written. Raises OSError."""
    command = one.command(one.standalone.argv(one.standalone.prepare()))
    env = profiled_environment(one.standalone.environment(), extra=one.standalone.side.env)
    env = with_libraries(env, [tool.libraries] if tool else [])
    return " ".join(["env -i", *_given(env, environ), shlex.join(command)])


def _given(env: Mapping[str, str], environ: Mapping[str, str]) -> Iterator[str]:
    """What stands in the shell is taken from there, what aiperf sets is written out."""
    for name, value in sorted(env.items()):
        if name not in _MARKS:
            yield f'{name}="${name}"' if environ.get(name) == value else f"{name}={shlex.quote(value)}"
