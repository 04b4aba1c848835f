"""``aiperf new``: a small working scenario to start from.

What must not live here: its text.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aiperf.scenario.scaffold import scaffold


def new(
    name: Annotated[str, typer.Argument(help="Name of the new scenario.")],
    folder: Annotated[Path, typer.Option("--folder", help="Folder to write to.")] = Path("."),
) -> None:
    """Create a small working scenario and workload to edit."""
    written = scaffold(name, folder)
    for path in written:
        print(f"wrote {path}")
    print(f"next: aiperf run {written[0] if '/' in str(written[0]) else './' + str(written[0])}")
