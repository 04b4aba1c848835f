"""The record of a run: opened before anything is measured, with all that is known then, and closed when it ends.

What must not live here: cases and their records.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from aiperf.host.facts import HostFacts
from aiperf.host.fingerprint import environment, fingerprint, git_state, software_versions
from aiperf.host.health import RECORDED, read_health
from aiperf.host.relevance import HostCheck
from aiperf.launch.environment import RUN_NOTE_VARIABLE
from aiperf.plan.plan import Plan
from aiperf.records import HostFinding, Invocation, RunRecord
from aiperf.settings import Settings
from aiperf.store.write import RunWriter, StoreError

Status = Literal["finished", "interrupted"]


def begin_run(run: RunRecord, settings: Settings) -> tuple[RunWriter, RunRecord]:
    """Open a new folder for a run and store its record, now named after the folder. Raises UserError."""
    writer = RunWriter.create(settings.results, hostname=run.host["hostname"])
    writer.claim.take()
    run = replace(run, run=writer.name)
    writer.write_run(run)
    if note := os.environ.get(RUN_NOTE_VARIABLE):
        with contextlib.suppress(OSError):
            Path(note).write_text(run.run, encoding="utf-8")
    return writer, run


def new_record(
    plan: Plan,
    *,
    host: HostFacts,
    settings: Settings,
    invocation: Invocation,
    found: Sequence[HostFinding] | None = None,
    host_check: HostCheck = HostCheck.off,
) -> RunRecord:
    """What is known of a run before its first pair, but its name; ``found``: what is wrong with the host, if known."""
    host_id, fields = fingerprint(host)
    recorded = {**fields.get("record_only", {}), "environment": environment()}
    found = read_health(RECORDED, host=host).findings if found is None else found
    return RunRecord(
        run="",
        command=invocation.command,
        argv=invocation.argv,
        cwd=str(Path.cwd()),
        started=_now(),
        precision=settings.precision.name,
        seed=settings.seed,
        settings={**asdict(settings), "results": str(settings.results), "host_check": host_check.value},
        host={**asdict(host), "fingerprint": {**fields, "record_only": recorded}},
        host_id=host_id,
        software={**software_versions(host.libraries), "python": sys.version.split()[0]},
        git=git_state(Path.cwd()),
        findings=tuple(found),
        planned=tuple(case.id for case in (*plan.cases, *(skip.case for skip in plan.skips))),
    )


def end_run(writer: RunWriter, run: RunRecord, status: Status) -> RunRecord:
    """Close a run's record. On a full disk it stays as it was: whoever met the full disk reports it."""
    run = replace(run, finished=_now(), status=status)
    with contextlib.suppress(StoreError):
        writer.write_run(run)
    writer.claim.release()
    return run


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
