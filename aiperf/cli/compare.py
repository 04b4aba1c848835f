"""``aiperf compare``: stored runs held against the first of them, case by case; or each case over hosts.

What must not live here: what compares, by how much it changed, and any layout.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from aiperf.analysis.across import hold_runs
from aiperf.analysis.over_hosts import over_hosts
from aiperf.cli.options import DEFAULT_RESULTS, EveryMetricOption, ResultsOption, refuse_beside, with_format
from aiperf.cli.output import HtmlOption, refuse_page_in, write_page
from aiperf.errors import Exit, usage
from aiperf.host.calibration import load_calibration
from aiperf.report.html.listing_page import compare_html, hosts_html
from aiperf.report.layout.formats import OutputFormat, print_in
from aiperf.report.views.compare_rows import compare_rows
from aiperf.report.views.compare_table import compare_view
from aiperf.report.views.hosts_table import hosts_view
from aiperf.store.read import StoredRun, open_run
from aiperf.store.reference import measured_entries

_RUNS = "RUN RUN [RUN ...]"


@with_format()
def compare(
    form: OutputFormat,
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar=_RUNS, help="Run names, folders or latest; with --hosts: scenarios.", show_default=False
        ),
    ] = [],  # noqa: B006 - typer reads the default and never changes it
    hosts: Annotated[
        bool,
        typer.Option("--hosts", help="Compare each case across similar hosts, and predict the next one."),
    ] = False,
    results: ResultsOption = DEFAULT_RESULTS,
    every_metric: EveryMetricOption = False,
    force: Annotated[
        bool, typer.Option("--force", help="Compare even if the host or scenario differs; each figure is then marked.")
    ] = False,
    html: HtmlOption = False,
    output: Annotated[
        str,
        typer.Option(
            "--output", metavar="PATH", help="Output file; default: compare.html or hosts.html in the results folder."
        ),
    ] = "",
) -> None:
    """Compare stored runs with the first one: their environments, then every case."""
    refuse_page_in(form, html=html, output=output)
    if hosts:
        refuse_beside("--hosts", _RUNS, "--results", "--format", "--json", "--html", "--output")
        _over_hosts(runs, form, results, (Path(output) if output else results / "hosts.html") if html else None)
        return
    stored = _open(runs, results)
    read = [run.read_cases() for run in stored]
    calibrations = {run.record.host_id: load_calibration(run.record.host_id) for run in stored if run.record.host_id}
    across = hold_runs(
        [(run.record, own) for run, (own, _) in zip(stored, read, strict=True)], calibrations=calibrations, force=force
    )
    warnings = [damaged.sentence for _, found in read for damaged in found]
    rows = compare_rows(across)
    if html:
        path = Path(output) if output else results / "compare.html"
        page = compare_html(across, rows, every_metric=every_metric, warnings=warnings)
        write_page(path, page, form, warnings=warnings)
    else:
        print_in(form, compare_view(across, rows, every_metric=every_metric, warnings=warnings), warnings=warnings)
    if not across.comparable:
        differ = "the hosts of these runs differ in what must match"
        why = differ if across.hosts_differ else "no case of these runs can be compared"
        print(f"{why}: exit code 4", file=sys.stderr)
        raise typer.Exit(int(Exit.NO_BASELINE))


def _over_hosts(names: list[str], form: OutputFormat, results: Path, page: Path | None) -> None:
    """Every case, or those of these names, on all hosts that have a result of it, printed or as a page."""
    read, damaged = measured_entries(results, scenarios=names)
    found = over_hosts((entry.run, entry.record) for entry in read)
    if not found:
        whose = f" of {', '.join(names)}" if names else ""
        raise usage(
            f"no result{whose} that is valid and not provisional is stored in {results}.",
            "Measure on each host: aiperf run NAME.",
            "--hosts",
        )
    warnings = [each.sentence for each in damaged]
    if page:
        write_page(page, hosts_html(found, named=bool(names), warnings=warnings), form, warnings=warnings)
    else:
        print_in(form, hosts_view(found, named=bool(names)), warnings=warnings)
    if all(case.low is None for kind in found for case in kind.cases):
        raise typer.Exit(int(Exit.NO_BASELINE))


def _open(names: list[str], results: Path) -> list[StoredRun]:
    """Every run once, in the order given. Raises UserError."""
    if len(names) < 2:
        raise usage("compare needs at least two runs.", "Name the older one first: aiperf compare RUN latest.")
    stored = [open_run(name, results=results) for name in names]
    folders = [run.folder.resolve() for run in stored]
    twice = next((run.folder.name for run, own in zip(stored, folders, strict=True) if folders.count(own) > 1), "")
    if twice:
        raise usage(f"{twice} is named twice.", "Name two different runs.")
    return stored
