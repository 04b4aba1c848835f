"""Whether two runs may be held against each other: fields of their hosts, software and scenarios that differ.

What must not live here: any number of a measurement, reading a host.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from aiperf.analysis.gate import Difference
from aiperf.records import CaseRecord, RunRecord, Side
from aiperf.records.machines import machines

NONE = "none"
"""Stands for a field that one of the two does not have."""
UNKNOWN = "not recorded"
_OF_A_CHECKOUT = ("PYTHONPATH", "AIPERF_COMMIT", "AIPERF_REPOSITORY")
_HASH = 12
"""Characters of a commit or hash that are shown."""


@dataclass(frozen=True)
class Differences:
    """Everything in which two runs differ besides what they measured."""

    must_match: tuple[Difference, ...] = ()
    """Fields of the host that change what a time means: any of them forbids a comparison."""
    record_only: tuple[Difference, ...] = ()
    """Shown, never in the way: the rest of the host, software, checkout, precision."""


def differing(then: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[Difference, ...]:
    """Must-match fields that differ between two fingerprints ({"must_match": {...}, "record_only": {...}}).

    A nested field is named with dots: ``libraries.torch``, ``gpus[0].name``. Hosts that were not recorded cannot be
    said to match: that is a difference too.
    """
    first, second = (_part(fields, "must_match") for fields in (then, now))
    if not first or not second:
        return (Difference("fingerprint", *("recorded" if part else UNKNOWN for part in (first, second))),)
    return field_differences(first, second)


def run_differences(then: RunRecord, now: RunRecord) -> Differences:
    """Everything in which two runs differ: hosts, software, checkout, precision.

    Of a run whose own record is damaged none of these is known, so that is the only difference.
    """
    if not (then.known and now.known):
        return Differences((Difference("own record", *("read" if run.known else "damaged" for run in (then, now))),))
    first, second = (_fingerprint(run.host) for run in (then, now))
    # An imported run has no fingerprint; its host id stands for what its file, or its user, says of the machine.
    named = then.host_id and then.host_id == now.host_id and not (first and second)
    must = () if named else differing(first, second)
    if not (first or second or named or then.host_id == now.host_id):
        # Neither has a fingerprint, so that they differ in what each is called.
        must = (Difference("host id", then.host_id or UNKNOWN, now.host_id or UNKNOWN),)
    named_already = {d.name.removeprefix("libraries.") for d in must}
    of_nodes = _node_differences(then, now)
    must += of_nodes.must_match
    rest = field_differences(_part(first, "record_only"), _part(second, "record_only"))
    rest += of_nodes.record_only
    rest += field_differences({"nodes": len(then.nodes) + 1}, {"nodes": len(now.nodes) + 1})
    software = field_differences(then.software, now.software, prefix="software")
    # A library that must match has its version in the software too.
    software = tuple(d for d in software if d.name.removeprefix("software.") not in named_already)
    checkout = field_differences(_short(then.git), _short(now.git), prefix="git")
    how = field_differences({"precision": then.precision}, {"precision": now.precision})
    return Differences(must, (*rest, *software, *checkout, *how))


def field_differences(then: Mapping[str, Any], now: Mapping[str, Any], *, prefix: str = "") -> tuple[Difference, ...]:
    """Fields that differ between two mappings, nested ones with dotted names, in the order of appearance."""
    found: list[Difference] = []
    for key in dict.fromkeys((*then, *now)):
        name = f"{prefix}.{key}" if prefix else str(key)
        found += _compared(name, then.get(key), now.get(key), missing=(key not in then, key not in now))
    return tuple(found)


def case_differences(then: CaseRecord, now: CaseRecord) -> tuple[Difference, ...]:
    """Why two records of one case do not ask the same question; nothing when they do.

    The scenario's text, what its sides were given (a workload's defaults may change where no text does), the way of
    timing, the replicate. Without a text (``aiperf ab``) what the sides run, too; paths do not count otherwise.
    """
    first, second = then.case, now.case
    found = _compared("scenario_hash", first.scenario_hash[:_HASH], second.scenario_hash[:_HASH])
    whole = not (first.scenario_hash and second.scenario_hash)
    found += _of_sides(_sides(then, whole=whole), _sides(now, whole=whole))
    for name in ("clock", "cache", "isolation", "statistic", "metric"):
        found += _compared(f"measure.{name}", getattr(first.measure, name), getattr(second.measure, name))
    found += _compared("measure.exclusive", bool(first.measure.exclusive), bool(second.measure.exclusive))
    return (*found, *_compared("replicate", then.replicate, now.replicate))


def _node_differences(then: RunRecord, now: RunRecord) -> Differences:
    """Differences between the other nodes of the same rank, as ``node2.memory_gib``.

    A case uses the first nodes of its run, so a node that only one of the runs has changes no case of both.
    """
    must: list[Difference] = []
    rest: list[Difference] = []
    for place, (one, other) in enumerate(zip(machines(then)[1:], machines(now)[1:], strict=False), 2):
        first, second = _fingerprint(one.host), _fingerprint(other.host)
        record_only = field_differences(_part(first, "record_only"), _part(second, "record_only"))
        must += [replace(each, name=f"node{place}.{each.name}") for each in differing(first, second)]
        rest += [replace(each, name=f"node{place}.{each.name}") for each in record_only]
    return Differences(tuple(must), tuple(rest))


def _fingerprint(host: Mapping[str, Any]) -> Mapping[str, Any]:
    found = host.get("fingerprint")
    return found if isinstance(found, Mapping) else {}


def _part(fields: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = fields.get(name)
    return found if isinstance(found, Mapping) else {}


def _short(git: Mapping[str, str]) -> dict[str, str]:
    return {name: git[name][:_HASH] for name in ("sha", "diff") if name in git}


def _of_sides(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[Difference]:
    """What the sides were given; of sides with other names only these."""
    if set(then) != set(now):
        return [Difference("sides", ", ".join(then), ", ".join(now))]
    return _compared("sides", then, now)


def _sides(record: CaseRecord, *, whole: bool) -> dict[str, Any]:
    given = {
        s.name: {"params": s.params, "env": _env(s), "ranks": s.ranks} | ({"ref": s.ref} if s.ref else {})
        for s in record.case.sides
    }
    runs = {s.name: {"workload": s.workload, "command": shlex.join(s.command), "ref": s.ref} for s in record.case.sides}
    return {name: {**runs[name], **fields} if whole else fields for name, fields in given.items()}


def _env(side: Side) -> dict[str, str]:
    """What a side was given; a checkout lies in another folder, and a ref moves, from run to run."""
    return {k: v for k, v in side.env.items() if not side.ref or k not in _OF_A_CHECKOUT}


def _compared(name: str, then: Any, now: Any, *, missing: tuple[bool, bool] = (False, False)) -> list[Difference]:
    if missing[0] == missing[1] and then == now:  # most are, and need no look at their parts
        return []
    if isinstance(then, Mapping) and isinstance(now, Mapping):
        return list(field_differences(then, now, prefix=name))
    if _is_list(then) and _is_list(now) and any(isinstance(x, Mapping) for x in (*then, *now)):
        longest = range(max(len(then), len(now)))
        pairs = [(i, _item(then, i), _item(now, i)) for i in longest]
        return [
            d
            for i, one, other in pairs
            for d in _compared(f"{name}[{i}]", one, other, missing=(i >= len(then), i >= len(now)))
        ]
    if _plain(then) == _plain(now) and missing[0] == missing[1]:
        return []
    return [Difference(name, *(NONE if gone else _text(v) for v, gone in zip((then, now), missing, strict=True)))]


def _item(values: Sequence[Any], index: int) -> Any:
    return values[index] if index < len(values) else None


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _plain(value: Any) -> Any:
    """Lists that came back from JSON equal the tuples that went in."""
    return [_plain(v) for v in value] if _is_list(value) else value


def _text(value: Any) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return str(value["name"]) if value.get("name") else ", ".join(f"{k} {_text(v)}" for k, v in value.items())
    if _is_list(value):
        return ", ".join(_text(v) for v in value) or NONE
    return str(value) or NONE
