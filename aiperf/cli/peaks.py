"""``aiperf peaks``: measure and show the limits of this host.

What must not live here: how a roof is measured.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from aiperf.cli.options import JsonOption, QuietOption, make_settings
from aiperf.errors import usage
from aiperf.host.fingerprint import fingerprint
from aiperf.host.peaks import ROOFS, Peak, load_peaks
from aiperf.host.read import read_host
from aiperf.report.console import show as show_lines
from aiperf.report.console import terminal_width
from aiperf.report.json_file import listing_json
from aiperf.report.peaks_table import PeakRow, peaks_lines
from aiperf.roofs import measure_roofs
from aiperf.stand import Stand


def peaks(
    names: Annotated[list[str], typer.Argument(metavar="[ROOF ...]", help="Which roofs; all by default.")] = [],  # noqa: B006
    stored: Annotated[bool, typer.Option("--stored", help="Show what was measured before; measure nothing.")] = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Measure the ceilings of this host: memory, GEMM, copies, all-reduce, disk, launches."""
    known = [r.name for r in ROOFS]
    if unknown := [n for n in names if n not in known]:
        raise usage(f'"{unknown[0]}" is no roof.', f"Known: {', '.join(known)}.")
    host = read_host()
    host_id, _ = fingerprint(host)
    problems: list[str] = []
    if not stored:
        settings = make_settings(precision="standard", results=Path("results"), pin="none")
        with Stand(host, settings) as stand:
            outcomes = measure_roofs(names or known, stand=stand, host=host, host_id=host_id, note=_note(quiet))
        problems = [f"{o.roof.name}: {o.problem}" for o in outcomes if o.peak is None]
    found = load_peaks(host_id)
    rows = [_row(found[n]) for n in known if n in found and (not names or n in names)]
    if as_json:
        sys.stdout.write(listing_json(rows))
        return
    show_lines(peaks_lines(rows, problems=problems, width=terminal_width(sys.stdout)))


def _note(quiet: bool):  # type: ignore[no-untyped-def]
    return (lambda text: None) if quiet else (lambda text: print(text, file=sys.stderr))


def _row(peak: Peak) -> PeakRow:
    spread = abs(peak.high - peak.low) / peak.value if peak.value else None
    shown = ", ".join(f"{k}={v}" for k, v in peak.conditions.items() if k not in ("cpus", "torch"))
    return PeakRow(peak.name, peak.value, peak.unit, spread, peak.when, shown)
