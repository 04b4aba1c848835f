"""What a command leaves for a CI system: the options that name files, and the writing, which happens whatever comes.

What must not live here: any format, and what counts as a failure.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from aiperf.cli.options import Command, with_options
from aiperf.cli.output import print_run
from aiperf.errors import AiperfError, Exit, Fault, UserError, usage
from aiperf.recipes.run import RunOutcome
from aiperf.records.profiled import Profile
from aiperf.report.break_even import break_even_lines
from aiperf.report.ci.entries import CiEntry, CiReport, entries_of_faults, entries_of_run, entry_of_error
from aiperf.report.ci.formats import FORMATS
from aiperf.report.ci.github import annotation_lines, fit_summary, step_summary
from aiperf.report.ci.places import repository
from aiperf.report.layout.formats import OutputFormat
from aiperf.report.layout.page import page_markdown
from aiperf.report.summary import summary_line
from aiperf.report.views.run_rows import Extras, build_rows
from aiperf.report.views.run_table import run_page

CiPaths = Mapping[str, Path]
"""Name of a CI format -> the file that was asked for."""


def with_ci_files(command: Command) -> Command:
    """Give a command an option for the file of every CI format; its parameter ``ci_files`` gets those asked for."""
    options = {
        one.name: (Annotated[Path | None, typer.Option(f"--{one.name}", metavar="FILE", help=one.help)], None)
        for one in FORMATS
    }
    return with_options(
        command, "ci_files", options, lambda typed: {name: path for name, path in typed.items() if path}
    )


def write_ci(
    entries: Sequence[CiEntry],
    *,
    title: str,
    exit_code: Exit,
    summary: str,
    paths: CiPaths,
    explained: bool = False,
    environ: Mapping[str, str] = os.environ,
) -> None:
    """Write what was asked for and, inside GitHub Actions, annotations to stderr and the step's summary.

    ``title`` is the command, ``exit_code`` what it is going to exit with, ``summary`` Markdown for the step's summary,
    ``explained`` whether that has the reasons and what the exit code means; ``environ`` says which CI system this is.
    Raises UserError when a file cannot be written, after all the others were.
    """
    root = repository(environ)
    whole = step_summary(entries, title=title, exit_code=exit_code, summary=summary, explained=explained)
    report = CiReport(entries, title, exit_code, root, environ.get("CI_CONFIG_PATH") or ".gitlab-ci.yml", whole)
    faults = []
    for one in FORMATS:
        if path := paths.get(one.name):
            texts = one.render(report)
            faults += [f for end, at in one.files(path).items() for f in _write(f"--{one.name}", at, texts[end])]
    if _in_github(environ):
        _append_summary(environ, whole)
        for line in annotation_lines(entries, title=title, exit_code=exit_code, root=root):
            print(line, file=sys.stderr)
    if faults:
        raise UserError(faults)


def print_and_write(
    outcome: RunOutcome,
    *,
    title: str,
    form: OutputFormat,
    seconds: float,
    every_metric: bool,
    footer: Sequence[str],
    paths: CiPaths,
    profiles: Sequence[Profile] = (),
    extras: Extras | None = None,
) -> None:
    """Print a run's table and write its files: these also when the table finds no reader or cannot be rendered."""
    records = outcome.records

    def write() -> None:
        if not (paths or _in_github(os.environ)):
            return
        table = build_rows(records, run=outcome.run, profiles={profile.case: profile for profile in profiles})
        line = summary_line(records, seconds=seconds, unread=table.unread)
        write_ci(
            entries_of_run(outcome.run, records, problems=outcome.problems),
            title=title,
            exit_code=outcome.exit,
            summary=page_markdown(run_page(outcome.run, table, summary=line, crossings=break_even_lines(records))),
            paths=paths,
        )

    with then_written(write):
        print_run(
            outcome.run,
            records,
            form=form,
            seconds=seconds,
            every_metric=every_metric,
            footer=footer,
            warnings=outcome.problems,
            profiles=profiles,
            extras=extras,
        )


@contextlib.contextmanager
def then_written(write: Callable[[], None]) -> Iterator[None]:
    """Write after a block that prints, whatever comes of it; a reader that has seen enough costs no exit code."""
    with contextlib.suppress(BrokenPipeError):
        try:
            yield
        finally:
            write()


@contextlib.contextmanager
def with_ci_errors(title: str, paths: CiPaths) -> Iterator[None]:
    """Leave the files also of a command that ends in this block: called wrongly, interrupted, or at fault itself."""
    _refuse_same_file(paths)
    name = title.rpartition(" ")[2]
    try:
        yield
    except (typer.Exit, BrokenPipeError):
        # A plan that was printed, and a reader that has seen enough of it.
        raise
    except KeyboardInterrupt:
        said = "interrupted before anything was measured"
        _write_errors([entry_of_error(name, said, word="interrupted")], title, Exit.INTERRUPTED, paths)
        raise
    except UserError as error:
        faults = _write_errors(entries_of_faults(name, error.faults), title, error.exit, paths)
        raise type(error)((*error.faults, *faults)) from error
    except Exception as error:
        expected = isinstance(error, AiperfError)
        said = str(error) if expected else f"aiperf itself failed: {type(error).__name__}: {error}"
        _write_errors([entry_of_error(name, said)], title, Exit.USAGE if expected else Exit.INTERNAL, paths)
        raise


def refuse_files_of_a_dry_run(paths: CiPaths) -> None:
    """Refuse files that would hold nothing. Raises UserError."""
    if paths:
        raise usage(
            "cannot be combined with report files: a dry run measures nothing.",
            "Leave the report files out.",
            where="--dry-run",
        )


def _write_errors(entries: Sequence[CiEntry], title: str, exit_code: Exit, paths: CiPaths) -> tuple[Fault, ...]:
    try:
        write_ci(entries, title=title, exit_code=exit_code, summary="", paths=paths)
    except UserError as error:
        return error.faults
    return ()


def _refuse_same_file(paths: CiPaths) -> None:
    taken: dict[Path, str] = {}
    for one in FORMATS:
        for path in one.files(paths[one.name]).values() if one.name in paths else ():
            flag = f"--{one.name}"
            if (other := taken.setdefault(path.resolve(), flag)) != flag:
                raise UserError(Fault(flag, f'"{path}" is already used by {other}.', "Use a different file for each."))


def _write(flag: str, path: Path, text: str) -> Iterator[Fault]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        yield Fault(flag, f'"{path}" cannot be written: {reason}.', "Choose a folder that you can write to.")


def _in_github(environ: Mapping[str, str]) -> bool:
    return environ.get("GITHUB_ACTIONS") == "true"


def _append_summary(environ: Mapping[str, str], text: str) -> None:
    """Add to the step's file, which other commands of the step share. One that cannot be written fails no job."""
    name = environ.get("GITHUB_STEP_SUMMARY")
    if not name:
        return
    path = Path(name)
    try:
        kept = fit_summary(text, taken=path.stat().st_size if path.exists() else 0)
        with path.open("a", encoding="utf-8", newline="\n") as file:
            file.write(kept)
    except (OSError, ValueError) as error:
        print(f"the step's summary could not be written: {error}", file=sys.stderr)
        return
    if not kept:
        print("the step's summary was not written: its file has reached the limit of 1 MiB", file=sys.stderr)
