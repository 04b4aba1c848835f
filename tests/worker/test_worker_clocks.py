"""The wall clock and the injected slowdown, on work whose length is known."""

import gc
import sys
from time import perf_counter
from types import SimpleNamespace

import pytest

from aiperf.worker import clocks
from aiperf.worker.clocks import DeviceClock, WallClock, quiet_interpreter
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
    assert 0.010 <= reading.wall_s < 60
    assert (reading.device_s, reading.stray_s) == (None, 0.0)


def test_what_is_done_around_an_audit_is_not_timed_and_in_order(monkeypatch):
    seen = []
    lasts = {"before": 100, "step": 3, "after": 10_000}
    monkeypatch.setattr(clocks, "perf_counter", lambda: sum(lasts[name] for name in seen))
    around = (lambda: seen.append("before"), lambda: seen.append("after"))
    reading = WallClock("cpu").read(lambda: seen.append("step"), 2, around)
    assert seen == ["before", "step", "step", "after"]
    assert reading.wall_s == 6


def test_a_flush_reads_twice_the_last_level_cache_and_leaves_nothing_to_write_back(monkeypatch):
    monkeypatch.setattr(clocks, "_last_level_cache", lambda: 1 << 20)
    clock = WallClock("cpu")
    clock.flush()
    buffer = clock._evictor.__self__
    # Pages that nobody wrote would all be the one page of zeros.
    assert (buffer.nbytes, buffer.min()) == (2 << 20, 1)
    buffer[:] = 2
    clock.flush()
    assert (buffer.min(), buffer.max()) == (2, 2)


@pytest.mark.parametrize(("apart_us", "told_us"), [(101.5, 100.0), (1.6, 0.5)])
def test_what_an_empty_pair_of_events_takes_is_taken_off_a_device_reading(monkeypatch, apart_us, told_us):
    """The device is made up: two events lie 1.5 us apart with nothing between them."""
    torch = Cuda(apart_us)
    monkeypatch.setitem(sys.modules, "torch", torch)
    clock = DeviceClock("cuda:0", hold=True)
    assert clock.empty_s == pytest.approx(1.5e-6)
    reading = clock.read(torch.launch, 1)
    assert reading.device_s == pytest.approx(told_us * 1e-6)
    assert (clock.held, clock.unheld) == (1, 0)


class SlowHost:
    """A device that waits as long as it is told to, and a host that takes time over a launch, by a clock of its own."""

    def __init__(self):
        self.device, self.queued, self.launches, self.host_s, self.now = str, 0.0, 0, 0.0, 100.0
        self.cuda = SimpleNamespace(Event=events_of(self), set_device=lambda _: None, synchronize=lambda _: None)
        self.holds = []
        self.cuda._sleep = self.hold

    def hold(self, cycles):
        self.holds.append(cycles / 2.0e9)
        self.queued += 1e6 * self.holds[-1]

    def launch(self):
        self.launches += 1
        self.queued += 1.0
        self.now += self.host_s + 1e-6


@pytest.fixture
def slow(monkeypatch):
    torch = SlowHost()
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(clocks, "perf_counter", lambda: torch.now)
    return torch


def test_a_long_step_is_repeated_twice_to_be_held_and_then_no_more(slow):
    clock = DeviceClock("cuda:0", hold=True)
    slow.host_s = 0.006
    clock.read(slow.launch, 1)
    assert (slow.launches, clock.held, clock.unheld) == (3, 1, 0)
    assert 0.0075 <= slow.holds[-1] <= 0.02
    for _ in range(5):
        clock.read(slow.launch, 1)
    assert (slow.launches, clock.held) == (8, 6)


def test_a_step_that_no_hold_is_long_enough_for_is_not_repeated_for_every_length(slow):
    clock = DeviceClock("cuda:0", hold=True)
    slow.host_s = 0.03
    for launches in (3, 4, 5):
        clock.read(slow.launch, 1)
        assert slow.launches == launches
        assert slow.holds[-1] == pytest.approx(0.02)
    assert (clock.held, clock.unheld) == (0, 3)


def test_a_host_that_was_slow_once_makes_the_hold_twice_as_long_and_no_longer(slow):
    clock = DeviceClock("cuda:0", hold=True)
    took = iter([0.006, 0.0, 0.0])

    def step():
        slow.host_s = next(took)
        slow.launch()

    clock.read(step, 1)
    clock.read(step, 1)
    assert (slow.launches, clock.held) == (3, 2)
    assert slow.holds[-2:] == pytest.approx([100e-6, 100e-6])


def test_a_hold_that_was_too_long_for_a_long_time_gets_shorter_and_one_slow_reading_starts_that_anew(slow):
    clock = DeviceClock("cuda:0", hold=True)
    slow.host_s = 0.006
    clock.read(slow.launch, 1)
    long = slow.holds[-1]
    slow.host_s = 0.0
    for _ in range(clocks._CALM - 2):
        clock.read(slow.launch, 1)
    slow.host_s = 0.006
    clock.read(slow.launch, 1)
    slow.host_s = 0.0
    for _ in range(clocks._CALM - 1):
        clock.read(slow.launch, 1)
    assert slow.holds[-1] == long
    for _ in range(3):
        clock.read(slow.launch, 1)
    assert slow.holds[-1] < 0.001
    assert slow.launches == 3 + (clocks._CALM - 2) + 1 + (clocks._CALM - 1) + 3


def test_an_audit_has_one_attempt_and_what_a_step_wants_to_find_comes_before_every_one(slow):
    done = []
    clock = DeviceClock("cuda:0", hold=True)
    slow.host_s = 0.001

    def step():
        done.append("step")
        slow.launch()

    def ready():
        done.append("ready")

    clock.read(step, 1, (lambda: done.append("before"), lambda: done.append("after")), ready=ready)
    assert done == ["ready", "before", "step", "after"]
    assert (clock.held, clock.unheld) == (0, 1)
    del done[:]
    clock.read(step, 2, ready=ready)
    assert clock.held == 1
    attempts = done.count("ready")
    assert attempts > 1
    assert done == ["ready", "step", "step"] * attempts
    del done[:]
    WallClock("cpu").read(lambda: done.append("step"), 2, (lambda: done.append("before"), lambda: None), ready=ready)
    assert done == ["ready", "before", "step", "step"]


@pytest.mark.parametrize(
    ("hold", "enough", "longer"),
    [
        (1e-4, [5e-3], 2e-4),
        (1e-4, [5e-3, 4e-3], 5e-3),
        (1e-4, [4e-3, 5e-3, 6e-3], 5e-3),
        (1e-4, [1e-4, 1.1e-4], 2e-4),
        (1.5e-2, [1.6e-2], 2e-2),
        (1e-4, [1.0, 1.0], 2e-2),
    ],
)
def test_a_hold_grows_to_what_was_enough_twice_and_no_further_than_the_longest(hold, enough, longer):
    assert clocks._longer(hold, enough) == pytest.approx(longer)


@pytest.mark.parametrize(
    ("first", "queued", "device", "needed"),
    [
        (1e-4, 1e-3, 2e-3, 1e-4),
        (1e-4, 1e-3, 1.3e-3, 1e-3),
        (1e-4, 1e-4, 1e-6, 1e-4),
        (1e-4, 1e-3, 1.4e-3, 1e-4),
        (1e-3, 1.1e-3, 1e-5, 1.1e-3),
    ],
)
def test_a_device_that_is_the_slower_one_needs_to_wait_for_the_first_launch_only(first, queued, device, needed):
    assert clocks._needed(first, queued, device) == needed


class Cuda:
    """As much of torch as a device clock asks for, with a stream whose work is timed by a script."""

    def __init__(self, apart_us):
        self.device, self.queued, self._apart_us = str, 0.0, apart_us
        self.cuda = SimpleNamespace(Event=events_of(self), set_device=lambda _: None, synchronize=lambda _: None)
        self.cuda._sleep = lambda cycles: self.launch(1e6)

    def launch(self, microseconds=None):
        self.queued += self._apart_us - 1.5 if microseconds is None else microseconds


def events_of(torch):
    """The class of events of a made-up torch."""
    return type("Event", (_Event,), {"_torch": torch})


class _Event:
    def __init__(self, enable_timing):
        assert enable_timing

    def record(self):
        self._torch.queued += 1.5
        self.at = self._torch.queued

    def elapsed_time(self, later):
        return (later.at - self.at) * 1e-3

    def synchronize(self):
        pass


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
