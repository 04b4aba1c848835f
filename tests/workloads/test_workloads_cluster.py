"""serve.cluster: the same tokens whatever the roles and the route, each request once, keys and values as they were
sent; routers, rules and hand-over by themselves."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from multiprocessing import Pipe
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from gang_of_two import run_gang

from aiperf.workloads.cluster import handover as handovers
from aiperf.workloads.cluster import side as sides
from aiperf.workloads.cluster.inbox import Inbox, RouterGone
from aiperf.workloads.cluster.messages import Begin, Departure, Expect, IterationEnd, Serve, WorkerReady
from aiperf.workloads.cluster.offloads.always import always
from aiperf.workloads.cluster.offloads.conditional import Conditional
from aiperf.workloads.cluster.offloads.never import never
from aiperf.workloads.cluster.router import Router, WorkerView
from aiperf.workloads.cluster.routes.least_requests import least_requests
from aiperf.workloads.cluster.routes.length_balanced import LengthBalanced
from aiperf.workloads.cluster.routes.longest_prefix import longest_prefix
from aiperf.workloads.cluster.routes.round_robin import round_robin
from aiperf.workloads.cluster.shifts.capacity_aware import CapacityAware
from aiperf.workloads.cluster.shifts.fixed import fixed
from aiperf.workloads.contract import Context
from aiperf.workloads.decoder.model import PRESETS
from aiperf.workloads.engine.answers import same_answers
from aiperf.workloads.engine.demands import Demand, draw_demands, unique_tokens
from aiperf.workloads.engine.pages import BrokenBooks, PagePool
from aiperf.workloads.engine.running import Running
from aiperf.workloads.serve.workload import cluster, engine

_SMALL = {"requests": 8, "prompt_tokens": [6, 40], "new_tokens": [1, 9], "max_batch": 3, "page_tokens": 4}
_TALK = {**_SMALL, "lengths": "conversations", "sessions": 3, "prefix_cache": True, "kv_pool": 6.0}
_SIDES = {
    "mixed": _SMALL,
    "arriving": {**_SMALL, "rate": 400.0, "route": "least_requests"},
    "split": {**_SMALL, "roles": "1p1d"},
    "split_small_pool": {**_SMALL, "roles": "1p1d", "kv_pool": 0.1, "prompt_tokens": [6, 9], "new_tokens": [24, 40]},
    "changing": {
        **_SMALL,
        "requests": 60,
        "roles": "1p1d",
        "roles_change": True,
        "lengths": "shifting",
        "new_tokens": [3, 9],
    },
    "local": {**_SMALL, "roles": "1p1d", "prefill_at": "decode_worker"},
    "talk": _TALK,
    "talk_prefix": {**_TALK, "route": "prefix"},
    "talk_split": {**_TALK, "roles": "1p1d"},
    "six": {**_SMALL, "requests": 6, "lengths": "six", "new_tokens": [1, 1]},
    "six_balanced": {**_SMALL, "requests": 6, "lengths": "six", "new_tokens": [1, 1], "route": "length_balanced"},
}
_NAMES = ("tokens", "margins", "answered")


@pytest.fixture(autouse=True)
def _threads_come_back():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """found[rank][side name] -> outputs and counts."""
    asked = [{"workload": "serve.cluster", **side} for side in _SIDES.values()]
    both = run_gang(asked, tmp_path_factory.mktemp("gang"))
    return [dict(zip(_SIDES, sides, strict=True)) for sides in both]


def _by_one_worker(params):
    """What a cluster of one gives, which is an engine of its own."""
    alone = {"roles": "mixed", "prefill_at": "prefill_worker", "roles_change": False, "rate": 0.0, "kv_pool": 6.0}
    workload = cluster(Context(seed=3), **{**params, **alone})
    workload.redraw(9)
    workload.step()
    answers = {name: array.numpy().copy() for name, array in workload.outputs().items()}
    workload.close()
    return answers


@pytest.mark.parametrize("side", _SIDES)
def test_every_rank_has_the_answers_that_one_worker_gives(found, side):
    expected = _by_one_worker(_SIDES[side])
    assert (expected["answered"] == 1).all()
    for rank in (0, 1):
        outcome = same_answers(expected, {name: found[rank][side][name] for name in _NAMES})
        assert outcome.passed, outcome.detail
        assert outcome.value == 0


def test_one_worker_gives_what_the_engine_gives():
    workload = engine(Context(seed=3), **_SMALL)
    workload.redraw(9)
    workload.step()
    answers = {name: array.numpy() for name, array in workload.outputs().items()}
    outcome = same_answers(answers, _by_one_worker(_SMALL))
    assert outcome.passed, outcome.detail


def test_prompts_are_handed_over_once_each_with_all_their_keys_and_values(found):
    side, shape = found[0]["split"], PRESETS["tiny"]
    demands = drawn(**_SMALL)
    handed = [demand for demand in demands if demand.new_tokens > 1]
    assert 0 < len(handed) < len(demands), "an answer of one token is whole where its prompt is computed"
    assert side["count.handed_requests"] == len(handed)
    assert side["count.handed_bytes"] == sum(demand.prompt_tokens for demand in handed) * shape.kv_bytes(4)
    for name in ("mixed", "local", "talk_prefix"):
        assert found[0][name]["count.handed_requests"] == 0
    assert found[0]["local"]["count.load_spread"] == 2, "one worker did all of it"


def test_a_small_pool_computes_again_what_was_handed_over(found):
    side, demands = found[0]["split_small_pool"], drawn(**_SIDES["split_small_pool"])
    assert side["count.preemptions"] > 0
    assert side["count.handed_requests"] == len(demands)
    assert side["count.computed_tokens"] > sum(one.prompt_tokens + one.new_tokens - 1 for one in demands)


def test_turns_find_their_beginning_only_where_it_is(found):
    apart, together = found[0]["talk"], found[0]["talk_prefix"]
    demands = drawn(**_TALK)
    # Each turn finds the whole pages of the turn before, and no more.
    before, hits = {}, 0
    for demand in demands:
        hits += before.get(demand.text, 0) // 4 * 4
        before[demand.text] = demand.prompt_tokens
    assert together["count.prefix_hit_tokens"] == hits
    assert apart["count.prefix_hit_tokens"] < hits
    assert together["count.computed_tokens"] < apart["count.computed_tokens"]


def test_balancing_by_length_gives_each_worker_a_long_prompt(found):
    assert found[0]["six"]["count.load_spread"] == pytest.approx(2 * (40 + 40 + 6) / (2 * 40 + 4 * 6))
    assert found[0]["six_balanced"]["count.load_spread"] == 1


def test_all_ranks_state_the_same_work_and_counts(found):
    for side in _SIDES:
        counts = [{k: v for k, v in found[rank][side].items() if k.startswith("count.")} for rank in (0, 1)]
        assert counts[0] == counts[1]


# ---- requests ----------------------------------------------------------------------------------------------------


def drawn(**params):
    """The schedule that a side with seed 3 has."""
    asked = {"lengths": "spread", "arrivals": "poisson", "rate": 0.0, "urgent": 0.0, **params}
    return draw_demands(SimpleNamespace(**asked), 3)


def test_conversations_grow_turn_by_turn_and_each_turn_begins_with_the_one_before():
    workload = cluster(Context(seed=3), **{**_TALK, "requests": 9})
    prompts = workload.inputs()["prompts"].tolist()
    workload.close()
    demands = drawn(**{**_TALK, "requests": 9})
    for turn in range(3):
        assert sorted(demand.text for demand in demands[3 * turn : 3 * turn + 3]) == [0, 1, 2]
    assert [demand.prompt_tokens for demand in demands] == [6] * 3 + [23] * 3 + [40] * 3
    for demand in demands[:6]:
        later = next(d for d in demands[demand.number + 1 :] if d.text == demand.text)
        assert prompts[later.number][: demand.prompt_tokens] == prompts[demand.number][: demand.prompt_tokens]
    assert len({tuple(prompts[demand.number][:6]) for demand in demands}) == 3
    assert unique_tokens(demands, 0) == 3 * 40


def test_a_shifting_mix_turns_from_long_prompts_to_long_answers():
    demands = drawn(**{**_SMALL, "lengths": "shifting"})
    assert [(d.prompt_tokens, d.new_tokens) for d in demands] == [(40, 1)] * 4 + [(6, 9)] * 4


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


def test_a_worker_that_helped_is_not_lost_to_its_own_role(found):
    assert 0 < found[0]["changing"]["count.handed_requests"] < _SIDES["changing"]["requests"]


@pytest.mark.parametrize("roles", ["1p2d", "2d", "0p2d", "p1d1", ""])
def test_roles_that_are_not_those_of_the_ranks_are_named(roles):
    with pytest.raises(ValueError, match=f'roles "{roles}" are not those of 2 ranks'):
        sides.views_of(roles, 2)
    assert [(one.prefills, one.decodes) for one in sides.views_of("2p1d", 3)] == [(True, False)] * 2 + [(False, True)]


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ({"prefill_at": "conditional"}, "needs roles such as 1p1d"),
        ({"roles_change": True}, "needs roles such as 1p1d"),
        ({"lengths": "conversations", "sessions": 9}, "sessions must be 1 or more, and no more than requests"),
        ({"roles": "1p1d"}, "not those of 1 ranks"),
        ({"requests": 0}, "requests is 0"),
    ],
)
def test_what_does_not_go_together_is_named(params, named):
    with pytest.raises(ValueError, match=named):
        cluster(Context(seed=3), **{**_SMALL, **params})


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
    came = line.to.receive(one.demand, one.tokens[:8], 0)
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
    with pytest.raises(BrokenBooks, match="request 0: sent with checksum"):
        line.to.receive(one.demand, one.tokens[:8], 0)


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


def test_times_of_all_workers_come_from_the_first_rank():
    workload = cluster(Context(seed=3), **{**_SMALL, "rate": 300.0})
    workload.step()
    series, means = workload.latencies(), workload.values()
    workload.close()
    assert len(series["ttft"]) == 8
    assert means["ttft"] == pytest.approx(np.mean(series["ttft"]))
    assert min(series["ttft"]) > 0
