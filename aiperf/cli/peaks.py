"""``aiperf peaks``: measure and show the limits of this host.

What must not live here: how a peak is measured.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aiperf.cli.options import QuietOption, make_settings, progress_note, with_format
from aiperf.errors import Exit, UserError, invalid_value
from aiperf.host.datasheets import held_against, load_datasheets
from aiperf.host.fingerprint import fingerprint
from aiperf.host.peaks import PEAK_SPECS, load_peaks
from aiperf.host.read import read_host
from aiperf.recipes.peaks import run_peaks
from aiperf.report.layout.formats import OutputFormat, print_in
from aiperf.report.views.peaks_table import peak_row, peaks_view


@with_format()
def peaks(
    form: OutputFormat,
    names: Annotated[list[str], typer.Argument(metavar="[PEAK ...]", help="Peaks to measure; default: all.")] = [],  # noqa: B006
    stored: Annotated[bool, typer.Option("--stored", help="Show stored peaks without measuring.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Measure the peaks of this host (memory, GEMM, copies, disk, launches) and compare them with its datasheet."""
    known = [spec.name for spec in PEAK_SPECS]
    if unknown := [name for name in names if name not in known]:
        raise UserError(invalid_value("PEAK", unknown[0], known))
    host = read_host()
    code, problems = Exit.OK, tuple[str, ...]()
    if not stored:
        settings = make_settings(precision="standard", results=Path("results"), pin="none")
        code, problems = run_peaks(names, host=host, settings=settings, note=progress_note(quiet))
    found = load_peaks(fingerprint(host)[0])
    held = held_against(host, found, load_datasheets())
    rows = [peak_row(found[n], held.get(n)) for n in known if n in found and (not names or n in names)]
    print_in(form, peaks_view(rows, problems=problems))
    raise typer.Exit(int(code))
