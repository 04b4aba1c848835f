"""Slurm: a batch job that runs one aiperf command on several nodes, how it fares, and what it printed.

What must not live here: options of commands, and what the nodes of a job say to each other. It calls sbatch and squeue
itself: submitit learns a job's state from sacct alone, which clusters without accounting do not have.
"""

from __future__ import annotations

import math
import os
import secrets
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from aiperf.errors import Exit, UserError, usage
from aiperf.launch.environment import EXIT_NOTE_VARIABLE, RUN_NOTE_VARIABLE, TYPED_VARIABLE
from aiperf.launch.nodes.links import FOLDER, require_space

_OVER = {"COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY", "DEADLINE"}
_OVER |= {"BOOT_FAIL", "REVOKED"}
_TAKEN_OFF = {"PREEMPTED", "NODE_FAIL"}
_FIRST_LOOK_S, _SLOWEST_LOOK_S = 0.5, 10.0
_LAG_S = 5.0
"""How long a shared folder may take to show what a node has written."""
_SCRIPT = """#!/bin/bash
rm -f {stem}.exit {stem}.survey
echo '    ' > {stem}.head  # its place, should the folder fill up
export {head}={stem}.head
export {note}={stem}.run {typed_variable}={typed}
printf %s "${typed_variable}" > {stem}.typed
resume=()
if [ "${{SLURM_RESTART_COUNT:-0}}" -gt 0 ] && [ -s {stem}.run ]; then resume=(--resume "$(cat {stem}.run)"); fi
{setup}
srun --quiet --no-kill --kill-on-bad-exit=0 --cpu-bind=none --ntasks-per-node=1 {command} "${{resume[@]}}" {more}
code=$?
read -r head < {stem}.head
echo "${{head:-$code}}" > {stem}.exit
"""


@dataclass(frozen=True)
class SlurmJob:
    """What a batch job asks for."""

    nodes: int = 0
    """0: one, or all that the allocation around this process holds."""
    partition: str = ""
    minutes: int = 0
    """Time limit; 0 takes the partition's."""
    account: str = ""
    gpus_per_node: int = 0
    sbatch: tuple[str, ...] = ()
    """Further options of sbatch."""
    requeue: bool = False
    """Whether Slurm may queue it again after a preemption or the loss of a node; its run then goes on."""
    setup: tuple[str, ...] = ()
    """Lines of the batch script before the command: modules, variables."""

    def options(self) -> list[str]:
        """Its options for sbatch: whole nodes, because others on them disturb a measurement."""
        given = {"partition": self.partition, "account": self.account, "time": self.minutes or ""}
        given["gpus-per-node"] = self.gpus_per_node or ""
        own = [f"--{name}={value}" for name, value in given.items() if value]
        fixed = ["--job-name=aiperf", "--exclusive", "--ntasks-per-node=1", "--no-kill", "--open-mode=truncate"]
        fixed.append("--requeue" if self.requeue else "--no-requeue")
        return [f"--nodes={self.nodes or 1}", *fixed, *own, *self.sbatch]


@dataclass(frozen=True)
class State:
    """How a job fares."""

    word: str
    """Slurm's own, e.g. PENDING; empty once Slurm has forgotten the job."""
    nodes: str = ""
    reason: str = ""

    @property
    def over(self) -> bool:
        """Whether nothing of it runs or will run."""
        return not self.word or self.word in _OVER

    @property
    def line(self) -> str:
        """Its status in a few words: ``queued (Resources)``."""
        if self.word == "PENDING":
            return f"queued ({self.reason})" if self.reason not in ("", "None") else "queued"
        return f"{self.word.lower().replace('_', ' ')}{f' on {self.nodes}' if self.nodes else ''}"


class Submitted:
    """A job that was submitted, by its number and the folder of the results."""

    def __init__(self, number: str, results: Path) -> None:
        self.number = number
        self.stem = results.absolute() / FOLDER / f"slurm-{number}"

    @property
    def out(self) -> Path:
        """What its command printed."""
        return Path(f"{self.stem}.out")

    @property
    def err(self) -> Path:
        """The file of its stderr."""
        return Path(f"{self.stem}.err")

    def exit_code(self) -> int | None:
        """The exit code of its command; None where the job ended before its command did, or it was killed."""
        deadline = time.monotonic() + _LAG_S
        while time.monotonic() < deadline:
            with suppress(OSError, ValueError):
                code = int(Path(f"{self.stem}.exit").read_text())
                return code if code in set(Exit) else None
            time.sleep(0.2)
        return None

    def run(self) -> str:
        """The name of the run that it began; empty for none."""
        return self._noted("run")

    def survey(self) -> str:
        """The file of the survey that it stored; empty for none."""
        return self._noted("survey")

    def typed(self) -> str:
        """The command that submitted it; empty where it never began."""
        return self._noted("typed")

    def _noted(self, what: str) -> str:
        with suppress(OSError, UnicodeError):
            return Path(f"{self.stem}.{what}").read_text(encoding="utf-8").strip()
        return ""

    def state(self) -> State:
        """How it fares now."""
        asked = _slurm("squeue", "-h", "-t", "all", "-j", self.number, "-o", "%T|%N|%r")
        word, _, rest = asked.stdout.strip().partition("|")
        if asked.returncode == 0 and word:
            return State(word, *rest.split("|", 1))
        # A controller that does not answer says nothing about the job.
        return State("") if _slurm("scontrol", "ping").returncode == 0 else State("UNKNOWN")

    def wait(self, show: Callable[[State], None]) -> State:
        """Wait until it is over; ``show`` gets how it fares at every look."""
        pause = _FIRST_LOOK_S
        while not (now := self.state()).over or self._comes_back(now):
            show(now)
            time.sleep(pause)
            pause = min(_SLOWEST_LOOK_S, 1.2 * pause)
        show(now)
        return now

    def _comes_back(self, now: State) -> bool:
        """Whether a job that was taken off its nodes is queued again; Slurm needs a moment for it."""
        if now.word not in _TAKEN_OFF:
            return False
        time.sleep(_FIRST_LOOK_S)
        return not self.state().over

    def cancel(self) -> None:
        """Have Slurm end it."""
        _slurm("scancel", self.number)


def submit(job: SlurmJob, command: Sequence[str], more: Sequence[str], results: Path, *, typed: str) -> Submitted:
    """Submit a job that runs ``command`` with the arguments ``more`` once on each of its nodes. Raises UserError with
    what sbatch says.

    Where Slurm starts the job again, ``--resume`` with the run that it began comes between the two. ``typed``: what
    submits it, for whoever has to say how to go on.
    """
    folder = results.absolute() / FOLDER
    script = folder / f"slurm-{secrets.token_hex(6)}.sh"
    stem = f"{shlex.quote(str(folder))}/slurm-$SLURM_JOB_ID"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        require_space(folder)
        said = {"command": shlex.join(command), "more": shlex.join(more), "setup": "\n".join(job.setup)}
        said |= {
            "head": EXIT_NOTE_VARIABLE,
            "note": RUN_NOTE_VARIABLE,
            "typed_variable": TYPED_VARIABLE,
            "typed": shlex.quote(typed),
        }
        script.write_text(_SCRIPT.format(**said, stem=stem), encoding="utf-8")
    except OSError as error:
        raise usage(f"cannot be written: {error.strerror}.", "Choose another folder.", str(folder)) from None
    where = [f"--output={folder}/slurm-%j.out", f"--error={folder}/slurm-%j.err"]
    try:
        done = _slurm("sbatch", "--parsable", *job.options(), *where, str(script))
    finally:
        with suppress(OSError):
            script.unlink()  # sbatch has read it
    number = done.stdout.strip().partition(";")[0]
    if done.returncode or not number.isdecimal():
        raise usage(f"sbatch rejected the job: {done.stderr.strip() or done.stdout.strip()}", where="--slurm")
    return Submitted(number, results)


def in_allocation(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether nodes are held already: by salloc, or by the batch script that this command is part of."""
    return "SLURM_JOB_ID" in environ


def nodes_held(environ: Mapping[str, str] = os.environ) -> int:
    """How many nodes the allocation around this process holds; 0 where Slurm does not say."""
    said = environ.get("SLURM_JOB_NUM_NODES", "")
    return int(said) if said.isdecimal() else 0


def names_in_step(environ: Mapping[str, str] = os.environ) -> list[str]:
    """The nodes of the step that this process is part of, in Slurm's order; empty where Slurm does not say."""
    with suppress(UserError):
        asked = _slurm("scontrol", "show", "hostnames", environ.get("SLURM_STEP_NODELIST", ""))
        return asked.stdout.split() if asked.returncode == 0 else []
    return []


def run_here(job: SlurmJob, command: Sequence[str], results: Path, *, typed: str) -> int:
    """Run ``command`` once on each of ``job.nodes`` nodes of the allocation around this process; its exit code.

    Raises UserError where it holds fewer.
    """
    if 0 < (held := nodes_held()) < job.nodes:
        what = f"this allocation holds {held} of {job.nodes} nodes."
        raise usage(what, f"Leave -N out, or start with: salloc -N {job.nodes} --exclusive", "--nodes")
    argv = ["srun", f"--nodes={job.nodes}", f"--ntasks={job.nodes}", "--ntasks-per-node=1", "--overlap", "--no-kill"]
    more = ["--quiet", "--kill-on-bad-exit=0", "--cpu-bind=none"]
    more += [f"--gpus-per-node={job.gpus_per_node}"] if job.gpus_per_node else []
    _needs("srun")
    note = results.absolute() / FOLDER / f"slurm-{secrets.token_hex(6)}.head"
    environ = {**os.environ, TYPED_VARIABLE: typed, EXIT_NOTE_VARIABLE: str(note)}
    with subprocess.Popen([*argv, *more, *command], stdin=subprocess.DEVNULL, env=environ) as running:
        try:
            code = running.wait()
            with suppress(OSError, ValueError):
                # srun's own is the highest of all nodes': 137 where one was lost.
                code = int(note.read_text())
                note.unlink()
            return code
        except KeyboardInterrupt:
            running.terminate()
            running.wait()
            return Exit.INTERRUPTED


def minutes(seconds: float) -> int:
    """A time limit as Slurm counts it."""
    return max(1, math.ceil(seconds / 60))


def _slurm(*argv: str) -> subprocess.CompletedProcess[str]:
    _needs(argv[0])
    return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)


def _needs(program: str) -> None:
    if shutil.which(program) is None:
        raise usage(f"{program} is not on PATH.", "Run it where Slurm's commands are installed.", "--slurm")
