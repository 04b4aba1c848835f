"""``aiperf run``: flags -> settings -> plan -> run -> table.

What must not live here: planning and measuring.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import typer

from aiperf.checkouts import check_refs
from aiperf.cli.ci import (
    CiPaths,
    DashboardOption,
    GitlabOption,
    JunitOption,
    MetricsOption,
    print_and_write,
    told_to_ci,
)
from aiperf.cli.options import (
    BudgetOption,
    ColumnsOption,
    CostOption,
    Format,
    FormatOption,
    JsonOption,
    PeaksOption,
    PinOption,
    PrecisionOption,
    QuietOption,
    ResultsOption,
    SeedOption,
    TimeoutOption,
    axis_values,
    make_settings,
    progress_note,
)
from aiperf.errors import Exit, usage
from aiperf.host.read import read_host
from aiperf.host.relevance import Fit
from aiperf.pipeline import run_plan
from aiperf.plan.costs import load_prices
from aiperf.plan.plan import Plan, estimate
from aiperf.plan.suites import load_suite, plan_selected
from aiperf.profilers.preflight import abilities, chosen
from aiperf.profiling import Wish, profile_measured
from aiperf.records.profiled import Profile
from aiperf.report.console import show as show_lines
from aiperf.report.console import terminal_width
from aiperf.report.extra_columns import build_extras, chosen_columns
from aiperf.report.json_file import listing_json
from aiperf.report.live import choose_progress
from aiperf.report.plan_table import Estimate, plan_lines, plan_rows
from aiperf.settings import ENERGY_SECONDS, Precision, Settings
from aiperf.store.read import open_run

_DEFAULT_RESULTS = "results"
_DEFAULT_PRECISION = Precision().name


def run(
    selectors: Annotated[list[str], typer.Argument(metavar="NAME|TAG|PATH|GLOB ...", help="What to run.")] = [],  # noqa: B006
    suite: Annotated[
        str, typer.Option("--suite", metavar="NAME|FILE", help="Run a suite; aiperf list --suites shows them.")
    ] = "",
    resume: Annotated[
        str, typer.Option("--resume", metavar="RUN|latest", help="Go on in this run: what it has measured is kept.")
    ] = "",
    only: Annotated[
        list[str], typer.Option("--only", metavar="AXIS=VALUE", help="Keep the cases with this axis value.")
    ] = [],  # noqa: B006 - typer reads the default and never changes it
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan with an estimate; measure nothing.")
    ] = False,
    precision: PrecisionOption = "",
    budget: BudgetOption = "",
    seed: SeedOption = 0,
    results: ResultsOption = _DEFAULT_RESULTS,  # type: ignore[assignment]
    pin: PinOption = "auto",
    peaks: PeaksOption = True,
    timeout: TimeoutOption = "",
    fit: Annotated[
        Fit, typer.Option("--fit", help="Findings of this host that can bias a case: strict measures no unfit case.")
    ] = Fit.warn,
    profilers: Annotated[
        str, typer.Option("--profile", metavar="TOOLS", help="Profile afterwards, with nsys,ncu,torch,perf or all.")
    ] = "",
    quiet: QuietOption = False,
    form: FormatOption = Format.table,
    as_json: JsonOption = False,
    every_metric: Annotated[
        bool, typer.Option("--all-metrics", help="Show every metric, not only the headline.")
    ] = False,
    columns: ColumnsOption = "",
    cost: CostOption = "",
    junit: JunitOption = None,
    gitlab: GitlabOption = None,
    metrics: MetricsOption = None,
    dashboard: DashboardOption = None,
) -> None:
    """Run scenarios by name, tag, path or glob and print the comparison table."""
    paths = CiPaths(junit=junit, gitlab=gitlab, metrics=metrics, dashboard=dashboard)
    with told_to_ci("aiperf run", paths):
        _refuse_files_of_nothing(paths, dry_run=dry_run, columns=columns)
        if dry_run and resume:
            raise usage("a dry run goes on with nothing.", "Leave --resume out.", where="--dry-run")
        wanted = chosen_columns(columns, cost=cost)
        prices = load_prices(cost) if cost else None
        chosen_suite = load_suite(suite) if suite else None
        precision = precision or (chosen_suite.precision if chosen_suite else "") or _DEFAULT_PRECISION
        settings = make_settings(
            precision=precision, results=results, budget=budget, seed=seed, pin=pin, peaks=peaks, timeout=timeout
        )
        settings = replace(settings, energy_seconds=ENERGY_SECONDS if "energy" in wanted else 0.0)
        host = read_host()
        wish = Wish(chosen(abilities(host), profilers), seed=seed) if profilers else None
        plan = plan_selected(selectors, chosen_suite, host, settings, only=axis_values(only))
        earlier = open_run(resume, results=results) if resume else None
        began = time.monotonic()
        progress = choose_progress(quiet=quiet)
        if dry_run:
            check_refs(plan.cases)
        outcome = None
        if not dry_run:
            outcome = run_plan(
                plan, host=host, settings=settings, progress=progress, argv=sys.argv, fit=fit, earlier=earlier
            )
    if outcome is None:
        _print_plan(plan, settings, as_json=as_json)
        return
    profiles: Sequence[Profile] = ()
    if wish is not None and outcome.exit is not Exit.INTERRUPTED:
        note = progress_note(quiet)
        profiles = profile_measured(outcome.records, wish, run=outcome.folder, host_id=outcome.run.host_id, note=note)
    print_and_write(
        outcome,
        title="aiperf run",
        form=Format.json if as_json else form,
        seconds=time.monotonic() - began,
        every_metric=every_metric,
        footer=[f"{outcome.folder} · aiperf report · aiperf show latest CASE explains a verdict"],
        paths=paths,
        profiles=profiles,
        extras=build_extras(outcome.records, wanted, prices=prices, pairs_of=lambda record: record.pairs),
    )
    raise typer.Exit(int(outcome.exit))


def _refuse_files_of_nothing(paths: CiPaths, *, dry_run: bool, columns: str) -> None:
    if dry_run and any(paths.values()):
        raise usage("a dry run measures nothing that a report could hold.", "Leave the files out.", where="--dry-run")
    if dry_run and columns:
        raise usage("a dry run measures nothing that columns could show.", "Leave --columns out.", where="--dry-run")


def _print_plan(plan: Plan, settings: Settings, *, as_json: bool) -> None:
    planned = [(case, Estimate(*estimate(case, settings.precision))) for case in plan.cases]
    rows = plan_rows(planned, plan.skips)
    if as_json:
        sys.stdout.write(listing_json(rows))
        return
    show_lines(plan_lines(rows, budget=settings.budget, width=terminal_width(sys.stdout)))
    if not plan.cases:
        raise typer.Exit(int(Exit.SKIPPED))
