"""Asks a side's own interpreter whether it would import the checkout's packages or others of the same name.

What must not live here: making checkouts, and importing anything of a side.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from aiperf.launch.environment import side_environment
from aiperf.records import Side

_LIMIT_S = 60.0
_PROBE = """
import importlib.util, json, sys
found = {}
for name in json.loads(sys.argv[1]):
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        continue
    if spec is not None:
        found[name] = [spec.origin or "", *(spec.submodule_search_locations or ())]
print("\\n" + json.dumps(found))
"""


def foreign_import(side: Side, checkout: Path) -> str:
    """Which package of the checkout a worker would take from elsewhere, and from where; empty when none.

    PYTHONPATH comes before whatever is installed, but not before the import hooks that some editable installs leave.
    Commands are not asked: aiperf does not know what they import.
    """
    names = _packages(checkout)
    if side.command or not names:
        return ""
    argv = [side.python or sys.executable, "-c", _PROBE, json.dumps(names)]
    try:
        done = subprocess.run(
            argv, cwd=side.folder or None, env=side_environment(side.env, seed=0), stdin=subprocess.DEVNULL,
            capture_output=True, timeout=_LIMIT_S, check=False,
        )  # fmt: skip
        found: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError):
        # An interpreter that cannot even do this fails as a worker, with its own words.
        return ""
    for name, places in found.items():
        if not any(Path(os.path.realpath(place)).is_relative_to(checkout.resolve()) for place in places if place):
            return f"{name} would be imported from {places[0] or places[-1]}"
    return ""


def _packages(checkout: Path) -> list[str]:
    roots = (root for root in (checkout, checkout / "src") if root.is_dir())
    return sorted({init.parent.name for root in roots for init in root.glob("*/__init__.py")})
