"""``aiperf new``: a small working scenario to start from.

What must not live here: its text.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aiperf.scenario.scaffold import scaffold


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the new scenario.")],
    folder: Annotated[Path, typer.Option("--folder", help="Folder to write to.")] = Path("."),
    full: Annotated[
        bool, typer.Option("--full", help="Write a workload with limits, reference and GPU sizes, not two functions.")
    ] = False,
) -> None:
    """Create a small working scenario and the two functions that it compares, to edit."""
    written = scaffold(name, folder, full=full)
    for path in written:
        print(f"wrote {path}")
    print(f"next: aiperf run {written[0] if '/' in str(written[0]) else './' + str(written[0])}")
