"""``aiperf doctor``: what this host is fit for, and what would fix it.

What must not live here: probes, judging, layout.
"""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from aiperf.cli.options import JsonOption
from aiperf.errors import Exit, usage
from aiperf.host.host_report import HostReport, differences
from aiperf.host.probes.probe import GROUPS
from aiperf.host.probes.reader import HostReader
from aiperf.recipes.doctor import encode, examine, load, save, walk_checklist
from aiperf.report.checklist_table import checklist_lines, checklist_markdown
from aiperf.report.doctor_table import (
    difference_lines,
    difference_markdown,
    difference_plain,
    report_lines,
    report_markdown,
)
from aiperf.report.layout.formats import listing_json
from aiperf.report.layout.terminal import show as show_lines
from aiperf.report.layout.terminal import terminal_width


class Form(StrEnum):
    """How the findings are printed."""

    table = "table"
    markdown = "markdown"
    json = "json"


def doctor(
    group: Annotated[
        str, typer.Option("--group", help=f"Only one: {', '.join(GROUPS)}. The beginning of its name will do.")
    ] = "",
    every: Annotated[bool, typer.Option("--all", help="Also what is good, and what does not apply here.")] = False,
    form: Annotated[Form, typer.Option("--format", help="How to print it.")] = Form.table,
    as_json: JsonOption = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 6 when a finding says unfit.")] = False,
    checklist: Annotated[
        bool, typer.Option("--checklist", help="Walk the book's whole checklist: probes, scenarios, questions.")
    ] = False,
    data: Annotated[Path, typer.Option("--data", help="Folder whose disk and checkout are judged.")] = Path(),
    keep: Annotated[Path | None, typer.Option("--save", help="Also write everything to this file, as JSON.")] = None,
    diff: Annotated[
        tuple[Path, Path] | None, typer.Option("--diff", metavar="A B", help="Compare two saved reports instead.")
    ] = None,
) -> None:
    """Read this host and judge it. Changes nothing, starts nothing on a GPU."""
    form = Form.json if as_json else form
    if diff is not None:
        if group or checklist or strict or keep is not None:
            hint = "Leave --group, --checklist, --strict and --save out."
            raise usage("--diff compares two saved reports and does not read the host.", hint, where="--diff")
        _print_difference(load(diff[0]), load(diff[1]), form)
        return
    if checklist and group:
        raise usage("--checklist walks every group.", "Leave --group out.", where="--group")
    if not data.is_dir():
        raise usage(f'"{data}" is not a folder.', where="--data")
    report = examine(HostReader(data=data.resolve()), group=group)
    if keep is not None:
        save(report, keep)
    if checklist:
        _print_checklist(report, form)
    else:
        _print(report, form, every)
    if strict and report.count().get("unfit"):
        raise typer.Exit(int(Exit.UNFIT))


def _print(report: HostReport, form: Form, every: bool) -> None:
    if form is Form.json:
        sys.stdout.write(encode(report))
    elif form is Form.markdown:
        sys.stdout.write(report_markdown(report, every=every))
    else:
        show_lines(report_lines(report, every=every, width=terminal_width(sys.stdout)))


def _print_checklist(report: HostReport, form: Form) -> None:
    steps = walk_checklist(report)
    if form is Form.json:
        sys.stdout.write(listing_json(steps))
    elif form is Form.markdown:
        sys.stdout.write(checklist_markdown(steps))
    else:
        show_lines(checklist_lines(steps, width=terminal_width(sys.stdout)))


def _print_difference(before: HostReport, after: HostReport, form: Form) -> None:
    changes = differences(before, after)
    if form is Form.json:
        sys.stdout.write(listing_json(difference_plain(changes)))
    elif form is Form.markdown:
        sys.stdout.write(difference_markdown(before, after, changes))
    else:
        show_lines(difference_lines(before, after, changes, width=terminal_width(sys.stdout)))
