"""``aiperf history``: the trend of a scenario over the stored runs, host by host.

What must not live here: finding change points, any layout.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from aiperf.analysis.trend import Series, all_series, latest_hosts, metrics_of
from aiperf.cli.completion import scenarios
from aiperf.cli.options import DEFAULT_RESULTS, ResultsOption, with_format
from aiperf.cli.output import HtmlOption, refuse_page_in, write_page
from aiperf.errors import UserError, usage
from aiperf.paths import YAML_SUFFIXES
from aiperf.records import CaseRecord, RunRecord
from aiperf.report.html.listing_page import history_html
from aiperf.report.layout.formats import OutputFormat, print_in
from aiperf.report.views.history_table import history_view
from aiperf.report.views.listings import runs_view
from aiperf.report.views.sparks import can_draw
from aiperf.scenario.wording import allowed, nearest
from aiperf.store.history import entries


@with_format()
def history(
    form: OutputFormat,
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            show_default=False,
            help="A scenario, or the id of one of its cases; without it, the stored runs are listed.",
            autocompletion=scenarios,
        ),
    ] = "",
    results: ResultsOption = DEFAULT_RESULTS,
    case: Annotated[str, typer.Option("--case", help="Only the case with this id.")] = "",
    metric: Annotated[
        str, typer.Option("--metric", help="time, first_iteration, peak_memory, ...; default: the primary metric.")
    ] = "",
    host: Annotated[str, typer.Option("--host", help="Only this host: its id, the start of its id, or its name.")] = "",
    all_hosts: Annotated[
        bool, typer.Option("--all-hosts", help="Show each host separately; default: only the host of the newest run.")
    ] = False,
    html: HtmlOption = False,
    output: Annotated[
        str,
        typer.Option("--output", metavar="PATH", help="Output file; default: history.html in the results folder."),
    ] = "",
) -> None:
    """Show the trend of a scenario over stored runs, with its change points and what changed there.

    Without NAME, list the stored runs and what each holds.
    """
    refuse_page_in(form, html=html, output=output)
    if not name and not (html or case or metric or host or all_hosts):
        _list_runs(form, results)
        return
    if not name:
        raise _nothing(name, results, damaged=0)
    stored = entries(results, scenario=_scenario_of(name))
    taken = [(entry.run, entry.record) for entry in stored.entries]
    if not taken:
        raise _nothing(name, results, damaged=len(stored.damaged))
    taken = _of_case(taken, case)
    known = metrics_of(taken)
    if metric == "memory":
        metric = "gpu_memory" if "gpu_memory" in known else "peak_memory"
    if metric and known and metric not in known:
        raise usage(f'no run of {name} has the metric "{metric}".', f"Available: {allowed(known)}.", "--metric")
    found = all_series(taken, metric=metric)
    shown = _of_host(found, host) if host else found if all_hosts else latest_hosts(found)
    hidden = [] if host else [series for series in found if series not in shown]
    warnings = [damaged.sentence for damaged in stored.damaged]
    if html:
        path = Path(output) if output else results / "history.html"
        page = history_html(case or name, shown, hidden=hidden, warnings=warnings)
        write_page(path, page, form, warnings=warnings)
        return
    view = history_view(shown, hidden=hidden, warnings=warnings, ascii_only=not can_draw(sys.stdout.encoding))
    print_in(form, view, warnings=warnings)


def _list_runs(form: OutputFormat, results: Path) -> None:
    """Print which runs are stored and what each holds. Raises UserError where there are none."""
    stored = entries(results)
    warnings = [damaged.sentence for damaged in stored.damaged]
    if not stored.entries:
        raise _nothing("", results, damaged=len(warnings))
    view = runs_view([(entry.run, entry.record) for entry in stored.entries], warnings=warnings)
    print_in(form, view, warnings=warnings)


def _scenario_of(name: str) -> str:
    """The scenario of a file, where its path is given as to aiperf run; else the name."""
    return Path(name).stem if name.endswith(YAML_SUFFIXES) else name


def _nothing(name: str, results: Path, *, damaged: int) -> UserError:
    """What to say where no record of that name can be read."""
    everything = entries(results)
    names = sorted({entry.record.case.scenario for entry in everything.entries})
    lost = f" {damaged} damaged record(s) of it were ignored." if damaged else ""
    if not names:
        return usage(f"no run is stored in {results}.{lost}", f"Measure something first: aiperf run {name or 'NAME'}.")
    every = f"There are runs of: {allowed(names[:10])}{', ...' if len(names) > 10 else ''}."
    if not name:
        return usage("name the scenario whose history to show.", every)
    hint = nearest(name, names) or every
    return usage(f'no stored run of "{name}" in {results}.{lost}', hint)


def _of_case(taken: list[tuple[RunRecord, CaseRecord]], case: str) -> list[tuple[RunRecord, CaseRecord]]:
    ids = list(dict.fromkeys(record.case.id for _, record in taken))
    if case and case not in ids:
        raise usage(f'no case "{case}" in these runs.', nearest(case, ids) or f"Available: {allowed(ids)}.", "--case")
    return [(run, record) for run, record in taken if case in ("", record.case.id)]


def _of_host(found: Sequence[Series], host: str) -> list[Series]:
    chosen = [series for series in found if series.host.startswith(host) or host in series.hostnames]
    if not chosen:
        hosts = dict.fromkeys(f"{series.host} ({', '.join(series.hostnames)})" for series in found)
        raise usage(f'no run was measured on "{host}".', f"Hosts: {allowed(hosts)}.", "--host")
    return chosen
