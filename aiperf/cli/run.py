"""``aiperf run``: flags -> settings -> plan -> run -> table.

What must not live here: planning and measuring.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Annotated

import typer

from aiperf.cli.ci import (
    CiPaths,
    print_and_write,
    refuse_files_of_a_dry_run,
    with_ci_errors,
    with_ci_files,
)
from aiperf.cli.completion import offer, scenarios
from aiperf.cli.host_check import HostCheckOption
from aiperf.cli.kubernetes import with_kubernetes
from aiperf.cli.nodes import LauncherOption, joined
from aiperf.cli.options import (
    DEFAULT_RESULTS,
    BudgetOption,
    ColumnsOption,
    CostOption,
    EveryMetricOption,
    OnlyOption,
    PeaksOption,
    PinOption,
    PrecisionOption,
    QuietOption,
    ResultsOption,
    ResumeOption,
    SeedOption,
    ShardOption,
    StrictOption,
    TimeoutOption,
    axis_values,
    in_results,
    make_settings,
    not_together,
    progress_note,
    shard_of,
    with_format,
)
from aiperf.cli.output import explained, print_plan
from aiperf.cli.resume import resume_lines, resumed_without
from aiperf.cli.slurm import with_slurm
from aiperf.errors import Exit
from aiperf.host.facts import HostFacts
from aiperf.host.read import read_host
from aiperf.host.relevance import HostCheck
from aiperf.launch.nodes.head import Nodes
from aiperf.plan.costs import load_prices
from aiperf.plan.plan import Plan
from aiperf.plan.suites import Suite, load_suite, plan_selected, suite_names
from aiperf.profilers.registry import NAMES, chosen, passed_over, statuses
from aiperf.recipes.checkouts import check_refs
from aiperf.recipes.profile import profile_measured
from aiperf.recipes.profile_case import ProfileRequest
from aiperf.recipes.run import Opening, RunOutcome, run_plan
from aiperf.records import Invocation
from aiperf.records.profiled import Profile
from aiperf.report.layout.formats import OutputFormat
from aiperf.report.live import Progress, choose_progress
from aiperf.report.profile_suite import trouble_lines
from aiperf.report.summary import over_budget
from aiperf.report.views.extra_columns import build_extras, chosen_columns
from aiperf.settings import ENERGY_SECONDS, Precision, Settings
from aiperf.store.read import StoredRun, open_run

_DEFAULT_PRECISION = Precision().name

_Selectors = Annotated[
    list[str], typer.Argument(metavar="[NAME|TAG|PATH|GLOB ...]", help="Scenarios to run.", autocompletion=scenarios)
]
_Suite = Annotated[
    str,
    typer.Option(
        "--suite",
        metavar="NAME|FILE",
        help="Run a suite (see aiperf list --suites).",
        autocompletion=offer(suite_names),
    ),
]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the plan and its estimated time without measuring.")]
_Profilers = Annotated[
    str, typer.Option("--profile", metavar="TOOLS", help=f"Profile after measuring: {','.join(NAMES)} or all.")
]


@with_format()
@with_ci_files
@with_kubernetes
@with_slurm
@resumed_without("selectors", "suite")
def run(
    form: OutputFormat,
    selectors: _Selectors = [],  # noqa: B006
    suite: _Suite = "",
    resume: ResumeOption = "",
    only: OnlyOption = [],  # noqa: B006 - typer reads the default and never changes it
    shard: ShardOption = "",
    dry_run: _DryRun = False,
    precision: PrecisionOption = "",
    budget: BudgetOption = "",
    seed: SeedOption = 0,
    results: ResultsOption = DEFAULT_RESULTS,
    pin: PinOption = "auto",
    peaks: PeaksOption = True,
    timeout: TimeoutOption = "",
    host_check: HostCheckOption = HostCheck.warn,
    profilers: _Profilers = "",
    strict: StrictOption = None,
    quiet: QuietOption = False,
    every_metric: EveryMetricOption = False,
    columns: ColumnsOption = "",
    cost: CostOption = "",
    launcher: LauncherOption = "",
    ci_files: CiPaths = MappingProxyType({}),
) -> None:
    """Run scenarios by name, tag, path or glob and print the comparison table."""
    with with_ci_errors("aiperf run", ci_files), joined(launcher, results) as cluster:
        if dry_run:
            _refuse_in_a_dry_run(ci_files, resume=resume, columns=columns)
        wanted = chosen_columns(columns, cost=cost)
        prices = load_prices(cost) if cost else None
        chosen_suite = load_suite(suite) if suite else None
        precision = precision or (chosen_suite.precision if chosen_suite else "") or _DEFAULT_PRECISION
        settings = make_settings(
            precision=precision, results=results, budget=budget, seed=seed, pin=pin, peaks=peaks, timeout=timeout
        )
        energy_seconds = ENERGY_SECONDS if "energy" in wanted else 0.0
        nodes = len(cluster) if cluster else 1
        settings = replace(settings, energy_seconds=energy_seconds, strict=bool(strict), nodes=nodes)
        asked = _asked(selectors, chosen_suite, settings, only=only, shard=shard, profilers=profilers, resume=resume)
        began = time.monotonic()
        if dry_run:
            check_refs(asked.plan.cases)
            print_plan(asked.plan, settings, form)
            return
        outcome = asked.run(host_check=host_check, progress=choose_progress(quiet=quiet), cluster=cluster)
    profiles, outcome = asked.profiled(outcome, quiet=quiet)
    troubles = trouble_lines(profiles)
    if form is not OutputFormat.table:
        for line in troubles:
            print(line, file=sys.stderr)
    print_and_write(
        outcome,
        title="aiperf run",
        form=form,
        profiles=profiles,
        seconds=time.monotonic() - began,
        every_metric=every_metric,
        footer=[
            *troubles,
            *over_budget(outcome.records, settings.budget),
            *resume_lines(outcome, "run", form, results),
            f"{outcome.folder} · {in_results('aiperf report', results)} · "
            f"{in_results('aiperf show latest', results)} {explained(outcome.records)}",
        ],
        paths=ci_files,
        extras=build_extras(outcome.records, wanted, prices=prices, pairs_of=lambda record: record.pairs),
    )
    raise typer.Exit(int(outcome.exit))


@dataclass(frozen=True)
class _Asked:
    """The flags, resolved on this host."""

    plan: Plan
    host: HostFacts
    settings: Settings
    request: ProfileRequest | None
    """What to profile with afterwards; None for nothing."""
    earlier: StoredRun | None
    """The run to go on in."""

    def run(self, *, host_check: HostCheck, progress: Progress, cluster: Nodes | None) -> RunOutcome:
        return run_plan(
            self.plan,
            host=self.host,
            settings=self.settings,
            progress=progress,
            invocation=Invocation("run", tuple(sys.argv)),
            host_check=host_check,
            opening=Opening(self.earlier, cluster),
        )

    def profiled(self, outcome: RunOutcome, *, quiet: bool) -> tuple[Sequence[Profile], RunOutcome]:
        """The profiles of what was measured, and the outcome, which is interrupted where they were."""
        if self.request is None or outcome.exit is Exit.INTERRUPTED:
            return (), outcome
        host_id, note = outcome.run.host_id, progress_note(quiet)
        profiles, whole = profile_measured(
            outcome.records, self.request, run=outcome.folder, host_id=host_id, note=note
        )
        return profiles, outcome if whole else replace(outcome, exit=Exit.INTERRUPTED)


def _asked(
    selectors: Sequence[str],
    suite: Suite | None,
    settings: Settings,
    *,
    only: list[str],
    shard: str,
    profilers: str,
    resume: str,
) -> _Asked:
    """The plan and what goes with it, nothing of it begun. Raises UserError."""
    host = read_host()
    found = statuses(host) if profilers else ()
    request = ProfileRequest(chosen(found, profilers), seed=settings.seed) if profilers else None
    for line in passed_over(found, profilers):
        print(line, file=sys.stderr)
    plan = plan_selected(selectors, suite, host, settings, only=axis_values(only))
    plan = plan.shard(*shard_of(shard)) if shard else plan
    for line in plan.notes:
        print(line, file=sys.stderr)
    earlier = open_run(resume, results=settings.results) if resume else None
    return _Asked(plan, host, settings, request, earlier)


def _refuse_in_a_dry_run(paths: CiPaths, *, resume: str, columns: str) -> None:
    refuse_files_of_a_dry_run(paths)
    if columns:
        raise not_together("--dry-run", "--columns")
    if resume:
        raise not_together("--dry-run", "--resume")
