"""serve.engine's policies on their own: windows, batches by load, budgets, reserved places, requests that are alike."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from cpu_pairs import audit

from aiperf.paths import scenario_folder
from aiperf.workloads.contract import Context
from aiperf.workloads.decoder.model import PRESETS
from aiperf.workloads.engine import arrivals
from aiperf.workloads.engine import engine as engines
from aiperf.workloads.engine.answers import same_answers
from aiperf.workloads.engine.batching.adaptive import AdaptiveDelay
from aiperf.workloads.engine.batching.by_load import BatchesByLoad
from aiperf.workloads.engine.batching.decode_first import DecodeFirst
from aiperf.workloads.engine.batching.within_slo import WithinSlo
from aiperf.workloads.engine.coalescing import Coalesced
from aiperf.workloads.engine.demands import Demand
from aiperf.workloads.engine.orders.reserved import ReservedPlaces
from aiperf.workloads.engine.pages import PagePool
from aiperf.workloads.engine.prefix import PrefixCache
from aiperf.workloads.engine.running import Running
from aiperf.workloads.engine.side import EngineSide
from aiperf.workloads.serve.workload import engine

_SMALL = {"requests": 8, "prompt_tokens": [3, 30], "new_tokens": [2, 9], "max_batch": 4, "page_tokens": 4}


@pytest.fixture
def sides(monkeypatch):
    """The sides that were made, in their order."""
    made = []
    begin = EngineSide.__init__

    def kept(self, asked):
        begin(self, asked)
        made.append(self)

    monkeypatch.setattr(EngineSide, "__init__", kept)
    return made


def by_a_clock_of_their_own(monkeypatch):
    """Engines sleep by a clock that is moved on by what this returns, and by each sleep, which ends 2 ms late."""
    clock = SimpleNamespace(now=0.0)

    def go_on(seconds):
        clock.now += seconds

    fake = SimpleNamespace(perf_counter=lambda: clock.now, sleep=lambda seconds: go_on(seconds + 0.002))
    monkeypatch.setattr(engines, "time", fake)
    monkeypatch.setattr(arrivals, "time", fake)
    return go_on


def asking(number=0, *, prompt=(1, 2), new=1, at=0.0, urgent=False, standard=False):
    return Running(Demand(number, at, len(prompt), new, urgent, standard), list(prompt))


def test_the_window_grows_with_the_rate_up_to_the_whole_delay():
    policy = AdaptiveDelay(size=8, most=0.008)
    assert policy.window([]) == policy.window([0.3]) == 0
    assert policy.window([0.0, 1.0]) == pytest.approx(0.008 * 0.008 / 8)
    assert policy.window([0.0, 0.002, 0.004]) == pytest.approx(0.008 * 0.5)
    assert policy.window([0.0, 0.0005]) == policy.window([0.2, 0.2]) == 0.008


def test_waves_come_slowly_and_fast_by_eight_at_the_rate_in_all(sides):
    engine(Context(seed=3), **{**_SMALL, "requests": 32, "rate": 100.0, "arrivals": "waves"})
    gaps = np.diff([one.at for one in sides[0].demands])
    assert gaps[:7] == pytest.approx(0.019)
    assert gaps[7:15] == pytest.approx(0.001)
    assert gaps[15:23] == pytest.approx(0.019)
    assert sides[0].demands[-1].at + gaps[0] == pytest.approx(0.32)


def test_the_waves_of_the_shipped_pair_have_lone_requests_and_windows_up_to_the_whole_delay(sides):
    shipped = yaml.safe_load((scenario_folder() / "cpu" / "fixed-vs-adaptive-batch-delay.yaml").read_text())["params"]
    engine(Context(seed=3), **{**_SMALL, **{name: shipped[name] for name in ("requests", "rate", "arrivals")}})
    assert shipped["delay"] == "5ms"
    policy, times = AdaptiveDelay(shipped["max_batch"], 0.005), [one.at for one in sides[0].demands]
    windows = [policy.window(times[max(0, end - 5) : end]) for end in range(2, len(times))]
    assert max(np.diff(times)) > 0.005, "a quiet gap is longer than the window, so that a request is alone in it"
    assert min(windows) < 0.005 / 12
    assert max(windows) == pytest.approx(0.005)


def test_batches_are_large_above_four_fifths_of_the_time_and_single_below_one_fifth():
    policy = BatchesByLoad(size=16, delay=0.005)
    assert [policy.note(0.0, 1.0) for _ in range(5)] == [1, 1, 1, 1, 16]
    assert [policy.note(9.0, 1.0) for _ in range(7)] == [16, 16, 16, 16, 16, 1, 1]
    assert policy.note(0.5, 0.5) == 1, "between the two it stays as it is"


def test_prompts_get_the_tokens_that_fit_and_one_page_at_least():
    assert DecodeFirst.piece(0.003, 0.0001, 16) == 30
    assert DecodeFirst.piece(0.0003, 0.0001, 16) == 16
    assert DecodeFirst.piece(-0.1, 0.0001, 16) == 16
    assert DecodeFirst.piece(0.003, 0.0, 16) == 16


@pytest.mark.parametrize(("budget", "pieces"), [(1e-6, 10), (1e6, 1)])
def test_others_get_a_token_before_each_piece_that_the_budget_leaves(sides, budget, pieces):
    params = {**_SMALL, "lengths": "two", "prompt_tokens": [3, 40], "new_tokens": [12, 12], "requests": 3}
    workload = engine(Context(seed=3), **params, batching="decode_first", decode_budget=budget)
    workload.step()
    first, long, _ = sorted(sides[0].engine.finished, key=lambda one: one.demand.number)
    between = sum(long.started < at < long.times[0] for at in first.times)
    assert between == pieces


def test_prompts_are_collected_up_to_a_pass_and_no_longer_than_the_delay(sides):
    params = {**_SMALL, "batching": "batched_prompts", "max_batch": 8, "prefill_batch": 4, "new_tokens": [3, 3]}
    together = engine(Context(seed=3), **params)
    together.step()
    firsts = sorted(one.times[0] for one in sides[0].engine.finished)
    assert [firsts.count(at) for at in sorted(set(firsts))] == [4, 4]
    assert together.counters()["wasted_tokens"] > 0
    arriving = engine(Context(seed=3), **params, rate=100.0, arrivals="waves", delay=0.03)
    arriving.step()
    one = min(sides[1].engine.finished, key=lambda one: one.demand.number)
    assert 0.03 <= one.started < 0.05, "two had come, a pass takes four"


def test_a_pass_takes_as_many_prompts_as_come_out_in_time_and_is_full_where_they_are_late_anyway():
    policy = WithinSlo(8, prompts=4, delay=0.1)
    # A token takes a hundredth of the limit: the prompts of twenty tokens a fifth each.
    waiting = [asking(n, prompt=range(20)) for n in range(6)]
    engine = SimpleNamespace(now=0.0, token_s=0.001, waiting=waiting[2:])
    assert policy._due(engine) == pytest.approx(0.1 - 4 * 0.02 - 0.01), "the four that a pass takes, and a tenth"
    due = policy._due(engine) + 0.002  # a sleep ends late
    at_due = [policy._fits(SimpleNamespace(now=due, token_s=0.001, waiting=waiting[n:]), waiting[:n]) for n in range(4)]
    assert at_due == [True] * 4
    in_time = [
        policy._fits(SimpleNamespace(now=0.03, token_s=0.001, waiting=waiting[n:]), waiting[:n]) for n in range(5)
    ]
    assert in_time == [True, True, True, False, False], "60 of the 70 ms that are left"
    engine.now = 0.09
    assert policy._fits(engine, waiting[:2]), "too late for one already"
    engine.token_s, engine.now = 0.0, 0.01
    assert policy._due(engine) == 0.01
    assert [policy._fits(engine, waiting[:n]) for n in range(2)] == [True, False], "nothing is known of times yet"


@pytest.mark.parametrize("seed", range(6))
def test_every_first_token_is_in_time_though_passes_take_longer_than_the_last_ones_and_sleeps_end_late(
    sides, monkeypatch, seed
):
    shipped = yaml.safe_load((scenario_folder() / "cpu" / "latency-first-vs-throughput-first-prefill.yaml").read_text())
    drawn, passes = np.random.default_rng(seed), []
    go_on = by_a_clock_of_their_own(monkeypatch)

    def one_pass(model, pool, rows):
        passes.append(len(rows))
        go_on((0.003 + 0.0003 * len(rows) * max(len(row.tokens) for row in rows)) * drawn.uniform(0.9, 1.1))
        return [(0, 1.0)] * len(rows)

    monkeypatch.setattr(engines, "one_pass", one_pass)
    assert shipped["params"]["ttft_slo"] == "300ms"
    params = shipped["params"] | shipped["ladder"]["within_slo"] | {"model": "tiny", "ttft_slo": 0.3, "delay": 0.0}
    engine(Context(seed=seed), **params, rate=60.0).step()
    assert max(one.times[0] - one.demand.at for one in sides[0].engine.finished) <= 0.3
    assert sum(passes) == 64
    assert len(passes) <= 9, "it waits nearly as long as it may"


def test_prompts_wait_until_the_first_must_begin_to_be_in_time(sides, monkeypatch):
    go_on, compute = by_a_clock_of_their_own(monkeypatch), engines.one_pass

    def one_pass(*args):
        go_on(0.001)
        return compute(*args)

    monkeypatch.setattr(engines, "one_pass", one_pass)
    params = {**_SMALL, "batching": "within_slo", "max_batch": 8, "prefill_batch": 8, "new_tokens": [1, 1]}
    each, slo = (
        engine(Context(seed=3), **params | more, rate=100.0, arrivals="waves", ttft_slo=0.03)
        for more in ({"batching": "continuous"}, {})
    )
    for side in (each, slo):
        side.step()
    before, after = audit(each, seed=11), audit(slo, seed=11)
    assert same_answers(before, after).passed
    assert after["answered"].tolist() == [1] * 8
    assert slo.counters()["forward_passes"] < each.counters()["forward_passes"] == 8
    waits = [one.started - one.demand.at for one in sides[1].engine.finished]
    assert max(waits) > 0.015, "the first waits for others"


def test_of_prompts_that_begin_alike_one_is_computed_and_the_others_find_its_pages(sides):
    again = {**_SMALL, "requests": 8, "repeats": 4, "rate": 500.0, "prompt_tokens": [20, 29], "max_batch": 8}
    again |= {"prefix_cache": True, "prefill_batch": 8, "delay": 0.05, "kv_pool": 2.0}
    apart, merged = (engine(Context(seed=3), **again, batching=how) for how in ("batched_prompts", "merged_prompts"))
    before, after = audit(apart, seed=11), audit(merged, seed=11)
    assert same_answers(before, after).passed
    assert apart.counters()["prefix_hit_tokens"] == 0, "all eight are in one pass"
    # Three of four find the whole pages of a prompt, whose last token is never looked up: 19 of 20, and 28 of 29.
    assert merged.counters()["prefix_hit_tokens"] == 3 * (16 + 28)
    alike = [len({one.times[0] for one in sides[1].engine.finished if one.demand.text == text}) for text in (0, 4)]
    assert alike == [2, 2], "one pass for the first, one for the three others"


def test_merged_prompts_are_refused_without_a_cache_to_find_them_in():
    with pytest.raises(ValueError, match="merged_prompts needs prefix_cache"):
        engine(Context(seed=3), **_SMALL, batching="merged_prompts")


def test_passes_of_one_prompt_are_refused_where_as_many_as_are_in_time_are_asked_for():
    with pytest.raises(ValueError, match="within_slo needs a prefill_batch of 2 or more"):
        engine(Context(seed=3), **_SMALL, batching="within_slo")


def classes(found):
    return [(one.demand.number, one.demand.tier) for one in found]


def test_places_are_kept_for_higher_classes_and_lower_ones_cannot_take_them():
    order = ReservedPlaces(10)
    free = [asking(n) for n in range(12)]
    assert classes(order(free, 10)) == [(n, 2) for n in range(6)]
    assert order(free[6:], 4) == []
    standard = [asking(20 + n, standard=True) for n in range(5)]
    assert classes(order([*free[6:], *standard], 4)) == [(20, 1), (21, 1), (22, 1)]
    assert order([*free[6:], *standard[3:]], 1) == []
    urgent = [asking(30, urgent=True)]
    assert classes(order([*free[6:], *standard[3:], *urgent], 1)) == [(30, 0)]
    free[0].times.append(0.1)  # whole: its place is one of the free class again
    assert classes(order([*free[6:], *standard[3:]], 1)) == [(23, 1)], "the higher class goes first"


def test_urgent_and_standard_requests_are_as_many_as_asked_and_times_of_urgent_ones_are_theirs(sides):
    workload = engine(Context(seed=3), **_SMALL, urgent=0.25, standard=0.5, order="reserved")
    workload.step()
    assert sorted(one.tier for one in sides[0].demands) == [0, 0, 1, 1, 1, 1, 2, 2]
    urgent = [one.times[0] for one in sides[0].engine.finished if one.demand.urgent]
    assert workload.values()["ttft_urgent"] == pytest.approx(np.mean(urgent))


class Line:
    """Requests that are there from the start, each due at its time."""

    def __init__(self, *asked):
        self.asked, self.waits = list(asked), []

    @property
    def more(self):
        return bool(self.asked)

    def due(self, now):
        found = [one for one in self.asked if one.demand.at <= now]
        self.asked = [one for one in self.asked if one not in found]
        return found

    def wait(self, now, until):
        self.waits.append(until)


def numbers(found):
    return [one.demand.number for one in found]


def test_what_is_alike_within_the_window_waits_for_its_end_and_later_ones_start_anew():
    line = Line(
        asking(0), asking(1, at=0.004), asking(2, at=0.004, new=2), asking(3, at=0.006), asking(4, prompt=(1, 3))
    )
    together = Coalesced(line, 0.005)
    assert numbers(together.due(0.001)) == []
    together.wait(0.001, None)
    assert line.waits == [0.005]
    assert numbers(together.due(0.0045)) == []
    assert numbers(together.due(0.005)) == [0, 4]
    assert together.more
    assert numbers(together.due(0.0095)) == [2]
    assert numbers(together.due(0.02)) == [3]
    assert not together.more


def test_windows_that_are_seen_late_are_still_apart():
    together = Coalesced(Line(asking(0), asking(1, at=0.003), asking(2, at=0.006), asking(3, at=0.0105)), 0.005)
    assert sorted(numbers(together.due(1.0))) == [0, 2]


def test_every_repetition_has_the_answer_and_one_of_them_is_computed(sides):
    params = {**_SMALL, "rate": 400.0, "repeats": 4}
    each, once = (engine(Context(seed=3), **params, coalesce=window) for window in (0.0, 0.05))
    before, after = audit(each, seed=11), audit(once, seed=11)
    assert same_answers(before, after).passed
    assert after["answered"].tolist() == [1] * 8
    assert (after["tokens"][:4] == after["tokens"][0]).all()
    assert (after["tokens"][4] != after["tokens"][0]).any()
    assert each.counters()["computed_tokens"] == 4 * once.counters()["computed_tokens"]
    assert each.work.items == once.work.items
    times = {one.demand.number: one for one in sides[1].engine.finished}
    assert times[3].times == times[0].times
    assert min(one.started - one.demand.at for one in times.values()) >= 0.047
    assert [one.at for one in sides[1].demands[:4]] == pytest.approx([0, 0.001, 0.002, 0.003])


@pytest.mark.parametrize(("by_use", "known"), [(True, [True, False]), (False, [False, True])])
def test_a_full_cache_gives_up_the_page_unused_for_longest_or_the_one_that_came_first(by_use, known):
    pool = PagePool(PRESETS["tiny"], pages=2, page=2, device="cpu")
    cache = PrefixCache(pool, by_use=by_use)
    for number in (1, 2):
        page = pool.take()
        cache.keep([number] * 2, [page])
        pool.drop(page)
    for page in cache.find([1, 1, 9]):
        pool.drop(page)
    assert cache.give_up()
    assert [bool(cache.known([number] * 2 + [9])) for number in (1, 2)] == known


def test_popular_prompts_are_few_texts_that_come_again_and_last_use_finds_more_of_them_than_age(sides):
    many = {**_SMALL, "requests": 60, "lengths": "popular", "sessions": 12, "prompt_tokens": [8, 32]}
    many |= {"new_tokens": [1, 2], "prefix_cache": True, "pool_tokens": 120, "max_batch": 2}
    age, use = (engine(Context(seed=3), **many, eviction=how) for how in ("fifo", "lru"))
    before, after = audit(age, seed=11), audit(use, seed=11)
    assert same_answers(before, after).passed
    demands = sides[0].demands
    counts = Counter(one.text for one in demands)
    assert set(counts) <= set(range(12))
    assert counts[0] > 2 * counts[11]
    assert len({(one.text, one.prompt_tokens) for one in demands}) == len(counts), "a text has one length"
    assert 0 < age.counters()["prefix_hit_tokens"] < use.counters()["prefix_hit_tokens"]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"lengths": "popular", "sessions": 0}, "sessions must be 1 or more"),
        ({"lengths": "popular", "sessions": 2, "repeats": 2, "rate": 9.0, "requests": 8}, "leave repeats at 1"),
        ({"eviction": "fifo"}, "eviction needs prefix_cache"),
    ],
)
def test_popular_prompts_and_eviction_that_cannot_be_are_refused(params, message):
    with pytest.raises(ValueError, match=message):
        engine(Context(seed=3), **{**_SMALL, **params})
