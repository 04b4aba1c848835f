"""serve.cluster without ranks: routes, rules and roles, the router's messages, keys and values on their way."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from multiprocessing import Pipe
from types import SimpleNamespace

import pytest
import torch

from aiperf.workloads.cluster import handover as handovers
from aiperf.workloads.cluster import side as sides
from aiperf.workloads.cluster.inbox import Inbox, RouterGone
from aiperf.workloads.cluster.loads import load_variance
from aiperf.workloads.cluster.messages import Begin, Departure, Expect, Fetch, IterationEnd, Offer, Serve, WorkerReady
from aiperf.workloads.cluster.offloads.always import always
from aiperf.workloads.cluster.offloads.conditional import Conditional
from aiperf.workloads.cluster.offloads.never import never
from aiperf.workloads.cluster.router import Router, WorkerView
from aiperf.workloads.cluster.routes.composite import CompositeCost
from aiperf.workloads.cluster.routes.least_requests import least_requests
from aiperf.workloads.cluster.routes.length_balanced import LengthBalanced
from aiperf.workloads.cluster.routes.longest_prefix import longest_prefix
from aiperf.workloads.cluster.routes.predicted import least_predicted, predicted_tokens
from aiperf.workloads.cluster.routes.round_robin import round_robin
from aiperf.workloads.cluster.shifts.capacity_aware import CapacityAware
from aiperf.workloads.cluster.shifts.fixed import fixed
from aiperf.workloads.decoder.model import PRESETS
from aiperf.workloads.engine.demands import Demand
from aiperf.workloads.engine.engine import Engine
from aiperf.workloads.engine.pages import BrokenBooks, PagePool
from aiperf.workloads.engine.running import Running

# ---- routes and rules ---------------------------------------------------------------------------------------------


def demand(number=0, prompt=8, new=4):
    return Demand(number, 0.0, prompt, new)


def view(rank, *, prompts=(), given=0, known=(), prefills=True, decodes=True):
    mine = {number: demand(number, prompt) for number, prompt in enumerate(prompts)}
    return WorkerView(rank, prefills, decodes, mine if prefills else {}, mine if decodes else {}, given, set(known))


def test_round_robin_goes_round_whatever_is_under_way():
    views = [view(0, prompts=(9, 9, 9)), view(1), view(2)]
    chosen = []
    for number in range(6):
        one = round_robin(demand(number), [], views)
        one.given += 1
        chosen.append(one.rank)
    assert chosen == [0, 1, 2, 0, 1, 2]


def test_the_fewest_requests_under_way_decide_before_those_that_were_given():
    assert least_requests(demand(), [], [view(0, prompts=(1, 1)), view(1, prompts=(1,), given=9)]).rank == 1
    assert least_requests(demand(), [], [view(0, given=3), view(1, given=2)]).rank == 1


def test_the_longest_known_beginning_decides_before_the_load():
    pages = [b"a", b"ab", b"abc"]
    busy = view(0, prompts=(1, 1, 1), known=[b"a", b"ab"])
    assert longest_prefix(demand(), pages, [view(1, known=[b"a"]), busy]).rank == 0
    # A later page without those before it is of no use.
    assert longest_prefix(demand(), pages, [view(0, prompts=(1,), known=[b"abc"]), view(1)]).rank == 1
    assert longest_prefix(demand(), pages, [busy, view(1, known=[b"a", b"ab"])]).rank == 1


def test_prompt_work_counts_attention_too():
    route = LengthBalanced(PRESETS["tiny"])
    assert route(demand(), [], [view(0, prompts=(100,)), view(1, prompts=(49, 50))]).rank == 1
    assert route(demand(), [], [view(0, prompts=(2000,)), view(1, prompts=(1000, 1000))]).rank == 1
    assert route(demand(), [], [view(0, given=2), view(1, given=1)]).rank == 1


def test_the_cost_of_a_worker_weighs_its_load_against_what_it_knows():
    route, pages = CompositeCost(pool_tokens=24), [b"a", b"ab"]
    assert route.cost(pages, view(0)) == 0
    assert route.cost(pages, view(0, prompts=(8, 8))) == 3 * (2 * (8 + 4)) / 24 + 2
    assert route.cost(pages, view(0, known=[b"a"])) == -5
    assert route.cost(pages, view(0, known=[b"ab"])) == 0, "a later page alone is of no use"
    newest = view(0, known=[b"a", b"ab"])
    newest.newest = b"a"
    assert route.cost(pages, newest) == -11
    assert route.cost([], newest) == 0
    # A known beginning is worth a few requests, and no more.
    knows = [view(0, prompts=(4,) * count, known=[b"a"]) for count in (2, 3)]
    assert [route(demand(), pages, [one, view(1)]).rank for one in knows] == [0, 1]
    assert route(demand(), pages, [view(0, given=2), view(1, given=1)]).rank == 1


def test_answers_to_come_count_by_a_power_of_two():
    assert [predicted_tokens(demand(new=new)) for new in (1, 2, 3, 64, 65)] == [1, 2, 4, 64, 128]
    one, many = view(0), view(1)
    one.streams, many.streams = {0: demand(new=100)}, {n: demand(n, new=4) for n in range(3)}
    assert least_predicted(demand(), [], [one, many]).rank == 1
    assert least_requests(demand(), [], [one, many]).rank == 0
    assert least_predicted(demand(), [], [view(0, given=2), view(1, given=1)]).rank == 1


@pytest.mark.parametrize(
    ("prompt", "queue", "streams", "known", "moved"),
    [
        (256, 0, 0, 0, True),
        (255, 0, 0, 0, False),
        (256, 9, 0, 0, True),
        (256, 10, 0, 0, False),
        (64, 10, 8, 0, True),
        (63, 0, 8, 0, False),
        (64, 0, 7, 0, False),
        (260, 0, 0, 2, False),
        (264, 0, 0, 2, True),
    ],
)
def test_long_prompts_move_and_shorter_ones_while_many_decode(prompt, queue, streams, known, moved):
    pages = [bytes([number]) for number in range(8)]
    views = [
        view(0, prompts=(1,) * queue, decodes=False),
        view(1, prompts=(1,) * streams, known=pages[:known], prefills=False),
    ]
    assert Conditional(page=4)(demand(prompt=prompt), pages, views) is moved
    assert always(demand(prompt=prompt), pages, views)
    assert not never(demand(prompt=prompt), pages, views)


def test_workers_help_where_a_queue_is_long_until_it_is_short():
    first, second = view(0, decodes=False), view(1, prefills=False)
    shift = CapacityAware([first, second])

    def roles(prompts, streams):
        first.prompts, second.streams = (dict.fromkeys(range(n), demand()) for n in (prompts, streams))
        shift([first, second])
        return (first.prefills, first.decodes), (second.prefills, second.decodes)

    own, helped, helps = ((True, False), (False, True)), ((True, False), (True, True)), ((True, True), (False, True))
    asked = [(7, 0), (8, 0), (3, 0), (2, 0), (0, 15), (0, 16), (0, 5), (0, 4)]
    assert [roles(*queues) for queues in asked] == [own, helped, helped, own, own, helps, helps, own]


def test_the_variance_of_loads_is_over_the_time_that_they_last():
    even = [(0.0, 4.0), (2.0, 0.0)]
    assert load_variance([even, even]) == 0
    assert load_variance([even, []]) == 1, "the mean is 2, and each is 2 off"
    # Both the same until 1, then 6 and 2: a variance of 4 for half the time, beside a mean of 4.
    assert load_variance([[(0.0, 4.0), (1.0, 6.0), (2.0, 0.0)], [(0.0, 4.0), (1.0, 2.0), (2.0, 0.0)]]) == 4 / 2 / 4**2
    # Who says nothing before 1 has nothing before.
    assert load_variance([[(0.0, 4.0), (2.0, 0.0)], [(1.0, 4.0), (2.0, 0.0)]]) == pytest.approx(4 / 2 / 3**2)
    assert load_variance([[], []]) == load_variance([[(0.0, 3.0)], []]) == 0


@pytest.mark.parametrize("roles", ["1p2d", "2d", "0p2d", "p1d1", ""])
def test_roles_that_are_not_those_of_the_ranks_are_named(roles):
    with pytest.raises(ValueError, match=f'roles "{roles}" are not those of 2 ranks'):
        sides.views_of(roles, 2)
    assert [(one.prefills, one.decodes) for one in sides.views_of("2p1d", 3)] == [(True, False)] * 2 + [(False, True)]


# ---- messages and hand-over ---------------------------------------------------------------------------------------


def test_whoever_decodes_hears_of_a_request_before_its_prompt_is_computed():
    ends = [Pipe(), Pipe()]
    views = sides.views_of("1p1d", 2)
    router = Router([end for _, end in ends], views, round_robin, least_requests, always, fixed, page=4)
    router._give(demand(0), list(range(8)))
    router._give(demand(1, new=1), list(range(8)))
    assert [ends[1][0].recv(), ends[0][0].recv(), ends[0][0].recv()] == [Expect(0, 0), Serve(0, 1), Serve(1, None)]
    assert not ends[1][0].poll()
    assert [list(one.prompts) for one in views] == [[0, 1], []]
    assert [list(one.streams) for one in views] == [[1], [0]]


def test_the_iteration_ends_when_every_worker_has_said_what_left_it():
    (prefill, first), (decode, second) = Pipe(), Pipe()
    router = Router([first, second], sides.views_of("1p1d", 2), round_robin, least_requests, always, fixed, page=4)
    prefill.send(WorkerReady()), decode.send(WorkerReady())
    with ThreadPoolExecutor(1) as beside:
        ended = beside.submit(router.run, [demand()], [[1] * 8])
        assert [type(decode.recv()) for _ in range(2)] == [Begin, Expect]
        decode.send(Departure(0, answered=True))
        assert not decode.poll(0.05)
        prefill.send(Departure(0, answered=False))
        ended.result(timeout=10)
    assert decode.recv() == IterationEnd()


def test_who_has_keys_and_values_ready_is_asked_for_them_by_who_decodes():
    (prefill, first), (decode, second) = Pipe(), Pipe()
    router = Router([first, second], sides.views_of("1p1d", 2), round_robin, least_requests, always, fixed, page=4)
    prefill.send(WorkerReady()), decode.send(WorkerReady())
    with ThreadPoolExecutor(1) as beside:
        ended = beside.submit(router.run, [demand()], [[1] * 8])
        assert [type(decode.recv()) for _ in range(2)] == [Begin, Expect]
        prefill.send(Offer(0))
        assert decode.recv() == Fetch(0, 0)
        prefill.send(Departure(0, answered=False))
        decode.send(Departure(0, answered=True))
        ended.result(timeout=10)


def test_a_blocking_worker_offers_before_it_sends_and_receives_when_it_looks(line):
    source, to = Pipe(), Pipe()
    one, kv = handed()
    leaving = Inbox(source[0], line.source, "cpu", blocking=True)
    leaving.leave(one, kv)
    assert [source[1].recv() for _ in range(2)] == [Offer(0), Departure(0, answered=False)]
    coming = Inbox(to[0], line.to, "cpu", blocking=True)
    coming.demands, coming.prompts = [one.demand], [one.tokens[:8]]
    to[1].send(Expect(0, 0)), to[1].send(Fetch(0, 0))
    coming.wait(0.0, 5.0)
    assert line.sent == [], "it was received in the thread that looked"
    coming.load = lambda: 12
    (came,) = coming.due(0.0)
    assert torch.equal(came.brought, kv)
    assert coming.loads == [(0.0, 12.0 + len(came.tokens))], "what has just come is a load as well"
    source[1].close(), to[1].close()


def test_the_load_of_a_worker_is_the_tokens_of_what_waits_and_of_what_runs():
    under_way = SimpleNamespace(waiting=[Running(demand(), [1] * 5)], running=[Running(demand(), [1] * 7)])
    assert Engine.tokens_here(under_way) == 12


def test_a_worker_that_goes_away_ends_the_iteration_of_the_others():
    gone, stays = Pipe(), Pipe()
    router = Router([gone[1], stays[1]], sides.views_of("mixed", 2), round_robin, least_requests, always, fixed, page=4)
    inbox = Inbox(stays[0], None, "cpu")
    gone[0].close()
    with pytest.raises(EOFError):
        router.run([demand()], [[1] * 8])
    with pytest.raises(RouterGone, match="the router failed: "):
        inbox.begin()
    stays[1].close()


@pytest.fixture
def line(monkeypatch):
    """A way from rank 0 to rank 1 in one process."""
    sent: list[torch.Tensor] = []
    monkeypatch.setattr(handovers.dist, "new_group", lambda ranks: tuple(ranks))
    monkeypatch.setattr(handovers.dist, "send", lambda whole, to, group: sent.append(whole))
    monkeypatch.setattr(handovers.dist, "recv", lambda whole, source, group: whole.copy_(sent.pop(0)))
    ends = [handovers.Handover(rank, PRESETS["tiny"], "cpu", [(0, 1)]) for rank in (0, 1)]
    return SimpleNamespace(sent=sent, source=ends[0], to=ends[1])


def handed():
    one = Running(demand(prompt=8), [*range(8), 17], margins=[0.25], times=[1.5], started=1.0, hand_to=1)
    shape = PRESETS["tiny"]
    kv = torch.randn((2, shape.layers, 8, shape.kv_heads, shape.head_dim), generator=torch.Generator().manual_seed(1))
    return one, kv


def test_a_request_arrives_as_it_left(line):
    one, kv = handed()
    line.source.send(one, kv)
    came = line.to.opened(one.demand, one.tokens[:8], line.to.receive(8, 0))
    assert (came.tokens, came.margins, came.times, came.started) == (one.tokens, [0.25], [1.5], 1.0)
    assert came.hand_to is None
    assert torch.equal(came.brought, kv)
    assert (line.to.sources, line.source.sources, line.source.sent_bytes) == ([0], [], kv.nbytes)


def _flipped(whole):
    whole[-1:].view(torch.int32).bitwise_xor_(1)


def _swapped(whole):
    whole[10:12], whole[12:14] = whole[12:14].clone(), whole[10:12].clone()


def _never_came(whole):
    whole[10:] = 0


@pytest.mark.parametrize("spoil", [_flipped, _swapped, _never_came])
def test_keys_and_values_that_changed_on_the_way_are_noticed(line, spoil):
    one, kv = handed()
    line.source.send(one, kv)
    spoil(line.sent[0])
    whole = line.to.receive(8, 0)
    with pytest.raises(BrokenBooks, match="request 0: sent with checksum"):
        line.to.opened(one.demand, one.tokens[:8], whole)


def test_pages_give_back_what_was_put_into_others():
    pool = PagePool(PRESETS["tiny"], pages=4, page=4, device="cpu")
    _, kv = handed()
    wide = torch.cat((kv, kv), dim=2)[:, :, :10]
    assert pool.write([3, 0, 2], wide) == 10
    assert torch.equal(pool.read([3, 0, 2], 10), wide)
    assert torch.equal(pool.read([3, 0], 8), wide[:, :, :8])
    assert not torch.equal(pool.read([0, 3], 8), wide[:, :, :8])


def test_the_largest_load_over_the_mean_is_the_spread():
    assert sides.spread([3.0, 1.0]) == 1.5
    assert sides.spread([2.0, 2.0]) == 1
    assert sides.spread([0.0, 0.0]) == 1
