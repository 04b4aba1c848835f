"""What the process of a node does: it joins the head, starts and ends ranks for it, and outlives neither it nor them.

What must not live here: measuring; the ranks talk to the head themselves.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import socket
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from aiperf import __version__
from aiperf.errors import AiperfError, usage
from aiperf.host.facts import HostFacts
from aiperf.host.fingerprint import fingerprint
from aiperf.launch import orphans
from aiperf.launch.child import Child, oom_kill_count
from aiperf.launch.environment import INTERFACE_VARIABLES, SCRATCH_VARIABLE, import_path
from aiperf.launch.guardian import Guardian
from aiperf.launch.nodes.head import JOIN_S
from aiperf.launch.nodes.links import (
    BEAT_S,
    SILENCE_S,
    Link,
    Meeting,
    interface_of,
    join,
    meeting_file,
    require_space,
    sees_lock,
    unreached_file,
)
from aiperf.launch.nodes.place import Place
from aiperf.launch.scratch import Scratch
from aiperf.launch.watchdog import PARENT_VARIABLE

_LOOK_S = 0.2
_UNREACHED_S = 10.0
"""For how long a head whose address is known must be out of reach before it is told so through the folder."""


class HeadKnows(AiperfError):
    """This node has no head to follow, and the head says why."""


def follow_head(place: Place, results: Path, host: HostFacts, *, wait_s: float = JOIN_S) -> bool:
    """Do what the head says until it says that the run is over; False where it went without a word.

    Nothing that was started here is left. Raises UserError where the head cannot be found.
    """
    link, meeting = _find_head(place, results, host, wait_s)
    with Guardian() as guardian, Scratch(guardian, "node") as scratch:
        return _Agent(place, link, meeting, guardian, scratch).run()


def _find_head(place: Place, results: Path, host: HostFacts, wait_s: float) -> tuple[Link, Meeting]:
    file = meeting_file(results, place.job)
    deadline, meeting, told = time.monotonic() + wait_s, None, unreached_file(results, place.job, place.rank)
    first: dict[int, float] = {}
    host_id, fields = fingerprint(host)
    about = {"host_id": host_id, "host": {**asdict(host), "fingerprint": fields}}
    hello: dict[str, Any] = {"role": "node", "node": place.node, "rank": place.rank, "version": __version__}
    while time.monotonic() < deadline:
        # Read anew each time: what lies there may be a former run's.
        if (meeting := Meeting.read(file) or meeting) is not None:
            for address in meeting.addresses:
                with suppress(OSError):
                    said = {**hello, "locks": sees_lock(file), "facts": {**_facts(host, address), **about}}
                    return join((address, meeting.port), meeting.token, said), meeting
            if time.monotonic() - first.setdefault(meeting.port, time.monotonic()) > _UNREACHED_S:
                _tell_head(told, place, meeting)
        elif file.parent.is_dir():
            # Not left to the head: the folder may be this node's own, which the head never sees.
            require_space(file.parent, node=place.node)
        time.sleep(_LOOK_S)
    if meeting is None:
        what = f"node {place.node} did not find the head within {wait_s:g} s."
        hint = "The results folder must be on a file system that every node shares: choose one with --results."
        raise usage(what, hint, str(file.parent))
    tried = ", ".join(f"{address}:{meeting.port}" for address in meeting.addresses)
    what = f"node {place.node} cannot reach the head on {meeting.node} at {tried}."
    raise usage(what, "Allow connections between the nodes of a job.", "--launcher env")


def _tell_head(file: Path, place: Place, meeting: Meeting) -> None:
    """Say through the folder that the head cannot be reached. Raises HeadKnows once it has read that."""
    tried = ", ".join(f"{address}:{meeting.port}" for address in meeting.addresses)
    with suppress(FileExistsError, OSError):
        file.with_suffix(".new").write_text(json.dumps({"port": meeting.port, "node": place.node, "tried": tried}))
        file.with_suffix(".new").replace(file)
    deadline = time.monotonic() + 2.0
    while time.monotonic() < deadline:
        if not file.exists():
            raise HeadKnows("the head has been told that it cannot be reached")
        time.sleep(_LOOK_S)


def _facts(host: HostFacts, head: str) -> dict[str, Any]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((head, 9))  # sends nothing; the kernel chooses the address
        own = probe.getsockname()[0]
    return {
        "hostname": host.hostname, "cpus": len(host.cpus), "gpus": len(host.gpus), "address": own,
        "interface": interface_of(own),
    }  # fmt: skip


class _Agent:
    def __init__(self, place: Place, link: Link, meeting: Meeting, guardian: Guardian, scratch: Path) -> None:
        self._place, self._link, self._meeting = place, link, meeting
        self._head = link.connection.getpeername()
        self._interface = interface_of(link.connection.getsockname()[0])
        self._guardian, self._scratch = guardian, scratch
        self._children: dict[str, Child] = {}

    def run(self) -> bool:
        heard = beat = time.monotonic()
        try:
            while (now := time.monotonic()) - heard < SILENCE_S:
                if now - beat > BEAT_S:
                    self._link.send({"op": "beat"})
                    beat = now
                ready = self._link.waiting or self._wait()
                self._report_ends()
                if ready:
                    order, heard = self._link.receive(SILENCE_S), time.monotonic()
                    if order["op"] == "end":
                        return True
                    self._do(order)
        except OSError:
            pass  # the head is gone
        finally:
            for child in self._children.values():
                with suppress(AiperfError):
                    child.kill_group()
            self._link.close()
        print(f"aiperf: node {self._place.node}: the head on {self._meeting.node} is gone", file=sys.stderr)
        return False

    def _wait(self) -> bool:
        """Whether the head has sent something; ends early when a process ends."""
        mine = self._link.connection
        running: list[Any] = [
            child.fileno() for child in self._children.values() if child.ended is None and child.fileno() >= 0
        ]
        return mine in select.select([mine, *running], [], [], BEAT_S / 2)[0]

    def _report_ends(self) -> None:
        for key, child in list(self._children.items()):
            if (ended := child.poll()) is not None:
                del self._children[key]
                self._tell_end(key, ended.status)

    def _tell_end(self, key: str, status: int) -> None:
        self._link.send({"id": key, "status": status, "oom_kills": oom_kill_count()})

    def _do(self, order: dict[str, Any]) -> None:
        op, key = order["op"], str(order.get("id", ""))
        if op == "start":
            try:
                self._children[key] = child = self._start(key, order)
                self._link.send({"id": key, "pid": child.pid})
            except (AiperfError, OSError) as error:
                self._link.send({"id": key, "problem": str(error)})
        elif op == "signal" and key in self._children:
            self._children[key].signal_group(int(order["number"]))
        elif op == "kill" and (found := self._children.pop(key, None)) is not None:
            self._tell_end(key, found.kill_group().status)
            if not self._children:
                for left in self._scratch.iterdir():
                    shutil.rmtree(left, ignore_errors=True)

    def _start(self, key: str, order: dict[str, Any]) -> Child:
        env = {**os.environ, **order["env"], PARENT_VARIABLE: str(os.getpid()), SCRATCH_VARIABLE: str(self._scratch)}
        env["PYTHONPATH"] = import_path(env.get("PYTHONPATH", ""), checkout=bool(order["cwd"]))
        for name in INTERFACE_VARIABLES:
            env.setdefault(name, self._interface)
        hello = {"role": "rank", "rank": self._place.rank, "id": key}
        connection = join(self._head, self._meeting.token, hello).connection
        connection.settimeout(None)
        with connection:
            # Two numbers of one connection, because the worker closes its two ends apart.
            copy = os.dup(connection.fileno())
            try:
                program = [word.format(read=connection.fileno(), write=copy) for word in order["program"]]
                child = Child.start(
                    [order["python"] or sys.executable, *program],
                    env=env,
                    cwd=Path(order["cwd"]) if order["cwd"] else None,
                    cpus=_share(*order["share"]),
                    pass_fds=(connection.fileno(), copy),
                    stderr_path=Path(order["log"]),
                    guardian=self._guardian,
                )
            finally:
                os.close(copy)
        orphans.adopting(child.pid)
        return child


def _share(own: int, of: int) -> tuple[int, ...]:
    """The CPUs of one of several ranks: every so many of those that this process may use."""
    cpus = sorted(os.sched_getaffinity(0))
    return tuple(cpus[own::of]) if len(cpus) >= of else (cpus[own % len(cpus)],)
