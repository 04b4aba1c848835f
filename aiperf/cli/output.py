"""Prints a run, a plan or profiles in the dialect that was asked for.

What must not live here: any dialect.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

import typer

from aiperf.cli.options import Format
from aiperf.errors import Exit
from aiperf.plan.plan import Plan, estimate
from aiperf.records import CaseRecord, RunRecord
from aiperf.records.profiled import Profile
from aiperf.report.layout.formats import listing_json
from aiperf.report.layout.terminal import show, terminal_width
from aiperf.report.layout.text import Line
from aiperf.report.numbers import clean
from aiperf.report.plan_table import Estimate, plan_lines, plan_rows
from aiperf.report.profile_text import profile_lines, profile_markdown
from aiperf.report.query_table import query_csv
from aiperf.report.summary import discovery_line, summary_line
from aiperf.report.views.run_rows import Extras, build_rows
from aiperf.report.views.run_table import run_csv, run_json, run_lines, run_markdown
from aiperf.settings import Settings
from aiperf.store.export import profile_cells
from aiperf.store.tables.profiled import PROFILE_ROWS


def print_run(
    run: RunRecord,
    records: Sequence[CaseRecord],
    *,
    form: Format,
    seconds: float | None = None,
    every_metric: bool = False,
    footer: Sequence[str] = (),
    warnings: Sequence[str] = (),
    profiles: Sequence[Profile] = (),
    extras: Extras | None = None,
) -> None:
    """Print the comparison table of a run to stdout; ``profiles`` tell whether the claimed counters moved."""
    built = build_rows(records, run=run, profiles={profile.case: profile for profile in profiles})
    table = replace(built, extras=extras)
    summary, discovered = summary_line(records, seconds=seconds, unread=table.unread), discovery_line(run, records)
    if form is Format.json:
        sys.stdout.write(run_json(run, table, records=records, warnings=warnings))
    elif form is Format.csv:
        sys.stdout.write(run_csv(table))
    elif form is Format.markdown:
        sys.stdout.write(run_markdown(run, table, summary=summary, discoveries=discovered))
    else:
        width = terminal_width(sys.stdout)
        told = [*([discovered] if discovered else []), *footer]
        lines = run_lines(run, table, summary=summary, width=width, every_metric=every_metric, footer=told)
        show(lines)
    if form is not Format.json:
        for warning in warnings:
            print(warning, file=sys.stderr)


def print_plan(plan: Plan, settings: Settings, form: Format, *, heading: Sequence[str] = ()) -> None:
    """Print what would be measured, with an estimate; a table of nothing but skips ends with that exit code."""
    planned = [(case, Estimate(*estimate(case, settings.precision))) for case in plan.cases]
    rows = plan_rows(planned, plan.skips)
    if form is Format.json:
        sys.stdout.write(listing_json(rows))
        return
    show([Line(text) for text in heading])
    show(plan_lines(rows, budget=settings.budget, width=terminal_width(sys.stdout)))
    if not plan.cases:
        raise typer.Exit(int(Exit.SKIPPED))


def print_profiles(profiles: Sequence[Profile], form: Format, *, every_row: bool = False, footer: str = "") -> None:
    """Print profiles in the dialect that was asked for."""
    if form is Format.json:
        sys.stdout.write(listing_json(profiles))
    elif form is Format.csv:
        columns, rows = profile_cells(profiles, PROFILE_ROWS, clean=clean)
        sys.stdout.writelines(query_csv(columns, rows))
    elif form is Format.markdown:
        sys.stdout.write("\n".join(profile_markdown(profile) for profile in profiles))
    else:
        width = terminal_width(sys.stdout)
        lines = [line for p in profiles for line in (*profile_lines(p, width=width, every_row=every_row), Line(""))]
        show([*lines, *([Line(footer)] if footer else [])])
