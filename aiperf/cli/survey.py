"""``aiperf survey``: which node or link of a fleet is slow.

What must not live here: measuring, verdicts.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from aiperf.analysis.survey import survey_verdicts
from aiperf.analysis.survey_history import node_histories, verdicts_by_node
from aiperf.analysis.survey_times import pair_times, times_by_size
from aiperf.cli.defaults import InForce
from aiperf.cli.kubernetes import with_kubernetes
from aiperf.cli.nodes import LauncherOption, joined
from aiperf.cli.options import (
    DEFAULT_RESULTS,
    Command,
    QuietOption,
    ResultsOption,
    SeedOption,
    TimeoutOption,
    make_settings,
    progress_note,
    refuse_beside,
    share_of,
    with_format,
)
from aiperf.cli.output import HtmlOption, refuse_page_in, write_page
from aiperf.cli.slurm import with_slurm
from aiperf.errors import Exit, usage
from aiperf.host.read import read_host
from aiperf.launch.environment import RUN_NOTE_VARIABLE
from aiperf.launch.gang import LaunchFailed
from aiperf.plan.survey import LAUNCHES, PLAN_SECONDS, survey_cost
from aiperf.recipes.survey import SurveyRequest, run_survey
from aiperf.records.surveyed import PAIR_METRIC, SurveyRecord
from aiperf.report.html.listing_page import survey_html
from aiperf.report.layout.formats import OutputFormat, print_in
from aiperf.report.numbers import counted
from aiperf.report.views.survey_table import (
    SurveyLength,
    SurveyRow,
    batch_lines,
    history_view_of,
    plan_view_of,
    survey_rows,
    survey_view,
)
from aiperf.store.surveys import read_survey, read_surveys
from aiperf.units import format_duration

_FEWEST_PARTS, _MOST_PARTS, _MORE = 2, 96, 4
"""Of a session, for a verdict and at all; and times as many parts as now, which undecided verdicts are advised."""
_FEWEST_NODES, _MOST_GROUPS, _MOST_PLANNED = 2, 64, 4096
"""Nodes of a survey, groups of a drill on one host, and nodes whose time is estimated."""
_EARLY_SHOWN = 3
"""Surveys that ended early, as far as a history names them one by one."""
_Threshold = Annotated[
    str, typer.Option("--threshold", help="Smallest deficit that matters: 3% or 0.03; above 0, below 100%.")
]
_Groups = Annotated[
    int | None,
    typer.Option(
        "--groups",
        min=_FEWEST_NODES,
        max=_MOST_GROUPS,
        help="Try it on this host, with N groups of processes as nodes.",
    ),
]
_Plan = Annotated[
    int | None,
    typer.Option(
        "--plan",
        metavar="NODES",
        min=_FEWEST_NODES,
        max=_MOST_PLANNED,
        help="Measure nothing; estimate the time it takes.",
    ),
]
_Parts = Annotated[
    int | None,
    typer.Option(
        "--parts",
        metavar="N",
        min=_FEWEST_PARTS,
        max=_MOST_PARTS,
        show_default=False,
        help=f"Parts of the session, each with new processes; more parts decide more. Default: {LAUNCHES}.",
    ),
]
_Slow = Annotated[
    str,
    typer.Option(
        "--slow",
        metavar="NODES=SHARE",
        help="Drill: slow down these nodes (from 0) by a share above 0, 3,6=0.1, or the link between two, 1-4=0.2.",
    ),
]


def _of_stored_alone(command: Command) -> Command:
    """Have the command refuse what would have no effect on stored surveys."""

    @functools.wraps(command)
    def called(**given: Any) -> None:
        kept = ("--results", "--format", "--json", "--quiet", "--threshold")
        if given["stored"] and not given["plan"]:
            refuse_beside("--from", "--html", *kept)
        if given["history"]:
            refuse_beside("--history", *kept)
        if given["plan"]:
            refuse_beside("--plan", "--from", "--results", "--format", "--json", "--parts")
        command(**given)

    return called


@with_format()
@_of_stored_alone
@with_kubernetes
@with_slurm
def survey(
    form: OutputFormat,
    stored: Annotated[str, typer.Option("--from", metavar="FILE", help="Judge a stored survey again.")] = "",
    history: Annotated[
        bool, typer.Option("--history", help="Measure nothing; show which nodes became slower over the stored surveys.")
    ] = False,
    plan: _Plan = None,
    html: HtmlOption = False,
    threshold_: _Threshold = "3%",
    groups: _Groups = None,
    slow: _Slow = "",
    parts: _Parts = None,
    seed: SeedOption = 0,
    results: ResultsOption = DEFAULT_RESULTS,
    timeout: TimeoutOption = "",
    quiet: QuietOption = False,
    launcher: LauncherOption = "",
) -> None:
    """Find the slow node or link of a fleet: copy, GEMM, and all-reduce over pairs of nodes in rounds."""
    threshold = share_of("--threshold", threshold_)
    refuse_page_in(form, html=html)
    if history:
        _show_history(form, results, threshold)
        return
    if plan:
        _show_plan(form, results, plan, stored, parts or LAUNCHES)
        return
    if stored:
        found, file = read_survey(Path(stored)), Path(stored)
        found = replace(found, threshold=threshold) if "--threshold" in InForce.typed else found
    else:
        settings = make_settings(precision="standard", results=results, seed=seed, timeout=timeout)
        asked = SurveyRequest(seed, threshold, groups or 0, parts=parts or LAUNCHES, **_slow(slow))
        with joined(launcher, results, all_needed=False) as cluster:
            try:
                note = progress_note(quiet)
                found, file = run_survey(asked, host=read_host(), settings=settings, cluster=cluster, note=note)
            except LaunchFailed as error:
                raise usage(f"a node failed: {error}", "Drain it, or leave it out.", "survey") from None
            if found.ended == "interrupted":
                _leave_note(file)
    names = found.names
    rows = survey_rows(survey_verdicts(found), names, found.unreachable, length=SurveyLength.of(found))
    shares = {pair: math.expm1(log) for pair, log in pair_times(found.readings, PAIR_METRIC).items()}
    on_slurm = "SLURM_JOB_ID" in os.environ
    view = survey_view(rows, names, on_slurm=on_slurm, about=_about(found, file, rows), pairs=shares)
    if html:
        write_page(results / "survey.html", survey_html(view, shares, names), form, fresh=True)
    else:
        print_in(form, view)
    if found.ended == "interrupted" and not stored:
        raise typer.Exit(Exit.INTERRUPTED)
    raise typer.Exit(Exit.UNFIT if any(row.verdict in ("slow", "unreachable") for row in rows) else Exit.OK)


def _leave_note(file: Path) -> None:
    """Tell whoever collects the Slurm job where its survey is: srun prints nothing of a job that was cancelled."""
    if note := os.environ.get(RUN_NOTE_VARIABLE):
        with contextlib.suppress(OSError):
            Path(note).with_suffix(".survey").write_text(str(file.absolute()), encoding="utf-8")


def _more_parts(found: SurveyRecord, rows: Sequence[SurveyRow]) -> list[str]:
    """What to do about undecided verdicts, where more readings may decide them, and how long that takes."""
    undecided = sum(row.code in ("spans_threshold", "parts_disagree", "too_few_parts") for row in rows)
    now = 1 + max((one.launch for one in found.readings), default=0)
    parts = min(_MOST_PARTS, _MORE * now)
    seconds = survey_cost(len(found.names), found.seconds, parts=parts).seconds
    if not undecided or found.ended or seconds is None or parts <= now:
        return []
    more = f"a survey with --parts {parts} decides more, in about {format_duration(seconds)}"
    return [f"{counted(undecided, 'verdict')} undecided; {more}"]


def _about(found: SurveyRecord, file: Path, rows: Sequence[SurveyRow]) -> list[str]:
    """What is said below the table."""
    names = found.names
    about = [f"{len(names)} nodes · deficits over {found.threshold:g} matter · {file}"]
    about += [SurveyLength.of(found).line] if found.ended else []
    about += [f"drill: {found.drill}"] if found.drill else []
    about += [
        f"{names[one.node]} was lost at {one.when}, in round {one.round}; its readings are from before · {one.why}"
        for one in found.lost
    ]
    about += [f"{names[node]} {found.unreachable[node]}" for node in range(len(found.nodes), len(names))]
    about += batch_lines(times_by_size(found.readings), len(found.nodes))
    about += _more_parts(found, rows)
    return about + [f"not measured: {reason}" for reason in found.skipped]


def _show_history(form: OutputFormat, results: Path, threshold: float) -> None:
    found, damaged = read_surveys(results)
    if not found:
        raise usage(f"no survey is stored in {results}.", "Measure one first: aiperf survey --slurm -N 8.", "--history")
    known = [verdicts_by_node(one) for one in found]
    about = [
        f"{counted(len(found), 'survey')}, {found[0].when} to {found[-1].when} · deficits over the fleet of each survey"
    ]
    early = [f"survey of {one.when}: {SurveyLength.of(one).line}" for one in found if one.ended]
    about += early[-_EARLY_SHOWN:]
    about += [f"{len(early) - _EARLY_SHOWN} more surveys ended early"] if len(early) > _EARLY_SHOWN else []
    warnings = [each.sentence for each in damaged]
    view = history_view_of(node_histories(known, threshold=threshold), about=about, last=SurveyLength.of(found[-1]))
    print_in(form, view, warnings=warnings)


def _show_plan(form: OutputFormat, results: Path, nodes: int, stored: str, parts: int) -> None:
    found, damaged = ([read_survey(Path(stored))], []) if stored else read_surveys(results, drills=True)
    timed = [one for one in found if one.seconds.keys() >= PLAN_SECONDS]
    if stored and not timed:
        raise usage("it does not record how long its parts took.", "Measure a new one with this version.", stored)
    about = [f"no survey with times is stored in {results}: measure a small one first to estimate the minutes"]
    if timed:
        about = [f"estimated from the survey of {timed[-1].when}, which had {len(timed[-1].nodes)} nodes"]
    sizes = [nodes, 2 * nodes, 4 * nodes]
    known = timed[-1].seconds if timed else {}
    view = plan_view_of([survey_cost(size, known, parts=parts) for size in sizes], about=about)
    print_in(form, view, warnings=[each.sentence for each in damaged])


def _slow(text: str) -> dict[str, Any]:
    """What of a request a drill asks for: ``3,6=0.1``, or ``1-4=0.2`` for the link between two nodes."""
    if not text:
        return {}
    named, _, after = text.partition("=")
    asked: dict[str, Any]
    try:
        share = float(after)
        one, dash, two = named.partition("-")
        if dash and one.strip() and int(one) != int(two):
            asked = {"slow_link": ((min(int(one), int(two)), max(int(one), int(two))), share)}
        else:
            asked = {"slow": (tuple(map(int, named.split(","))), share)}
    except ValueError:
        raise usage(f'"{text}" is not NODES=SHARE.', "For example: --slow 3=0.1.", "--slow") from None
    if not 0 < share < math.inf:
        raise usage(f'"{after}" is not a share above 0.', "For example: --slow 3=0.1.", "--slow")
    return asked
