"""Going on in a run without typing again how it was begun, and the command that does so.

What must not live here: what of a run is kept (store/resume.py), and what must be the same (plan/resume.py).
"""

from __future__ import annotations

import functools
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from aiperf.cli.main import app  # which imports the commands when they are called
from aiperf.cli.options import Command, in_results, parts_of_line
from aiperf.cli.slurm import job_again
from aiperf.errors import Exit, Fault, UserError, usage
from aiperf.launch.environment import TYPED_VARIABLE
from aiperf.launch.nodes.place import read_place
from aiperf.recipes.run import RunOutcome
from aiperf.records import RunRecord
from aiperf.report.layout.formats import OutputFormat
from aiperf.store.read import open_run


class _Again:
    active = False
    """Whether the command is typed by what stands here: a second time would be for ever."""


def resumed_without(*names: str) -> Callable[[Command], Command]:
    """Have a command with ``--resume``, and nothing in the parameters of these names, go on as its run was begun."""

    def decorated(command: Command) -> Command:
        @functools.wraps(command)
        def called(**given: Any) -> None:
            if given["resume"] and not any(given[name] for name in names):
                _go_on(given["resume"], results=given["results"])
            else:
                command(**given)

        return called

    return decorated


def _go_on(name: str, *, results: Path) -> None:
    """Type the present command once more, as the run ``name`` was begun; what is typed now is added, and wins.

    Raises UserError where that is a run of another command, and what the command raises.
    """
    before, command, typed = parts_of_line(sys.argv)
    run = open_run(name, results=results)
    record = run.record
    stored = parts_of_line(record.argv)[2]
    if _Again.active or not stored or record.command != command:
        resumable = record.command in ("run", "ab") and record.command != command
        way = f"Type: aiperf {record.command} --resume {name}" if resumable else "Also name what to measure."
        what = f"{record.run} was started by {f'aiperf {record.command}' if record.command else 'no command'}."
        raise usage(what, way, where="--resume")
    if record.cwd and os.path.isdir(record.cwd) and not os.path.samefile(record.cwd, "."):
        again = shlex.join(["aiperf", command, "--resume", str(run.folder.resolve())])
        what = f"{record.run} was started in {record.cwd}; its arguments may mean something else here."
        raise usage(what, f"Type: cd {shlex.quote(record.cwd)} && {again}", where="--resume")
    if record.withheld:
        what = f"{record.run} was started with a secret, which is not recorded."
        raise usage(what, f"Type the whole command again, with --resume {name}.", where="--resume")
    _refuse_without_launcher(stored, typed, record, name)
    _Again.active = True
    try:
        app([*before, command, *stored, *typed])
    except UserError as error:
        if record.cwd and os.path.isdir(record.cwd):
            raise
        place = f"{record.cwd}, which no longer exists" if record.cwd else "a folder that its record does not name"
        what = f"{record.run} was started in {place}, by: {shlex.join(['aiperf', command, *stored])}"
        raise UserError([*error.faults, Fault("--resume", what, "Continue in a folder with the same files.")]) from None
    finally:
        _Again.active = False


def _refuse_without_launcher(stored: Sequence[str], typed: Sequence[str], record: RunRecord, name: str) -> None:
    """Raise UserError where a run over nodes is to go on without what starts a process on each of them."""
    if not _is_launched((*stored, *typed)):
        return
    try:
        read_place()
    except UserError:
        count = len(record.nodes) + 1
        where = f"on {count} nodes" if count > 1 else "on the nodes of a job"
        again = f"Type: aiperf {record.command} --resume {name} --slurm -N {max(2, count)}"
        raise usage(
            f"{record.run} was started {where}.", f"{again}, or start it with the same launcher.", "--resume"
        ) from None


def _is_launched(argv: Sequence[str]) -> bool:
    return any(word.partition("=")[0] == "--launcher" for word in argv)


def resume_lines(outcome: RunOutcome, command: str, form: OutputFormat, results: Path) -> list[str]:
    """The command that continues an interrupted run, for below its table; formats for programs get it on stderr."""
    if outcome.exit is not Exit.INTERRUPTED:
        return []
    name, submitted = outcome.folder.name, os.environ.get(TYPED_VARIABLE)
    again = job_again(submitted, name) if submitted else in_results(f"aiperf {command} --resume {name}", results)
    where = " through the same launcher" if _is_launched(outcome.run.argv) and not submitted else ""
    line = f"continue{where} with: {again}"
    if form is not OutputFormat.table:
        print(f"interrupted; {line}", file=sys.stderr)
    return [line]
