"""``aiperf ab``: two commands against each other, without a scenario file.

What must not live here: measuring.
"""

from __future__ import annotations

import shutil
import sys
import time
from dataclasses import replace
from typing import Annotated

import typer

from aiperf.cli.ci import (
    CiPaths,
    DashboardOption,
    GitlabOption,
    JunitOption,
    MetricsOption,
    print_and_write,
    told_to_ci,
)
from aiperf.cli.fit import FitOption
from aiperf.cli.options import (
    DEFAULT_RESULTS,
    ColumnsOption,
    CostOption,
    Format,
    FormatOption,
    JsonOption,
    PinOption,
    PrecisionOption,
    QuietOption,
    ResultsOption,
    SeedOption,
    TimeoutOption,
    make_settings,
    time_of,
    with_delta,
)
from aiperf.errors import Fault, UserError, usage
from aiperf.host.facts import HostFacts
from aiperf.host.read import read_host
from aiperf.host.relevance import Fit
from aiperf.pipeline import run_plan
from aiperf.plan.costs import load_prices
from aiperf.plan.plan import Plan
from aiperf.records import Case, Check, Measure, Needs, Side
from aiperf.report.extra_columns import build_extras, chosen_columns
from aiperf.report.live import choose_progress
from aiperf.scenario.command import words_of
from aiperf.settings import ENERGY_SECONDS

_Before = Annotated[
    str,
    typer.Option("--before", metavar="CMD", help="The program as it was; no shell runs it: sh -c '...' for pipes."),
]
_Budget = Annotated[
    str, typer.Option("--budget", help="Time to spend, e.g. 60s; the first look comes whatever it says.")
]


def ab(
    before: _Before,
    after: Annotated[str, typer.Option("--after", metavar="CMD", help="The program as it is now.")],
    env_before: Annotated[list[str], typer.Option("--env-before", metavar="NAME=VALUE")] = [],  # noqa: B006
    env_after: Annotated[list[str], typer.Option("--env-after", metavar="NAME=VALUE")] = [],  # noqa: B006
    slice_: Annotated[
        str, typer.Option("--slice", help="auto: slice programs that only compute; off: run them one after the other.")
    ] = "auto",
    same_output: Annotated[bool, typer.Option("--same-output", help="Both must print the same bytes.")] = False,
    gpus: Annotated[
        int, typer.Option("--gpus", min=0, metavar="N", help="GPUs that both use: their energy counts.")
    ] = 0,
    delta: Annotated[float | None, typer.Option("--delta", help="Smallest ratio that matters, e.g. 0.02.")] = None,
    budget: _Budget = "80s",
    precision: PrecisionOption = "standard",
    seed: SeedOption = 0,
    results: ResultsOption = DEFAULT_RESULTS,
    pin: PinOption = "auto",
    timeout: TimeoutOption = "",
    fit: FitOption = Fit.warn,
    quiet: QuietOption = False,
    form: FormatOption = Format.table,
    as_json: JsonOption = False,
    columns: ColumnsOption = "",
    cost: CostOption = "",
    junit: JunitOption = None,
    gitlab: GitlabOption = None,
    metrics: MetricsOption = None,
    dashboard: DashboardOption = None,
) -> None:
    """Compare two programs: wall, user and system time and peak memory, in about a minute."""
    paths = CiPaths(junit=junit, gitlab=gitlab, metrics=metrics, dashboard=dashboard)
    with told_to_ci("aiperf ab", paths):
        wanted = chosen_columns(columns, cost=cost)
        prices = load_prices(cost) if cost else None
        settings = make_settings(
            precision=precision, results=results, seed=seed, pin=pin, timeout=timeout, slicing=_slicing(slice_)
        )
        settings = with_delta(settings, delta)
        settings = replace(settings, precision=replace(settings.precision, case_seconds=time_of("--budget", budget)))
        settings = replace(settings, energy_seconds=ENERGY_SECONDS if "energy" in wanted else 0.0)
        host = read_host()
        case = command_case(before, after, env_before, env_after, same_output=same_output)
        plan = Plan((replace(case, needs=_needs(gpus, host)),), ())
        began = time.monotonic()
        outcome = run_plan(
            plan, host=host, settings=settings, progress=choose_progress(quiet=quiet), argv=sys.argv, fit=fit
        )
    print_and_write(
        outcome,
        title="aiperf ab",
        form=Format.json if as_json else form,
        seconds=time.monotonic() - began,
        every_metric=True,
        footer=[str(outcome.folder)],
        paths=paths,
        extras=build_extras(outcome.records, wanted, prices=prices, pairs_of=lambda record: record.pairs),
    )
    raise typer.Exit(int(outcome.exit))


def command_case(before: str, after: str, env_before: list[str], env_after: list[str], *, same_output: bool) -> Case:
    """The case of two commands. Raises UserError with every mistake in them."""
    faults: list[Fault] = []
    sides = tuple(
        Side(name, command=_command(f"--{name}", text, faults), env=_env(f"--env-{name}", env, faults))
        for name, text, env in (("before", before, env_before), ("after", after, env_after))
    )
    if faults:
        raise UserError(faults)
    return Case(
        scenario="ab",
        id="ab",
        title=f"{before} against {after}",
        why="Asked at the command line.",
        sides=sides,
        measure=Measure(clock="wall"),
        check=Check("bitwise") if same_output else Check("none", reason="programs may print what they like"),
    )


def _command(flag: str, text: str, faults: list[Fault]) -> tuple[str, ...]:
    try:
        parts = words_of(text)
    except ValueError as error:
        faults.append(Fault(flag, str(error)))
        return ()
    if not parts:
        faults.append(Fault(flag, "is empty.", 'Give a command, e.g. "python script.py".'))
    elif shutil.which(parts[0]) is None:
        faults.append(Fault(flag, f'"{parts[0]}" is no program that can be found.', "Give its path, or check PATH."))
    return parts


def _env(flag: str, entries: list[str], faults: list[Fault]) -> dict[str, str]:
    env = {}
    for entry in entries:
        name, equals, value = entry.partition("=")
        if not equals or not name:
            faults.append(Fault(flag, f'"{entry}" is not NAME=VALUE.', "Write for instance OMP_NUM_THREADS=1."))
        env[name] = value
    return env


def _needs(gpus: int, host: HostFacts) -> Needs:
    if gpus > len(host.gpus):
        why = f" ({host.gpu_problem})" if host.gpu_problem else ""
        raise usage(
            f"{gpus} asked for, this host has {len(host.gpus)}{why}.", "Leave it out, or run where they are.", "--gpus"
        )
    return Needs(gpus=gpus)


def _slicing(text: str) -> bool:
    if text not in ("auto", "off"):
        raise UserError(Fault("--slice", f'"{text}" is not a way of slicing.', "Allowed: auto, off."))
    return text == "auto"
