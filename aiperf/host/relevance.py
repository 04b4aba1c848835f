"""Which findings of the host can bias which case, by the rules of configs/doctor/relevance.yaml.

What must not live here: reading the host, and what a run does with an unfit case.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from aiperf.errors import Fault, UserError
from aiperf.host.peaks import PEAK_SPECS
from aiperf.host.probes.every import PROBES
from aiperf.host.probes.run_start import RUN_PROBES
from aiperf.paths import config_folder
from aiperf.records import Case, HostFinding

_PLAIN = ("any", "cpu", "gpu", "gpus", "ranks", "command", "disk")
_NAMED = ("tag", "peak", "workload")
_LOADER: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class HostCheck(StrEnum):
    """What a run does about findings that touch a case."""

    off = "off"
    """Nothing is read."""
    warn = "warn"
    """They are recorded with the case."""
    strict = "strict"
    """A case that the host is unfit for is not measured."""


@dataclass(frozen=True)
class RelevanceException:
    """Cases for which a rule judges otherwise."""

    touches: frozenset[str]
    reason: str


@dataclass(frozen=True)
class RelevanceRule:
    """Which cases some findings touch, and why."""

    ids: tuple[str, ...]
    touches: frozenset[str]
    why: str
    unfit: tuple[RelevanceException, ...] = ()
    fit: tuple[RelevanceException, ...] = ()
    unless: frozenset[str] = frozenset()
    """Ids that describe the same fault better: where one of them is found too, this one is left out."""


def kinds_of(case: Case, peaks: Iterable[str] = ()) -> frozenset[str]:
    """What kinds of case this is, in the words of the rules; ``peaks`` are those that its sides charge, once known."""
    plain = {
        "any": True,
        "cpu": not case.needs.gpus,
        "gpu": case.needs.gpus > 0,
        "gpus": case.needs.gpus > 1,
        "ranks": max(case.needs.ranks, *(side.ranks for side in case.sides)) > 1,
        "command": case.is_command,
        "disk": case.needs.disk > 0,
    }
    families = {side.workload.partition(".")[0] for side in case.sides if side.workload and "/" not in side.workload}
    named = {"tag": case.tags, "peak": peaks, "workload": families}
    return frozenset(
        [kind for kind, holds in plain.items() if holds]
        + [f"{kind}:{name}" for kind, names in named.items() for name in names]
    )


def case_findings(
    findings: Iterable[HostFinding], rules: Sequence[RelevanceRule], case: Case, *, peaks: Collection[str] = ()
) -> tuple[HostFinding, ...]:
    """The findings that can bias this case, each with how, unfit ones first."""
    kinds = kinds_of(case, peaks)
    known = {name: rule for rule in rules for name in rule.ids}
    found = [one for f in findings if f.id in known and (one := _for_case(f, known[f.id], kinds)) is not None]
    names = {finding.id for finding in found}
    once = [finding for finding in found if not known[finding.id].unless & names]
    return tuple(sorted(once, key=lambda finding: finding.level != "unfit"))


def _for_case(finding: HostFinding, rule: RelevanceRule, kinds: frozenset[str]) -> HostFinding | None:
    if not rule.touches & kinds or any(exception.touches & kinds for exception in rule.fit):
        return None
    worse = next((e for e in rule.unfit if e.touches & kinds), None)
    return replace(finding, bias=rule.why) if worse is None else replace(finding, level="unfit", bias=worse.reason)


def wanted(rules: Iterable[RelevanceRule]) -> frozenset[str]:
    """Ids of the probes whose findings can bias any case at all."""
    return frozenset(name for rule in rules if rule.touches for name in rule.ids)


@lru_cache(maxsize=4)
def load_rules(path: Path | None = None) -> tuple[RelevanceRule, ...]:
    """Every rule. Raises UserError with every fault of the file."""
    place = path or config_folder() / "doctor" / "relevance.yaml"
    try:
        plain = yaml.load(place.read_text(encoding="utf-8"), Loader=_LOADER)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError(Fault(str(place), f"cannot be read as YAML: {' '.join(str(error).split())}.")) from None
    faults: list[Fault] = []
    rules = [_rule(f"{place}: rule {number}", entry, faults) for number, entry in enumerate(_list(plain))]
    names = [name for rule in rules for name in rule.ids]
    known = {probe.id for probe in (*PROBES, *RUN_PROBES)}
    faults += [
        Fault(str(place), f'"{name}" is named twice.') for name in sorted({n for n in names if names.count(n) > 1})
    ]
    faults += [Fault(str(place), f'"{name}" is not a probe.') for name in names if name not in known]
    better = sorted({name for rule in rules for name in rule.unless})
    faults += [Fault(str(place), f'unless: "{name}" is not a probe.') for name in better if name not in known]
    faults += [Fault(str(place), f'"{name}" has no rule.') for name in sorted(known - set(names))]
    if faults:
        raise UserError(faults)
    return tuple(rules)


def _rule(where: str, entry: Any, faults: list[Fault]) -> RelevanceRule:
    data = _keys(where, entry, ("ids", "touches", "why"), ("unfit", "fit", "unless"), faults)
    return RelevanceRule(
        ids=tuple(str(name) for name in _list(data.get("ids"))),
        touches=_touches(where, data, faults),
        why=_text(where, data, "why", faults),
        unfit=_exceptions(f"{where}: unfit", data.get("unfit"), faults),
        fit=_exceptions(f"{where}: fit", data.get("fit"), faults),
        unless=frozenset(str(name) for name in _list(data.get("unless"))),
    )


def _exceptions(where: str, entries: Any, faults: list[Fault]) -> tuple[RelevanceException, ...]:
    found = []
    for entry in _list(entries):
        data = _keys(where, entry, ("touches", "reason"), (), faults)
        found.append(RelevanceException(_touches(where, data, faults), _text(where, data, "reason", faults)))
    return tuple(found)


def _keys(
    where: str, entry: Any, needed: Sequence[str], allowed: Sequence[str], faults: list[Fault]
) -> Mapping[str, Any]:
    if not isinstance(entry, dict):
        faults.append(Fault(where, "is not a mapping."))
        return dict.fromkeys(needed, "")
    faults += [Fault(where, f'"{key}" is not a known key.') for key in entry if key not in (*needed, *allowed)]
    faults += [Fault(where, f"has no {key}.") for key in needed if key not in entry]
    return entry


def _touches(where: str, data: Mapping[str, Any], faults: list[Fault]) -> frozenset[str]:
    found = [str(kind) for kind in _list(data.get("touches"))]
    peaks = {peak_name.name for peak_name in PEAK_SPECS}
    for kind in found:
        sort, colon, name = kind.partition(":")
        if kind in _PLAIN or (colon and sort in _NAMED and name and (sort != "peak" or name in peaks)):
            continue
        faults.append(Fault(where, f'"{kind}" is not a kind of case.', f"Known: {', '.join(_PLAIN)}, {_NAMED}:NAME."))
    return frozenset(found)


def _text(where: str, data: Mapping[str, Any], key: str, faults: list[Fault]) -> str:
    text = data.get(key)
    if isinstance(text, str) and text:
        return text
    if key in data:
        faults.append(Fault(where, f"{key} is not a text."))
    return ""


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
