"""``aiperf doctor``: what this host is fit for, and what would fix it.

What must not live here: probes, judging, layout.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aiperf.cli.options import with_format
from aiperf.errors import Exit, usage
from aiperf.host.host_report import differences
from aiperf.host.probes.probe import GROUPS
from aiperf.host.probes.reader import HostReader
from aiperf.recipes.doctor import encode, examine, load, save, walk_checklist
from aiperf.report.layout.formats import OutputFormat, print_in
from aiperf.report.views.checklist_table import checklist_view
from aiperf.report.views.doctor_table import difference_view, report_view


@with_format(OutputFormat.table, OutputFormat.markdown, OutputFormat.json)
def doctor(
    form: OutputFormat,
    group: Annotated[
        str, typer.Option("--group", help=f"Only this group: {', '.join(GROUPS)}. A prefix is enough.")
    ] = "",
    every: Annotated[bool, typer.Option("--all", help="Also show passed and inapplicable probes.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 6 if any finding is unfit.")] = False,
    checklist: Annotated[
        bool, typer.Option("--checklist", help="Show the book's whole checklist: probes, scenarios and open questions.")
    ] = False,
    data: Annotated[Path, typer.Option("--data", help="Folder whose disk and git checkout are checked.")] = Path(),
    keep: Annotated[Path | None, typer.Option("--save", help="Also save the full report to this file as JSON.")] = None,
    diff: Annotated[
        tuple[Path, Path] | None, typer.Option("--diff", metavar="A B", help="Compare two saved reports.")
    ] = None,
) -> None:
    """Check this host for settings that bias benchmarks. Changes nothing and starts nothing on a GPU."""
    if diff is not None:
        if group or checklist or strict or keep is not None:
            hint = "Leave out --group, --checklist, --strict and --save."
            raise usage("compares two saved reports and does not read the host.", hint, where="--diff")
        before, after = load(diff[0]), load(diff[1])
        print_in(form, difference_view(before, after, differences(before, after)))
        return
    if checklist and group:
        raise usage("cannot be combined with --checklist.", "Leave one of them out.", where="--group")
    if not data.is_dir():
        raise usage(f'"{data}" is not a folder.', where="--data")
    report = examine(HostReader(data=data.resolve()), group=group)
    if keep is not None:
        save(report, keep)
    if checklist:
        view = checklist_view(walk_checklist(report))
    else:
        view = report_view(report, every=every, json=lambda: encode(report))
    print_in(form, view)
    if strict and report.count().get("unfit"):
        raise typer.Exit(int(Exit.UNFIT))
