"""The recipe of `aiperf ab`: two commands become one case, which is measured as any other.

What must not live here: measuring, flags, printing.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass

from aiperf.analysis.metrics import DEFAULT_METRIC
from aiperf.errors import Fault, UserError, invalid_value, usage
from aiperf.host.facts import HostFacts
from aiperf.host.relevance import HostCheck
from aiperf.plan.plan import Plan
from aiperf.recipes.run import Opening, RunOutcome, run_plan
from aiperf.records import Case, Check, Invocation, Measure, Needs, ProgramMetric, Side
from aiperf.report.live import Progress
from aiperf.scenario.command import words_of
from aiperf.scenario.program_metrics import (
    COMMAND_METRICS,
    DEFAULT_GPU_METRIC,
    GPU_METRICS,
    check_primary,
    range_metrics,
    typed_metrics,
)
from aiperf.settings import Settings
from aiperf.store.read import StoredRun
from aiperf.units import InvalidValue


@dataclass(frozen=True)
class AskedMetrics:
    """What is asked of two programs besides their times, as typed."""

    printed: tuple[str, ...] = ()
    """What both print, each as ``--metric`` has it."""
    better: tuple[str, ...] = ()
    """Direction of each of them, or of all."""
    ranges: tuple[str, ...] = ()
    """Names of the NVTX ranges of both."""
    clock: str = "wall"
    """wall, or gpu for the time of their kernels too."""
    primary: str = ""
    """The metric that the verdict is about; empty for the first that is asked for, else the time."""


@dataclass(frozen=True)
class Programs:
    """Two commands to compare, as typed."""

    before: str
    after: str
    env_before: Sequence[str] = ()
    """``NAME=VALUE`` each."""
    env_after: Sequence[str] = ()
    same_output: bool = False
    """Whether both must print the same bytes."""
    gpus: int = 0
    """GPUs that both use."""
    asked: AskedMetrics = AskedMetrics()


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
    """Measure two programs against each other. Raises UserError with every mistake in them.

    With ``earlier`` that run goes on, if it is of the same programs, asked the same; its pairs count.
    """
    case = command_case(programs, host)
    if earlier is not None:
        _check_same(case, earlier)
    return run_plan(
        Plan((case,), ()),
        host=host,
        settings=settings,
        progress=progress,
        invocation=invocation,
        host_check=host_check,
        opening=Opening(earlier),
    )


def _check_same(case: Case, earlier: StoredRun) -> None:
    """A run goes on with the programs that it began with. Raises UserError."""
    records, _ = earlier.read_cases()
    found = next((record.case for record in records if record.case.id == case.id), None)
    if found is None:
        what = f"{earlier.folder.name} is no run of two programs that was interrupted."
        raise usage(what, "Name a run of aiperf ab.", where="--resume")
    asked = ("sides", "measure", "check", "needs")
    differing = [name for name in asked if getattr(found, name) != getattr(case, name)]
    if differing:
        what = f"{earlier.folder.name} compared other programs, or was asked otherwise ({', '.join(differing)})."
        raise usage(what, "Give the options that it began with, or start a new run.", where="--resume")


def command_case(programs: Programs, host: HostFacts) -> Case:
    """The case of two commands. Raises UserError with every mistake in them."""
    faults: list[Fault] = []
    metrics = _metrics(programs.asked, faults)
    sides = tuple(
        Side(
            name,
            command=_command(f"--{name}", text, faults),
            env=_env(f"--env-{name}", env, faults),
            metrics=metrics,
        )
        for name, text, env in (
            ("before", programs.before, programs.env_before),
            ("after", programs.after, programs.env_after),
        )
    )
    gpus = _gpus(programs, host, faults)
    primary = _primary(programs.asked, metrics, faults)
    if faults:
        raise UserError(faults)
    return Case(
        scenario="ab",
        id="ab",
        title=f"{programs.before} against {programs.after}",
        why="Asked at the command line.",
        sides=sides,
        needs=Needs(gpus=gpus),
        measure=Measure(clock="gpu" if programs.asked.clock == "gpu" else "wall", metric=primary),
        check=Check("bitwise") if programs.same_output else Check("none", reason="programs may print what they like"),
    )


def _metrics(asked: AskedMetrics, faults: list[Fault]) -> tuple[ProgramMetric, ...]:
    if asked.better and not asked.printed:
        faults.append(
            Fault("--better", "says how to judge a --metric, and there is none.", "Give one, or leave it out.")
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
        faults.append(Fault("--range", f"{twice} is the name of a --metric, too.", "Name the group of that one."))
    return tuple(found)


def _gpus(programs: Programs, host: HostFacts, faults: list[Fault]) -> int:
    """The GPUs that both use; who asks for their clock uses one."""
    by_gpu = programs.asked.clock == "gpu"
    if programs.asked.clock not in ("wall", "gpu"):
        faults.append(invalid_value("--clock", programs.asked.clock, ("wall", "gpu")))
    wanted = max(programs.gpus, int(by_gpu))
    if wanted > len(host.gpus):
        why = f" ({host.gpu_problem})" if host.gpu_problem else ""
        flag, what = ("--gpus", f"asks for {wanted} GPUs") if programs.gpus else ("--clock", "gpu needs a GPU")
        hint = "Use fewer, or run on a host that has them."
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


def _command(flag: str, text: str, faults: list[Fault]) -> tuple[str, ...]:
    try:
        parts = words_of(text)
    except InvalidValue as error:
        faults.append(Fault(flag, error.what, error.hint))
        return ()
    if not parts:
        faults.append(Fault(flag, "is empty.", 'Give a command, e.g. "python script.py".'))
    elif shutil.which(parts[0]) is None:
        faults.append(Fault(flag, f'program "{parts[0]}" not found.', "Give its path, or check PATH."))
    return parts


def _env(flag: str, entries: Sequence[str], faults: list[Fault]) -> dict[str, str]:
    env = {}
    for entry in entries:
        name, equals, value = entry.partition("=")
        if not equals or not name:
            faults.append(Fault(flag, f'"{entry}" is not NAME=VALUE.', "For example: OMP_NUM_THREADS=1."))
        env[name] = value
    return env
