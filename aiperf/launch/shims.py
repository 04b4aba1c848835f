"""Finds the program that a version manager's shim would run, so that the shim's own start is in no measurement.

What must not live here: starting the program, and choosing a version.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aiperf.launch.environment import program_environment
from aiperf.records import Side

_EXEC = re.compile(rb'^\s*exec\s+"?(?P<manager>[^"\s]*/?(?:pyenv|rbenv|nodenv|goenv|asdf))"?\s+exec\s', re.MULTILINE)
"""The line of a shim (pyenv-rehash, asdf's shims.bash) that hands over to its manager, whom ``which`` asks."""
_SHIM_BYTES = 4096
_ASK_S = 20.0


@dataclass(frozen=True)
class ResolvedCommand:
    """What is started for a side's command."""

    argv: tuple[str, ...]
    shim: str = ""
    """The shim that the command names; empty where it names the program itself."""

    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """An environment in which the program finds those beside it first, as behind its shim."""
        places = env.get("PATH", os.defpath)
        folder = str(Path(self.argv[0]).parent) if self.shim else ""
        if not folder or folder in places.split(os.pathsep):
            return dict(env)
        return {**env, "PATH": folder + os.pathsep + places}


def resolve(side: Side) -> ResolvedCommand:
    """The program behind a side's command; the command as it is where it names no shim, or its manager does not say."""
    env = program_environment(side.env, seed=0)
    shim = shutil.which(side.command[0], path=env.get("PATH", os.defpath)) if side.command else None
    manager = _manager(Path(shim)) if shim else ""
    if not shim or not manager:
        return ResolvedCommand(side.command)
    try:
        asked = subprocess.run(
            [manager, "which", Path(shim).name], env=env, cwd=side.folder or None, stdin=subprocess.DEVNULL,
            capture_output=True, timeout=_ASK_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ResolvedCommand(side.command)
    program = os.fsdecode(asked.stdout).strip()
    if asked.returncode or "\n" in program or not shutil.which(program) or _manager(Path(program)):
        return ResolvedCommand(side.command)
    return ResolvedCommand((program, *side.command[1:]), shim=shim)


def _manager(path: Path) -> str:
    """The version manager that a file hands over to; empty where it is no shim."""
    try:
        with path.open("rb") as file:
            head = file.read(_SHIM_BYTES)
    except OSError:
        return ""
    found = _EXEC.search(head) if head.startswith(b"#!") else None
    return os.fsdecode(found["manager"]) if found else ""
