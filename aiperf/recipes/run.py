"""The recipe of `aiperf run`: open the run, save skips, measure every case, close. No stage's own work lives here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aiperf.errors import AiperfError, Exit
from aiperf.host.facts import HostFacts
from aiperf.host.health import open_health
from aiperf.host.relevance import HostCheck
from aiperf.launch.nodes.head import Nodes
from aiperf.launch.scratch import scratch_area
from aiperf.launch.written import refuse_existing
from aiperf.plan.plan import Plan, too_long_loads, too_small_a_budget
from aiperf.recipes.case_runner import CaseRunner, SavedCases
from aiperf.recipes.checkouts import check_refs
from aiperf.recipes.host_watch import HostWatch
from aiperf.recipes.run_peaks import RunPeaks
from aiperf.recipes.run_record import Status, begin_run, end_run, new_record
from aiperf.recipes.session import MeasurementSession
from aiperf.records import CaseRecord, Invocation, RunRecord
from aiperf.report.live import Progress
from aiperf.settings import Settings
from aiperf.store.read import StoredRun
from aiperf.store.resume import reopen, stored_cases
from aiperf.store.write import StoreError


@dataclass(frozen=True)
class RunOutcome:
    """The result of a run."""

    folder: Path
    run: RunRecord
    records: tuple[CaseRecord, ...]
    exit: Exit
    problems: tuple[str, ...] = ()
    """What ended the run before its plan was done, besides an interrupt."""


@dataclass(frozen=True)
class Opening:
    """What a run opens with besides its plan."""

    earlier: StoredRun | None = None
    """The run to go on in."""
    cluster: Nodes | None = None
    """The nodes of the job, where it has several."""


def run_plan(
    plan: Plan,
    *,
    host: HostFacts,
    settings: Settings,
    progress: Progress,
    invocation: Invocation,
    build: Sequence[str] = (),
    host_check: HostCheck = HostCheck.off,
    opening: Opening = Opening(),
) -> RunOutcome:
    """Measure every case of a plan and save each as soon as it is done.

    ``build`` runs in each checkout of a side that names a ref: an argv, or a line for the shell. ``host_check`` says
    how to treat findings of the host that can bias a case. An ``opening`` of an earlier run continues in its folder:
    finished cases are kept, open ones go on, failed and skipped ones are tried again. Raises UserError for unknown
    refs, for files that exist though programs have to create them, and for an earlier run of another host, seed,
    precision or software.
    """
    earlier, cluster = opening.earlier, opening.cluster
    check_refs(plan.cases)
    refuse_existing(plan.cases)
    health = open_health(host_check if plan.cases else HostCheck.off, host, data=scratch_area())
    found = health.recorded
    run = new_record(plan, host=host, settings=settings, invocation=invocation, found=found, host_check=host_check)
    run = replace(run, nodes=_used(plan, cluster), node=cluster.place.node if cluster else "")
    writer, run = reopen(earlier, run) if earlier else begin_run(run, settings)
    saved = SavedCases(writer, progress)
    status: Status = "interrupted"
    problems: tuple[str, ...] = ()
    try:
        progress.run_started((*plan.cases, *plan.skips))
        times = (too_small_a_budget(plan, settings), too_long_loads(plan, settings))
        advised = (finding.advised for finding in run.findings)
        _tell(progress, *advised, _late(health.late), *times, _idle(plan, cluster))
        saved.keep_skips(plan.skips, run)
        with MeasurementSession(host, settings, cluster) as session:
            watch = HostWatch(health, session.still, progress.note)
            peaks = RunPeaks(session, host, run.host_id, measuring=settings.peaks, note=progress.note)
            runner = CaseRunner(session, settings, saved, progress, watch, peaks, host_id=run.host_id, build=build)
            runner.run(plan.cases, stored_cases(earlier, plan.cases, note=progress.note) if earlier else {})
            status = "finished"
    except KeyboardInterrupt:
        # The open cases are saved; the rest of the recipe reports them.
        status = "interrupted"
    except StoreError as error:
        # What could not be saved is still shown.
        problems = (str(error),)
    except AiperfError as error:
        if status != "finished":
            raise
        progress.note(str(error))  # of clearing up: all was measured and is saved
    finally:
        try:
            progress.run_done()
        finally:
            run = end_run(writer, run, status)
    done = tuple(saved.records[name] for name in run.planned if name in saved.records)
    code = Exit.USAGE if problems else exit_code(done, status == "interrupted")
    return RunOutcome(writer.folder, run, done, code, problems)


def _used(plan: Plan, cluster: Nodes | None) -> tuple[dict[str, Any], ...]:
    """The nodes beside this host that some case is spread over."""
    return cluster.facts[: max((case.nodes for case in plan.cases), default=1) - 1] if cluster else ()


def _idle(plan: Plan, cluster: Nodes | None) -> str:
    """A note on nodes that no case uses; none where every case is skipped, which has a reason of its own."""
    if not cluster or not plan.cases:
        return ""
    used, held = len(_used(plan, cluster)) + 1, len(cluster.facts) + 1
    return f"{used} of {held} nodes are used: no case is spread over more" if used < held else ""


def _tell(progress: Progress, *notices: str) -> None:
    for said in filter(None, notices):
        progress.note(said)


def _late(probes: Sequence[str]) -> str:
    return f"host probes that did not answer in time, so not judged: {', '.join(probes)}" if probes else ""


def exit_code(records: Sequence[CaseRecord], interrupted: bool) -> Exit:
    """Exit code of a run: wrong or failed before unfit before all skipped. A regression is the gate's matter."""
    if interrupted:
        return Exit.INTERRUPTED
    words = {r.verdict.word for record in records for r in record.results if r.primary}
    if "invalid" in words or any(record.status == "failed" and record.stop != "unfit" for record in records):
        return Exit.WRONG
    if any(record.stop == "unfit" for record in records):
        return Exit.UNFIT
    if records and all(record.status == "skipped" for record in records):
        return Exit.SKIPPED
    return Exit.OK
