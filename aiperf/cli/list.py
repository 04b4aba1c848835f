"""``aiperf list``: the scenarios there are.

What must not live here: checking them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from aiperf.cli.options import DEFAULT_RESULTS, JsonOption
from aiperf.errors import Fault, UserError, usage
from aiperf.plan.suites import load_suite, members, suite_names
from aiperf.report.console import show as show_lines
from aiperf.report.console import terminal_width
from aiperf.report.json_file import listing_json
from aiperf.report.scenarios import list_lines
from aiperf.report.suites import suite_lines, suite_rows
from aiperf.scenario.find import list_scenarios
from aiperf.store.reference import recorded_seconds


def list_command(
    tag: Annotated[str, typer.Argument(help="Only scenarios with this tag.")] = "",
    folder: Annotated[list[Path], typer.Option("--folder", help="Look here instead of the shipped scenarios.")] = [],  # noqa: B006
    suites: Annotated[bool, typer.Option("--suites", help="List the suites instead.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List the scenarios there are."""
    if suites:
        _list_suites(as_json=as_json, unheeded=bool(tag or folder))
        return
    if missing := [path for path in folder if not path.is_dir()]:
        raise UserError([Fault("--folder", f'"{path}" is no folder.') for path in missing])
    entries = [e for e in list_scenarios(folder or None) if not tag or tag in e.tags]
    if tag and not entries:
        known = sorted({t for e in list_scenarios(folder or None) for t in e.tags})
        raise usage(f'no scenario has the tag "{tag}".', f"Tags: {', '.join(known)}.")
    if as_json:
        sys.stdout.write(listing_json(entries))
        return
    show_lines(list_lines(entries, width=terminal_width(sys.stdout)))


def _list_suites(*, as_json: bool, unheeded: bool) -> None:
    if unheeded:
        raise usage("suites have no tag and no folder.", "Leave them out.", where="--suites")
    entries = list_scenarios()
    found = [(s, [path.stem for path in members(s, entries=entries)]) for s in map(load_suite, suite_names())]
    rows = suite_rows(found, seconds=recorded_seconds(DEFAULT_RESULTS))
    if as_json:
        sys.stdout.write(listing_json(rows))
        return
    show_lines(suite_lines(rows, width=terminal_width(sys.stdout)))
