"""Prints a run, a plan, profiles or a case in the format that was asked for.

What must not live here: any format.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from aiperf.cli.options import not_together
from aiperf.errors import Exit, usage
from aiperf.plan.plan import Plan
from aiperf.records import CUT_SHORT, CaseRecord, RunRecord
from aiperf.records.profiled import Profile
from aiperf.report.explain import explain_case
from aiperf.report.layout.formats import OutputFormat, Printed, document_json, print_in
from aiperf.report.layout.page import Block, Page
from aiperf.report.layout.text import Line
from aiperf.report.numbers import clean
from aiperf.report.profile_text import profile_lines, profile_markdown
from aiperf.report.views.plan_table import plan_view
from aiperf.report.views.query_table import query_csv
from aiperf.report.views.run_rows import Extras, build_rows
from aiperf.report.views.run_table import run_view
from aiperf.settings import Settings
from aiperf.store.export import profile_cells
from aiperf.store.read import no_collection
from aiperf.store.tables.profiled import PROFILE_ROWS
from aiperf.store.write import write_whole

_OUTCOMES = {"failed": "says what failed", "skipped": "says what is missing"}

HtmlOption = Annotated[bool, typer.Option("--html", help="Write a self-contained HTML page instead.")]


def explained(records: Sequence[CaseRecord]) -> str:
    """What ``aiperf show`` of a run says of it: a verdict, or why there is none."""
    if not any(record.results and record.status not in CUT_SHORT for record in records):
        found = next((word for word in _OUTCOMES if any(r.status == word for r in records)), "")
        return _OUTCOMES.get(found, "explains the run")
    return "explains the verdict" if len(records) == 1 else "explains a verdict"


def print_run(
    run: RunRecord,
    records: Sequence[CaseRecord],
    *,
    form: OutputFormat,
    seconds: float | None = None,
    every_metric: bool = False,
    footer: Sequence[str] = (),
    warnings: Sequence[str] = (),
    profiles: Sequence[Profile] = (),
    extras: Extras | None = None,
) -> None:
    """Print the comparison table of a run to stdout; ``profiles`` show whether the claimed counters moved."""
    with no_collection():
        built = build_rows(records, run=run, profiles={profile.case: profile for profile in profiles})
        view = run_view(
            run,
            replace(built, extras=extras),
            records=records,
            seconds=seconds,
            every_metric=every_metric,
            footer=footer,
            warnings=warnings,
        )
        print_in(form, view, warnings=warnings)


def print_plan(plan: Plan, settings: Settings, form: OutputFormat, *, heading: str = "") -> None:
    """Print what would be measured, with an estimate; a plan of nothing but skips ends with that exit code."""
    print_in(form, plan_view(plan, settings, heading=heading))
    if not plan.cases:
        raise typer.Exit(int(Exit.SKIPPED))


def print_profiles(
    profiles: Sequence[Profile], form: OutputFormat, *, every_row: bool = False, below: Page = ()
) -> None:
    """Print profiles, with a page ``below`` them in a terminal."""

    def block(profile: Profile) -> Block:
        return lambda width: profile_lines(profile, width=width, every_row=every_row)

    view = Printed(
        [*([block(profile)] for profile in profiles), *below],
        json=lambda: document_json(list(profiles)),
        csv=lambda: query_csv(*profile_cells(profiles, PROFILE_ROWS, clean=clean)),
        markdown=lambda: "\n".join(profile_markdown(profile) for profile in profiles),
    )
    print_in(form, view)


def case_view(run: RunRecord, record: CaseRecord, *, profile: Profile | None) -> Printed:
    """The verdict of a case of a run, explained."""
    return Printed(
        [[lambda width: [Line(text) for text in explain_case(run, record, profile=profile, width=width).splitlines()]]],
        json=lambda: document_json([record]),
    )


def write_page(path: Path, page: str, form: OutputFormat, *, fresh: bool = False, warnings: Sequence[str] = ()) -> None:
    """Write a page and print its path, ``warnings`` to stderr; ``fresh`` makes its folder where there is none yet.

    Raises UserError.
    """
    try:
        if fresh:
            path.parent.mkdir(parents=True, exist_ok=True)
        # Names that are not UTF-8 are written with replacements.
        write_whole(path, page.encode("utf-8", "replace"))
    except OSError as error:
        raise usage(f"the page cannot be written ({error.strerror}).", "Choose another --output.", str(path)) from None
    sys.stdout.write(f"{json.dumps({'html': str(path)})}\n" if form is OutputFormat.json else f"{path}\n")
    for warning in warnings:
        print(warning, file=sys.stderr)


def refuse_page_in(form: OutputFormat, *, html: bool, output: str = "") -> None:
    """Refuse ``--html`` with a format that its answer, the path of the page, has not, and a file without a page.

    Raises UserError.
    """
    if output and not html:
        raise usage("needs --html.", "Add --html.", where="--output")
    if html and form not in (OutputFormat.table, OutputFormat.json):
        raise not_together("--html", f"--format {form}")
