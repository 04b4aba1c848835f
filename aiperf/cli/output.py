"""Prints a run in the dialect that was asked for.

What must not live here: any dialect.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from aiperf.cli.options import Format
from aiperf.records import CaseRecord, RunRecord
from aiperf.report.console import run_lines, show, terminal_width
from aiperf.report.csv_file import render_csv
from aiperf.report.json_file import render_json
from aiperf.report.markdown import render_markdown
from aiperf.report.summary import summary_line
from aiperf.report.table import build_table


def print_run(
    run: RunRecord,
    records: Sequence[CaseRecord],
    *,
    form: Format,
    seconds: float | None = None,
    every_metric: bool = False,
    footer: Sequence[str] = (),
    warnings: Sequence[str] = (),
) -> None:
    """Print the comparison table of a run to stdout."""
    table = build_table(records, run=run)
    summary = summary_line(records, seconds=seconds)
    if form is Format.json:
        sys.stdout.write(render_json(run, table, records=records, warnings=warnings))
    elif form is Format.csv:
        sys.stdout.write(render_csv(table))
    elif form is Format.markdown:
        sys.stdout.write(render_markdown(run, table, summary=summary))
    else:
        width = terminal_width(sys.stdout)
        lines = run_lines(run, table, summary=summary, width=width, every_metric=every_metric, footer=footer)
        show(lines)
    if form is not Format.json:
        for warning in warnings:
            print(warning, file=sys.stderr)
