"""``--slurm``: the same command as a batch job, waited for with one live line, its table brought home.

What must not live here: Slurm's own commands (launch/nodes/slurm.py).
"""

from __future__ import annotations

import functools
import inspect
import os
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
import yaml

from aiperf.cli.nodes import nodes_needed, refuse_idle_nodes
from aiperf.cli.options import Command, in_results, parts_of_line, refuse_beside, time_of, with_options
from aiperf.errors import Exit, UserError, usage
from aiperf.launch.nodes.links import require_space
from aiperf.launch.nodes.slurm import SlurmJob, State, Submitted, in_allocation, minutes, nodes_held, run_here, submit
from aiperf.units import format_duration

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_Job = TypeVar("_Job", bound="DataclassInstance")
_FLAGS = ("--slurm", "--detach", "--requeue")
_VALUED = ("-N", "--nodes", "--partition", "--time", "--account", "--gpus-per-node", "--slurm-file", "--collect")
_GIVEN = ("nodes", "partition", "account", "gpus_per_node", "requeue")
_OPTIONS: dict[str, tuple[Any, Any]] = {
    "slurm": (
        Annotated[bool, typer.Option("--slurm", help="Run as a Slurm job; inside an allocation, on its nodes.")],
        False,
    ),
    "nodes": (Annotated[int, typer.Option("--nodes", "-N", min=0, help="Slurm, Kubernetes: number of nodes.")], 0),
    "partition": (Annotated[str, typer.Option("--partition", help="Slurm: partition.")], ""),
    "time_limit": (Annotated[str, typer.Option("--time", help="Slurm, Kubernetes: time limit, e.g. 20min.")], ""),
    "account": (Annotated[str, typer.Option("--account", help="Slurm: account.")], ""),
    "gpus_per_node": (
        Annotated[int, typer.Option("--gpus-per-node", min=0, help="Slurm, Kubernetes: GPUs per node.")],
        0,
    ),
    "slurm_file": (
        Annotated[
            str,
            typer.Option("--slurm-file", metavar="FILE", help="YAML file of these options, plus setup: and sbatch:."),
        ],
        "",
    ),
    "requeue": (
        Annotated[bool, typer.Option("--requeue", help="Slurm: let the job be requeued after a preemption.")],
        False,
    ),
    "detach": (Annotated[bool, typer.Option("--detach", help="Slurm: submit the job and return.")], False),
    "collect": (
        Annotated[
            str, typer.Option("--collect", metavar="JOB", help="Slurm: wait for a detached job and print its table.")
        ],
        "",
    ),
}


@dataclass(frozen=True)
class _SlurmAsked:
    job: SlurmJob | None
    """None: not on Slurm."""
    detach: bool
    collect: str


def with_slurm(command: Command) -> Command:
    """Give a command the options of Slurm; where they are used it runs as a job instead of here."""
    signature = inspect.signature(command, eval_str=True)
    own = [*signature.parameters.values(), inspect.Parameter("slurm", inspect.Parameter.KEYWORD_ONLY)]

    @functools.wraps(command)
    def called(**given: Any) -> None:
        asked: _SlurmAsked = given.pop("slurm")
        if asked.job is None and not asked.collect:
            command(**given)
            return
        if given.get("dry_run") and not in_allocation():
            what = "cannot be combined with --slurm: the plan depends on the nodes of the job."
            hint = "Leave --slurm out to see the plan for this host, or run it inside an allocation."
            raise usage(what, hint, "--dry-run")
        raise typer.Exit(_elsewhere(asked, given))

    called.__signature__ = signature.replace(parameters=own)  # type: ignore[attr-defined]
    return with_options(called, "slurm", _OPTIONS, _asked)


def _asked(typed: dict[str, Any]) -> _SlurmAsked:
    if typed["collect"]:
        refuse_beside("--collect", "--results", "--quiet")
    wants = typed["slurm"] or typed["slurm_file"]
    given = {name: typed[name] for name in _GIVEN if typed[name]}
    if typed["time_limit"]:
        given["minutes"] = minutes(time_of("--time", typed["time_limit"]))
    if not wants:
        if given or typed["detach"]:
            names = {"minutes": "time"}
            option = next((names.get(name, name.replace("_", "-")) for name in given), "detach")
            raise usage("applies only to a job.", "Add --slurm or --kubernetes.", f"--{option}")
        return _SlurmAsked(None, False, typed["collect"])
    file = typed["slurm_file"]
    base = read_job_file(Path(file), SlurmJob, "minutes", minutes) if file else SlurmJob()
    return _SlurmAsked(replace(base, **given), typed["detach"], "")


def read_job_file(path: Path, kind: type[_Job], limit: str, whole: Callable[[float], int]) -> _Job:
    """The job that a file describes; its ``time`` becomes the field ``limit``, made ``whole``. Raises UserError."""
    try:
        said = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (OSError, UnicodeError, yaml.YAMLError) as error:
        raise usage(f"cannot be read: {error}", where=str(path)) from None
    defaults = kind()
    names = [field.name for field in fields(defaults) if field.name != limit] + ["time"]
    if not isinstance(said, dict) or (unknown := [key for key in said if key not in names]):
        what = f"unknown key {unknown[0]}." if isinstance(said, dict) else "is not a mapping."
        raise usage(what, f"Allowed: {', '.join(names)}.", str(path))
    if "time" in said:
        said[limit] = whole(time_of(f"{path}: time", str(said.pop("time"))))
    for key, value in said.items():
        wanted = type(getattr(defaults, key))
        if wanted is bool and isinstance(value, bool):
            continue
        if wanted is tuple and isinstance(value, list) and all(isinstance(line, str) for line in value):
            said[key] = tuple(value)
        elif not isinstance(value, wanted) or isinstance(value, bool):
            shown = {bool: "yes or no", int: "a number", str: "text", tuple: "a list of lines", dict: "a mapping"}[
                wanted
            ]
            raise usage(f"{key}: {value!r} is not {shown}.", where=str(path))
    return kind(**said)


def _elsewhere(asked: _SlurmAsked, given: Mapping[str, Any]) -> int:
    """Run, submit or collect a command with these parameters; the exit code."""
    results, quiet, spreads = given["results"], given["quiet"], "launcher" in given
    if asked.job is None:
        return _bring_home(Submitted(asked.collect, results), results, quiet=quiet)
    if asked.job.nodes > 1 and not spreads:
        raise usage("cannot be more than 1 for this command.", "Leave -N out.", "--nodes")
    refuse_idle_nodes(asked.job.nodes, given)
    held = _nodes_here(given) if spreads and in_allocation() and not asked.job.nodes else 1
    wanted = replace(asked.job, nodes=asked.job.nodes or held)
    before, name, more = parts_of_line(["aiperf", *without_slurm(sys.argv[1:])])
    command, typed = [sys.executable, "-m", "aiperf", *before, name], shlex.join(["aiperf", *sys.argv[1:]])
    more += ["--launcher", "env"] if wanted.nodes > 1 else []
    if in_allocation():
        return run_here(wanted, [*command, *more], results, typed=typed)
    job = submit(wanted, command, more, results, typed=typed)
    if asked.detach:
        again = in_results(f"aiperf {name} --collect {job.number}", results)
        print(f"job {job.number} submitted; collect its table with: {again}")
        return Exit.OK
    try:
        return _bring_home(job, results, quiet=quiet)
    except KeyboardInterrupt:
        job.cancel()
        return _bring_home(job, results, quiet=quiet)


def _nodes_here(given: Mapping[str, Any]) -> int:
    """The nodes of this allocation, without those that no case uses."""
    held = nodes_held() or 1
    needed = nodes_needed(given) if held > 1 else 0
    if not 0 < needed < held:
        return held
    if not given["quiet"]:
        print(f"{needed} of {held} nodes are used: no case is spread over more", file=sys.stderr)
    return needed


def job_again(typed: str, run: str) -> str:
    """The command that submits a job once more, to go on in the run that it began; ``typed``: what submitted it."""
    before, name, more = parts_of_line(without_options(shlex.split(typed), ("--detach",), ("--resume",)))
    return shlex.join(["aiperf", *before, name, "--resume", run, *more])


def without_slurm(argv: Sequence[str]) -> list[str]:
    """A command line without the options of Slurm."""
    return without_options(argv, _FLAGS, _VALUED)


def without_options(argv: Sequence[str], flags: Sequence[str], valued: Sequence[str]) -> list[str]:
    """A command line without these options, those of ``valued`` with their values."""
    kept, words = [], iter(argv)
    for word in words:
        flag = word.partition("=")[0]
        if word in valued:
            next(words, None)
        elif word == "--":
            kept += [word, *words]
        elif not (word in flags or flag in valued or ("-N" in valued and word[:2] == "-N" and word[2:].isdecimal())):
            kept.append(word)
    return kept


def _bring_home(job: Submitted, results: Path, *, quiet: bool) -> int:
    line = _Line(job, quiet=quiet)
    state = job.wait(line.show)
    line.end()
    code = job.exit_code()
    said = job.out.read_text(encoding="utf-8", errors="replace") if job.out.is_file() else ""
    print(said, end="")
    if code is not None and (said or not job.survey()):
        return code
    run, typed = job.run(), job.typed()
    way = f"continue with: {job_again(typed, run)}" if run and typed else "it stored nothing; submit it again"
    if file := job.survey():
        way = f"show what it measured with: {shlex.join(['aiperf', 'survey', '--from', file])}"
    try:
        require_space(job.stem.parent if job.stem.parent.is_dir() else results)
    except UserError:
        print(f"once there is space, {way}", file=sys.stderr)
        raise
    if not job.err.is_file():
        if state.word == "CANCELLED" and not run:
            print(f"job {job.number} was cancelled before it started", file=sys.stderr)
            return Exit.INTERRUPTED
        what = f"job {job.number} left nothing in {job.stem.parent}."
        if not state.word:
            hint = "Check the job number, and give its results folder with --results."
            raise usage(f"Slurm no longer knows the job, and {what}", hint, "--collect")
        raise usage(what, "Choose a folder on a file system that every node shares.", "--results")
    what = f"job {job.number} ended before its command: {state.word or 'unknown'}"
    print(f"{what}; {way}", file=sys.stderr)
    return Exit.INTERRUPTED


class _Line:
    """How the job fares, in one line that is rewritten on a terminal; above it what its command says."""

    def __init__(self, job: Submitted, *, quiet: bool) -> None:
        self._job, self._quiet = job, quiet
        self._began, self._shown, self._read = time.monotonic(), "", 0
        self._live = sys.stderr.isatty()

    def show(self, state: State) -> None:
        if self._quiet:
            return
        self._follow()
        line = f"job {self._job.number}: {state.line or 'over'}"
        if self._live:
            elapsed = format_duration(time.monotonic() - self._began)
            print(f"\r\x1b[K{line} · {elapsed}", end="", file=sys.stderr, flush=True)
        elif line != self._shown:
            print(line, file=sys.stderr)
        self._shown = line

    def _follow(self) -> None:
        if not self._job.err.is_file():
            return
        with self._job.err.open("rb") as file:
            if file.seek(0, os.SEEK_END) < self._read:
                self._read = 0  # the job has begun again
            file.seek(self._read)
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._read += len(whole)
        if whole:
            text = whole.decode("utf-8", "replace")
            print(("\r\x1b[K" if self._live else "") + text, end="", file=sys.stderr)

    def end(self) -> None:
        if self._live and not self._quiet:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        if not self._quiet:
            self._follow()
