"""The wall clock and the injected slowdown, on work whose length is known."""

import gc
from time import perf_counter

import pytest

from aiperf.worker import clocks
from aiperf.worker.clocks import WallClock, quiet_interpreter
from aiperf.worker.inject import slowed
from aiperf.workloads.contract import Work, Workload


def busy(seconds):
    def step():
        until = perf_counter() + seconds
        while perf_counter() < until:
            pass

    return step


def test_a_reading_holds_all_its_iterations_and_no_device_time():
    calls = []
    work = busy(0.002)
    reading = WallClock("cpu").read(lambda: (calls.append(1), work()), 5)
    assert len(calls) == 5
    assert 0.010 <= reading.wall_s < 0.1
    assert (reading.device_s, reading.stray_s) == (None, 0.0)


def test_what_is_done_around_an_audit_is_not_timed_and_in_order():
    seen = []
    slow = busy(0.05)
    around = (lambda: (slow(), seen.append("before")), lambda: (slow(), seen.append("after")))
    reading = WallClock("cpu").read(lambda: seen.append("step"), 2, around)
    assert seen == ["before", "step", "step", "after"]
    assert reading.wall_s < 0.02


def test_a_flush_writes_twice_the_last_level_cache(monkeypatch):
    monkeypatch.setattr(clocks, "_last_level_cache", lambda: 1 << 20)
    clock = WallClock("cpu")
    clock.flush()
    buffer = clock._evictor.__closure__[0].cell_contents
    assert (buffer.nbytes, buffer.min()) == (2 << 20, 1)
    buffer[:] = 0
    clock.flush()
    assert buffer.min() == 1


def test_the_last_level_cache_has_a_size():
    assert 1 << 18 <= clocks._last_level_cache() <= 4 << 30


def test_no_garbage_is_collected_while_timing_and_the_former_state_returns():
    with quiet_interpreter():
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    try:
        with quiet_interpreter():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
    with pytest.raises(ZeroDivisionError), quiet_interpreter():
        1 / 0  # noqa: B018 - the division is what raises
    assert gc.isenabled()


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_a_slowed_step_lasts_longer_by_the_share(share):
    plain = Workload(busy(0.0005), Work(items=3), outputs=dict)
    slow = slowed(plain, share, "wall")
    clock = WallClock("cpu")
    slowest, fastest = (min(clock.read(w.step, 1).wall_s for _ in range(40)) for w in (slow, plain))
    # Short enough to fit between two visits of the scheduler on a machine that is busy with other work.
    assert 1 + 0.5 * share < slowest / fastest < 1 + 1.6 * share
    assert (slow.work, slow.outputs) == (plain.work, plain.outputs)


def test_a_slowed_step_still_works():
    calls = []
    step = slowed(Workload(lambda: calls.append(1), Work(), outputs=dict), 0.05, "wall").step
    step()
    step()
    assert calls == [1, 1]
