"""What a command leaves for a CI system: the options that name files, and the writing, which happens whatever comes.

What must not live here: any format, and what counts as a failure.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, TypedDict

import typer

from aiperf.cli.options import Format
from aiperf.cli.output import print_run
from aiperf.errors import AiperfError, Exit, Fault, UserError, usage
from aiperf.pipeline import RunOutcome
from aiperf.records.profiled import Profile
from aiperf.report.ci.dashboard import render_speedups, render_values, speedups_beside
from aiperf.report.ci.entries import Entry, entries_of_faults, entries_of_run, entry_of_error
from aiperf.report.ci.github import annotation_lines, fit_summary, step_summary
from aiperf.report.ci.gitlab import render_code_quality, render_metrics
from aiperf.report.ci.junit import render_junit
from aiperf.report.ci.places import repository
from aiperf.report.markdown import render_markdown
from aiperf.report.summary import summary_line
from aiperf.report.table import Extras, build_table

JunitOption = Annotated[Path | None, typer.Option("--junit", metavar="FILE", help="Write JUnit XML, one test a case.")]
GitlabOption = Annotated[
    Path | None, typer.Option("--gitlab", metavar="FILE", help="Write a GitLab code quality report (JSON).")
]
MetricsOption = Annotated[
    Path | None,
    typer.Option("--metrics", metavar="FILE", help="Write the numbers as OpenMetrics text (GitLab metrics)."),
]
DashboardOption = Annotated[
    Path | None,
    typer.Option(
        "--dashboard",
        metavar="FILE",
        help="Write github-action-benchmark's JSON: FILE for its customSmallerIsBetter (values of the after), and "
        "beside it NAME-speedup.json for customBiggerIsBetter (ratios).",
    ),
]


class CiPaths(TypedDict):
    """The files that were asked for; None for those that were not."""

    junit: Path | None
    gitlab: Path | None
    metrics: Path | None
    dashboard: Path | None


def write_ci(
    entries: Sequence[Entry],
    *,
    title: str,
    exit_code: Exit,
    summary: str,
    junit: Path | None,
    gitlab: Path | None,
    metrics: Path | None,
    dashboard: Path | None,
    environ: Mapping[str, str] = os.environ,
) -> None:
    """Write what was asked for and, inside GitHub Actions, annotations to stderr and the step's summary.

    ``title`` is the command, ``exit_code`` what it is going to exit with, ``summary`` Markdown for the step's summary;
    ``environ`` says which CI system this is. Raises UserError when a file cannot be written, after all the others were.
    """
    root = repository(environ)
    elsewhere = environ.get("CI_CONFIG_PATH") or ".gitlab-ci.yml"
    files: list[tuple[str, Path | None, str]] = [
        ("--junit", junit, render_junit(entries, title=title)),
        ("--gitlab", gitlab, render_code_quality(entries, root=root, elsewhere=elsewhere)),
        ("--metrics", metrics, render_metrics(entries, exit_code=exit_code)),
        ("--dashboard", dashboard, render_values(entries)),
        ("--dashboard", dashboard and speedups_beside(dashboard), render_speedups(entries)),
    ]
    faults = [fault for flag, path, text in files if path for fault in _write(flag, path, text)]
    if _in_github(environ):
        _append_summary(environ, step_summary(entries, title=title, exit_code=exit_code, summary=summary))
        for line in annotation_lines(entries, title=title, exit_code=exit_code, root=root):
            print(line, file=sys.stderr)
    if faults:
        raise UserError(faults)


def print_and_write(
    outcome: RunOutcome,
    *,
    title: str,
    form: Format,
    seconds: float,
    every_metric: bool,
    footer: Sequence[str],
    paths: CiPaths,
    profiles: Sequence[Profile] = (),
    extras: Extras | None = None,
) -> None:
    """Print a run's table and write its files: these also when the table finds no reader or cannot be rendered."""
    records = outcome.records
    told = {profile.case: profile for profile in profiles}

    def write() -> None:
        if not (any(paths.values()) or _in_github(os.environ)):
            return
        table = build_table(records, run=outcome.run, profiles=told)
        line = summary_line(records, seconds=seconds, unread=table.unread)
        write_ci(
            entries_of_run(outcome.run, records, problems=outcome.problems),
            title=title,
            exit_code=outcome.exit,
            summary=render_markdown(outcome.run, table, summary=line),
            **paths,
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
def told_to_ci(title: str, paths: CiPaths) -> Iterator[None]:
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
    if any(paths.values()):
        raise usage("a dry run measures nothing that a report could hold.", "Leave the files out.", where="--dry-run")


def _write_errors(entries: Sequence[Entry], title: str, exit_code: Exit, paths: CiPaths) -> tuple[Fault, ...]:
    try:
        write_ci(entries, title=title, exit_code=exit_code, summary="", **paths)
    except UserError as error:
        return error.faults
    return ()


def _refuse_same_file(paths: CiPaths) -> None:
    dashboard = paths["dashboard"]
    named = [("--junit", paths["junit"]), ("--gitlab", paths["gitlab"]), ("--metrics", paths["metrics"])]
    named += [("--dashboard", dashboard), ("--dashboard's speedups", dashboard and speedups_beside(dashboard))]
    taken: dict[Path, str] = {}
    for flag, path in named:
        if path and (other := taken.setdefault(path.resolve(), flag)) != flag:
            raise UserError(Fault(flag, f'"{path}" is already the file of {other}.', "Give each a file of its own."))


def _write(flag: str, path: Path, text: str) -> Iterator[Fault]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        yield Fault(flag, f'"{path}" cannot be written: {reason}.', "Name a file in a folder that you may write to.")


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
        print("the step's summary was left out: the step's file is full (1 MiB)", file=sys.stderr)
