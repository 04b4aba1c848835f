"""``aiperf peaks``: measure and show the limits of this host.

What must not live here: how a peak is measured.
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
from aiperf.host.peaks import PEAK_SPECS, load_peaks
from aiperf.host.read import read_host
from aiperf.recipes.peaks import measure_peaks, peaks_exit
from aiperf.recipes.session import MeasurementSession
from aiperf.report.layout.formats import listing_json
from aiperf.report.layout.terminal import show as show_lines
from aiperf.report.layout.terminal import terminal_width
from aiperf.report.peaks_table import peak_row, peaks_lines


def peaks(
    names: Annotated[list[str], typer.Argument(metavar="[PEAK ...]", help="Which peaks; all by default.")] = [],  # noqa: B006
    stored: Annotated[bool, typer.Option("--stored", help="Show what was measured before; measure nothing.")] = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Measure the peak_rates of this host and hold them against its datasheet: memory, GEMM, copies, disk, launches."""
    known = [r.name for r in PEAK_SPECS]
    if unknown := [n for n in names if n not in known]:
        raise usage(f'"{unknown[0]}" is no peak.', f"Known: {', '.join(known)}.")
    host = read_host()
    host_id, _ = fingerprint(host)
    problems: list[str] = []
    code = Exit.OK
    if not stored:
        settings = make_settings(precision="standard", results=Path("results"), pin="none")
        with MeasurementSession(host, settings) as session:
            note = progress_note(quiet)
            try:
                outcomes = measure_peaks(names or known, session=session, host=host, host_id=host_id, note=note)
            except KeyboardInterrupt:
                problems, code = ["interrupted: limits measured until then are kept and shown"], Exit.INTERRUPTED
            else:
                problems = [f"{o.spec.name}: {o.problem}" for o in outcomes if o.problem]
                code = peaks_exit(outcomes)
    found = load_peaks(host_id)
    held = held_against(host, found, load_datasheets())
    rows = [peak_row(found[n], held.get(n)) for n in known if n in found and (not names or n in names)]
    if as_json:
        sys.stdout.write(listing_json(rows))
    else:
        show_lines(peaks_lines(rows, problems=problems, width=terminal_width(sys.stdout)))
    raise typer.Exit(int(code))
