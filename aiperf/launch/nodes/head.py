"""The head's side of a job: the nodes that joined it, and a rank on one of them as a gang sees it.

What must not live here: what a node does with its orders (agent.py), gangs (gang.py).
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiperf import __version__
from aiperf.errors import UserError, usage
from aiperf.launch.child import STDERR_LINES, StartError, classify, tail_of
from aiperf.launch.nodes.links import (
    BEAT_S,
    SILENCE_S,
    Link,
    Meeting,
    admit,
    interface_of,
    interfaces,
    meeting_file,
    no_locks,
    require_space,
    unreached_file,
)
from aiperf.launch.nodes.place import Place
from aiperf.launch.nodes.slurm import names_in_step
from aiperf.records import FailureKind

JOIN_S = 60.0
_START_S = 30.0
_KILL_S = 12.0


@dataclass
class _Told:
    """What a node has said of one process."""

    pid: int = 0
    problem: str = ""
    status: int | None = None
    oom_kills: int = 0
    connection: socket.socket | None = None


@dataclass
class OtherNode:
    """Another node of the job, while its process is there."""

    name: str
    rank: int
    """Of its process in the job."""
    facts: dict[str, Any]
    """cpus, gpus, hostname, address, interface, host_id, host: what it said when it joined."""
    link: Link
    gone: str = ""
    """Why it is there no longer; empty while it is."""
    told: dict[str, _Told] = field(default_factory=dict)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def order(self, message: dict[str, Any]) -> None:
        """Send an order; of a node that is gone nothing is asked."""
        if not self.gone:
            try:
                self.link.send(message)
            except OSError as error:
                self.lose(str(error))

    def lose(self, why: str) -> None:
        """It is gone: whoever waits for one of its ranks learns it."""
        with self.changed:
            self.gone = self.gone or why
            for told in self.told.values():
                if told.connection is not None:
                    with suppress(OSError):
                        told.connection.shutdown(socket.SHUT_RDWR)
            self.changed.notify_all()
        self.link.close()

    def listen(self) -> None:
        """Take its messages until it is gone."""
        try:
            while True:
                said = self.link.receive(SILENCE_S)
                with self.changed:
                    told = self.told.get(str(said.get("id")))
                    if told is not None:
                        told.pid = said.get("pid", told.pid)
                        told.problem = said.get("problem", told.problem)
                        told.status = said.get("status", told.status)
                        told.oom_kills = said.get("oom_kills", told.oom_kills)
                        self.changed.notify_all()
        except TimeoutError:
            self.lose(f"it did not respond for {SILENCE_S:g} s")
        except (OSError, ValueError):
            self.lose("its process has ended")


class RemoteChild:
    """A process on another node, by the words of that node; what ``Child`` is for one on this host."""

    def __init__(self, node: OtherNode, told: _Told, key: str, log: Path) -> None:
        self.node, self.pid, self._told, self._key, self._log = node, told.pid, told, key, log
        self._sent: int | None = None

    @property
    def exit_status(self) -> int | None:
        """Exit status, minus the number of the signal that ended it, or None while it runs."""
        return self._told.status

    def poll(self) -> int | None:
        """Its exit status, or None while it runs; of a node that is gone nothing runs."""
        return -signal.SIGKILL if self._told.status is None and self.node.gone else self._told.status

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait for its end at most ``timeout`` seconds; None when it still runs then."""
        with self.node.changed:
            self.node.changed.wait_for(lambda: self.poll() is not None, timeout)
        return self.poll()

    def family(self) -> set[int]:
        """Processes of this host: none."""
        return set()

    def queued_s(self) -> float:
        """Not known of another node."""
        return 0.0

    def signal_group(self, number: int) -> None:
        """Have its node send a signal to the whole group."""
        if number in (signal.SIGKILL, signal.SIGTERM):
            self._sent = number
        self.node.order({"op": "signal", "id": self._key, "number": number})

    def kill_group(self) -> None:
        """Have its node end it and all it started; waits until it has."""
        if self._told.status is None:
            self._sent = signal.SIGKILL
        self.node.order({"op": "kill", "id": self._key})
        self.wait(_KILL_S)
        self.node.told.pop(self._key, None)
        if self._told.connection is not None:
            self._told.connection.close()

    def classify(self) -> tuple[FailureKind, str]:
        """Failure kind and sentence of its end."""
        if self._told.status is None:
            return "signal", f"node {self.node.name} left the run: {self.node.gone}"
        return classify(self._told.status, sent=self._sent, oom_kills=self._told.oom_kills)

    def stderr_tail(self) -> str:
        """Return the last lines it wrote to stderr, as far as the shared folder shows them."""
        with suppress(OSError):
            return tail_of(self._log, lines=STDERR_LINES)
        return ""


class Nodes:
    """The nodes of a job, the head's own first. Open while the job's ranks may be started."""

    def __init__(self, place: Place, results: Path, *, wait_s: float = JOIN_S, all_needed: bool = True) -> None:
        self.place, self._results, self._wait_s, self._all_needed = place, results, wait_s, all_needed
        self.absent: dict[str, str] = {}
        """Why a node did not come in time, by its name, or the rank of its process; none where all are needed."""
        self._complete = False
        self.address, self.interface = "127.0.0.1", "lo"
        """Of the head, as the nodes reach it: data goes over this interface."""
        self.scratch = Path("/tmp")
        """Folder on the head for what a rank keeps to itself."""
        self._others: list[OtherNode] = []
        self._token = secrets.token_hex(32)
        self._listener: socket.socket | None = None
        self._came = threading.Condition()
        self._problem: UserError | None = None

    def __len__(self) -> int:
        return len(self.names)

    @property
    def others(self) -> tuple[OtherNode, ...]:
        """The nodes beside the head's, by their index."""
        return tuple(self._others)

    @property
    def names(self) -> tuple[str, ...]:
        """Every node's name; the head's first."""
        return (self.place.node, *(node.name for node in self._others))

    @property
    def facts(self) -> tuple[dict[str, Any], ...]:
        """What the nodes beside the head's said of themselves when they joined, for the record."""
        return tuple({"node": node.name, **node.facts} for node in self._others)

    def leave_out(self, index: int | None) -> list[int]:
        """Go on without the node ``index`` and without every other one that is gone: which those are, by their index
        till now. Where none is known to be gone yet, wait for as long as one may be silent.
        """
        deadline = time.monotonic() + SILENCE_S + BEAT_S
        while index is None and not any(node.gone for node in self._others) and time.monotonic() < deadline:
            time.sleep(0.1)
        out = [place for place, node in enumerate(self._others, 1) if node.gone or place == index]
        for place in reversed(out):
            node = self._others.pop(place - 1)
            node.order({"op": "end"})
            node.lose("it was left out")
        return out

    def __enter__(self) -> Nodes:
        """Wait until every node has joined. Raises UserError where one does not that is needed, or no other one."""
        file = meeting_file(self._results, self.place.job)
        self._listener = socket.create_server(("", 0), backlog=256)
        addresses = tuple(address for _, address in interfaces()) or ("127.0.0.1",)
        meeting = Meeting(self.place.node, addresses, self._listener.getsockname()[1], self._token)
        try:
            with ExitStack() as while_joining:
                try:
                    file.parent.mkdir(parents=True, exist_ok=True)
                    require_space(file.parent)
                    while_joining.enter_context(meeting.written(file))
                except OSError as error:
                    what = f"the results folder cannot be written: {error.strerror}."
                    raise usage(what, "Nodes find each other there: make it writable.", str(file.parent)) from None
                threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()
                threading.Thread(target=self._beat, args=(self._listener,), daemon=True).start()
                self._await_all()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for node in self._others:
            node.order({"op": "end"})
            node.lose("the run is over")
        if self._listener is not None:
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()

    def _await_all(self) -> None:
        wanted = self.place.nodes - 1
        with self._came:
            deadline, unreached = time.monotonic() + self._wait_s, dict[int, tuple[str, str]]()
            while time.monotonic() < deadline and not self._problem and len(self._others) < wanted:
                self._came.wait(0.5)
                unreached |= self._read_unreached()
                if unreached and (self._all_needed or len(unreached) == wanted):
                    raise usage(
                        f"{'; '.join(f'node {name} {why}' for name, why in unreached.values())}.",
                        "Check the firewall: nodes of a job must reach each other on any port.",
                        "--launcher env",
                    )
            if self._problem:
                raise self._problem
            self._complete = True
            if len(self._others) < wanted and (self._all_needed or not self._others):
                raise _missing(self.names, self.place.nodes, self._results, self._wait_s)
            self._others.sort(key=lambda node: node.rank)
            _tell_apart(self.place.node, self._others)
            self.absent = dict(self._absent(unreached))

    def _absent(self, unreached: Mapping[int, tuple[str, str]]) -> Iterator[tuple[str, str]]:
        came, step = {node.rank for node in self._others}, self.place.world // self.place.nodes
        missing = [rank for rank in range(step, self.place.world, step) if rank not in came]
        names = names_in_step() if missing and self.place.launcher == "srun" else []
        taken = {self.place.node, *(node.name for node in self._others)}
        for rank in missing:
            # srun starts processes in the order of the nodes.
            name = names[rank // step] if len(names) == self.place.nodes else f"rank {rank}"
            name, why = unreached.get(rank, (name, f"did not join within {self._wait_s:g} s"))
            name = f"{name}#{rank // step}" if name in taken else name
            taken.add(name)
            yield name, why

    def _read_unreached(self) -> dict[int, tuple[str, str]]:
        """What nodes say that see the folder but cannot reach this process; they are gone once it is read."""
        found = {}
        step = self.place.world // self.place.nodes
        for rank in range(step, self.place.world, step):
            file = unreached_file(self._results, self.place.job, rank)
            with suppress(OSError, ValueError, KeyError, TypeError):
                said = json.loads(file.read_text(encoding="utf-8"))
                if self._listener is not None and said["port"] == self._listener.getsockname()[1]:
                    found[rank] = (said["node"], f"sees the results folder, but cannot reach {said['tried']}")
                file.unlink()
        return found

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            # Each in a thread of its own: one that says nothing keeps no other one waiting.
            threading.Thread(target=self._admit, args=(connection,), daemon=True).start()

    def _admit(self, connection: socket.socket) -> None:
        try:
            link, said = admit(connection, self._token)
        except (OSError, ValueError):
            connection.close()
            return
        if said.get("role") == "node":
            self._join(link, said)
            return
        node = next((one for one in self._others if one.rank == said.get("rank")), None)
        told = node.told.get(str(said.get("id"))) if node else None
        if node is None or told is None:
            link.close()
            return
        connection.settimeout(None)
        with node.changed:
            told.connection = connection
            node.changed.notify_all()

    def _join(self, link: Link, said: dict[str, Any]) -> None:
        node = OtherNode(str(said["node"]), int(said["rank"]), dict(said["facts"]), link)
        with self._came:
            if self._complete:
                link.close()  # too late: the others have begun
                return
            theirs = f"{said.get('version')}{'' if 'locks' in said else ' (an older checkout)'}"
            if theirs != __version__:
                what = f"node {node.name} runs aiperf {theirs}, this one {__version__}."
                self._problem = usage(what, "Install the same version on every node.", "--launcher env")
            elif not said["locks"]:
                what = f"a file that {self.place.node} locks is not locked for node {node.name}."
                self._problem = no_locks(what, meeting_file(self._results, self.place.job).parent)
            own = link.connection.getsockname()[0]
            if not own.startswith("127."):
                self.address, self.interface = own, interface_of(own) or "lo"
            self._others.append(node)
            self._came.notify_all()
        node.listen()

    def _beat(self, listener: socket.socket) -> None:
        while listener.fileno() >= 0:
            for node in self.others:
                node.order({"op": "beat"})
            time.sleep(BEAT_S)

    def start(
        self,
        index: int,
        *,
        program: Sequence[str],
        env: Mapping[str, str],
        python: str,
        cwd: Path | None,
        log: Path,
        share: tuple[int, int],
    ) -> tuple[RemoteChild, int]:
        """Start ``program`` on a node: the child and a connection to it. ``share``: which of how many there.

        Its environment is the node's, with what of ``env`` is not this process's own. Raises StartError.
        """
        node, key, told = self._others[index - 1], secrets.token_hex(8), _Told()
        own = {name: value for name, value in env.items() if os.environ.get(name) != value}
        with node.changed:
            node.told[key] = told
        folder = str(cwd) if cwd else ""
        node.order(
            {"op": "start", "id": key, "program": list(program), "env": own, "python": python, "cwd": folder,
             "log": str(log), "share": list(share)}
        )  # fmt: skip
        with node.changed:
            node.changed.wait_for(
                lambda: node.gone or told.problem or (told.pid and told.connection is not None), _START_S
            )
        if told.connection is None or not told.pid:
            why = told.problem or (f"it left the run: {node.gone}" if node.gone else "it did not answer")
            raise StartError(f"node {node.name}: {why}")
        # The descriptor stays the connection's; the gang has a copy of its own.
        return RemoteChild(node, told, key, log), os.dup(told.connection.fileno())


def _tell_apart(head: str, others: Sequence[OtherNode]) -> None:
    """Give nodes of the same name, as a launcher may start them on one host, different ones."""
    for place, node in enumerate(others, 1):
        if node.name in {head, *(other.name for other in others[: place - 1])}:
            node.name = f"{node.name}#{place}"


def _missing(came: Sequence[str], wanted: int, results: Path, wait_s: float) -> UserError:
    what = f"{len(came)} of {wanted} nodes joined within {wait_s:g} s: {', '.join(came)}."
    return usage(what, f"{results.absolute()} must be on a file system that all of them share.", "--launcher env")
