"""The record of a run: opened before anything is measured, with all that is known then, and closed when it ends.

What must not live here: cases and what came of them, and which of them are measured.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from aiperf.host.facts import HostFacts
from aiperf.host.findings import Finding, findings
from aiperf.host.fingerprint import environment, fingerprint, git_state, software_versions
from aiperf.host.relevance import Fit
from aiperf.plan.plan import Plan
from aiperf.records import RunRecord
from aiperf.settings import Settings
from aiperf.store.write import RunWriter, StoreError

Status = Literal["finished", "interrupted"]


def begin_run(
    plan: Plan,
    *,
    host: HostFacts,
    settings: Settings,
    argv: Sequence[str],
    told: Sequence[Finding] | None = None,
    fit: Fit = Fit.off,
) -> tuple[RunWriter, RunRecord]:
    """Open a new run's folder and say in it what is going to be measured. Raises UserError when that cannot be.

    ``told`` are the host's findings where they have been made already.
    """
    writer = RunWriter.create(settings.results, hostname=host.hostname)
    run = new_record(writer.name, plan, host=host, settings=settings, argv=argv, told=told, fit=fit)
    writer.write_run(run)
    return writer, run


def new_record(
    name: str,
    plan: Plan,
    *,
    host: HostFacts,
    settings: Settings,
    argv: Sequence[str],
    told: Sequence[Finding] | None,
    fit: Fit,
) -> RunRecord:
    """What is known of a run before its first pair; ``told``: the findings, where they have been made already."""
    host_id, fields = fingerprint(host)
    recorded = {**fields.get("record_only", {}), "environment": environment()}
    told = findings(host, host_id=host_id) if told is None else told
    return RunRecord(
        run=name,
        argv=tuple(argv),
        started=_now(),
        precision=settings.precision.name,
        seed=settings.seed,
        settings={**asdict(settings), "results": str(settings.results), "fit": fit.value},
        host={**asdict(host), "fingerprint": {**fields, "record_only": recorded}},
        host_id=host_id,
        software={**software_versions(host.libraries), "python": sys.version.split()[0]},
        git=git_state(Path.cwd()),
        findings=tuple(f.sentence for f in told if f.level in ("warn", "unfit")),
        planned=tuple(case.id for case in (*plan.cases, *(skip.case for skip in plan.skips))),
    )


def end_run(writer: RunWriter, run: RunRecord, status: Status) -> RunRecord:
    """Close a run's record. On a disk that has filled up it stays as it was: the reason is told by whoever saw it."""
    run = replace(run, finished=_now(), status=status)
    with contextlib.suppress(StoreError):
        writer.write_run(run)
    return run


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
