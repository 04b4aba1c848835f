"""Workers that race for a request: one answer counts, the others are told once and stop; workers that stand still."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from multiprocessing import Pipe

import pytest

from aiperf.workloads.cluster import side as sides
from aiperf.workloads.cluster.inbox import Inbox
from aiperf.workloads.cluster.messages import Begin, Cancel, Departure, IterationEnd, Serve, WorkerReady
from aiperf.workloads.cluster.offloads.never import never
from aiperf.workloads.cluster.router import Router
from aiperf.workloads.cluster.routes.race import race, winners
from aiperf.workloads.cluster.shifts.fixed import fixed
from aiperf.workloads.cluster.stalls import Stalls
from aiperf.workloads.decoder.model import PRESETS, draw
from aiperf.workloads.engine.batching.continuous import ContinuousBatching
from aiperf.workloads.engine.demands import Demand
from aiperf.workloads.engine.engine import Engine
from aiperf.workloads.engine.orders.fifo import fifo
from aiperf.workloads.engine.pages import BrokenBooks, PagePool
from aiperf.workloads.engine.running import Running


def said(end):
    """The next message."""
    assert end.poll(5), "nothing came"
    return end.recv()


def test_those_that_race_get_a_request_and_the_slower_ones_are_told_once():
    ends = [Pipe() for _ in range(4)]
    quick, slow, last, idle = workers = [worker for worker, _ in ends]
    views = sides.views_of("mixed", 4)
    router = Router([end for _, end in ends], views, race, race, never, fixed, page=4, copies=3)
    for worker in workers:
        worker.send(WorkerReady())
    with ThreadPoolExecutor(1) as beside, ExitStack() as ending:
        for worker in workers:
            ending.callback(worker.close)  # before the router is waited for
        ended = beside.submit(router.run, [Demand(0, 0.0, 8, 4)], [[1] * 8])
        assert [type(said(worker)) for worker in workers] == [Begin] * 4
        assert [said(worker) for worker in workers[:3]] == [Serve(0, None)] * 3
        quick.send(Departure(0, answered=True))
        assert [said(slow), said(last)] == [Cancel(0)] * 2
        slow.send(Departure(0, answered=True))
        assert not idle.poll(0.05), "the last one has not said that it stopped"
        last.send(Departure(0, answered=True))
        ended.result(timeout=10)
        assert [said(worker) for worker in workers] == [IterationEnd()] * 4


def test_a_worker_stops_what_it_has_and_says_so_but_not_of_what_is_answered():
    worker, router = Pipe()
    inbox, asked = Inbox(worker, None, "cpu"), []
    inbox.cancel = lambda number: asked.append(number) or number == 1
    inbox.demands, inbox.prompts = [Demand(number, 0.0, 2, 4) for number in range(3)], [[1, 2]] * 3
    for message in (Serve(0, None), Cancel(0), Cancel(1), Cancel(2)):
        router.send(message)
        inbox.wait(0.0, 5.0)
    assert inbox.due(0.0) == []
    assert [said(router) for _ in range(2)] == [Departure(0, answered=True), Departure(1, answered=True)]
    assert not router.poll()
    assert asked == [1, 2]
    router.close()


def test_the_first_whole_answer_of_each_request_counts():
    def answer(number, end):
        return Running(Demand(number, 0.0, 1, 2), [1, 2, 3], times=[0.1, end])

    late, quick, other = answer(0, 0.4), answer(0, 0.3), answer(1, 0.9)
    assert winners([late, other, quick]) == [quick, other]


class CancelsOnce:
    """Continuous batching in which a request is cancelled once two run."""

    def __init__(self, number):
        self._good, self._number = ContinuousBatching(8), number

    def turn(self, engine):
        self._good.turn(engine)
        if len(engine.running) > 1 and not engine.cancelled:
            assert engine.cancel(self._number)
            assert not engine.cancel(self._number)
            engine.check_pages()


def served(batching):
    """The engine, after three requests of which all came at once."""
    shape = PRESETS["tiny"]
    pool = PagePool(shape, pages=12, page=4, device="cpu")
    model = draw(shape, seed=3, max_tokens=32, device="cpu")
    engine = Engine(model, pool, batching, fifo, lambda one, waited, takes: True)
    demands = [Demand(number, 0.0, 6, 9) for number in range(3)]
    engine.serve(type(engine.arrivals)(demands, [[number + 1] * 6 for number in range(3)]))
    return engine


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_cancelled_request_gives_back_its_pages_and_the_others_do_not_notice(number):
    whole, less = served(ContinuousBatching(8)), served(CancelsOnce(number))
    assert [one.demand.number for one in less.cancelled] == [number]
    assert less.pool.free == 12
    answers = {one.demand.number: one.answer for one in whole.finished}
    assert {one.demand.number: one.answer for one in less.finished} == {
        other: answer for other, answer in answers.items() if other != number
    }


def test_a_request_that_is_lost_and_not_cancelled_is_noticed():
    class Loses(ContinuousBatching):
        def turn(self, engine):
            super().turn(engine)
            if len(engine.came) == 3 and engine.cancel(2):
                engine.cancelled.clear()

    with pytest.raises(BrokenBooks, match="3 requests came in, and 2 answers"):
        served(Loses(8))


def test_each_worker_stands_still_at_times_of_its_own_that_stay():
    one, again, other = (Stalls(3, rank, rate=2.0, seconds=0.1, span=5.0) for rank in (0, 0, 1))
    assert len(one.begin) == 10
    assert one.begin == again.begin != other.begin
    assert 0 <= one.begin[0] <= one.begin[-1] <= 5
    at, slept = one.begin[0], []
    assert one.left(at - 0.01) == 0
    assert one.left(at + 0.04) == pytest.approx(0.06)
    one.wait_out(at - 0.01, slept.append)
    one.wait_out(at + 0.03, slept.append)
    assert slept == [pytest.approx(0.07)]
