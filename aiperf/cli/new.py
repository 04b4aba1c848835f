"""``aiperf new``: a small working scenario to start from.

What must not live here: its text.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aiperf.cli.completion import scenarios
from aiperf.cli.options import not_together
from aiperf.scenario.scaffold import copy_shipped, scaffold


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the new scenario.")],
    folder: Annotated[Path, typer.Option("--folder", help="Folder to write to.")] = Path("."),
    full: Annotated[
        bool, typer.Option("--full", help="Write a workload with limits, reference and GPU sizes, not two functions.")
    ] = False,
    shipped: Annotated[
        str,
        typer.Option(
            "--from", metavar="SCENARIO", help="Copy this shipped scenario, to change it.", autocompletion=scenarios
        ),
    ] = "",
) -> None:
    """Create a small working scenario and the two functions that it compares, to edit; or copy a shipped one."""
    if full and shipped:
        raise not_together("--full", "--from")
    written = copy_shipped(name, shipped, folder) if shipped else scaffold(name, folder, full=full)
    for path in written:
        print(f"wrote {path}")
    print(f"next: aiperf run {written[0] if '/' in str(written[0]) else './' + str(written[0])}")
