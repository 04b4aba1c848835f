"""How git is asked about a folder that may be anybody's: it runs none of the programs that a repository's configuration
names, takes no locks, asks nobody and fetches nothing.

What must not live here: what is asked.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

_LIMIT_S = 10.0
_SETTINGS = {
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "core.untrackedCache": "false",
    "diff.external": "",
    "submodule.recurse": "false",
}
_FILTERS = r"^filter\..*\.(clean|smudge|process|required)$"
_STILL = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": "none"}


def read_git(folder: Path, *arguments: str, limit: float = _LIMIT_S) -> subprocess.CompletedProcess[bytes] | None:
    """Ask git in a folder; None when it cannot be started or is too slow."""
    command = ["git", "-C", str(folder), *arguments]
    try:
        return subprocess.run(command, capture_output=True, env=quiet_environment(folder), timeout=limit, check=False)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None


def quiet_environment(folder: Path) -> dict[str, str]:
    """The environment in which git runs no program of the configuration of the repository that holds a folder."""
    settings = {**_SETTINGS, **_without_filters(folder)}
    numbered = {"GIT_CONFIG_COUNT": str(len(settings))}
    for place, (name, value) in enumerate(settings.items()):
        numbered |= {f"GIT_CONFIG_KEY_{place}": name, f"GIT_CONFIG_VALUE_{place}": value}
    return {**os.environ, **_STILL, **numbered}


def _without_filters(folder: Path) -> dict[str, str]:
    """Settings that take the program from every filter; git knows no single one for all of them."""
    command = ["git", "-C", str(folder), "config", "--null", "--name-only", "--get-regexp", _FILTERS]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_LIMIT_S, check=False)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return {}
    names = {os.fsdecode(name) for name in done.stdout.split(b"\0") if name}
    # Of a filter that is required an empty program is a failure.
    required = {re.sub(r"\.[a-z]+$", ".required", name) for name in names}
    return {**dict.fromkeys(sorted(names), ""), **dict.fromkeys(sorted(required), "false")}
