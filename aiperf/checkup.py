"""The recipe of ``aiperf doctor``: run the probes, walk the checklist, keep a checkup, take one up again.

What must not live here: probes and judging (host/), layout (report/).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args

from aiperf.errors import AiperfError, UserError, usage
from aiperf.host.checklist import load_checklist
from aiperf.host.checkup import Checkup, Row, check_host
from aiperf.host.probes.every import PROBES
from aiperf.host.probes.probe import GROUPS, Level
from aiperf.host.probes.sight import Sight
from aiperf.host.roof_rows import roof_rows
from aiperf.host.walk import Step, walk
from aiperf.scenario.find import list_scenarios
from aiperf.store.codec import dump_json

SCHEMA = "aiperf doctor 1"


def examine(sight: Sight, *, group: str = "") -> Checkup:
    """Run every probe, or those of the group whose name begins so. Raises UserError for none and for several."""
    wanted = [g for g in GROUPS if g.casefold().startswith(group.casefold())]
    if group and len(wanted) != 1:
        what = "may be several groups" if wanted else "is no group"
        raise usage(f'"{group}" {what} of probes.', f"Groups: {', '.join(wanted or GROUPS)}.", where="--group")
    checkup = check_host([p for p in PROBES if p.group in wanted], sight, items=load_checklist())
    return replace(checkup, rows=(*checkup.rows, *(row for row in roof_rows(sight) if row.group in wanted)))


def walk_checklist(checkup: Checkup) -> tuple[Step, ...]:
    """Every item of the checklist, with what this checkup and the shipped scenarios say of it."""
    return walk(load_checklist(), checkup, list_scenarios())


def encode(checkup: Checkup) -> str:
    """A checkup as JSON, for programs and for ``--diff``."""
    return dump_json({"schema": SCHEMA, "counts": checkup.count(), **_plain(checkup)}).decode("utf-8")


def save(checkup: Checkup, path: Path) -> None:
    """Write a checkup as JSON. Raises UserError when the file cannot be written."""
    try:
        path.write_text(encode(checkup), encoding="utf-8")
    except OSError as error:
        raise usage(f"{path} cannot be written: {error.strerror}.", where="--save") from None


def load(path: Path) -> Checkup:
    """Read a checkup that ``--save`` or ``--json`` wrote. Raises UserError for anything else."""
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(plain, dict) or plain.get("schema") != SCHEMA:
            raise AiperfError(f'it has no "schema": "{SCHEMA}"')
        rows = tuple(_decoded(row) for row in plain["rows"])
        host = {str(name): str(text) for name, text in plain["host"].items()}
        return Checkup(str(plain["when"]), host, rows, float(plain["seconds"]))
    except OSError as error:
        raise _unusable(path, str(error.strerror)) from None
    except (ValueError, KeyError, TypeError, AttributeError, AiperfError) as error:
        raise _unusable(path, str(error)) from None


def _unusable(path: Path, why: str) -> UserError:
    hint = "Give two files that aiperf doctor --save or --json wrote."
    return usage(f"{path} is no checkup: {why}.", hint, where="--diff")


def _plain(checkup: Checkup) -> dict[str, Any]:
    return {f.name: getattr(checkup, f.name) for f in fields(Checkup)}


def _decoded(plain: Mapping[str, Any]) -> Row:
    row = Row(**{f.name: plain[f.name] for f in fields(Row)})
    if row.level not in get_args(Level):
        raise ValueError(f'"{row.level}" is no level')
    return row
