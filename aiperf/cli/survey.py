"""``aiperf survey``: which node or link of a fleet is slow.

What must not live here: measuring, verdicts.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from aiperf.cli.kubernetes import with_kubernetes
from aiperf.cli.nodes import LauncherOption, joined
from aiperf.cli.options import (
    DEFAULT_RESULTS,
    QuietOption,
    ResultsOption,
    SeedOption,
    TimeoutOption,
    make_settings,
    progress_note,
    with_format,
)
from aiperf.cli.slurm import with_slurm
from aiperf.errors import Exit, usage
from aiperf.host.read import read_host
from aiperf.launch.gang import LaunchFailed
from aiperf.recipes.survey import SurveyRequest, read_survey, run_survey
from aiperf.report.layout.formats import OutputFormat, print_in
from aiperf.report.views.survey_table import survey_rows, survey_view

_Threshold = Annotated[float, typer.Option("--threshold", help="Deficit that matters, as a share, e.g. 0.03 for 3 %.")]
_Groups = Annotated[
    int, typer.Option("--groups", min=0, max=64, help="Try it on this host: so many groups stand for nodes.")
]
_Slow = Annotated[
    str, typer.Option("--slow", metavar="NODE=SHARE", help="Drill: slow this node (from 0) by a share, e.g. 3=0.1.")
]


@with_format()
@with_kubernetes
@with_slurm
def survey(
    form: OutputFormat,
    stored: Annotated[str, typer.Option("--from", metavar="FILE", help="Judge a stored survey again.")] = "",
    threshold: _Threshold = 0.03,
    groups: _Groups = 0,
    slow: _Slow = "",
    seed: SeedOption = 0,
    results: ResultsOption = DEFAULT_RESULTS,
    timeout: TimeoutOption = "",
    quiet: QuietOption = False,
    launcher: LauncherOption = "",
) -> None:
    """Find the slow node, card or link of a fleet: copy, GEMM, and all-reduce over pairs of nodes in rounds."""
    if not 0 < threshold < 1:
        raise usage(f"invalid value {threshold:g}.", "Give a share, e.g. 0.03.", "--threshold")
    if stored:
        found, file = read_survey(Path(stored)), Path(stored)
    else:
        settings = make_settings(precision="standard", results=results, seed=seed, timeout=timeout)
        asked = SurveyRequest(seed, threshold, groups, _slow(slow))
        with joined(launcher, results, all_needed=False) as cluster:
            try:
                note = progress_note(quiet)
                found, file = run_survey(asked, host=read_host(), settings=settings, cluster=cluster, note=note)
            except LaunchFailed as error:
                raise usage(f"a node failed: {error}", "Drain it, or leave it out.", "survey") from None
    names = (*found.nodes, *found.absent)
    rows = survey_rows(found.verdicts(), names)
    about = [f"{len(names)} nodes · deficits over {found.threshold:g} matter · {file}"]
    about += [f"drill: {found.drill}"] if found.drill else []
    about += [
        f"{names[one.node]} was lost at {one.when}, in round {one.round}; its numbers are of before · {one.why}"
        for one in found.lost
    ]
    print_in(form, survey_view(rows, names, on_slurm="SLURM_JOB_ID" in os.environ, about=about))
    raise typer.Exit(Exit.UNFIT if any(row.verdict in ("slow", "unreachable") for row in rows) else Exit.OK)


def _slow(text: str) -> tuple[int, float] | None:
    if not text:
        return None
    node, _, share = text.partition("=")
    try:
        return int(node), float(share)
    except ValueError:
        raise usage(f'"{text}" is not NODE=SHARE.', "For example: --slow 3=0.1.", "--slow") from None
