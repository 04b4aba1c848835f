"""One launch: a worker process, or a gang of ranks, and the messages to and from it over inherited pipes.

What must not live here: what is measured in which order (see pair.py).

Every rank has pipes of its own and gets the same requests, so a dead or hanging rank is seen at once, whichever it is.
"""

from __future__ import annotations

import os
import secrets
import selectors
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from aiperf.errors import AiperfError
from aiperf.launch import orphans
from aiperf.launch.child import Child, StartError
from aiperf.launch.environment import INTERFACE_VARIABLES, STORE_VARIABLE, import_path
from aiperf.launch.guardian import Guardian
from aiperf.launch.nodes.head import Nodes, RemoteChild
from aiperf.launch.rank import LONGEST_LINE, Rank, fill, is_settled, threads_of, write_all
from aiperf.launch.watchdog import family
from aiperf.protocol.messages import (
    CloseRequest,
    FailureReply,
    R,
    ReadyReply,
    SkipReply,
    WorkerReply,
    WorkerRequest,
    reply_of,
)
from aiperf.protocol.wire import ProtocolError, decode, encode
from aiperf.records import Failure, FailureKind

_PEER_GRACE_S = 0.3
"""How long a rank that is about to die gets, when another one complains first."""


class LaunchFailed(AiperfError):
    """A launch could not be measured; carries the Failure."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class LaunchSkipped(AiperfError):
    """A worker found out that this host cannot run the side; the message is the reason."""


@dataclass(frozen=True)
class GangPlan:
    """What a launch needs to start."""

    name: str
    """The side, or ``both`` in one process; names its log files."""
    ranks: int
    env: Mapping[str, str]
    python: str
    cpus: tuple[tuple[int, ...] | None, ...]
    """CPUs of each rank; None leaves a rank free."""
    folder: Path
    """Holds the ranks' stderr logs."""
    cwd: Path | None = None
    """Folder that the ranks start in, for sides that run a checkout: what their PYTHONPATH names then comes before the
    folder of this package, which may hold an installed copy of the code under test. None: the parent's."""
    program: tuple[str, ...] = ("-m", "aiperf.worker")
    """What the interpreter runs."""
    nodes: int = 1
    """Over which the ranks are spread, as many on each, the first ones here."""
    cluster: Nodes | None = None
    """The nodes of the job; only of use to ranks on several."""

    @property
    def local_ranks(self) -> int:
        """Ranks on each node."""
        return self.ranks // self.nodes


class Gang:
    """The living ranks of one launch."""

    def __init__(self, plan: GangPlan, guardian: Guardian) -> None:
        self.plan = plan
        self.busy_s = 0.0
        """Time inside requests, the slowest rank's."""
        self._guardian, self._ranks = guardian, list[Rank]()
        store = plan.folder.absolute() / f"{plan.name}-{secrets.token_hex(4)}.store"
        self._store = str(store) if plan.nodes > 1 else ""
        self._strayed: dict[int, int] = {}
        """Processes of the ranks outside of their groups -> a descriptor of each, which no later process inherits."""

    def __enter__(self) -> Gang:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids by rank."""
        return tuple(rank.child.pid for rank in self._ranks)

    @property
    def node_names(self) -> tuple[str, ...]:
        """The nodes that its ranks are spread over; empty for ranks on this host alone."""
        cluster = self.plan.cluster
        return cluster.names[: self.plan.nodes] if self.plan.nodes > 1 and cluster else ()

    @property
    def alive(self) -> bool:
        """Whether every rank still runs."""
        return all(rank.child.poll() is None for rank in self._ranks)

    @property
    def settled(self) -> bool:
        """Whether every rank has answered all that it was sent, or never will; does not wait, reads a little."""
        return all(is_settled(rank) for rank in self._ranks)

    def find_strayed(self) -> set[int]:
        """Every process of the ranks; those that have left their groups are stopped with them from now on."""
        family: set[int] = set()
        for rank in self._ranks:
            family |= (found := rank.child.family())
            for pid in found - self._strayed.keys():
                with suppress(OSError):
                    if os.getpgid(pid) != rank.child.pid:
                        self._strayed[pid] = os.pidfd_open(pid)
        return family

    def suspend(self) -> None:
        """Stop every rank where it is, and what it started; they take no CPU until ``resume``."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let every rank go on."""
        self._signal(signal.SIGCONT)

    def queued_s(self) -> float:
        """Seconds for which a rank has waited for a CPU so far, of the rank that waited most; 0 where the kernel does
        not say."""
        return max((rank.child.queued_s() for rank in self._ranks), default=0.0)

    def _signal(self, number: int) -> None:
        for rank in self._ranks:
            rank.child.signal_group(number)
        for descriptor in self._strayed.values():
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, number)

    def start(self) -> None:
        """Start every rank. Raises LaunchFailed."""
        listener: socket.socket | None = None
        port = 0
        if self.plan.nodes > 1 and (self.plan.cluster is None or len(self.plan.cluster) < self.plan.nodes):
            raise self._refused(f"{self.plan.nodes} nodes are not available")
        if self.plan.ranks > 1 and not self._store:
            listener = socket.create_server(("127.0.0.1", 0), backlog=128)
            port = listener.getsockname()[1]
        try:
            for rank in range(self.plan.ranks):
                node = rank // self.plan.local_ranks
                if node:
                    self._start_there(rank, port, node)
                else:
                    self._start_rank(rank, port, listener if rank == 0 else None)
        except StartError as error:
            raise self._refused(str(error)) from error
        finally:
            if listener is not None:
                listener.close()

    def _refused(self, why: str) -> LaunchFailed:
        return LaunchFailed(Failure(self.plan.name, "start", "error", why))

    def _env(self, rank: int) -> dict[str, str]:
        local = rank % self.plan.local_ranks
        env = {"RANK": str(rank), "LOCAL_RANK": str(local), "WORLD_SIZE": str(self.plan.ranks)}
        return {**self.plan.env, **env, STORE_VARIABLE: self._store}

    def _log(self, rank: int) -> Path:
        return self.plan.folder / f"{self.plan.name}-{rank}.log"

    def _start_there(self, rank: int, port: int, node: int) -> None:
        assert self.plan.cluster is not None
        numbers = (rank, self.plan.ranks, port, -1)
        child, connection = self.plan.cluster.start(
            node,
            program=(*self.plan.program, "{read}", "{write}", *map(str, numbers)),
            env=self._env(rank),
            python=self.plan.python,
            cwd=self.plan.cwd,
            log=self._log(rank),
            share=(rank % self.plan.local_ranks, self.plan.local_ranks),
        )
        os.set_blocking(connection, False)
        self._ranks.append(Rank(rank, child, connection, os.dup(connection)))

    def _start_rank(self, rank: int, port: int, listener: socket.socket | None) -> None:
        commands_read, commands_write = os.pipe()
        replies_read, replies_write = os.pipe()
        listen_fd = listener.fileno() if listener is not None else -1
        numbers = (commands_read, replies_write, rank, self.plan.ranks, port, listen_fd)
        argv = [self.plan.python or sys.executable, *self.plan.program, *(str(n) for n in numbers)]
        env = self._env(rank)
        if self.plan.nodes > 1 and self.plan.cluster:
            env = {**dict.fromkeys(INTERFACE_VARIABLES, self.plan.cluster.interface), **env}
        env["PYTHONPATH"] = import_path(env.get("PYTHONPATH", ""), checkout=self.plan.cwd is not None)
        passed = [commands_read, replies_write, *([listen_fd] if listener is not None else [])]
        try:
            child = Child.start(
                argv,
                env=env,
                cwd=self.plan.cwd,
                cpus=self.plan.cpus[rank],
                pass_fds=passed,
                stderr_path=self._log(rank),
                guardian=self._guardian,
            )
            orphans.adopting(child.pid)
        except BaseException:
            os.close(commands_write)
            os.close(replies_read)
            raise
        finally:
            os.close(commands_read)
            os.close(replies_write)
        os.set_blocking(replies_read, False)
        self._ranks.append(Rank(rank, child, replies_read, commands_write))

    def await_start(self, *, limit: float) -> None:
        """Wait until every rank takes requests. Raises LaunchFailed."""
        self._collect(ReadyReply, "start", limit)

    def command(self, request: WorkerRequest[R], *, limit: float, sent: Callable[[], object] = lambda: None) -> list[R]:
        """Send a request to every rank, call ``sent`` and wait for every reply, by rank. Raises LaunchFailed,
        LaunchSkipped."""
        self.send(request)
        sent()
        replies = self.collect(type(request), limit=limit)
        for rank, reply in zip(self._ranks, replies, strict=True):
            if fault := reply.fault(request):
                raise self._failed(rank, request.phase, "protocol", f"its reply is invalid: {fault}")
        return replies

    def ask(self, ranks: Sequence[int], request: WorkerRequest[R], *, limit: float) -> list[R]:
        """``command`` for some ranks alone, in their order."""
        everyone, self._ranks = self._ranks, [self._ranks[rank] for rank in sorted(ranks)]
        try:
            return self.command(request, limit=limit)
        finally:
            self._ranks = everyone

    def send(self, request: WorkerRequest[Any]) -> None:
        """Send a request to every rank without waiting. Raises LaunchFailed."""
        for rank in self._ranks:
            rank.owed.append(secrets.token_hex(8))
            line = encode(request, tag=rank.owed[-1]).encode()
            try:
                write_all(rank.writer, line)
            except (BrokenPipeError, ConnectionResetError):
                raise self._died(rank, request.phase) from None

    def collect(self, request: type[WorkerRequest[R]], *, limit: float) -> list[R]:
        """Wait at most ``limit`` seconds for the reply of every rank to a request of this type, sent before; by rank.

        The first rank that fails ends the wait. Raises LaunchFailed, LaunchSkipped.
        """
        return self._collect(reply_of(request), request.phase, limit)

    def _collect(self, kind: type[R], phase: str, limit: float) -> list[R]:
        replies: dict[int, R] = {}
        deadline = monotonic() + limit
        with selectors.DefaultSelector() as selector:
            for rank in self._ranks:
                if (waiting := self._next_reply(rank, kind, phase)) is not None:
                    replies[rank.index] = waiting
                else:
                    selector.register(rank.reader, selectors.EVENT_READ, rank)
            while len(replies) < len(self._ranks):
                ready = selector.select(max(0.0, deadline - monotonic()))
                if not ready:
                    silent = next(rank for rank in self._ranks if rank.index not in replies)
                    raise self._failed(silent, phase, "hang", f"no answer within {limit:g} s")
                for key, _ in ready:
                    rank = key.data
                    if fill(rank) == 0:
                        raise self._died(rank, phase)
                    if (reply := self._next_reply(rank, kind, phase)) is not None:
                        replies[rank.index] = reply
                        selector.unregister(key.fileobj)
        found = [replies[index] for index in sorted(replies)]
        self.busy_s += max((reply.busy_s for reply in found), default=0.0)
        return found

    def _next_reply(self, rank: Rank, kind: type[R], phase: str) -> R | None:
        """The next reply that has come whole; None while there is none. Raises what it reports."""
        if b"\n" not in rank.buffer:
            if len(rank.buffer) > LONGEST_LINE:
                raise self._garbage(rank, phase, f"more than {LONGEST_LINE} bytes without an end of line")
            return None
        line, _, rest = bytes(rank.buffer).partition(b"\n")
        try:
            reply = decode(line, WorkerReply, tag=rank.owed.popleft())
        except ProtocolError as error:
            raise self._garbage(rank, phase, str(error)) from None
        if rest and not rank.owed:
            raise self._garbage(rank, phase, "more than the reply")
        if isinstance(reply, SkipReply):
            raise LaunchSkipped(reply.reason)
        if isinstance(reply, FailureReply):
            self._blame_the_dead(rank, phase)
            raise self._failed(rank, phase, reply.kind, reply.message)
        if not isinstance(reply, kind):
            raise self._garbage(rank, phase, f"{type(reply).__name__} instead of {kind.__name__}")
        del rank.buffer[: len(line) + 1]
        return reply

    def _blame_the_dead(self, complaining: Rank, phase: str) -> None:
        """Raise for another rank that is dead: a collective that lost its peer complains within the same moment."""
        deadline = monotonic() + _PEER_GRACE_S
        for rank in self._ranks:
            if rank is not complaining and rank.child.wait(max(0.0, deadline - monotonic())) is not None:
                raise self._died(rank, phase)

    def _failed(self, rank: Rank, phase: str, kind: FailureKind, message: str) -> LaunchFailed:
        names = self.node_names
        place = f" on {names[rank.index // self.plan.local_ranks]}" if names else ""
        who = f"rank {rank.index}{place}: " if self.plan.ranks > 1 else ""
        tail, status, number = rank.child.stderr_tail(), rank.child.exit_status, rank.index if who else None
        return LaunchFailed(Failure(self.plan.name, phase, kind, who + message, tail, number, status))

    def _died(self, rank: Rank, phase: str) -> LaunchFailed:
        if rank.child.wait(1.0) is None:
            return self._failed(rank, phase, "protocol", "closed its pipe to aiperf without exiting")
        kind, message = rank.child.classify()
        if kind == "error":
            kind, message = "crash", f"exited on its own with {message}"
        return self._failed(rank, phase, "dead_rank" if self.plan.ranks > 1 else kind, message)

    def _garbage(self, rank: Rank, phase: str, why: str) -> LaunchFailed:
        shown = bytes(rank.buffer[:80]).decode("utf-8", "replace")
        return self._failed(rank, phase, "protocol", f"its pipe to aiperf held no valid reply ({why}): {shown!r}")

    def pin(self, cpus: Sequence[tuple[int, ...] | None]) -> None:
        """Bind each rank to its CPUs, with every thread and process that its side started so far.

        What the side bound to some of these CPUs itself stays so.
        """
        for rank, wanted in zip(self._ranks, cpus, strict=True):
            if wanted is None or isinstance(rank.child, RemoteChild):
                continue
            for pid in family((rank.child.pid,)):
                for thread in threads_of(pid):
                    with suppress(ProcessLookupError):
                        if not os.sched_getaffinity(thread) <= set(wanted):
                            os.sched_setaffinity(thread, wanted)

    def close(self, limit: float) -> None:
        """Ask the workers to end, then see that they did. Raises LaunchFailed when closing itself fails."""
        self.begin_close()
        self.end_close(limit)
        for rank in self._ranks:
            rank.child.wait(5.0)
        self.kill()

    def begin_close(self) -> None:
        """Ask the workers to end: several gangs can be asked before any is waited for. Raises LaunchFailed."""
        self.send(CloseRequest())

    def end_close(self, limit: float) -> None:
        """See that the workers that were asked to end let their sides go: what is left is the kernel's to clear up, and
        nobody need wait for it. Raises LaunchFailed when closing itself fails.
        """
        self.collect(CloseRequest, limit=limit)

    def kill(self) -> None:
        """End every rank and all it started, and close the pipes."""
        ranks, self._ranks = self._ranks, []
        strayed, self._strayed = self._strayed, {}
        # One that cannot be killed keeps no other one alive.
        with ExitStack() as every:
            for descriptor in strayed.values():
                every.callback(os.close, descriptor)
            for rank in ranks:
                every.callback(os.close, rank.reader)
                every.callback(os.close, rank.writer)
                every.callback(rank.child.kill_group)
