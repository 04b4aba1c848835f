"""``aiperf clean``: removes the raw reports of profilers, those written by hand too; what was read from them stays.

What must not live here: anything that removes records or samples.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from aiperf.cli.options import DEFAULT_RESULTS, JsonOption, ResultsOption
from aiperf.errors import usage
from aiperf.profiling import BY_HAND, left_by_hand, remove_by_hand
from aiperf.report.json_file import listing_json
from aiperf.store.profiles import raw_reports
from aiperf.units import format_bytes


def clean(
    results: ResultsOption = DEFAULT_RESULTS,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go; remove nothing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove the raw profiler reports (nsys, ncu, traces) of every stored run, and the folder profile-by-hand."""
    found = raw_reports(results)
    by_hand = left_by_hand(results)
    gone: dict[str, int] = {}
    for path, size in found.items():
        if not dry_run:
            try:
                path.unlink()
            except OSError as error:
                raise usage(f"cannot be removed: {error.strerror}.", where=str(path)) from None
        gone[str(path)] = size
    if not dry_run:
        try:
            remove_by_hand(results)
        except OSError as error:
            raise usage(f"cannot be removed: {error.strerror}.", where=str(error.filename or results)) from None
    reports = len(gone)
    gone |= {str(path): size for path, size in by_hand.items()}
    if as_json:
        sys.stdout.write(listing_json([{"path": path, "bytes": size} for path, size in gone.items()]))
        return
    verb = "would be removed" if dry_run else "removed"
    beside = f" and {len(by_hand)} file{'' if len(by_hand) == 1 else 's'} of {BY_HAND}" if by_hand else ""
    print(f"{reports} raw report{'' if reports == 1 else 's'}{beside}, {format_bytes(sum(gone.values()))}, {verb}")
