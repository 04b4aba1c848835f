"""The recipe of `aiperf gate --promote`: stored runs become, or join, a baseline file.

What must not live here: judging, printing.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from aiperf.analysis.gate_base import Baseline
from aiperf.errors import usage
from aiperf.host.calibration import load_calibration
from aiperf.launch.git import CheckoutFailed, git
from aiperf.recipes.gate import tau_of
from aiperf.store.baseline import PromotedRun, promote, read_baseline, write_baseline
from aiperf.store.read import open_run


def promote_runs(names: Sequence[str], *, results: Path, baseline: Path, who: str, why: str) -> Baseline:
    """Add stored runs to a baseline file, or begin one with them. Raises UserError with all that speaks against it."""
    if not names:
        raise usage("no run to promote.", "Name one: aiperf gate --promote RUN [RUN ...] --baseline FILE --why TEXT.")
    sessions = []
    for name in names:
        stored = open_run(name, results=results)
        records, damaged = stored.read_cases()
        if damaged:
            raise usage(damaged[0].sentence, "Promote an undamaged run.", name)
        if any(result.verdict.provisional for record in records for result in record.results):
            what = "its verdicts are provisional, but a baseline judges later runs."
            raise usage(what, "Measure again with --precision standard, then promote that run.", name)
        known = load_calibration(stored.record.host_id)
        tau = {record.case.id: tau_of(record.case, known) for record in records if record.results}
        sessions.append(PromotedRun(stored.record, records, tau))
    into = read_baseline(baseline) if baseline.exists() else None
    now = datetime.now(UTC).isoformat(timespec="seconds")
    grown = promote(sessions, who=who or _user_name(), why=why, when=now, into=into)
    write_baseline(baseline, grown)
    return grown


def promotion_warnings(names: Sequence[str], baseline: Baseline, *, results: Path) -> list[str]:
    """What weakens the baseline that promoted runs became: a host that was unfit, and cases with a single session."""
    found = [(run.run, f) for run in (open_run(name, results=results).record for name in names) for f in run.findings]
    said = [f"warning: {run} was measured on an unfit host: {f.text}" for run, f in found if f.level == "unfit"]
    if any(len(entry.sessions) == 1 for entry in baseline.entries):
        said.append(
            "warning: one session does not show the noise between sessions, so the gate may flag it; promote more runs"
        )
    return said


def _user_name() -> str:
    try:
        return git(Path.cwd(), "config", "user.name").strip()
    except CheckoutFailed:
        return ""
