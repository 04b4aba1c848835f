"""Going on in a run that ended early: what must be the same as then, and what of it is kept.

What must not live here: reading or writing runs, measuring.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiperf.records import Case, CaseRecord, RunRecord
from aiperf.records.machines import machines

_SETTINGS = ("precision", "pin", "slice", "energy_seconds")
"""Settings that make two cases of one run comparable; budgets, limits and folders may change."""
_OPEN_STOPS = ("", "budget", "interrupted")
_CHANGES = "uncommitted changes"


def conflicts(earlier: RunRecord, now: RunRecord, *, words: tuple[str, str] = ("then", "now")) -> list[str]:
    """What differs between the run that began and the one that would go on; one run has one of each.

    ``now`` must have been through the store's encoding, as ``earlier`` was: lists, not tuples. ``words`` name the two
    apart.
    """
    found = []
    for what, then, today in (
        ("host", earlier.host_id, now.host_id),
        ("seed", earlier.seed, now.seed),
        # Programs are started there, by names that may mean others elsewhere.
        ("folder", earlier.cwd, now.cwd if earlier.cwd and earlier.command == "ab" else earlier.cwd),
        *((name, earlier.settings.get(name), now.settings.get(name)) for name in _SETTINGS),
    ):
        if then != today:
            found.append(f"{what}: {_differing(then, today, words)}")
    for place, (first, second) in enumerate(zip(machines(earlier)[1:], machines(now)[1:], strict=False), 2):
        if not (first.host_id and first.host_id == second.host_id):
            then, today = (f"{machine.name} ({machine.host_id or 'class not recorded'})" for machine in (first, second))
            found.append(f"class of node {place}: {_differing(then, today, words)}")
    for name, then, today in _versions(earlier, now):
        files = now.git.get("changed") if name == _CHANGES and today else ""
        found.append(
            f"{name} {then or 'none'} {words[0]}, {today or 'none'} {words[1]}{f' ({files})' if files else ''}"
        )
    return found


def is_kept(record: CaseRecord, case: Case) -> bool:
    """Whether a stored case is taken as it is: it was measured to an end that a rule set, from the same scenario."""
    same = record.case.scenario_hash == case.scenario_hash
    return record.status == "measured" and record.stop not in _OPEN_STOPS and same


def goes_on(record: CaseRecord, case: Case) -> bool:
    """Whether the pairs of a stored case count and more may follow: pairs are independent launches."""
    started = record.status in ("measured", "interrupted") and record.stop in _OPEN_STOPS
    return started and bool(record.pairs) and record.case.scenario_hash == case.scenario_hash


def _versions(earlier: RunRecord, now: RunRecord) -> list[tuple[str, str, str]]:
    """Software and commit that changed."""
    both = (({**earlier.software}, {**now.software}), (_git(earlier.git), _git(now.git)))
    return [
        (n, a.get(n, ""), b.get(n, "")) for a, b in both for n in sorted(a.keys() | b.keys()) if a.get(n) != b.get(n)
    ]


def _git(state: Mapping[str, str]) -> dict[str, str]:
    return {"commit": state.get("sha", ""), _CHANGES: state.get("diff", "")}


def _differing(then: Any, today: Any, words: tuple[str, str]) -> str:
    """Both values, or only the entries of two mappings that differ."""
    if isinstance(then, Mapping) and isinstance(today, Mapping):
        names = sorted(k for k in then.keys() | today.keys() if then.get(k) != today.get(k))
        return ", ".join(f"{k} {then.get(k)} {words[0]}, {today.get(k)} {words[1]}" for k in names)
    return f"{then} {words[0]}, {today} {words[1]}"
