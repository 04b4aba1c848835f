"""The engine: takes requests in as they arrive, gives them pages, lets a policy choose the next pass, keeps the times.

What must not live here: policies (batching/, orders/, admission/), what a workload reports (side.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from aiperf.workloads.decoder.model import Decoder
from aiperf.workloads.engine.arrivals import Arrivals, Schedule
from aiperf.workloads.engine.pages import BrokenBooks, PagePool
from aiperf.workloads.engine.passes import PassRow, one_pass
from aiperf.workloads.engine.prefix import PrefixCache
from aiperf.workloads.engine.running import Running

Order = Callable[[Sequence[Running], int], list[Running]]
"""(waiting by arrival, how many at most) -> those that go next; none where they must wait for others to leave."""
Admission = Callable[[Running, float, float], bool]
"""(request, seconds since it arrived, seconds that its prompt will take) -> whether it is served."""
Left = Callable[[Running, Any], None]
"""(request, the keys and values of its prompt where another engine decodes it, else None)."""
_NEWEST = 0.2
"""Weight of the newest pass in the time that a token of a prompt takes."""


class Batching(Protocol):
    """Which requests go through the model together."""

    def turn(self, engine: Engine) -> None:
        """One pass, one batch, or a wait, while any request waits, runs or is still to come."""


@dataclass
class EngineTally:
    """What the engine did in one iteration."""

    passes: int = 0
    computed: int = 0
    """Tokens that went through the model, padding and idle rows included."""
    wasted: int = 0
    """Those that padding and idle rows took."""
    preempted: int = 0


@dataclass
class Engine:
    """One iteration after another over the same pool; empty at the start of each, the prefix cache too."""

    model: Decoder
    pool: PagePool
    batching: Batching
    order: Order
    admission: Admission
    prefix: PrefixCache | None = None
    left: Left = lambda one, kv: None
    """Called with each request that leaves."""
    arrivals: Arrivals = field(default_factory=lambda: Schedule((), ()))
    came: list[Running] = field(default_factory=list)
    waiting: list[Running] = field(default_factory=list)
    """By arrival; preempted ones first."""
    running: list[Running] = field(default_factory=list)
    """In the order in which they started."""
    finished: list[Running] = field(default_factory=list)
    rejected: list[Running] = field(default_factory=list)
    handed: list[Running] = field(default_factory=list)
    """Those that began here, and with which another engine goes on."""
    cancelled: list[Running] = field(default_factory=list)
    """Those that another engine was quicker to answer."""
    tally: EngineTally = field(default_factory=EngineTally)
    _token_s: float = 0.0

    def serve(self, arrivals: Arrivals) -> None:
        """Answer every request, reject it or hand it over. Raises BrokenBooks when requests or pages do not add up
        afterwards."""
        self.pool.clear()
        if self.prefix is not None:
            self.prefix.clear()
        self.came, self.waiting, self.running, self.finished, self.rejected, self.handed = [], [], [], [], [], []
        self.cancelled = []
        self.tally, self.arrivals, self._began = EngineTally(), arrivals, arrivals.begin()
        while self.receive():
            self.batching.turn(self)
        self._close()

    def _close(self) -> None:
        """Every request has come out exactly once, with as many tokens as it asked for, and no page is lost."""
        out = [*self.finished, *self.rejected, *self.handed, *self.cancelled]
        if sorted(one.demand.number for one in out) != sorted(one.demand.number for one in self.came):
            raise BrokenBooks(f"{len(self.came)} requests came in, and {len(out)} answers or rejections went out")
        if short := [one for one in self.finished if len(one.answer) != one.demand.new_tokens]:
            one = short[0]
            raise BrokenBooks(f"request {one.demand.number} has {len(one.answer)} of {one.demand.new_tokens} tokens")
        self.check_pages()

    def check_pages(self) -> None:
        """Raises BrokenBooks where the pool's books and the requests' page tables disagree."""
        everyone = [*self.waiting, *self.running, *self.finished, *self.rejected, *self.handed, *self.cancelled]
        self.pool.check((one.pages for one in everyone), self.prefix.pages if self.prefix is not None else ())

    # ---- time and arrivals -------------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """Seconds since the iteration began."""
        return time.perf_counter() - self._began

    @property
    def token_s(self) -> float:
        """Seconds that a token of a prompt takes, as measured lately; 0 before the first."""
        return self._token_s

    def receive(self) -> bool:
        """Queue what has arrived by now; False when there is nothing left to do."""
        new = self.arrivals.due(self.now)
        self.came += new
        self.waiting += new
        return bool(self.arrivals.more or self.waiting or self.running)

    def wait(self, until: float | None = None) -> None:
        """Sleep until the next arrival, or ``until`` where that comes first; queue what has arrived."""
        self.arrivals.wait(self.now, until)
        self.receive()

    # ---- requests ----------------------------------------------------------------------------------------------------

    def admit(self, most: int) -> list[Running]:
        """Up to ``most`` that wait, by the order; those that admission turns away are rejected on the way."""
        taken: list[Running] = []
        while self.waiting and len(taken) < most:
            if not (chosen := self.order(self.waiting, most - len(taken))):
                break
            kept = [one for one in chosen if self._is_admitted(one)]
            taken += kept
            self.waiting = [one for one in self.waiting if one not in chosen]
            if kept:
                break
        return taken

    def _is_admitted(self, one: Running) -> bool:
        if one.started is not None or self.admission(one, self.now - one.demand.at, self._token_s * one.missing):
            return True
        self.rejected.append(one)
        return False

    def start(self, one: Running, *, tokens: int) -> bool:
        """Give an admitted request pages for its first ``tokens`` tokens, with the keys and values that it brought, or
        known beginnings found in the prefix cache; back to the head of the queue, and False, where the pool has not
        enough."""
        if self.prefix is not None and one.brought is None:
            one.pages = self.prefix.find(one.tokens)
            one.kept = len(one.pages) * self.pool.page
        if not self.reserve(one, tokens):
            self._let_go(one)
            self.waiting.insert(0, one)
            return False
        if one.brought is not None:
            one.kept = self.pool.write(one.pages, one.brought)
            one.brought = None
        if one.started is None:
            one.started = self.now
        self.running.append(one)
        return True

    def reserve(self, one: Running, tokens: int) -> bool:
        """Room for so many tokens in all; False, and what it took stays its own, where no page is left."""
        while len(one.pages) < self.pool.pages_for(tokens):
            if not self.pool.free and not (self.prefix is not None and self.prefix.give_up()):
                return False
            one.pages.append(self.pool.take())
        return True

    def preempt(self, one: Running) -> None:
        """Back to the head of the queue without its pages: what it had is computed again later."""
        self.running.remove(one)
        self._let_go(one)
        self.waiting.insert(0, one)
        self.tally.preempted += 1

    def tokens_here(self) -> int:
        """Of all prompts and answers that it has under way, whether it has begun with them or not."""
        return sum(len(one.tokens) for one in (*self.waiting, *self.running))

    def cancel(self, number: int) -> bool:
        """Stop a request between two passes; its pages are free. False where it is not under way."""
        for under_way in (self.waiting, self.running):
            for one in under_way:
                if one.demand.number == number:
                    under_way.remove(one)
                    self._let_go(one)
                    self.cancelled.append(one)
                    return True
        return False

    def withdraw(self, number: int) -> bool:
        """Forget a request that waits and has not begun, as if it had never come; False where there is none."""
        for one in self.waiting:
            if one.demand.number == number and one.started is None:
                self.waiting.remove(one)
                self.came.remove(one)
                return True
        return False

    def move(self, number: int, to: int) -> bool:
        """Another engine goes on with a request that decodes, from between two passes; False where it does not."""
        for one in self.running:
            if one.demand.number == number and one.times and one.missing == 1:
                one.hand_to = to
                self.release([one])
                return True
        return False

    def _let_go(self, one: Running) -> None:
        for page in one.pages:
            self.pool.drop(page)
        one.pages, one.kept = [], 0

    # ---- passes ------------------------------------------------------------------------------------------------------

    def advance(self, rows: Iterable[Running], *, most: int = 0, idle: Sequence[Running] = ()) -> None:
        """One pass: each request puts in what it knows and has not kept, at most ``most`` tokens (0: all); a token
        comes out where that was all. ``idle`` ones take part to no effect. Whole answers leave, with their pages."""
        going, began = list(rows), self.now
        parts = [one.tokens[one.kept :][: most or None] for one in going]
        asked = [PassRow(part, one.kept, one.pages) for one, part in zip(going, parts, strict=True)]
        asked += [PassRow(one.tokens[-1:], len(one.tokens) - 1, one.pages, idle=True) for one in idle]
        found = one_pass(self.model, self.pool, asked)
        at = self.now
        for one, part, (token, margin) in zip(going, parts, found, strict=False):
            one.kept += len(part)
            if self.prefix is not None and len(part) > 1:
                self.prefix.keep(one.tokens[: one.kept], one.pages)
            if not one.missing:
                one.add(token, margin, at)
        self._count(parts, len(asked), at - began)

    def _count(self, parts: Sequence[Sequence[int]], rows: int, seconds: float) -> None:
        longest, useful = max(map(len, parts)), sum(map(len, parts))
        self.tally.passes += 1
        self.tally.computed += longest * rows
        self.tally.wasted += longest * rows - useful
        if longest > 1:
            each = seconds / useful
            self._token_s = self._token_s + _NEWEST * (each - self._token_s) if self._token_s else each

    def release(self, leaving: Iterable[Running]) -> None:
        """These answers are whole, or others go on with them: they leave, and their pages are free."""
        for one in list(leaving):
            goes_on = one.hand_to is not None and not one.done
            kv = self.pool.read(one.pages, one.kept) if goes_on else None
            self.running.remove(one)
            self._let_go(one)
            (self.handed if goes_on else self.finished).append(one)
            self.left(one, kv)
