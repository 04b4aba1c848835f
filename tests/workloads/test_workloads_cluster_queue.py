"""Workers that ask for prompts, and answers that move to another worker while they are given."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from multiprocessing import Pipe
from types import SimpleNamespace

import pytest
import torch
from test_workloads_cluster_racing import said

from aiperf.workloads.cluster import handover as handovers
from aiperf.workloads.cluster import side as sides
from aiperf.workloads.cluster.inbox import Inbox
from aiperf.workloads.cluster.messages import (
    Ask,
    Begin,
    Departure,
    Expect,
    IterationEnd,
    Move,
    Moving,
    Serve,
    Stayed,
    WorkerReady,
)
from aiperf.workloads.cluster.offloads.always import always
from aiperf.workloads.cluster.offloads.never import never
from aiperf.workloads.cluster.rebalances.predicted import LongRequestMover
from aiperf.workloads.cluster.router import Router, WorkerView
from aiperf.workloads.cluster.routes.least_requests import least_requests
from aiperf.workloads.cluster.routes.round_robin import round_robin
from aiperf.workloads.cluster.shifts.fixed import fixed
from aiperf.workloads.decoder.model import PRESETS, draw
from aiperf.workloads.engine.batching.continuous import ContinuousBatching
from aiperf.workloads.engine.demands import Demand
from aiperf.workloads.engine.engine import Engine
from aiperf.workloads.engine.orders.fifo import fifo
from aiperf.workloads.engine.pages import PagePool
from aiperf.workloads.engine.running import Running


def demand(number=0, prompt=8, new=4):
    return Demand(number, 0.0, prompt, new)


@pytest.fixture
def routed():
    """Runs a router beside the test: (roles, demands, settings) -> the workers' ends, its future."""
    with ThreadPoolExecutor(1) as beside, ExitStack() as ending:

        def start(roles, demands, **settings):
            ends = [Pipe(), Pipe()]
            workers, links = [worker for worker, _ in ends], [link for _, link in ends]
            for worker in workers:
                ending.callback(worker.close)  # before the router is waited for
            way = never if roles == "mixed" else always
            views = sides.views_of(roles, 2)
            router = Router(links, views, round_robin, least_requests, way, fixed, page=4, **settings)
            ended = beside.submit(router.run, demands, [[1] * one.prompt_tokens for one in demands])
            return workers, ended

        yield start


def begun(workers):
    """They are ready, and have been told so."""
    for worker in workers:
        worker.send(WorkerReady())
    assert [type(said(worker)) for worker in workers] == [Begin] * len(workers)


# ---- one queue ----------------------------------------------------------------------------------------------------


def test_a_prompt_waits_until_a_worker_asks_and_goes_to_that_one(routed):
    (first, second), ended = routed("mixed", [demand(number) for number in range(3)], pulled=True)
    begun((first, second))
    assert not first.poll(0.05)
    second.send(Ask())
    assert said(second) == Serve(0, None)
    second.send(Ask())
    assert said(second) == Serve(1, None)
    assert not first.poll(0.05), "the other one has not asked"
    first.send(Ask())
    assert said(first) == Serve(2, None)
    for worker, number in ((second, 1), (first, 2), (second, 0)):
        worker.send(Departure(number, answered=True))
    ended.result(timeout=10)
    assert [said(worker) for worker in (first, second)] == [IterationEnd()] * 2


def test_of_two_that_wait_for_a_prompt_the_one_that_asked_first_gets_it(routed):
    (first, second), ended = routed("mixed", [Demand(0, 0.5, 8, 4)], pulled=True)
    begun((first, second))
    second.send(Ask())
    assert not first.poll(0.1)
    first.send(Ask())
    assert said(second) == Serve(0, None)
    assert not first.poll(0.05)
    second.send(Departure(0, answered=True))
    ended.result(timeout=10)


def test_who_decodes_hears_of_a_prompt_when_it_leaves_the_queue(routed):
    (prefill, decode), ended = routed("1p1d", [demand(0), demand(1, new=1)], pulled=True)
    begun((prefill, decode))
    assert not decode.poll(0.05)
    prefill.send(Ask())
    assert [said(decode), said(prefill)] == [Expect(0, 0), Serve(0, 1)]
    prefill.send(Departure(0, answered=False))
    prefill.send(Ask())
    assert said(prefill) == Serve(1, None), "nothing is left to decode"
    prefill.send(Departure(1, answered=True))
    decode.send(Departure(0, answered=True))
    ended.result(timeout=10)


def test_what_a_worker_still_asked_for_at_the_end_is_forgotten(routed):
    (first, second), ended = routed("mixed", [demand()], pulled=True)
    first.send(Ask())
    begun((first, second))
    assert not first.poll(0.05)
    second.send(Ask())
    assert said(second) == Serve(0, None)
    second.send(Departure(0, answered=True))
    ended.result(timeout=10)


def test_a_worker_asks_once_while_it_has_room_and_again_when_it_got_one():
    worker, router = Pipe()
    inbox, room = Inbox(worker, None, "cpu"), [False]
    inbox.has_room = lambda: room[0]
    inbox.demands, inbox.prompts = [demand()], [[1] * 8]
    assert inbox.due(0.0) == []
    assert not router.poll(0.05), "there was no room"
    room[0] = True
    assert inbox.due(0.0) == inbox.due(0.0) == []
    assert said(router) == Ask()
    assert not router.poll(0.05), "one is on its way"
    router.send(Serve(0, None))
    inbox.wait(0.0, 5.0)
    (came,) = inbox.due(0.0)
    assert (came.demand.number, inbox.pulled) == (0, 1)
    assert not router.poll(0.05), "it has just got one"
    assert inbox.due(0.0) == []
    assert said(router) == Ask()
    router.close()


# ---- answers that move ---------------------------------------------------------------------------------------------


def view(rank, *lengths):
    found = WorkerView(rank, True, True)
    found.streams = {10 * rank + number: demand(10 * rank + number, new=new) for number, new in enumerate(lengths)}
    return found


def test_a_long_request_leaves_the_fuller_worker_where_both_are_evener_then():
    move_long = LongRequestMover(pool_tokens=100)
    full, empty = view(0, 8, 100, 128, 100), view(1, 8)
    assert move_long([full, empty], ()) == (3, full, empty), "of 128 each as predicted"
    assert move_long([empty, full], {3}) == (2, full, empty)
    assert move_long([full, empty], {1, 2, 3}) is None, "each moves once"
    assert move_long([view(0, 100, 100), view(1, 100)], ()) is None, "the other one would have as much"
    assert move_long([view(0, *[64] * 9), view(1)], ()) is None, "short ones are not worth it"
    both = view(0, 128, 200, 130), view(1, 8)
    assert move_long(both, ())[0] == 2, "the newest of the longest"


def test_nothing_moves_while_the_pool_of_the_fuller_worker_will_do():
    full, empty = view(0, 100, 100), view(1)
    held = 2 * (8 + 128)
    assert LongRequestMover(held)([full, empty], ()) is None
    assert LongRequestMover(held - 1)([full, empty], ()) == (1, full, empty)


def test_a_request_that_moves_is_expected_there_before_it_is_sent(routed):
    rule = lambda views, stay: (0, views[0], views[1]) if 0 in views[0].streams and not stay else None  # noqa: E731
    (source, to), ended = routed("mixed", [demand(new=9)], rebalance=rule)
    begun((source, to))
    assert [said(source), said(source)] == [Serve(0, None), Move(0, 1)]
    source.send(Moving(0, 1, 5))
    assert said(to) == Expect(0, 0, 5)
    to.send(Departure(0, answered=True))
    assert not to.poll(0.05), "the one that it left has not said so"
    source.send(Departure(0, answered=False))
    ended.result(timeout=10)


def test_a_request_that_has_not_begun_is_served_elsewhere(routed):
    rule = lambda views, stay: (0, views[0], views[1]) if 0 in views[0].streams else None  # noqa: E731
    (source, to), ended = routed("mixed", [demand(new=9)], rebalance=rule)
    begun((source, to))
    assert [said(source), said(source)] == [Serve(0, None), Move(0, 1)]
    source.send(Moving(0, 1, 0))
    assert said(to) == Serve(0, None)
    to.send(Departure(0, answered=True))
    ended.result(timeout=10)


def test_what_stayed_is_not_asked_again_until_something_has_left_a_worker(routed):
    seen = []

    def rule(views, stay):
        seen.append(set(stay))
        return next(((n, views[0], views[1]) for n in views[0].streams if n not in stay), None)

    (source, to), ended = routed("mixed", [demand(0), demand(1)], rebalance=rule)
    begun((source, to))
    assert [said(source), said(source), said(to)] == [Serve(0, None), Move(0, 1), Serve(1, None)]
    source.send(Stayed(0))
    assert not source.poll(0.05)
    assert seen[-1] == {0}
    to.send(Departure(1, answered=True))
    assert said(source) == Move(0, 1)
    source.send(Departure(0, answered=True))
    source.send(Stayed(0))
    ended.result(timeout=10)


def test_a_request_that_does_not_move_stays_and_others_may(routed):
    asked = []

    def rule(views, stay):
        return (asked.append(0) or (0, views[0], views[1])) if len(asked) < 2 and 0 in views[0].streams else None

    (source, to), ended = routed("mixed", [demand(new=9), Demand(1, 0.1, 8, 4)], rebalance=rule)
    begun((source, to))
    assert [said(source), said(source)] == [Serve(0, None), Move(0, 1)]
    assert said(to) == Serve(1, None)
    to.send(Departure(1, answered=True))
    assert not source.poll(0.05), "one at a time"
    source.send(Stayed(0))
    assert said(source) == Move(0, 1)
    source.send(Departure(0, answered=True))
    source.send(Stayed(0))
    ended.result(timeout=10)
    assert not to.poll() or said(to) == IterationEnd()


def test_a_worker_says_where_a_request_goes_and_with_how_much_or_that_it_stays():
    worker, router = Pipe()
    sent = []
    inbox = Inbox(worker, SimpleNamespace(sources=[], send=lambda one, kv: sent.append(one)), "cpu")
    one = Running(demand(new=9), [*range(8), 1, 2, 3], [0.1] * 3, [0.1, 0.2, 0.3], hand_to=1)
    inbox.move = lambda number, to: (number, to) == (0, 1) and inbox.leave(one, torch.zeros(1)) is None
    inbox.withdraw = lambda number: number == 5
    for number in (0, 7, 5):
        router.send(Move(number, 1))
        inbox.wait(0.0, 5.0)
    told = [said(router) for _ in range(4)]
    assert told == [Moving(0, 1, 3), Departure(0, answered=False), Stayed(7), Moving(5, 1, 0)]
    assert (sent, inbox.moved) == ([one], 2)
    router.close()


def test_a_request_that_the_engine_has_not_seen_yet_moves_as_if_it_had_never_come():
    worker, router = Pipe()
    inbox = Inbox(worker, None, "cpu")
    inbox.move = lambda number, to: False
    inbox.demands, inbox.prompts = [demand(0), demand(1)], [[1] * 8] * 2
    for message in (Serve(0, None), Serve(1, None), Move(0, 1)):
        router.send(message)
        inbox.wait(0.0, 5.0)
    assert said(router) == Moving(0, 1, 0)
    assert [one.demand.number for one in inbox.due(0.0)] == [1]
    router.close()


def test_a_request_arrives_with_the_answer_that_it_had(monkeypatch):
    sent = []
    monkeypatch.setattr(handovers.dist, "new_group", lambda ranks: tuple(ranks))
    monkeypatch.setattr(handovers.dist, "send", lambda whole, to, group: sent.append(whole))
    monkeypatch.setattr(handovers.dist, "recv", lambda whole, source, group: whole.copy_(sent.pop(0)))
    source, to = (handovers.Handover(rank, PRESETS["tiny"], "cpu", [(0, 1)]) for rank in (0, 1))
    shape = PRESETS["tiny"]
    kv = torch.randn((2, shape.layers, 10, shape.kv_heads, shape.head_dim), generator=torch.Generator().manual_seed(1))
    one = Running(demand(new=9), [*range(8), 17, 18, 19], [0.25, 0.5, 0.75], [1.5, 1.6, 1.7], started=1.0, hand_to=1)
    source.send(one, kv)
    came = to.opened(one.demand, one.tokens[:8], to.receive(8, 0, 3), 3)
    assert (came.tokens, came.margins, came.times, came.started) == (one.tokens, one.margins, one.times, 1.0)
    assert torch.equal(came.brought, kv)


class MovesOnce:
    """Continuous batching in which request 0 leaves after three tokens, and comes back as if from another engine."""

    def __init__(self):
        self._good, self.left = ContinuousBatching(8), []

    def turn(self, engine):
        self._good.turn(engine)
        if engine.running and len(engine.running[0].times) == 3 and not self.left:
            assert not engine.move(7, 1), "there is none of that number"
            engine.left = lambda one, kv: self.left.append((one, kv))
            assert engine.move(0, 1)
            engine.check_pages()
            ((one, kv),) = self.left
            back = Running(one.demand, [*one.tokens], [*one.margins], [*one.times], started=one.started, brought=kv)
            engine.came.append(back)
            engine.waiting.append(back)


def test_an_answer_that_moved_goes_on_as_if_it_had_stayed():
    answers = []
    for batching in (ContinuousBatching(8), moved := MovesOnce()):
        shape = PRESETS["tiny"]
        pool = PagePool(shape, pages=12, page=4, device="cpu")
        model = draw(shape, seed=3, max_tokens=32, device="cpu")
        engine = Engine(model, pool, batching, fifo, lambda one, waited, takes: True)
        engine.serve(type(engine.arrivals)([demand(prompt=6, new=9)], [[1, 2, 3, 4, 5, 6]]))
        answers.append([one.answer for one in engine.finished])
        assert pool.free == 12
    assert answers[0] == answers[1]
    assert len(moved.left[0][0].answer) == 3
    assert len(answers[0][0]) == 9


def test_a_request_that_waits_can_be_taken_back_and_one_that_runs_cannot():
    class TakesBack(ContinuousBatching):
        def turn(self, engine):
            if len(engine.waiting) == 3:
                assert engine.withdraw(2)
                assert not engine.withdraw(2)
            super().turn(engine)
            assert not engine.withdraw(0)

    shape = PRESETS["tiny"]
    pool = PagePool(shape, pages=12, page=4, device="cpu")
    model = draw(shape, seed=3, max_tokens=32, device="cpu")
    engine = Engine(model, pool, TakesBack(8), fifo, lambda one, waited, takes: True)
    engine.serve(type(engine.arrivals)([demand(number, prompt=6) for number in range(3)], [[1] * 6] * 3))
    assert sorted(one.demand.number for one in engine.finished) == [0, 1]
