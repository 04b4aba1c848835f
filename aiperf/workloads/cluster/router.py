"""The router: gives each request to a worker when it arrives, or when one asks, and says who goes on with it.

What must not live here: which worker it is (routes/, offloads/, rebalances/), engines, keys and values.
"""

from __future__ import annotations

import select
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from aiperf.workloads.cluster.messages import (
    Ask,
    Begin,
    Cancel,
    Expect,
    Fetch,
    IterationEnd,
    Move,
    Moving,
    Offer,
    Serve,
    Stayed,
    WorkerLost,
    WorkerReady,
)
from aiperf.workloads.engine.demands import Demand
from aiperf.workloads.engine.prefix import page_keys


@dataclass
class WorkerView:
    """What the router knows of a worker."""

    rank: int
    prefills: bool
    """Whether it computes prompts, for itself or for others."""
    decodes: bool
    prompts: dict[int, Demand] = field(default_factory=dict)
    """Requests whose prompts it was given to compute, and that have not left it."""
    streams: dict[int, Demand] = field(default_factory=dict)
    """Requests that it was given to decode, those among them whose prompt is still elsewhere."""
    given: int = 0
    known: set[bytes] = field(default_factory=set)
    """Pages of the prompts that it was given (``page_keys``): what its prefix cache should hold."""
    newest: bytes = b""
    """The first page of the latest of them."""

    @property
    def under_way(self) -> dict[int, Demand]:
        """All that it has."""
        return self.prompts | self.streams


Route = Callable[[Demand, Sequence[bytes], Sequence[WorkerView]], WorkerView]
"""(request, its prompt's pages, workers that may take it) -> the one that gets it."""
Offload = Callable[[Demand, Sequence[bytes], Sequence[WorkerView]], bool]
"""(request, its prompt's pages, all workers) -> whether a prefill worker computes its prompt."""

Shift = Callable[[Sequence[WorkerView]], None]
"""(all workers): sets their roles."""
Rebalance = Callable[[Sequence[WorkerView], Collection[int]], "tuple[int, WorkerView, WorkerView] | None"]
"""(all workers, requests that do not move) -> one that moves, from which worker and to which; None: none does now."""


@dataclass
class Router:
    """One iteration over the workers' connections."""

    links: Sequence[Connection]
    views: list[WorkerView]
    """By rank; made anew for each iteration."""
    route: Route
    """Among those that compute prompts."""
    decode_route: Route
    """Among those that decode."""
    offload: Offload
    shift: Shift
    page: int
    copies: int = 1
    """Workers that get each request; the first answer counts, and the others are told to stop."""
    rebalance: Rebalance | None = None
    pulled: bool = False
    """Whether requests wait here, in one queue, for workers to ask for them."""
    _queue: deque[tuple[Demand, list[bytes]]] = field(default_factory=deque)
    _asking: deque[WorkerView] = field(default_factory=deque)
    _moving: set[int] = field(default_factory=set)
    """Asked to move, of which the worker has not said anything yet; at most one."""
    _moved: set[int] = field(default_factory=set)
    _kept: set[int] = field(default_factory=set)
    """Could not move when they were asked to, as long as nothing has left a worker since."""

    def run(self, demands: Sequence[Demand], prompts: Sequence[Sequence[int]]) -> None:
        """Until every request is answered. Whatever goes wrong here, the workers hear of it."""
        try:
            self._run(sorted(demands, key=lambda one: (one.at, one.number), reverse=True), prompts)
        except BaseException as error:
            for link in self.links:
                with suppress(OSError):
                    link.send(IterationEnd(f"the router failed: {type(error).__name__}: {error}"))
            raise

    def _run(self, coming: list[Demand], prompts: Sequence[Sequence[int]]) -> None:
        for link in self.links:
            _await_ready(link)
        began = time.perf_counter()
        for link in self.links:
            link.send(Begin(began))
        while coming or self._busy:
            while coming and coming[-1].at <= time.perf_counter() - began:
                self._give(one := coming.pop(), prompts[one.number][: one.prompt_tokens])
            self._even_out()
            timeout = max(0.0, coming[-1].at - (time.perf_counter() - began)) if coming else None
            for link in select.select(self.links, [], [], timeout)[0]:
                self._note(_heard(link), self.views[self.links.index(link)])
        for link in self.links:
            link.send(IterationEnd())

    @property
    def _busy(self) -> bool:
        """Whether a request waits or is under way, or a worker has still to say that one has left it: an answer may be
        whole before."""
        return bool(self._queue or self._moving) or any(one.prompts or one.streams for one in self.views)

    def _note(self, message: Any, view: WorkerView) -> None:
        """What a worker says in mid-iteration."""
        if isinstance(message, Ask):
            self._asking.append(view)
            self._hand_out()
        elif isinstance(message, Offer):
            (to,) = (one.rank for one in self.views if message.number in one.streams)
            self.links[to].send(Fetch(message.number, view.rank))
        elif isinstance(message, Moving):
            self._forward(message, view)
        elif isinstance(message, Stayed):
            self._moving.discard(message.number)
            self._kept.add(message.number)
        else:
            self._kept.clear()
            view.prompts.pop(message.number, None)
            if message.answered:
                del view.streams[message.number]
                if self.copies > 1:
                    self._cancel(message.number)

    def _forward(self, message: Moving, view: WorkerView) -> None:
        """A request to the worker that goes on with it, which is to expect its keys and values where it had begun."""
        self._moving.discard(message.number)
        self._moved.add(message.number)
        to, demand = self.views[message.to], view.streams.pop(message.number)
        to.streams[message.number] = demand
        if message.answered:
            self.links[to.rank].send(Expect(message.number, view.rank, message.answered))
        else:
            to.prompts[message.number] = view.prompts.pop(message.number)
            self.links[to.rank].send(Serve(message.number, None))

    def _even_out(self) -> None:
        """Ask for a request to move where the rule says so, one at a time."""
        if self.rebalance is None or self._moving:
            return
        if (found := self.rebalance(self.views, self._moved | self._kept)) is not None:
            number, source, to = found
            self._moving.add(number)
            self.links[source.rank].send(Move(number, to.rank))

    def _give(self, demand: Demand, prompt: Sequence[int]) -> None:
        self.shift(self.views)
        pages = page_keys(prompt, self.page)
        if self.pulled:
            self._queue.append((demand, pages))
            self._hand_out()
            return
        decoders = [one for one in self.views if one.decodes]
        if self.offload(demand, pages, self.views):
            first = self.route(demand, pages, [one for one in self.views if one.prefills])
            last = self.decode_route(demand, pages, decoders)
        else:
            first = last = self.decode_route(demand, pages, decoders)
        self._send(demand, pages, first, last)

    def _hand_out(self) -> None:
        """What has waited longest to who has asked first; who cannot decode it hands it over."""
        while self._queue and self._asking:
            (demand, pages), first = self._queue.popleft(), self._asking.popleft()
            decoders = [one for one in self.views if one.decodes]
            self._send(demand, pages, first, first if first.decodes else self.decode_route(demand, pages, decoders))

    def _send(self, demand: Demand, pages: Sequence[bytes], first: WorkerView, last: WorkerView) -> None:
        """Its prompt to ``first``, and all after its first token to ``last``."""
        if demand.new_tokens == 1:
            last = first  # nothing is left to decode
        for other in self._others(demand, pages, first):
            other.prompts[demand.number] = other.streams[demand.number] = demand
            other.given += 1
            self.links[other.rank].send(Serve(demand.number, None))
        first.prompts[demand.number] = last.streams[demand.number] = demand
        for worker in {first.rank: first, last.rank: last}.values():
            worker.given += 1
        first.known.update(pages)
        first.newest = pages[0] if pages else b""
        if last is first:
            self.links[first.rank].send(Serve(demand.number, None))
        else:
            self.links[last.rank].send(Expect(demand.number, first.rank))
            self.links[first.rank].send(Serve(demand.number, last.rank))

    def _others(self, demand: Demand, pages: Sequence[bytes], first: WorkerView) -> list[WorkerView]:
        """Those that race against the first one."""
        found = [first]
        while len(found) < self.copies:
            found.append(self.route(demand, pages, [one for one in self.views if one not in found]))
        return found[1:]

    def _cancel(self, number: int) -> None:
        """Of a request that is answered: whoever else has it may stop, and says so. It is asked once."""
        for view in self.views:
            if number in view.prompts:
                del view.prompts[number]
                self.links[view.rank].send(Cancel(number))


def _await_ready(link: Connection) -> None:
    """Until a worker is ready; it may have asked for more when the iteration before ended."""
    while not isinstance(_heard(link), WorkerReady):
        pass


def _heard(link: Connection) -> Any:
    """What a worker says. Raises RuntimeError where that is that it failed."""
    message = link.recv()
    if isinstance(message, WorkerLost):
        raise RuntimeError(message.fault)
    return message
