"""The machines that a run was measured on: what each is called, its class, and how it is told from equal ones.

What must not live here: reading a host, comparing the fields of classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from aiperf.records.asked import Side
from aiperf.records.stored import RunRecord


@dataclass(frozen=True)
class Machine:
    """One host of a run, as it was recorded."""

    name: str
    host_id: str
    """Its class; empty where it was not recorded."""
    host: Mapping[str, Any]
    """Its facts, with the fingerprint."""

    @property
    def key(self) -> tuple[str, ...]:
        """What tells it from equal machines: its GPUs, else its machine id and host name, else class and host name."""
        hostname, machine_id = str(self.host.get("hostname") or ""), self._only("machine_id")
        if gpus := self.gpus:
            return gpus
        return (hostname, str(machine_id)) if machine_id else (self.host_id, hostname)

    @property
    def identified(self) -> bool:
        """Whether ``key`` tells it from another machine of its class and host name."""
        return bool(self.gpus or self._only("machine_id"))

    @property
    def gpus(self) -> tuple[str, ...]:
        """UUIDs of its GPUs."""
        facts = (gpu.get("uuid") for gpu in self.host.get("gpus") or () if isinstance(gpu, Mapping))
        return tuple(sorted(str(uuid) for uuid in (self._only("gpu_uuids") or facts) if uuid))

    @property
    def label(self) -> str:
        """The beginning of what tells it from equal machines."""
        if gpus := self.gpus:
            return f"{gpus[0][:12]}{f' +{len(gpus) - 1}' if len(gpus) > 1 else ''}"
        return str(self._only("machine_id") or self.host_id)[:8]

    def is_like(self, other: Machine) -> bool:
        """Whether it may be the same machine, as far as both were recorded."""
        if self.identified and other.identified:
            return self.key == other.key and self.name == other.name
        return (self.host_id, self.name) == (other.host_id, other.name)

    def _only(self, name: str) -> Any:
        fields = self.host.get("fingerprint")
        record_only = fields.get("record_only") if isinstance(fields, Mapping) else None
        return record_only.get(name) if isinstance(record_only, Mapping) else None


def machines(run: RunRecord, nodes: int | None = None) -> tuple[Machine, ...]:
    """The hosts of a run by rank, this one first; only those of a case over so many ``nodes``."""
    others = run.nodes if nodes is None else run.nodes[: nodes - 1]
    return (Machine(str(run.host.get("hostname") or ""), run.host_id, run.host), *map(_other, others))


def node_names(run: RunRecord) -> list[str]:
    """What the nodes of a run are called, the head's first: by the launcher; on one host, its name."""
    return [one.name for one in _as_nodes(run)]


def places(run: RunRecord, side: Side) -> dict[int | None, tuple[str, str]]:
    """Rank of a side -> the node that it ran on and its host's name; None -> those of a reading that names no rank.

    Empty where that is not known: a later session was measured on other machines, or a node was not recorded.
    """
    found = machines(run, side.nodes)
    if run.also_on or not run.known or len(found) < side.nodes or not found[0].name:
        return {}
    hosts = (str(one.host.get("hostname") or one.name) for one in found)
    names = list(zip(node_names(run), hosts, strict=False))
    each = max(1, side.ranks // max(1, side.nodes))
    by_rank: dict[int | None, tuple[str, str]] = {rank: names[rank // each] for rank in range(side.ranks)}
    return by_rank if side.nodes > 1 else {**by_rank, None: names[0]}


def later_machines(run: RunRecord) -> tuple[Machine, ...]:
    """The machines of later sessions and other parts that are none of ``machines``."""
    own = _as_nodes(run)
    return tuple(one for one in map(_other, run.also_on) if not any(one.is_like(known) for known in own))


def with_machines_of(run: RunRecord, other: RunRecord) -> RunRecord:
    """``run``, naming the machines of ``other`` too: a later session of it, or another part. A machine of both that has
    another place in ``other`` counts as one that took the place of another, and may be listed in two places."""
    nodes = (*run.nodes, *other.nodes[len(run.nodes) :])
    named = replace(run, nodes=nodes, node=run.node or other.node)
    name = other.node or str(other.host.get("hostname") or "")
    head: dict[str, Any] = {"node": name, "host_id": other.host_id, "host": other.host}
    moved = [e for e, then in zip((head, *other.nodes), _as_nodes(named), strict=False) if not _other(e).is_like(then)]
    also = list(named.also_on)
    for entry in (*moved, *other.also_on):
        if not any(_other(entry).is_like(_other(listed)) for listed in also):
            also.append(dict(entry))
    return replace(named, also_on=tuple(also))


def _as_nodes(run: RunRecord) -> tuple[Machine, ...]:
    """``machines``, the head too under the name that the launcher gave it."""
    head, *others = machines(run)
    return (replace(head, name=run.node or head.name), *others)


def _other(node: Mapping[str, Any]) -> Machine:
    host = node.get("host")
    name = str(node.get("node") or node.get("hostname") or "")
    return Machine(name, str(node.get("host_id") or ""), host if isinstance(host, Mapping) else node)
