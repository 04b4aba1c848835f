"""``aiperf profile``: why it won. Runs both sides under profilers and says what ran, what bound it, and what moved.

What must not live here: profiling, reading reports, drawing.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from aiperf.cli.options import (
    DEFAULT_RESULTS,
    Format,
    FormatOption,
    JsonOption,
    OnlyOption,
    QuietOption,
    ResultsOption,
    SeedOption,
    axis_values,
    make_settings,
    progress_note,
    time_of,
)
from aiperf.cli.output import print_profiles
from aiperf.errors import Exit, usage
from aiperf.host.facts import HostFacts
from aiperf.host.fingerprint import fingerprint
from aiperf.host.read import read_host
from aiperf.plan.suites import load_suite, plan_selected
from aiperf.profilers.external import parse_range
from aiperf.profilers.profiler import ToolStatus
from aiperf.profilers.registry import NAMES, chosen, known_endings, passed_over, statuses
from aiperf.recipes.peaks import peak_rates
from aiperf.recipes.profile import ProfileRequest, commands_of, going_on, profile_cases, write_page
from aiperf.recipes.profile_external import import_reports, profile_program
from aiperf.recipes.run_record import begin_run, end_run, new_record
from aiperf.records import Case, Invocation
from aiperf.records.profiled import Profile
from aiperf.report.columns import text_table
from aiperf.report.layout.formats import listing_json
from aiperf.report.layout.terminal import show as show_lines
from aiperf.report.layout.terminal import terminal_width
from aiperf.report.layout.text import Line
from aiperf.report.profile_page import profiles_html
from aiperf.report.profile_suite import suite_lines
from aiperf.store.read import open_run

_Selectors = Annotated[
    list[str], typer.Argument(metavar="[NAME|TAG|PATH|GLOB ...] [-- COMMAND ...]", help="What to profile.")
]
_Suite = Annotated[
    str, typer.Option("--suite", metavar="NAME|FILE", help="Profile a suite; aiperf list --suites shows them.")
]
_Tools = Annotated[str, typer.Option("--with", metavar="TOOLS", help=f"{','.join(NAMES)}; default: all usable.")]
_Check = Annotated[bool, typer.Option("--check", help="Say what each profiler can do here, and how to fix it.")]
_PrintCommands = Annotated[
    bool, typer.Option("--print-commands", help="Print the commands, for use by hand; run nothing.")
]
_Imported = Annotated[
    list[Path],
    typer.Option("--import", metavar="FILE ...", help=f"Read existing reports: {', '.join(known_endings())}."),
]
_Ranges = Annotated[
    list[str], typer.Option("--range", metavar="[DOMAIN@]NAME", help="A range of a program or report: a side.")
]
_Resume = Annotated[str, typer.Option("--resume", metavar="RUN", help="Go on in this run: its profiles are kept.")]
_Limit = Annotated[str, typer.Option("--timeout", help="Limit of one pass of one tool, e.g. 2min.")]
_EveryRow = Annotated[bool, typer.Option("--all-rows", help="Print every kernel and operator.")]
_Html = Annotated[bool, typer.Option("--html", help="Write a page of the profiles into the run's folder.")]


def profile(
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
    form: FormatOption = Format.table,
    as_json: JsonOption = False,
) -> None:
    """Profile both sides: what ran, where the time went, what bound it, and whether the claimed counters moved."""
    selectors, command = _split(selectors)
    form = Format.json if as_json else form
    host = read_host()
    found = statuses(host)
    if check:
        _print_abilities(found, form)
        return
    request = ProfileRequest(
        chosen(found, tools), limit=time_of("--timeout", limit), seed=seed, peaks=peak_rates(fingerprint(host)[0])
    )
    sides = [parse_range(text) for text in ranges]
    if html and (imported or command):
        raise usage("a page belongs to a run, and this makes none.", "Leave it out.", where="--html")
    if not imported:
        for line in passed_over(found, tools):
            print(line, file=sys.stderr)
    if imported:
        read = import_reports([*imported, *map(Path, selectors)], found, ranges=sides)
        print_profiles([read], form, every_row=every_row)
        raise typer.Exit(int(_code([read])))
    if command:
        told = profile_program(
            command, request.statuses, gpu=bool(host.gpus), ranges=sides, limit=request.limit, note=progress_note(quiet)
        )
        print_profiles([told], form, every_row=every_row)
        raise typer.Exit(int(_code([told])))
    _profile_scenarios(
        selectors, suite, only, request, host, results=results, resume=resume, quiet=quiet, form=form,
        every_row=every_row, print_commands=print_commands, html=html,
    )  # fmt: skip


def _profile_scenarios(
    selectors: Sequence[str],
    suite: str,
    only: list[str],
    request: ProfileRequest,
    host: HostFacts,
    *,
    results: Path,
    resume: str,
    quiet: bool,
    form: Format,
    every_row: bool,
    print_commands: bool,
    html: bool,
) -> None:
    if not selectors and not suite:
        raise usage("nothing to profile was named.", "Name a scenario, or a program after --: aiperf profile -- ./prog")
    settings = make_settings(precision="standard", results=results, seed=request.seed)
    chosen_suite = load_suite(suite) if suite else None
    plan = plan_selected(selectors, chosen_suite, host, settings, only=axis_values(only))
    for skip in plan.skips:
        print(f"{skip.case.id} skipped: {skip.reason}", file=sys.stderr)
    if not plan.cases:
        raise typer.Exit(int(Exit.SKIPPED))
    if print_commands:
        lines = _lines_by_hand(plan.cases, request, results)
        print(*lines, sep="\n")
        raise typer.Exit(int(Exit.SKIPPED if all(line.startswith("#") for line in lines) else Exit.OK))
    done: list[Profile] = []
    code = Exit.OK
    if resume:
        names = [case.id for case in plan.cases]
        earlier = open_run(resume, results=results)
        writer, run = going_on(earlier, host_id=fingerprint(host)[0], planned=names)
        folder = earlier.folder
    else:
        writer, run = begin_run(
            new_record(plan, host=host, settings=settings, invocation=Invocation("profile", tuple(sys.argv))), settings
        )
        folder = writer.folder
    try:
        profile_cases(plan.cases, request, run=folder, note=progress_note(quiet), done=done.append)
    except KeyboardInterrupt:
        saved = f"{len(done)} of {len(plan.cases)} cases are profiled and saved"
        print(f"interrupted: {saved}; the same command with --resume {folder.name} goes on", file=sys.stderr)
        code = Exit.INTERRUPTED
    finally:
        if writer is not None:
            end_run(writer, run, "finished" if len(done) == len(plan.cases) else "interrupted")
    print_profiles(done, form, every_row=every_row)
    page = write_page(folder, profiles_html(folder.name, done)) if html else None
    if form is Format.table:
        show_lines([*suite_lines(done, width=terminal_width(sys.stdout)), Line(str(page or folder))])
    elif page:
        print(page, file=sys.stderr)
    raise typer.Exit(int(code if code is not Exit.OK else _code(done)))


def _lines_by_hand(cases: Sequence[Case], request: ProfileRequest, results: Path) -> list[str]:
    try:
        return list(commands_of(cases, request, results=results))
    except OSError as error:
        where = str(error.filename or results)
        raise usage(f"the commands cannot be prepared ({error.strerror}).", "Give other --results.", where) from None


def _code(profiles: Sequence[Profile]) -> Exit:
    """A pass that failed or told nothing is no success, whatever the tool's own exit code was."""
    states = {artefact.status for profile in profiles for artefact in profile.artefacts}
    if states & {"failed", "empty"}:
        return Exit.WRONG
    return Exit.OK if "read" in states else Exit.SKIPPED


def _split(selectors: list[str]) -> tuple[list[str], list[str]]:
    """What stands before ``--``, and the program after it."""
    # click drops the mark itself, so it is looked for where it was typed.
    typed = sys.argv[sys.argv.index("--") + 1 :] if "--" in sys.argv else []
    return selectors[: len(selectors) - len(typed)], typed


def _print_abilities(found: Sequence[ToolStatus], form: Format) -> None:
    if form is Format.json:
        sys.stdout.write(listing_json(found))
        return
    rows = [
        (a.tool, "yes" if a.usable else "no", f"{a.reason}. {a.where}{f'. To fix it: {a.fix}' if a.fix else ''}")
        for a in found
    ]
    show_lines(text_table(("tool", "usable", "what it can do here"), rows, width=terminal_width(sys.stdout)))
