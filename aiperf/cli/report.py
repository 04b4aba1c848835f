"""``aiperf report``: a stored run as a table, recomputed from its raw samples when asked.

What must not live here: reading or concluding.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from aiperf.analysis.recompute import recompute
from aiperf.cli.options import Format, FormatOption, JsonOption, ResultsOption
from aiperf.cli.output import print_run
from aiperf.errors import Exit
from aiperf.records import CaseRecord
from aiperf.store.codec import to_plain
from aiperf.store.read import StoredRun, open_run, read_pairs

_DEFAULT_RESULTS = "results"


def report(
    run: Annotated[str, typer.Argument(help="A run's folder or name, or latest.")] = "latest",
    results: ResultsOption = _DEFAULT_RESULTS,  # type: ignore[assignment]
    form: FormatOption = Format.table,
    as_json: JsonOption = False,
    every_metric: Annotated[
        bool, typer.Option("--all-metrics", help="Show every metric, not only the headline.")
    ] = False,
    again: Annotated[
        bool, typer.Option("--recompute", help="Conclude again from the raw samples, and say whether it differs.")
    ] = False,
) -> None:
    """Print a stored run's comparison table."""
    stored = open_run(run, results=results)
    records, damaged = stored.read_cases()
    differing: list[str] = []
    if again:
        fresh = tuple(_recomputed(stored, record) for record in records)
        # As they are stored: an interval without an end is not a number, and that equals nothing, not even itself.
        pairs = zip(records, fresh, strict=True)
        differing = [a.case.id for a, b in pairs if to_plain(a.results) != to_plain(b.results)]
        records = fresh
    told = [f"recomputed from raw samples: {len(records) - len(differing)} of {len(records)} cases the same"]
    told += [f"{name} differs from what was stored" for name in differing]
    print_run(
        stored.record,
        records,
        form=Format.json if as_json else form,
        every_metric=every_metric,
        footer=told if again else [],
        warnings=[d.sentence for d in damaged],
    )
    if differing:
        raise typer.Exit(int(Exit.WRONG))


def _recomputed(stored: StoredRun, record: CaseRecord) -> CaseRecord:
    if not record.results:
        return record
    pairs = read_pairs(stored, record)
    return replace(record, results=recompute(record, pairs, width=record.width, scale=record.scale))
