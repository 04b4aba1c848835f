"""``aiperf ab``: commands against the first of them, without a scenario file.

What must not live here: measuring, and what makes a case of commands.
"""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
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
    in_results,
    make_settings,
    not_together,
    time_of,
    with_delta,
    with_format,
)
from aiperf.cli.output import explained
from aiperf.cli.program_metrics import with_metrics
from aiperf.cli.resume import resume_lines, resumed_without
from aiperf.cli.slurm import with_slurm
from aiperf.errors import UserError, invalid_value
from aiperf.host.read import read_host
from aiperf.host.relevance import HostCheck
from aiperf.plan.costs import load_prices
from aiperf.recipes.ab import AskedMetrics, Programs, run_ab
from aiperf.recipes.run import RunOutcome
from aiperf.records import CaseRecord, Invocation
from aiperf.report.layout.formats import OutputFormat
from aiperf.report.live import choose_progress
from aiperf.report.program_facts import printed_sentences
from aiperf.report.summary import over_budget
from aiperf.report.views.extra_columns import build_extras, chosen_columns
from aiperf.settings import ENERGY_SECONDS, Settings
from aiperf.store.read import open_run

_Commands = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="CMD CMD ...",
        show_default=False,
        help="Two or more command lines, each in quotes; the first is the baseline. Run without a shell.",
    ),
]
_Shell = Annotated[
    str, typer.Option("--shell", metavar="SHELL", help="Run the commands through this shell, e.g. sh or 'bash -e'.")
]
_Prepare = Annotated[
    list[str],
    typer.Option(
        "--prepare", metavar="LINE", help="Untimed shell line before each run: one for all programs, or one for each."
    ),
]
_Warmup = Annotated[
    int, typer.Option("--warmup", min=1, metavar="N", help="Untimed runs of each program before the first pair.")
]
_Name = Annotated[
    str, typer.Option("--name", metavar="NAME", help="Name of the case; default: derived from the commands.")
]
_EnvBefore = Annotated[
    list[str],
    typer.Option("--env-before", metavar="NAME=VALUE", help="Environment variable for the first program; repeatable."),
]
_EnvAfter = Annotated[
    list[str],
    typer.Option("--env-after", metavar="NAME=VALUE", help="Environment variable for all others; repeatable."),
]
_Slice = Annotated[
    str,
    typer.Option("--slice", help="auto: run compute-only programs in alternating time slices; off: one after another."),
]
_Gpus = Annotated[
    int,
    typer.Option("--gpus", min=0, metavar="N", help="Number of GPUs each program uses; their energy is measured."),
]
_Budget = Annotated[
    str,
    typer.Option(
        "--budget", help="Time to spend, e.g. 60s; default: 40s per program. The first look always completes."
    ),
]
_PROGRAM_SECONDS = 40
_Delta = Annotated[
    str, typer.Option("--delta", "--threshold", help="Smallest relative difference that matters: 2% or 0.02.")
]
_Timeout = Annotated[str, typer.Option("--timeout", help="Time limit for one run of a program; default: 10min.")]
_SameOutput = Annotated[bool, typer.Option("--same-output", help="Require all programs to print the same bytes.")]
_SameFile = Annotated[
    list[str],
    typer.Option(
        "--same-file",
        metavar="FILE",
        help="Require each run to create FILE, with the same bytes for all programs; repeatable.",
    ),
]


@with_format()
@with_ci_files
@with_slurm
@with_metrics
@resumed_without("commands")
def ab(
    form: OutputFormat,
    commands: _Commands = None,
    env_before: _EnvBefore = [],  # noqa: B006 - typer reads the default and never changes it
    env_after: _EnvAfter = [],  # noqa: B006
    shell: _Shell = "",
    prepare: _Prepare = [],  # noqa: B006
    warmup: _Warmup = 1,
    slice_: _Slice = "auto",
    same_output: _SameOutput = False,
    same_file: _SameFile = [],  # noqa: B006
    gpus: _Gpus = 0,
    name: _Name = "",
    asked: AskedMetrics = AskedMetrics(),  # noqa: B008
    delta: _Delta = "",
    budget: _Budget = "",
    precision: PrecisionOption = "standard",
    seed: SeedOption = 0,
    results: ResultsOption = DEFAULT_RESULTS,
    resume: ResumeOption = "",
    pin: PinOption = "auto",
    timeout: _Timeout = "",
    host_check: HostCheckOption = HostCheck.warn,
    strict: StrictOption = None,
    quiet: QuietOption = False,
    columns: ColumnsOption = "",
    cost: CostOption = "",
    ci_files: CiPaths = MappingProxyType({}),
) -> None:
    """Compare programs with the first one: wall, user and system time, and peak memory; about a minute for two."""
    given = tuple(commands or ())
    with with_ci_errors("aiperf ab", ci_files):
        wanted = _columns(columns, cost=cost, prepared=bool(prepare))
        prices = load_prices(cost) if cost else None
        settings = make_settings(
            precision=precision, results=results, seed=seed, pin=pin, timeout=timeout, slicing=_slicing(slice_)
        )
        seconds = time_of("--budget", budget) if budget else _PROGRAM_SECONDS * max(2.0, len(given))
        settings = replace(_adjusted(settings, delta, seconds, wanted), strict=bool(strict), warmup_runs=warmup)
        began = time.monotonic()
        outcome = run_ab(
            Programs(given, env_before, env_after, shell, prepare, same_output, same_file, gpus, asked, name),
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
        footer=[*_about(outcome.records, budget), *resume_lines(outcome, "ab", form, results), _next(outcome, results)],
        paths=ci_files,
        extras=build_extras(outcome.records, wanted, prices=prices, pairs_of=lambda record: record.pairs),
    )
    raise typer.Exit(int(outcome.exit))


def _columns(columns: str, *, cost: str, prepared: bool) -> tuple[str, ...]:
    wanted = chosen_columns(columns, cost=cost)
    if prepared and "energy" in wanted:
        raise not_together("--prepare", "--columns energy")
    return wanted


def _next(outcome: RunOutcome, results: Path) -> str:
    """Where the run lies, and what explains it."""
    return f"{outcome.folder} · {in_results('aiperf show latest', results)} {explained(outcome.records)}"


def _about(records: Sequence[CaseRecord], budget: str) -> list[str]:
    """What the names of more than two programs stand for, whether the programs print the same, and whether the budget
    that was typed was too short."""
    sides = records[0].case.sides if records else ()
    legend = [f"{side.name}: {shlex.join(side.command)}" for side in sides] if len(sides) > 2 else []
    said = [sentence for record in records for sentence in printed_sentences(record)]
    return [*legend, *said, *over_budget(records, time_of("--budget", budget) if budget else None)]


def _adjusted(settings: Settings, delta: str, seconds: float, columns: Sequence[str]) -> Settings:
    settings = with_delta(settings, delta)
    precision = replace(settings.precision, case_seconds=seconds)
    return replace(settings, precision=precision, energy_seconds=ENERGY_SECONDS if "energy" in columns else 0.0)


def _slicing(text: str) -> bool:
    if text not in ("auto", "off"):
        raise UserError(invalid_value("--slice", text, ("auto", "off")))
    return text == "auto"
