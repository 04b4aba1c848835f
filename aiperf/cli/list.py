"""``aiperf list``: the scenarios there are, or what else there is to name.

What must not live here: checking them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

import typer

from aiperf.cli.options import DEFAULT_RESULTS, with_format
from aiperf.errors import Fault, UserError, usage
from aiperf.host.read import read_host
from aiperf.plan.suites import load_suite, members, suite_names
from aiperf.profilers.counters import COUNTERS
from aiperf.report.counters import counter_rows
from aiperf.report.layout.formats import OutputFormat, print_in
from aiperf.report.layout.terminal import terminal_lines
from aiperf.report.views.listings import (
    SuiteRow,
    counters_view,
    scenarios_view,
    suite_rows,
    suites_view,
    workloads_view,
)
from aiperf.scenario.find import Listing, list_scenarios
from aiperf.scenario.workloads import list_workloads
from aiperf.store.reference import recorded_seconds

_WHERE = "as a tag or, if there is no such tag, in the name, title, workload or book row"


@with_format()
def list_command(
    form: OutputFormat,
    words: Annotated[
        list[str], typer.Argument(metavar="[WORD ...]", help=f"Only scenarios with every WORD {_WHERE}.")
    ] = [],  # noqa: B006
    folder: Annotated[
        list[Path],
        typer.Option(
            "--folder", metavar="PATH", help="Search this folder instead of the shipped scenarios; repeatable."
        ),
    ] = [],  # noqa: B006
    suites: Annotated[bool, typer.Option("--suites", help="List the suites instead.")] = False,
    workloads: Annotated[bool, typer.Option("--workloads", help="List the workloads instead.")] = False,
    counters: Annotated[
        bool, typer.Option("--counters", help="List the counters that moves: accepts instead.")
    ] = False,
    every: Annotated[
        bool, typer.Option("--all", help="List all scenarios, even if they fill more than a screen.")
    ] = False,
) -> None:
    """List scenarios, suites, workloads or counters."""
    _refuse_mixtures({"suites": suites, "workloads": workloads, "counters": counters}, narrowed=bool(words or folder))
    if suites:
        print_in(form, suites_view(_suites()))
    elif workloads:
        print_in(form, workloads_view(list_workloads(list_scenarios())))
    elif counters:
        print_in(form, counters_view(counter_rows(COUNTERS.values())))
    else:
        lines = None if every else terminal_lines(sys.stdout)
        gpus = len(read_host().gpus) if lines is not None else 0
        print_in(form, scenarios_view(_scenarios(words, folder), gpus=gpus, most_lines=lines))


def _refuse_mixtures(listings: dict[str, bool], *, narrowed: bool) -> None:
    asked = [name for name, wanted in listings.items() if wanted]
    if len(asked) > 1:
        options = [f"--{name}" for name in asked]
        raise usage(f"{' and '.join(options)} cannot be combined.", "Give one of them.")
    if asked and narrowed:
        raise usage(f"--{asked[0]} takes no WORD and no --folder.", "Leave them out.", where=f"--{asked[0]}")


def _scenarios(words: Sequence[str], folder: Sequence[Path]) -> list[Listing]:
    if missing := [path for path in folder if not path.is_dir()]:
        raise UserError([Fault("--folder", f'"{path}" is not a folder.') for path in missing])
    found = list_scenarios(folder or None)
    known = sorted({t for entry in found for t in entry.tags})
    entries = [e for e in found if all(word in e.tags if word in known else e.speaks_of(word) for word in words)]
    if words and not entries:
        asked = " and ".join(f'"{word}"' for word in words)
        near = list(dict.fromkeys(tag for word in words for tag in get_close_matches(word.casefold(), known, n=3)))
        tags = f"Nearest tags: {', '.join(near)}. " if near else ""
        raise usage(f"no scenario has {asked} {_WHERE}.", f"{tags}aiperf list shows all scenarios and tags.")
    return entries


def _suites() -> list[SuiteRow]:
    entries = list_scenarios()
    found = [(s, [path.stem for path in members(s, entries=entries)]) for s in map(load_suite, suite_names())]
    return suite_rows(found, seconds=recorded_seconds(DEFAULT_RESULTS))
