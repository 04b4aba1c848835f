"""``aiperf profile``: why it won. Runs both sides under profilers and says what ran, what bound it, and what moved.

What must not live here: profiling, reading reports, drawing.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from aiperf.cli.completion import offer, scenarios
from aiperf.cli.options import (
    DEFAULT_RESULTS,
    OnlyOption,
    QuietOption,
    ResultsOption,
    SeedOption,
    axis_values,
    in_results,
    make_settings,
    progress_note,
    time_of,
    with_format,
)
from aiperf.cli.output import print_profiles
from aiperf.errors import Exit, usage
from aiperf.host.facts import HostFacts
from aiperf.host.fingerprint import fingerprint
from aiperf.host.read import read_host
from aiperf.plan.plan import Plan
from aiperf.plan.suites import load_suite, plan_selected, suite_names
from aiperf.profilers.external import parse_range
from aiperf.profilers.profiler import ToolStatus
from aiperf.profilers.registry import NAMES, chosen, known_endings, passed_over, statuses
from aiperf.recipes.peaks import peak_rates
from aiperf.recipes.profile import ProfileRun, profiles_exit, run_profile, write_page
from aiperf.recipes.profile_by_hand import commands_of
from aiperf.recipes.profile_case import ProfileRequest
from aiperf.recipes.profile_external import import_reports, profile_program
from aiperf.records import Invocation
from aiperf.report.layout.formats import OutputFormat, Printed, print_in, printed_listing
from aiperf.report.layout.table import listing
from aiperf.report.layout.text import Line
from aiperf.report.profile_suite import suite_lines
from aiperf.settings import Settings
from aiperf.store.read import open_run

_Selectors = Annotated[
    list[str],
    typer.Argument(
        metavar="[NAME|TAG|PATH|GLOB ...] [-- COMMAND ...]",
        help="Scenarios to profile, or a command after --.",
        autocompletion=scenarios,
    ),
]
_Suite = Annotated[
    str,
    typer.Option(
        "--suite",
        metavar="NAME|FILE",
        help="Profile a suite (see aiperf list --suites).",
        autocompletion=offer(suite_names),
    ),
]
_Tools = Annotated[
    str, typer.Option("--with", metavar="TOOLS", help=f"Profilers: {','.join(NAMES)}; default: all that work here.")
]
_Check = Annotated[
    bool, typer.Option("--check", help="Show what each profiler can do here, and how to enable the others.")
]
_PrintCommands = Annotated[
    bool, typer.Option("--print-commands", help="Print the profiler commands without running them.")
]
_Imported = Annotated[
    list[Path],
    typer.Option("--import", metavar="FILE ...", help=f"Read existing reports: {', '.join(known_endings())}."),
]
_Ranges = Annotated[
    list[str],
    typer.Option(
        "--range",
        metavar="[DOMAIN@]NAME",
        help="NVTX range to use as a side; without DOMAIN, in the domain aiperf or in none. Repeatable.",
    ),
]
_Resume = Annotated[str, typer.Option("--resume", metavar="RUN", help="Continue this run; finished profiles are kept.")]
_Limit = Annotated[str, typer.Option("--timeout", help="Timeout of one profiler pass, e.g. 2min.")]
_EveryRow = Annotated[bool, typer.Option("--all-rows", help="Show every kernel and operator.")]
_Html = Annotated[bool, typer.Option("--html", help="Write an HTML page into the run's folder.")]


@with_format()
def profile(
    form: OutputFormat,
    selectors: _Selectors = [],  # noqa: B006 - typer reads the default and never changes it
    suite: _Suite = "",
    tools: _Tools = "",
    only: OnlyOption = [],  # noqa: B006
    check: _Check = False,
    print_commands: _PrintCommands = False,
    imported: _Imported = [],  # noqa: B006
    ranges: _Ranges = [],  # noqa: B006
    resume: _Resume = "",
    limit: _Limit = "5min",
    every_row: _EveryRow = False,
    html: _Html = False,
    seed: SeedOption = 0,
    results: ResultsOption = DEFAULT_RESULTS,
    quiet: QuietOption = False,
) -> None:
    """Profile both sides: kernels, time, bottleneck, and whether the claimed counters moved."""
    selectors, command = _split(selectors)
    host, note = read_host(), progress_note(quiet)
    found = statuses(host)
    if check:
        print_in(form, _statuses_view(found))
        return
    sides = [parse_range(text) for text in ranges]
    if html and (imported or command):
        raise usage("works only for a run, and this creates none.", "Leave it out.", where="--html")
    if imported:
        read = import_reports([*imported, *map(Path, selectors)], found, ranges=sides)
        print_profiles([read], form, every_row=every_row)
        raise typer.Exit(int(profiles_exit([read])))
    wanted, seconds = chosen(found, tools), time_of("--timeout", limit)
    if command:
        _say_passed_over(found, tools)
        read = profile_program(command, wanted, gpu=bool(host.gpus), ranges=sides, limit=seconds, note=note)
        print_profiles([read], form, every_row=every_row)
        raise typer.Exit(int(profiles_exit([read])))
    settings = make_settings(precision="standard", results=results, seed=seed)
    plan = _plan(selectors, suite, host, settings, only)
    _say_passed_over(found, tools)
    request = ProfileRequest(wanted, limit=seconds, seed=seed, peaks=peak_rates(fingerprint(host)[0]))
    if print_commands:
        lines = commands_of(plan.cases, request, results=results)
        print(*lines, sep="\n")
        raise typer.Exit(int(Exit.SKIPPED if all(line.startswith("#") for line in lines) else Exit.OK))
    outcome = run_profile(
        plan,
        request,
        host=host,
        settings=settings,
        invocation=Invocation("profile", tuple(sys.argv)),
        earlier=open_run(resume, results=results) if resume else None,
        note=note,
    )
    _print_outcome(outcome, form, every_row=every_row, html=html)
    raise typer.Exit(int(outcome.exit))


def _say_passed_over(found: Sequence[ToolStatus], tools: str) -> None:
    for line in passed_over(found, tools):
        print(line, file=sys.stderr)


def _print_outcome(outcome: ProfileRun, form: OutputFormat, *, every_row: bool, html: bool) -> None:
    if outcome.problem:
        print(outcome.problem, file=sys.stderr)
    page = write_page(outcome.folder, outcome.profiles) if html else None

    shown = in_results(f"aiperf report {outcome.folder.name} --profiles", outcome.folder.parent)
    again = f"{outcome.folder} · {shown} shows this again"

    def below(width: int) -> list[Line]:
        return [*suite_lines(outcome.profiles, width=width), *([Line(str(page))] if page else []), Line(again)]

    print_profiles(outcome.profiles, form, every_row=every_row, below=[[below]])
    if page and form is not OutputFormat.table:
        print(page, file=sys.stderr)


def _plan(selectors: Sequence[str], suite: str, host: HostFacts, settings: Settings, only: list[str]) -> Plan:
    """The plan of what was named; its skips are printed, and a plan of nothing else ends here. Raises UserError."""
    if not selectors and not suite:
        raise usage("no scenario or program given.", "Name a scenario, or a program after --: aiperf profile -- ./prog")
    chosen_suite = load_suite(suite) if suite else None
    plan = plan_selected(selectors, chosen_suite, host, settings, only=axis_values(only))
    for skip in plan.skips:
        print(f"{skip.case.id} skipped: {skip.reason}", file=sys.stderr)
    if not plan.cases:
        raise typer.Exit(int(Exit.SKIPPED))
    return plan


def _split(selectors: list[str]) -> tuple[list[str], list[str]]:
    """The selectors before ``--``, and the program after it."""
    # click drops the mark itself, so it is looked for where it was typed.
    typed = sys.argv[sys.argv.index("--") + 1 :] if "--" in sys.argv else []
    return selectors[: len(selectors) - len(typed)], typed


def _statuses_view(found: Sequence[ToolStatus]) -> Printed:
    rows = [
        (a.tool, "yes" if a.usable else "no", f"{a.reason}. {a.where}{f'. To fix it: {a.fix}' if a.fix else ''}")
        for a in found
    ]
    return printed_listing(found, [[listing(("tool", "usable", "what it can do here"), rows)]], kind=ToolStatus)
