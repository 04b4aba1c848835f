"""The recipe of `aiperf ab`: commands become one case, which is measured as any other.

What must not live here: measuring, flags, printing.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count as count_from
from pathlib import PurePath

from aiperf.analysis.metrics import DEFAULT_METRIC
from aiperf.errors import Fault, UserError, invalid_value, usage
from aiperf.host.facts import HostFacts
from aiperf.host.relevance import HostCheck
from aiperf.paths import scenario_folder
from aiperf.plan.plan import Plan
from aiperf.recipes.run import Opening, RunOutcome, run_plan
from aiperf.records import Case, Check, Invocation, Measure, Needs, ProgramMetric, Side
from aiperf.report.live import Progress
from aiperf.scenario.command import files_fault, words_of
from aiperf.scenario.program_metrics import (
    COMMAND_METRICS,
    DEFAULT_GPU_METRIC,
    GPU_METRICS,
    check_primary,
    range_metrics,
    typed_metrics,
)
from aiperf.settings import Settings
from aiperf.store.codec import as_stored
from aiperf.store.read import StoredRun
from aiperf.units import InvalidValue

_UNNAMED = re.compile(r"[^A-Za-z0-9._-]+")
"""What a side's name does not hold."""
_NAME_MOST = 24
_CASE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_SUFFIX = re.compile(r"\.[A-Za-z]+$")


@dataclass(frozen=True)
class AskedMetrics:
    """What is asked of the programs besides their times, as typed."""

    printed: tuple[str, ...] = ()
    """What all print, each as ``--metric`` has it."""
    better: tuple[str, ...] = ()
    """Direction of each of them, or of all."""
    ranges: tuple[str, ...] = ()
    """Names of the NVTX ranges of all."""
    clock: str = "wall"
    """wall, or gpu for the time of their kernels too."""
    primary: str = ""
    """The metric that the verdict is about; empty for the first that is asked for, else the time."""


@dataclass(frozen=True)
class Programs:
    """Commands to compare with the first of them, as typed."""

    commands: Sequence[str]
    env_before: Sequence[str] = ()
    """``NAME=VALUE`` each, of the first."""
    env_after: Sequence[str] = ()
    """The same of every other one."""
    shell: str = ""
    """The shell that runs each; empty to start them directly."""
    prepare: Sequence[str] = ()
    """What a shell runs before each run: one line for all, or one for each command."""
    same_output: bool = False
    """Whether all must print the same bytes."""
    same_files: Sequence[str] = ()
    """Files into which all must write the same bytes."""
    gpus: int = 0
    """GPUs that each uses."""
    asked: AskedMetrics = AskedMetrics()
    name: str = ""
    """Name of the case; empty for one that the commands make."""


def run_ab(
    programs: Programs,
    *,
    host: HostFacts,
    settings: Settings,
    progress: Progress,
    invocation: Invocation,
    host_check: HostCheck,
    earlier: StoredRun | None = None,
) -> RunOutcome:
    """Measure programs against the first of them. Raises UserError with every mistake in them.

    With ``earlier`` that run goes on, if it is of the same programs, asked the same; its pairs count.
    """
    case = command_case(programs, host)
    if earlier is not None:
        case = _as_begun(case, earlier, named=bool(programs.name))
    return run_plan(
        Plan((case,), ()),
        host=host,
        settings=settings,
        progress=progress,
        invocation=invocation,
        host_check=host_check,
        opening=Opening(earlier),
    )


def _as_begun(case: Case, earlier: StoredRun, *, named: bool) -> Case:
    """The case under the name that the run has for it, which goes on with the programs that it began with.

    Raises UserError.
    """
    records, _ = earlier.read_cases()
    found = next((record.case for record in records), None)
    if found is None or earlier.record.command not in ("ab", ""):
        what = f"{earlier.folder.name} is not a run of aiperf ab that started measuring."
        raise usage(what, "Name a run of aiperf ab.", where="--resume")
    asked = ("sides", "measure", "check", "needs", *(["id"] if named else []))
    kept = as_stored(case)
    differing = [name for name in asked if getattr(found, name) != getattr(kept, name)]
    if differing:
        what = f"{earlier.folder.name} compared other programs or used other options ({', '.join(differing)})."
        raise usage(what, "Repeat its original options, or start a new run.", where="--resume")
    return replace(case, scenario=found.scenario, id=found.id)


def command_case(programs: Programs, host: HostFacts) -> Case:
    """The case of two or more commands. Raises UserError with every mistake in them."""
    faults: list[Fault] = []
    metrics = _metrics(programs.asked, faults)
    sides = _sides(programs, metrics, faults)
    gpus = _gpus(programs, host, faults)
    if fault := files_fault(programs.same_files):
        faults.append(Fault("--same-file", fault, "Name a file that each program creates."))
    primary = _primary(programs.asked, metrics, faults)
    if programs.name and not _CASE_NAME.fullmatch(programs.name):
        hint = "Use at most 60 letters, digits and . _ -, e.g. sort-vs-gsort."
        faults.append(Fault("--name", f'"{programs.name}" is not a valid case name.', hint))
    elif programs.name and next(scenario_folder().rglob(f"{programs.name}.yaml"), None):
        what = f"{programs.name} is the name of a scenario, and their histories would mix."
        faults.append(Fault("--name", what, f"Choose another name, e.g. my-{programs.name}."))
    if faults:
        raise UserError(faults)
    first, *others = programs.commands
    name = programs.name or case_name(programs)
    return Case(
        scenario=name,
        id=name,
        title=f"{first} against {', '.join(others)}",
        why="Asked at the command line.",
        sides=sides,
        alternatives=True,
        needs=Needs(gpus=gpus),
        measure=Measure(clock="gpu" if programs.asked.clock == "gpu" else "wall", metric=primary),
        check=Check("bitwise" if programs.same_output else "none", files=tuple(programs.same_files)),
    )


def _sides(programs: Programs, metrics: tuple[ProgramMetric, ...], faults: list[Fault]) -> tuple[Side, ...]:
    count = len(programs.commands)
    if count < 2:
        hint = 'Put each in quotes: aiperf ab "./old --fast" ./new.'
        faults.append(Fault("aiperf ab", f"needs two or more programs, but got {'one' if count else 'none'}.", hint))
    shell = _shell(programs.shell, faults)
    commands = [_command(n, text, shell, faults) for n, text in enumerate(programs.commands, start=1)]
    envs = [_env("--env-before", programs.env_before, faults), _env("--env-after", programs.env_after, faults)]
    prepared = [(*(shell or ("sh", "-c")), line) if line.strip() else () for line in programs.prepare]
    if len(prepared) not in (0, 1, count):
        what = f"is given {len(prepared)} times for {count} programs."
        faults.append(Fault("--prepare", what, "Give it once for all, or once for each program."))
    return tuple(
        Side(
            name,
            command=command,
            env=envs[number > 0],
            prepare=prepared[min(number, len(prepared) - 1)] if prepared else (),
            metrics=metrics,
        )
        for number, (name, command) in enumerate(zip(side_names(programs.commands), commands, strict=True))
    )


def side_names(commands: Sequence[str]) -> list[str]:
    """``before`` and ``after``; of more commands ``before``, and for each other one what only it has in its words."""
    if len(commands) <= 2:
        return ["before", "after"][: len(commands)]
    words = [text.split() for text in commands]
    shared = set(words[0]).intersection(*words[1:])
    names = ["before"]
    for own in words[1:]:
        text = "-".join(word.rpartition("/")[2] for word in own if word not in shared)
        name = _UNNAMED.sub("-", text).strip("-._")[:_NAME_MOST].rstrip("-._") or "program"
        copies = (f"{name}-{number}" for number in count_from(2))
        names.append(name if name not in (*names, "after") else next(copy for copy in copies if copy not in names))
    return names


def case_name(programs: Programs) -> str:
    """A name for the case, the same for the same programs: what they are called, or the word in which they differ.

    Where that leaves something out, four digits of a hash of everything end it.
    """
    words = [text.split() for text in programs.commands]
    stems = [_stem(own[0]) for own in words]
    shared = set(words[0]).intersection(*words[1:])
    whole = not (programs.shell or programs.prepare or programs.env_before or programs.env_after)
    parts: list[str] = []
    for stem, own in zip(stems, words, strict=True):
        other = next((word for word in own[1:] if word not in shared), "") if len(set(stems)) == 1 else ""
        part = f"{stem}-{_stem(other)}" if other else stem
        parts.append(part[:_NAME_MOST].rstrip("-._"))
        whole = whole and part == parts[-1] and own == ([own[0], other] if other else own[:1])
        whole = whole and not any("/" in word.removeprefix("./") or "'" in word or '"' in word for word in own)
    distinct = list(dict.fromkeys(parts))
    name = "-vs-".join(distinct)
    if whole and len(distinct) == len(parts) and len(name) <= 2 * _NAME_MOST + 4:
        return name
    everything = (
        *(tuple(given) for given in (programs.commands, programs.env_before, programs.env_after, programs.prepare)),
        programs.shell,
    )
    digest = hashlib.sha256(repr(everything).encode("utf-8", "surrogateescape")).hexdigest()[:4]
    return f"{name[: 2 * _NAME_MOST + 4].rstrip('-._')}-{digest}"


def _stem(word: str) -> str:
    """What a program, a script or an option is called, without its folder and its ending."""
    name = _SUFFIX.sub("", PurePath(word.strip("'\"")).name)
    return _UNNAMED.sub("-", name).strip("-._") or "program"


def _shell(text: str, faults: list[Fault]) -> tuple[str, ...]:
    """How a shell is asked to run a line; empty without one."""
    if not text:
        return ()
    words = _words("--shell", text, "Name one, e.g. sh or 'bash -e'.", faults)
    return (*words, "-c") if words else ()


def _command(number: int, text: str, shell: tuple[str, ...], faults: list[Fault]) -> tuple[str, ...]:
    where = f"program {number}"
    if shell and text.strip():
        return (*shell, text)
    return _words(where, text, 'Give a command, e.g. "python3 script.py".', faults)


def _words(where: str, text: str, example: str, faults: list[Fault]) -> tuple[str, ...]:
    try:
        parts = words_of(text, other="Give --shell sh")
    except InvalidValue as error:
        faults.append(Fault(where, error.what, error.hint))
        return ()
    if not parts:
        faults.append(Fault(where, "is empty.", example))
    elif shutil.which(parts[0]) is None:
        faults.append(_not_started(where, parts[0]))
    return parts


def _not_started(where: str, program: str) -> Fault:
    """Why a program cannot be started: a file that may not be executed, a script without its interpreter, or none."""
    if _ASSIGNMENT.match(program):
        option = "--env-before" if where == "program 1" else "--env-after"
        what = f'"{program}" sets a variable, which only a shell does.'
        return Fault(where, what, f'Give {option} {program}, or write "env {program} PROGRAM".')
    if not os.path.isfile(program):
        return Fault(where, f'program "{program}" not found.', "Give its path, or check PATH.")
    if program.endswith(".py"):
        return Fault(where, f'"{program}" is not a program.', f'Write "python3 {program}", in quotes together.')
    quoted = f'Put a program and its arguments in quotes together: "PROGRAM {program}"'
    if "/" not in program:
        return Fault(where, f'program "{program}" not found.', f"{quoted}; or write ./{program}.")
    return Fault(where, f'"{program}" is not executable.', f"{quoted}; or make it executable: chmod +x {program}.")


def _metrics(asked: AskedMetrics, faults: list[Fault]) -> tuple[ProgramMetric, ...]:
    if asked.better and not asked.printed:
        faults.append(
            Fault("--better", "applies to --metric, but none is given.", "Add --metric, or leave --better out.")
        )
    found: list[ProgramMetric] = []
    flag = "--metric"
    try:
        found += typed_metrics(asked.printed, asked.better)
        flag = "--range"
        found += range_metrics(asked.ranges)
    except InvalidValue as error:
        faults.append(Fault(flag, error.what, error.hint))
    names = [metric.name for metric in found]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        faults.append(Fault("--range", f"{twice} is also the name of a --metric.", "Name the group in that --metric."))
    return tuple(found)


def _gpus(programs: Programs, host: HostFacts, faults: list[Fault]) -> int:
    """The GPUs that each uses; who asks for their clock uses one."""
    by_gpu = programs.asked.clock == "gpu"
    if programs.asked.clock not in ("wall", "gpu"):
        faults.append(invalid_value("--clock", programs.asked.clock, ("wall", "gpu")))
    wanted = max(programs.gpus, int(by_gpu))
    if wanted > len(host.gpus):
        why = f" ({host.gpu_problem})" if host.gpu_problem else ""
        fewer = "Use fewer, or run" if host.gpus else "Run"
        flag, what, hint = (
            ("--gpus", f"asks for {wanted} GPU{'' if wanted == 1 else 's'}", f"{fewer} on a host that has them.")
            if programs.gpus
            else ("--clock", "gpu needs a GPU", "Run on a host that has one.")
        )
        faults.append(Fault(flag, f"{what}; this host has {len(host.gpus)}{why}.", hint))
    return wanted


def _primary(asked: AskedMetrics, metrics: Sequence[ProgramMetric], faults: list[Fault]) -> str:
    on_gpu = GPU_METRICS if asked.clock == "gpu" else ()
    if not asked.primary:
        return metrics[0].name if metrics else DEFAULT_GPU_METRIC if on_gpu else DEFAULT_METRIC
    try:
        return check_primary(asked.primary, metrics, (*COMMAND_METRICS, *on_gpu))
    except InvalidValue as error:
        # Without a metric that could be read every name would be wrong.
        if metrics or not (asked.printed or asked.ranges):
            faults.append(Fault("--primary", error.what, error.hint))
        return DEFAULT_METRIC


def _env(flag: str, entries: Sequence[str], faults: list[Fault]) -> dict[str, str]:
    env = {}
    for entry in entries:
        name, equals, value = entry.partition("=")
        if not equals or not name:
            faults.append(Fault(flag, f'"{entry}" is not NAME=VALUE.', "For example: OMP_NUM_THREADS=1."))
        env[name] = value
    return env
