"""``aiperf clean``: removes the raw reports of profilers from stored runs; what was read from them stays.

What must not live here: anything that removes records or samples.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from aiperf.cli.options import DEFAULT_RESULTS, JsonOption, ResultsOption
from aiperf.errors import usage
from aiperf.report.json_file import listing_json
from aiperf.store.profiles import raw_reports
from aiperf.units import format_bytes


def clean(
    results: ResultsOption = DEFAULT_RESULTS,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go; remove nothing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove the raw profiler reports (nsys, ncu, traces) of every stored run."""
    found = raw_reports(results)
    gone: dict[str, int] = {}
    for path, size in found.items():
        if not dry_run:
            try:
                path.unlink()
            except OSError as error:
                raise usage(f"cannot be removed: {error.strerror}.", where=str(path)) from None
        gone[str(path)] = size
    if as_json:
        sys.stdout.write(listing_json([{"path": path, "bytes": size} for path, size in gone.items()]))
        return
    verb = "would be removed" if dry_run else "removed"
    print(f"{len(gone)} raw report{'' if len(gone) == 1 else 's'}, {format_bytes(sum(gone.values()))}, {verb}")
