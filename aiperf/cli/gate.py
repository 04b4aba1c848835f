"""``aiperf gate``: flags -> gate -> outcome -> table and exit code; ``--promote`` writes a baseline file.

What must not live here: measuring, judging, reading baselines.
"""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import typer

from aiperf.analysis.gate import GateOutcome
from aiperf.cli.ci import (
    CiPaths,
    refuse_files_of_a_dry_run,
    then_written,
    with_ci_errors,
    with_ci_files,
    write_ci,
)
from aiperf.cli.host_check import HostCheckOption
from aiperf.cli.options import (
    DEFAULT_RESULTS,
    BudgetOption,
    OnlyOption,
    PeaksOption,
    PinOption,
    QuietOption,
    ResultsOption,
    SeedOption,
    StrictOption,
    TimeoutOption,
    axis_values,
    make_settings,
    not_together,
    with_format,
)
from aiperf.cli.output import print_plan
from aiperf.errors import Fault, UserError, invalid_value, usage
from aiperf.host.read import read_host
from aiperf.host.relevance import HostCheck
from aiperf.plan.gates import DEFAULT_GATE, ON_INCONCLUSIVE, GateConfig, load_gate
from aiperf.plan.plan import make_plan
from aiperf.recipes.gate import check_gate, run_gate
from aiperf.recipes.gate_base import Gate
from aiperf.recipes.promote import promote_runs, promotion_warnings
from aiperf.records import Invocation
from aiperf.report.ci.entries import entries_of_gate
from aiperf.report.layout.formats import OutputFormat, print_in
from aiperf.report.live import choose_progress
from aiperf.report.views.gate_table import gate_summary, gate_view, promoted_view
from aiperf.scenario.find import find_scenarios
from aiperf.scenario.load import load_scenarios
from aiperf.settings import Settings

_TITLE = "aiperf gate"


_Selectors = Annotated[
    list[str], typer.Argument(metavar="[NAME|TAG|PATH|GLOB ...]", help="Scenarios to gate; with --promote: runs.")
]
_Config = Annotated[
    str, typer.Option("--config", metavar="NAME|FILE", help="Gate configuration: a name from configs/gates, or a file.")
]
_Against = Annotated[
    str, typer.Option("--against", metavar="GIT_REF", help="Base revision; rebuilt here and interleaved with the head.")
]
_Head = Annotated[str, typer.Option("--head", metavar="GIT_REF", help="Head revision; default: the working tree.")]
_Build = Annotated[str, typer.Option("--build", metavar="CMD", help="Build command, run in each checkout.")]
_Side = Annotated[str, typer.Option("--side", help="Side of the scenario to gate; default: its last one.")]
_Baseline = Annotated[
    str,
    typer.Option("--baseline", metavar="FILE", help="Compare speedups with a stored baseline instead of a git ref."),
]
_Absolute = Annotated[
    bool,
    typer.Option(
        "--absolute", help="Compare absolute values with the baseline; needs the same hardware and 5 sessions."
    ),
]
_OnInconclusive = Annotated[
    str,
    typer.Option(
        "--on-inconclusive", metavar="pass|warn|fail", help="How to treat inconclusive cases; fail exits with 3."
    ),
]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the plan without measuring.")]
_Promote = Annotated[bool, typer.Option("--promote", help="Add stored runs to the --baseline file, one session each.")]
_Why = Annotated[str, typer.Option("--why", help="With --promote: the reason, for reviewers.")]
_Who = Annotated[str, typer.Option("--who", help="With --promote: the author; default: git's user.name.")]
_Precision = Annotated[
    str, typer.Option("--precision", help="quick, standard, rigorous, or a file; default: the gate's own.")
]


@with_format(OutputFormat.table, OutputFormat.markdown, OutputFormat.json)
@with_ci_files
def gate(
    form: OutputFormat,
    selectors: _Selectors = [],  # noqa: B006 - typer reads the default and never changes it
    config: _Config = DEFAULT_GATE,
    against: _Against = "",
    head: _Head = "",
    build: _Build = "",
    side: _Side = "",
    baseline: _Baseline = "",
    absolute: _Absolute = False,
    on_inconclusive: _OnInconclusive = "",
    only: OnlyOption = [],  # noqa: B006
    dry_run: _DryRun = False,
    promote: _Promote = False,
    why: _Why = "",
    who: _Who = "",
    precision: _Precision = "",
    budget: BudgetOption = "",
    seed: SeedOption = 0,
    results: ResultsOption = DEFAULT_RESULTS,
    pin: PinOption = "auto",
    peaks: PeaksOption = True,
    timeout: TimeoutOption = "",
    host_check: HostCheckOption = HostCheck.warn,
    strict: StrictOption = None,
    quiet: QuietOption = False,
    ci_files: CiPaths = MappingProxyType({}),
) -> None:
    """Pass or fail a change: rebuild base and head and interleave them here, or compare with a baseline file.

    Cases that look worse are measured again in a fresh session; only a regression that both sessions confirm fails.
    """
    if promote:
        if dry_run:
            raise not_together("--dry-run", "--promote")
        _promote(selectors, results=results, baseline=baseline, who=who, why=why, form=form)
        return
    with with_ci_errors(_TITLE, ci_files):
        _refuse(ci_files, dry_run=dry_run, why=why, who=who)
        given = {
            "against": against, "head": head, "build": build, "side": side, "precision": precision,
            "on_inconclusive": on_inconclusive, "baseline": baseline,
        }  # fmt: skip
        asked = _config(load_gate(config), given, absolute=absolute)
        asked = asked if strict is None else replace(asked, strict=strict)
        settings = make_settings(
            precision=asked.precision, results=results, budget=budget, seed=seed, pin=pin, peaks=peaks, timeout=timeout
        )
        settings = replace(settings, strict=asked.strict)
        wanted = _gate(asked, selectors, axis_values(only), settings, quiet=quiet, host_check=host_check)
        if dry_run:
            check_gate(wanted)
            print_plan(wanted.plan, settings, form, heading=_heading(wanted))
            return
        outcome = run_gate(wanted)
    _print_and_write(outcome, form, ci_files)
    raise typer.Exit(int(outcome.exit))


def _print_and_write(outcome: GateOutcome, form: OutputFormat, paths: CiPaths) -> None:
    entries, view = entries_of_gate(outcome), gate_view(outcome)
    summary = gate_summary(view)

    def write() -> None:
        write_ci(entries, title=_TITLE, exit_code=outcome.exit, summary=summary, paths=paths, explained=True)

    with then_written(write):
        print_in(form, view)


def _gate(
    config: GateConfig,
    selectors: list[str],
    only: dict[str, str],
    settings: Settings,
    *,
    quiet: bool,
    host_check: HostCheck,
) -> Gate:
    chosen = selectors or list(config.scenarios)
    if not chosen:
        hint = "For example: aiperf gate ./mine.yaml --against origin/main; a gate file lists them under scenarios:."
        raise usage("no scenario to gate.", hint)
    host = read_host()
    plan = make_plan(load_scenarios(find_scenarios(chosen)), host, settings, only=only)
    for line in plan.notes:
        print(line, file=sys.stderr)
    return Gate(
        config,
        plan,
        host,
        settings,
        lambda: choose_progress(quiet=quiet),
        Invocation("gate", tuple(sys.argv)),
        host_check=host_check,
    )


def _config(config: GateConfig, given: dict[str, str], *, absolute: bool) -> GateConfig:
    """The gate's file with the flags over it. Raises UserError with every flag that makes no sense."""
    faults = []
    if given["on_inconclusive"] not in ("", *ON_INCONCLUSIVE):
        faults.append(invalid_value("--on-inconclusive", given["on_inconclusive"], ON_INCONCLUSIVE))
    if given["against"] and given["baseline"]:
        faults.append(Fault("--baseline", "cannot be combined with --against.", "Give either a git ref or a file."))
    if absolute and not (given["baseline"] or config.baseline):
        faults.append(Fault("--absolute", "needs a baseline.", "Give --baseline FILE."))
    if (given["head"] or given["build"]) and given["baseline"]:
        faults.append(
            Fault(
                "--baseline",
                "cannot be combined with --head or --build.",
                "Leave them out: the working tree is measured.",
            )
        )
    if faults:
        raise UserError(faults)
    changes: dict[str, Any] = {name: value for name, value in given.items() if value}
    if given["against"]:
        changes |= {"baseline": "", "absolute": False}
    elif given["baseline"]:
        changes |= {"against": "", "absolute": absolute}
    elif absolute:
        changes |= {"absolute": True}
    return replace(config, **changes)


def _refuse(paths: CiPaths, *, dry_run: bool, why: str, who: str) -> None:
    if why or who:
        raise usage("needs --promote.", "Add --promote.", where="--why" if why else "--who")
    if dry_run:
        refuse_files_of_a_dry_run(paths)


def _heading(wanted: Gate) -> str:
    config = wanted.config
    base = f"against {config.against}" if wanted.level == "rebuild" else f"{wanted.level} against {config.baseline}"
    return f"{'' if config.name == 'gate' else 'gate '}{config.name}: {base or 'nothing'}"


def _promote(names: list[str], *, results: Path, baseline: str, who: str, why: str, form: OutputFormat) -> None:
    faults = (
        []
        if names
        else [Fault("--promote", "needs at least one run.", "Name stored runs: aiperf gate --promote RUN ...")]
    )
    faults += [] if baseline else [Fault("--baseline", "is missing.", "Name the file to write.")]
    faults += [] if why.strip() else [Fault("--why", "is missing.", "Say why these runs are the new baseline.")]
    if faults:
        raise UserError(faults)
    grown = promote_runs(names, results=results, baseline=Path(baseline), who=who, why=why)
    print_in(form, promoted_view(grown, path=shlex.quote(baseline)))
    for warning in promotion_warnings(names, grown, results=results):
        print(warning, file=sys.stderr)
