"""What a workload's functions take that no clock reads is counted by function; the step itself stays untouched."""

from collections.abc import Mapping

import pytest

from aiperf.protocol.reported import PhaseTime
from aiperf.worker import phase_times
from aiperf.worker.phase_times import PhaseTimes
from aiperf.workloads.contract import Work, Workload


class Watch:
    """A clock that moves only while something works."""

    now = 0.0

    def __call__(self):
        return self.now

    def working(self, *seconds, give=None):
        """A function whose calls take ``seconds``, one after the other."""
        left = iter(seconds)

        def function(*given):
            self.now += next(left)
            return given[0] if given else give

        return function


@pytest.fixture
def watch(monkeypatch):
    made = Watch()
    monkeypatch.setattr(phase_times, "perf_counter", made)
    return made


def step():
    return None


def made(**functions):
    return Workload(step, Work(), **{"outputs": dict, **functions})


def test_each_call_counts_by_its_function_and_the_step_is_not_wrapped(watch):
    times = PhaseTimes()
    metered = times.metered(made(prepare=watch.working(1, 2, 6), redraw=watch.working(0.5), reset=step))
    assert metered.step is step
    assert metered.redraw(7) == 7
    for _ in range(3):
        metered.prepare()
    assert times.sums() == {"prepare": PhaseTime(3, 9, 2), "redraw": PhaseTime(1, 0.5, 0.5)}


def test_what_a_workload_lacks_stays_lacking():
    metered = PhaseTimes().metered(made())
    assert (metered.prepare, metered.redraw, metered.reset, metered.latencies) == (None, None, None, None)


def test_a_call_that_fails_counts_too_and_fails(watch):
    times = PhaseTimes()
    metered = times.metered(made(prepare=watch.working()))
    with pytest.raises(StopIteration):
        metered.prepare()
    assert times.sums()["prepare"].calls == 1


def test_latencies_count_with_what_their_generator_does(watch):
    def slowly():
        watch.now += 2
        yield 0.5

    times = PhaseTimes()
    assert times.metered(made(latencies=slowly)).latencies() == {"latency": (0.5,)}
    assert times.sums()["latencies"] == PhaseTime(1, 2, 2)


def test_of_an_audit_the_last_call_of_outputs_counts_and_what_it_exceeds_the_shortest_by_is_pending(watch):
    times = PhaseTimes()
    metered = times.metered(made(outputs=watch.working(50, 1, 9, 4, 2, 4, give={})))
    metered.outputs()
    for calls in (3, 2):
        with times.audit():
            for _ in range(calls):
                metered.outputs()
    # Of (1, 9, 4) and (2, 4); the smallest that was pending, because what the host adds is not there every time.
    assert times.sums() == {"outputs": PhaseTime(2, 8, 4), "pending": PhaseTime(2, 5, 2)}


def test_of_an_audit_the_longest_call_of_inputs_counts(watch):
    times = PhaseTimes()
    metered = times.metered(made(inputs=watch.working(50, 1, 9, 4, 2, 4, give={})))
    metered.inputs()
    for calls in (3, 2):
        with times.audit():
            for _ in range(calls):
                metered.inputs()
    assert times.sums() == {"inputs": PhaseTime(2, 13, 6.5)}


def test_outputs_that_compute_when_they_are_read_do_so_within_their_call(watch):
    class Computing(Mapping):
        __iter__ = lambda self: iter(["out"])  # noqa: E731
        __len__ = lambda self: 1  # noqa: E731

        def __getitem__(self, name):
            return watch.working(5, give=name)()

    times = PhaseTimes()
    metered = times.metered(made(outputs=Computing))
    with times.audit():
        assert type(metered.outputs()) is dict
    assert times.sums()["outputs"] == PhaseTime(1, 5, 5)
