"""``aiperf ab``: two commands against each other, without a scenario file.

What must not live here: measuring, and what makes a case of two commands.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from types import MappingProxyType
from typing import Annotated

import typer

from aiperf.cli.ci import (
    CiPaths,
    print_and_write,
    with_ci_errors,
    with_ci_files,
)
from aiperf.cli.host_check import HostCheckOption
from aiperf.cli.options import (
    DEFAULT_RESULTS,
    ColumnsOption,
    CostOption,
    PinOption,
    PrecisionOption,
    QuietOption,
    ResultsOption,
    ResumeOption,
    SeedOption,
    StrictOption,
    TimeoutOption,
    make_settings,
    time_of,
    with_delta,
    with_format,
)
from aiperf.cli.program_metrics import with_metrics
from aiperf.cli.slurm import with_slurm
from aiperf.errors import UserError, invalid_value
from aiperf.host.read import read_host
from aiperf.host.relevance import HostCheck
from aiperf.plan.costs import load_prices
from aiperf.recipes.ab import AskedMetrics, Programs, run_ab
from aiperf.records import Invocation
from aiperf.report.layout.formats import OutputFormat
from aiperf.report.live import choose_progress
from aiperf.report.views.extra_columns import build_extras, chosen_columns
from aiperf.settings import ENERGY_SECONDS, Settings
from aiperf.store.read import open_run

_Before = Annotated[
    str,
    typer.Option(
        "--before", metavar="CMD", help="Command line of the baseline; run without a shell (for pipes: sh -c '...')."
    ),
]
_Slice = Annotated[
    str,
    typer.Option("--slice", help="auto: alternate time slices of compute-only programs; off: one program at a time."),
]
_Gpus = Annotated[
    int, typer.Option("--gpus", min=0, metavar="N", help="Number of GPUs that both use; their energy is measured.")
]
_Budget = Annotated[str, typer.Option("--budget", help="Time to spend, e.g. 60s; the first look is always completed.")]


@with_format()
@with_ci_files
@with_metrics
@with_slurm
def ab(
    form: OutputFormat,
    before: _Before,
    after: Annotated[str, typer.Option("--after", metavar="CMD", help="Command line of the candidate.")],
    env_before: Annotated[list[str], typer.Option("--env-before", metavar="NAME=VALUE")] = [],  # noqa: B006
    env_after: Annotated[list[str], typer.Option("--env-after", metavar="NAME=VALUE")] = [],  # noqa: B006
    slice_: _Slice = "auto",
    same_output: Annotated[bool, typer.Option("--same-output", help="Require that both print the same bytes.")] = False,
    gpus: _Gpus = 0,
    asked: AskedMetrics = AskedMetrics(),  # noqa: B008
    delta: Annotated[
        float | None, typer.Option("--delta", help="Smallest relative difference that matters, e.g. 0.02.")
    ] = None,
    budget: _Budget = "80s",
    precision: PrecisionOption = "standard",
    seed: SeedOption = 0,
    results: ResultsOption = DEFAULT_RESULTS,
    resume: ResumeOption = "",
    pin: PinOption = "auto",
    timeout: TimeoutOption = "",
    host_check: HostCheckOption = HostCheck.warn,
    strict: StrictOption = None,
    quiet: QuietOption = False,
    columns: ColumnsOption = "",
    cost: CostOption = "",
    ci_files: CiPaths = MappingProxyType({}),
) -> None:
    """Compare two programs in about a minute: wall, user and system time, and peak memory."""
    with with_ci_errors("aiperf ab", ci_files):
        wanted = chosen_columns(columns, cost=cost)
        prices = load_prices(cost) if cost else None
        settings = make_settings(
            precision=precision, results=results, seed=seed, pin=pin, timeout=timeout, slicing=_slicing(slice_)
        )
        settings = _adjusted(settings, delta=delta, budget=budget, energy="energy" in wanted)
        settings = replace(settings, strict=bool(strict))
        programs = Programs(before, after, env_before, env_after, same_output=same_output, gpus=gpus, asked=asked)
        began = time.monotonic()
        outcome = run_ab(
            programs,
            host=read_host(),
            settings=settings,
            progress=choose_progress(quiet=quiet),
            invocation=Invocation("ab", tuple(sys.argv)),
            host_check=host_check,
            earlier=open_run(resume, results=results) if resume else None,
        )
    print_and_write(
        outcome,
        title="aiperf ab",
        form=form,
        seconds=time.monotonic() - began,
        every_metric=True,
        footer=[str(outcome.folder)],
        paths=ci_files,
        extras=build_extras(outcome.records, wanted, prices=prices, pairs_of=lambda record: record.pairs),
    )
    raise typer.Exit(int(outcome.exit))


def _adjusted(settings: Settings, *, delta: float | None, budget: str, energy: bool) -> Settings:
    settings = with_delta(settings, delta)
    precision = replace(settings.precision, case_seconds=time_of("--budget", budget))
    return replace(settings, precision=precision, energy_seconds=ENERGY_SECONDS if energy else 0.0)


def _slicing(text: str) -> bool:
    if text not in ("auto", "off"):
        raise UserError(invalid_value("--slice", text, ("auto", "off")))
    return text == "auto"
