"""The engine with delays that ``make bench`` serves, by a clock of its own; as a server it is in
test_workloads_serve_times.py, for make test-long."""

from __future__ import annotations

import importlib.util
from itertools import pairwise
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from aiperf.workloads.decoder.model import PRESETS, draw
from aiperf.workloads.engine import arrivals
from aiperf.workloads.engine import engine as engines
from aiperf.workloads.engine.admission.everyone import everyone
from aiperf.workloads.engine.batching.continuous import ContinuousBatching
from aiperf.workloads.engine.demands import Demand
from aiperf.workloads.engine.orders.fifo import fifo
from aiperf.workloads.engine.pages import PagePool
from aiperf.workloads.engine.passes import one_pass
from aiperf.workloads.engine.running import Running

SOURCE = Path(__file__).parents[1] / "programs" / "engine_server.py"
SHAPE = PRESETS["tiny"]
PASS_S = 0.01


@pytest.fixture(scope="module")
def server() -> ModuleType:
    spec = importlib.util.spec_from_file_location("engine_server", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def served(server: ModuleType, monkeypatch: pytest.MonkeyPatch):
    """What an engine with these delays answers, of requests that come ``apart`` seconds after each other."""
    clock = SimpleNamespace(now=0.0)
    model = draw(SHAPE, seed=0, max_tokens=64, device="cpu")

    def go_on(seconds: float) -> None:
        clock.now += seconds

    def look() -> float:
        go_on(PASS_S / 1000)  # who only waits for the time looks again and again
        return clock.now

    def passed(*args):
        go_on(PASS_S)
        return one_pass(*args)

    fake = SimpleNamespace(perf_counter=look, sleep=go_on)
    monkeypatch.setattr(engines, "time", fake)
    monkeypatch.setattr(arrivals, "time", fake)
    monkeypatch.setattr(server, "one_pass", passed)

    def answered(apart: float, *, decode: float = 0.0, first: float = 0.0) -> list[Running]:
        pool = PagePool(SHAPE, pages=16, page=16, device="cpu")
        engine = server.DelayedEngine(model, pool, ContinuousBatching(4), fifo, everyone)
        engine.decode_delay, engine.first_delay = decode, first
        monkeypatch.setattr(engines, "one_pass", engine.delayed_pass)
        prompts = [[(7 * number + place) % SHAPE.vocab for place in range(20)] for number in range(3)]
        engine.serve(arrivals.Schedule([Demand(n, apart * n, 20, 6) for n in range(3)], prompts))
        return sorted(engine.finished, key=lambda one: one.demand.number)

    return answered


def first_after(one: Running) -> float:
    return one.times[0] - one.demand.at


def gaps(one: Running) -> list[float]:
    return [later - sooner for sooner, later in pairwise(one.times)]


def test_answers_with_delays_are_the_same_and_depend_on_their_prompts(served) -> None:
    plain, delayed = served(1.0), served(1.0, decode=3, first=6)
    assert [one.answer for one in delayed] == [one.answer for one in plain]
    assert len({tuple(one.answer) for one in plain}) == 3


def test_a_step_of_decoding_takes_the_asked_share_longer_and_a_prompt_does_not(served) -> None:
    for plain, slow in zip(served(1.0), served(1.0, decode=3), strict=True):
        assert gaps(plain) == pytest.approx([PASS_S] * 5, rel=0.05)
        assert gaps(slow) == pytest.approx([4 * PASS_S] * 5, rel=0.05)
        assert first_after(slow) == pytest.approx(first_after(plain), rel=0.05)


def test_a_first_token_takes_the_asked_share_longer_and_a_step_of_decoding_does_not(served) -> None:
    for plain, slow in zip(served(1.0), served(1.0, first=6), strict=True):
        assert first_after(slow) == pytest.approx(7 * first_after(plain), rel=0.05)
        assert gaps(slow) == pytest.approx([PASS_S] * 5, rel=0.05)


def test_who_waits_for_the_delay_of_another_waits_for_no_second_one(served) -> None:
    # All come at once: the second is there while the first has its pass of one and its delay of six.
    plain, slow = served(0.0), served(0.0, first=6)
    assert first_after(slow[0]) == pytest.approx(7 * first_after(plain[0]), rel=0.05)
    assert first_after(slow[1]) == pytest.approx(7 * first_after(plain[1]), rel=0.1)
