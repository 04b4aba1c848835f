"""``aiperf report``: a stored run as a table or an HTML page, recomputed from its raw samples when asked.

What must not live here: reading or concluding.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from aiperf.cli.options import (
    DEFAULT_RESULTS,
    ColumnsOption,
    CostOption,
    EveryMetricOption,
    ResultsOption,
    in_results,
    not_together,
    with_format,
)
from aiperf.cli.output import HtmlOption, print_profiles, print_run, refuse_page_in, write_page
from aiperf.errors import Exit, usage
from aiperf.plan.costs import load_prices
from aiperf.records import CaseRecord, Pair
from aiperf.records.profiled import Profile
from aiperf.report.html.page import render_html
from aiperf.report.html.profile_page import profiles_html
from aiperf.report.layout.formats import OutputFormat
from aiperf.report.views.extra_columns import build_extras, chosen_columns
from aiperf.store.parts import open_parts
from aiperf.store.profiles import read_profiles
from aiperf.store.read import StoredRun, read_case, read_pairs
from aiperf.store.reference import all_concluded_again
from aiperf.store.write import file_name

_Recompute = Annotated[
    bool, typer.Option("--recompute", help="Recompute verdicts from the raw samples and report differences.")
]
_WithProfiles = Annotated[
    bool, typer.Option("--profiles", help="Add profiler results below the table; csv and json print only these.")
]
_Output = Annotated[
    str, typer.Option("--output", metavar="PATH", help="Output file of the page; default: in the run's folder.")
]
_Cases = Annotated[
    list[str] | None, typer.Option("--case", metavar="ID", help="Show only this case in full on the page; repeatable.")
]


@with_format()
def report(
    form: OutputFormat,
    runs: Annotated[
        list[str],
        typer.Argument(metavar="[RUN ...]", help="Run name or folder; several for the shards of one run."),
    ] = ["latest"],  # noqa: B006 - typer reads the default and never changes it
    results: ResultsOption = DEFAULT_RESULTS,
    every_metric: EveryMetricOption = False,
    again: _Recompute = False,
    with_profiles: _WithProfiles = False,
    columns: ColumnsOption = "",
    cost: CostOption = "",
    html: HtmlOption = False,
    output: _Output = "",
    cases: _Cases = None,
) -> None:
    """Print a stored run's comparison table, or write it as an HTML page."""
    wanted = chosen_columns(columns, cost=cost)
    prices = load_prices(cost) if cost else None
    _check_flags(html=html, output=output, cases=cases, form=form, columns=columns)
    stored = open_parts(runs, results=results)
    records, damaged = stored.read_cases()
    records, differing = all_concluded_again(stored, records) if again else (records, ())
    lost = stored.lost(records, damaged) if again else 0
    found = [read_profiles(folder) for folder in stored.folders]
    profiles = tuple(profile for own, _ in found for profile in own)
    warnings = [d.sentence for d in (*damaged, *(d for _, spoilt in found for d in spoilt))]
    if html or form is not OutputFormat.table:
        # What has no footer says it beside itself.
        warnings += differing
    if html:
        path, page = _page(stored, records, output=output, cases=cases or (), warnings=warnings, profiles=profiles)
        write_page(path, page, form, warnings=warnings)
    elif with_profiles and form in (OutputFormat.csv, OutputFormat.json):
        print_profiles(profiles, form)
        for warning in warnings:
            print(warning, file=sys.stderr)
    else:
        same, planned = len(records) - len(differing), len(records) + lost
        confirmed = f"recomputed from raw samples: {same} of {planned} cases unchanged"
        confirmed += f", {lost} without a record" if lost else ""
        own = in_results(f"aiperf report {runs[0]}", results)
        print_run(
            stored.record,
            records,
            form=form,
            every_metric=every_metric or stored.record.command == "ab",
            footer=[*([confirmed, *differing] if again else []), *_only_profiled(records, profiles, own)],
            warnings=warnings,
            profiles=profiles,
            extras=build_extras(records, wanted, prices=prices, pairs_of=partial(_pairs, stored, wanted)),
        )
        if with_profiles:
            print_profiles(profiles, form)
    if with_profiles and not profiles:
        adds = in_results(f"aiperf profile NAME --resume {runs[0]}", results)
        print(f"no profile is stored in {stored.folder}: {adds} adds one", file=sys.stderr)
    if differing or lost:
        raise typer.Exit(int(Exit.WRONG))


def _only_profiled(records: Sequence[CaseRecord], profiles: Sequence[Profile], again: str) -> list[str]:
    if records or not profiles:
        return []
    many = "1 case" if len(profiles) == 1 else f"{len(profiles)} cases"
    return [f"{many} profiled, none measured: {again} --profiles"]


def _pairs(stored: StoredRun, wanted: Sequence[str], record: CaseRecord) -> Sequence[Pair]:
    return read_pairs(stored, record) if "goodput" in wanted and record.results else record.pairs


def _check_flags(*, html: bool, output: str, cases: Sequence[str] | None, form: OutputFormat, columns: str) -> None:
    """Refuse flags that the other form of the report would ignore. Raises UserError."""
    if not html and (output or cases):
        raise usage("needs --html.", "Add --html.", where="--output" if output else "--case")
    if html and columns:
        raise not_together("--columns", "--html")
    refuse_page_in(form, html=html)


def _page_name(named: Sequence[str], *, parts: int) -> str:
    """File of a page: that of some cases, or of several parts, does not take the place of the whole run's."""
    if not named:
        return "report.html" if parts == 1 else f"report-{parts}-parts.html"
    return f"report-{named[0]}.html" if len(named) == 1 else "report-cases.html"


def _page(
    stored: StoredRun,
    records: Sequence[CaseRecord],
    *,
    output: str,
    cases: Sequence[str],
    warnings: Sequence[str],
    profiles: Sequence[Profile],
) -> tuple[Path, str]:
    """Where the page goes, and what it holds."""
    named = [read_case(stored, name).case for name in cases]
    parts = len(stored.folders)
    path = Path(output) if output else stored.folder / _page_name([file_name(case) for case in named], parts=parts)
    if profiles and not records:
        return path, profiles_html(stored.record.run, profiles)
    pairs, only = partial(read_pairs, stored), [case.id for case in named]
    return path, render_html(stored.record, records, pairs=pairs, warnings=warnings, only=only, profiles=profiles)
