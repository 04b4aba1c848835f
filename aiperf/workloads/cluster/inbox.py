"""What comes in at one worker: requests from the router, keys and values from other workers.

What must not live here: routing, batching, pages.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from threading import Thread
from typing import Any

import torch

from aiperf.workloads.cluster.handover import Handover
from aiperf.workloads.cluster.messages import (
    Ask,
    Begin,
    Cancel,
    Departure,
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
from aiperf.workloads.cluster.stalls import Stalls
from aiperf.workloads.engine.demands import Demand
from aiperf.workloads.engine.running import Running


class RouterGone(Exception):
    """The router, or another worker, went away in mid-iteration; says why where that is known."""


class Inbox:
    """An engine's arrivals. Threads of its own receive, so that requests, keys and values come in while the engine
    computes. With ``blocking`` keys and values come in between two passes, when they are offered, and the engine waits
    until they are there."""

    def __init__(self, link: Connection, handover: Handover | None, device: str, *, blocking: bool = False) -> None:
        self._link, self._handover, self._device = link, handover, torch.device(device)
        self._blocking = blocking
        self._came: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._early: list[Running] = []
        sources = handover.sources if handover is not None and not blocking else []
        self._expected: dict[int, queue.SimpleQueue[tuple[int, int]]] = {
            source: queue.SimpleQueue() for source in sources
        }
        self.demands: Sequence[Demand] = ()
        self.prompts: Sequence[Sequence[int]] = ()
        self.more = True
        self.cancel: Callable[[int], bool] = lambda number: False
        """Stops a request that is under way; False where it is not."""
        self.move: Callable[[int, int], bool] | None = None
        """Gives a request that decodes to another worker; False where it does not decode. None: requests stay."""
        self.withdraw: Callable[[int], bool] = lambda number: False
        """Forgets a request that has not begun; False where it has."""
        self.moved = 0
        """Requests that have gone to another worker in this iteration, begun or not."""
        self.has_room: Callable[[], bool] | None = None
        """Whether the engine could begin with a prompt; None: it does not ask for any."""
        self.pulled = 0
        """Prompts that it has asked for and got in this iteration."""
        self._asking = False
        self.load: Callable[[], int] = lambda: 0
        """What this worker has to hold now."""
        self.loads: list[tuple[float, float]] = []
        """That, before each pass of this iteration: (seconds since it began, load)."""
        self.stalls: Stalls | None = None
        self._beside(self._listen)
        for source in sources:
            self._beside(self._receive, source)

    def _beside(self, work: Callable[..., None], *given: int) -> None:
        """Run it in a thread; whatever goes wrong there, the engine must not wait for ever."""

        def told() -> None:
            try:
                work(*given)
            except Exception as error:
                self._came.put(error)

        Thread(target=told, daemon=True).start()

    def _listen(self) -> None:
        while True:
            message = self._link.recv()
            if isinstance(message, Expect):
                if not self._blocking:
                    self._expected[message.source].put((message.number, message.answered))
            else:
                self._came.put(message)

    def _receive(self, source: int) -> None:
        """In the order in which ``source`` was given them. The next one is asked for before it is there, and opened by
        the engine: a thread beside it gets the interpreter late."""
        assert self._handover is not None
        on_gpu = self._device.type == "cuda"
        if on_gpu:
            torch.cuda.set_device(self._device)
        # Of its own: on the engine's stream every pass would wait for what has not come yet.
        with torch.cuda.stream(torch.cuda.Stream(self._device) if on_gpu else None):
            while True:
                number, answered = self._expected[source].get()
                whole = self._handover.receive(self.demands[number].prompt_tokens, source, answered)
                if on_gpu:
                    torch.cuda.current_stream().synchronize()
                    whole.record_stream(torch.cuda.default_stream(self._device))
                self._came.put((number, answered, whole))

    def _asked(self, number: int) -> tuple[Demand, list[int]]:
        demand = self.demands[number]
        return demand, list(self.prompts[number][: demand.prompt_tokens])

    def begin(self) -> float:
        """When the router says so."""
        self.more, self._asking, self.pulled, self.moved, self.loads = True, False, 0, 0, []
        self._link.send(WorkerReady())
        message = self._came.get()
        if isinstance(message, Begin):
            return message.at
        self._note(message)
        raise RouterGone(f"{message} came before the iteration began")

    def due(self, now: float) -> list[Running]:
        """What has come by now, in its order; what another worker has answered is cancelled. Where there is room, the
        next prompt is asked for."""
        if self.stalls is not None:
            self.stalls.wait_out(now)
        while not self._came.empty():
            self._note(self._came.get())
        found, self._early = self._early, []
        self.loads.append((now, float(self.load() + sum(len(one.tokens) for one in found))))
        if self.has_room is not None and not (self._asking or found) and self.has_room():
            self._link.send(Ask())
            self._asking = True
        return found

    def wait(self, now: float, until: float | None) -> None:
        """For a message, for at most so long."""
        if not self.more:
            return
        try:
            self._note(self._came.get(timeout=None if until is None else max(0.0, until - now)))
        except queue.Empty:
            return

    def _note(self, message: Any) -> None:
        if isinstance(message, Serve):
            self.pulled += self._asking
            self._asking = False
            self._early.append(Running(*self._asked(message.number), hand_to=message.hand_to))
        elif isinstance(message, Cancel):
            early = [one for one in self._early if one.demand.number == message.number]
            self._early = [one for one in self._early if one not in early]
            if early or self.cancel(message.number):
                self._link.send(Departure(message.number, answered=True))
        elif isinstance(message, Move) and self.move is not None:
            self._give_away(message)
        elif isinstance(message, Fetch) and self._handover is not None:
            demand, prompt = self._asked(message.number)
            whole = self._handover.receive(demand.prompt_tokens, message.source)
            self._early.append(self._handover.opened(demand, prompt, whole))
        elif isinstance(message, tuple) and self._handover is not None:
            number, answered, whole = message
            self._early.append(self._handover.opened(*self._asked(number), whole, answered))
        elif isinstance(message, IterationEnd):
            self.more = False
            if message.fault:
                raise RouterGone(message.fault)
        else:
            raise RouterGone(f"{type(message).__name__}: {message}") from message

    def _give_away(self, asked: Move) -> None:
        """What has not begun may begin elsewhere; what decodes goes with its keys and values (``leave``)."""
        early = [one for one in self._early if one.demand.number == asked.number and one.started is None]
        self._early = [one for one in self._early if one not in early]
        if early or self.withdraw(asked.number):
            self.moved += 1
            self._link.send(Moving(asked.number, asked.to, 0))
        elif self.move is None or not self.move(asked.number, asked.to):
            self._link.send(Stayed(asked.number))

    def give_up(self, error: Exception) -> None:
        """Tell the router that the engine failed, for nobody to wait for it."""
        with suppress(OSError):
            self._link.send(WorkerLost(f"{type(error).__name__}: {error}"))

    def leave(self, one: Running, kv: Any) -> None:
        """Send a request that the engine hands over to who decodes it, and tell the router of any that leaves."""
        if kv is not None and self._handover is not None:
            if self._blocking:
                self._link.send(Offer(one.demand.number))
            if self.move is not None and one.hand_to is not None:
                self.moved += 1
                self._link.send(Moving(one.demand.number, one.hand_to, len(one.times)))
            self._handover.send(one, kv)
        self._link.send(Departure(one.demand.number, answered=kv is None))
