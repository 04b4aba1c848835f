"""The recipe of ``aiperf doctor``: run the probes, walk the checklist, save a report of the host and load it again.

What must not live here: probes and judging (host/), layout (report/).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

from aiperf.errors import AiperfError, UserError, usage
from aiperf.host.checklist import load_checklist
from aiperf.host.checklist_status import ItemStatus, checklist_status
from aiperf.host.host_report import HostReport, check_host
from aiperf.host.probes.every import PROBES
from aiperf.host.probes.probe import GROUPS, Finding, Level
from aiperf.host.probes.reader import HostReader
from aiperf.host.probes.run_start import PEAKS
from aiperf.scenario.find import list_scenarios
from aiperf.store.codec import dump_json

SCHEMA = "aiperf doctor 2"


def examine(reader: HostReader, *, group: str = "") -> HostReport:
    """Run every probe, or those of the group whose name begins so. Raises UserError for none and for several."""
    wanted = [g for g in GROUPS if g.casefold().startswith(group.casefold())]
    if group and len(wanted) != 1:
        what = "matches several groups" if wanted else "is not a group"
        raise usage(f'"{group}" {what} of probes.', f"Groups: {', '.join(wanted or GROUPS)}.", where="--group")
    return check_host([p for p in (*PROBES, PEAKS) if p.group in wanted], reader, items=load_checklist())


def walk_checklist(report: HostReport) -> tuple[ItemStatus, ...]:
    """Every item of the checklist, with what this report and the shipped scenarios say about it."""
    return checklist_status(load_checklist(), report, list_scenarios())


def encode(report: HostReport) -> str:
    """A report as JSON, for programs and for ``--diff``."""
    return dump_json({"schema": SCHEMA, "counts": report.count(), **_plain(report)}).decode("utf-8")


def save(report: HostReport, path: Path) -> None:
    """Write a report as JSON. Raises UserError when the file cannot be written."""
    try:
        path.write_text(encode(report), encoding="utf-8")
    except OSError as error:
        raise usage(f"{path} cannot be written: {error.strerror}.", where="--save") from None


def load(path: Path) -> HostReport:
    """Read a report that ``--save`` or ``--json`` wrote. Raises UserError for anything else."""
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(plain, dict) or plain.get("schema") != SCHEMA:
            raise AiperfError(f'it has no "schema": "{SCHEMA}"')
        findings = tuple(_decoded(finding) for finding in plain["findings"])
        host = {str(name): str(text) for name, text in plain["host"].items()}
        return HostReport(str(plain["when"]), host, findings, float(plain["seconds"]))
    except OSError as error:
        raise _unusable(path, str(error.strerror)) from None
    except (ValueError, KeyError, TypeError, AttributeError, AiperfError) as error:
        raise _unusable(path, str(error)) from None


def _unusable(path: Path, why: str) -> UserError:
    hint = "Give two files that aiperf doctor --save or --json wrote."
    return usage(f"{path} is not a report of aiperf doctor: {why}.", hint, where="--diff")


def _plain(report: HostReport) -> dict[str, Any]:
    return {f.name: getattr(report, f.name) for f in fields(HostReport)}


def _decoded(plain: Mapping[str, Any]) -> Finding:
    finding = Finding(**{f.name: plain[f.name] for f in fields(Finding)})
    if finding.level not in get_args(Level):
        raise ValueError(f'"{finding.level}" is not a level')
    return finding
