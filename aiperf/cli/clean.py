"""``aiperf clean``: removes raw profiler reports and caches; records, samples and what was read from reports stay.

What must not live here: what is removed.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated

import typer

from aiperf.cli.options import DEFAULT_RESULTS, ResultsOption, with_format
from aiperf.recipes.clean import Kind, find_leftovers, remove_leftovers
from aiperf.recipes.profile_by_hand import BY_HAND
from aiperf.report.layout.formats import OutputFormat, Printed, document_json, print_in
from aiperf.report.layout.text import Line
from aiperf.units import format_bytes

_NAMES: dict[Kind, tuple[str, str]] = {
    "raw report": ("raw report", "raw reports"),
    "by hand": (f"file of {BY_HAND}", f"files of {BY_HAND}"),
    "cache": ("cache entry", "cache entries"),
}


@with_format(OutputFormat.table, OutputFormat.json)
def clean(
    form: OutputFormat,
    results: ResultsOption = DEFAULT_RESULTS,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List what would be removed without removing it.")] = False,
) -> None:
    """Remove raw profiler reports of stored runs, the folder profile-by-hand, and the caches of workers under
    ~/.cache/aiperf (bytecode, compiled libraries)."""
    found = find_leftovers(results)
    if not dry_run:
        remove_leftovers(found, results)
    counts = Counter(one.kind for one in found)
    counted = [f"{counts[kind]} {names[counts[kind] != 1]}" for kind, names in _NAMES.items() if counts[kind]]
    total = format_bytes(sum(one.bytes for one in found))
    verb = "would be removed" if dry_run else "removed"
    said = f"{', '.join(counted)}, {total}, {verb}" if found else "nothing to remove"
    lines = [*(f"{one.path}  {format_bytes(one.bytes)}" for one in found if dry_run), said]
    document = [{"kind": one.kind, "path": str(one.path), "bytes": one.bytes} for one in found]
    print_in(form, Printed([[lambda width: [Line(line) for line in lines]]], json=lambda: document_json(document)))
