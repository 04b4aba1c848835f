"""The router: gives each request to a worker when it arrives, and says to which one it is handed over.

What must not live here: which worker it is (routes/, offloads/), engines, keys and values.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from aiperf.workloads.cluster.messages import Begin, Cancel, Expect, Fetch, IterationEnd, Offer, Serve, WorkerLost
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


@dataclass
class Router:
    """One iteration after another over the same connections."""

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
            _heard(link)
        began = time.perf_counter()
        for link in self.links:
            link.send(Begin(began))
        # An answer may be whole before the worker that handed the request over says that it has left.
        while coming or any(one.prompts or one.streams for one in self.views):
            while coming and coming[-1].at <= time.perf_counter() - began:
                self._give(one := coming.pop(), prompts[one.number][: one.prompt_tokens])
            timeout = max(0.0, coming[-1].at - (time.perf_counter() - began)) if coming else None
            for link in select.select(self.links, [], [], timeout)[0]:
                gone, view = _heard(link), self.views[self.links.index(link)]
                if isinstance(gone, Offer):
                    (to,) = (one.rank for one in self.views if gone.number in one.streams)
                    self.links[to].send(Fetch(gone.number, view.rank))
                    continue
                view.prompts.pop(gone.number, None)
                if gone.answered:
                    del view.streams[gone.number]
                    if self.copies > 1:
                        self._cancel(gone.number)
        for link in self.links:
            link.send(IterationEnd())

    def _give(self, demand: Demand, prompt: Sequence[int]) -> None:
        self.shift(self.views)
        pages = page_keys(prompt, self.page)
        decoders = [one for one in self.views if one.decodes]
        if self.offload(demand, pages, self.views):
            first = self.route(demand, pages, [one for one in self.views if one.prefills])
            last = self.decode_route(demand, pages, decoders)
        else:
            first = last = self.decode_route(demand, pages, decoders)
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


def _heard(link: Connection) -> Any:
    """What a worker says. Raises RuntimeError where that is that it failed."""
    message = link.recv()
    if isinstance(message, WorkerLost):
        raise RuntimeError(message.fault)
    return message
