"""``aiperf peaks``: measure and show the limits of this host.

What must not live here: how a roof is measured.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from aiperf.cli.options import JsonOption, QuietOption, make_settings, progress_note
from aiperf.errors import Exit, usage
from aiperf.host.datasheets import held_against, load_datasheets
from aiperf.host.fingerprint import fingerprint
from aiperf.host.peaks import ROOFS, load_peaks
from aiperf.host.read import read_host
from aiperf.report.console import show as show_lines
from aiperf.report.console import terminal_width
from aiperf.report.json_file import listing_json
from aiperf.report.peaks_table import peak_row, peaks_lines
from aiperf.roofs import measure_roofs, roofs_exit
from aiperf.stand import Stand


def peaks(
    names: Annotated[list[str], typer.Argument(metavar="[ROOF ...]", help="Which roofs; all by default.")] = [],  # noqa: B006
    stored: Annotated[bool, typer.Option("--stored", help="Show what was measured before; measure nothing.")] = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Measure the ceilings of this host and hold them against its datasheet: memory, GEMM, copies, disk, launches."""
    known = [r.name for r in ROOFS]
    if unknown := [n for n in names if n not in known]:
        raise usage(f'"{unknown[0]}" is no roof.', f"Known: {', '.join(known)}.")
    host = read_host()
    host_id, _ = fingerprint(host)
    problems: list[str] = []
    code = Exit.OK
    if not stored:
        settings = make_settings(precision="standard", results=Path("results"), pin="none")
        with Stand(host, settings) as stand:
            note = progress_note(quiet)
            try:
                outcomes = measure_roofs(names or known, stand=stand, host=host, host_id=host_id, note=note)
            except KeyboardInterrupt:
                problems, code = ["interrupted: limits measured until then are kept and shown"], Exit.INTERRUPTED
            else:
                problems = [f"{o.roof.name}: {o.problem}" for o in outcomes if o.problem]
                code = roofs_exit(outcomes)
    found = load_peaks(host_id)
    held = held_against(host, found, load_datasheets())
    rows = [peak_row(found[n], held.get(n)) for n in known if n in found and (not names or n in names)]
    if as_json:
        sys.stdout.write(listing_json(rows))
    else:
        show_lines(peaks_lines(rows, problems=problems, width=terminal_width(sys.stdout)))
    raise typer.Exit(int(code))
