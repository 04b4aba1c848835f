"""Tells when the other tool called ``aiperf`` was installed over this one.

What must not live here: anything but that check.
"""

from __future__ import annotations

from importlib.metadata import distributions
from pathlib import Path

import aiperf
from aiperf.errors import usage


def refuse_namesake(package: Path = Path(aiperf.__file__).parent) -> None:
    """Raise UserError when another distribution owns the folder of the package: its files lie among these."""
    for other in distributions(name="aiperf", path=[str(package.parent)]):
        raise usage(
            f"another tool, the distribution aiperf {other.version}, is installed into the same folder, {package}: "
            "its files and those of aiperf-ab overwrite each other.",
            "Give each its own virtual environment, or: pip uninstall aiperf aiperf-ab, then pip install aiperf-ab.",
        )
