"""Warm-up against a gang whose times are given: when it ends, how long a reading and a turn become, what is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from aiperf.launch.warmup import TurnPlan, warm_up
from aiperf.protocol.messages import FirstIterationReply, FirstIterationRequest, WarmUpReply, WarmUpRequest
from aiperf.records import Case, Measure, Needs, Side, Warmup
from aiperf.settings import Limits, Precision, Settings

Times = Callable[[int], float]


class Steps:
    """Answers like a gang whose step takes ``times(number of the iteration)`` seconds, and keeps what it was asked."""

    def __init__(self, times: Times, *, steady_after: int = 0, ranks: int = 1, flush: float = 0.0) -> None:
        self.asked: list[FirstIterationRequest | WarmUpRequest] = []
        self.limits: list[float] = []
        self.iterations = 0
        self._times, self._steady_after, self._ranks, self._flush = times, steady_after, ranks, flush

    @property
    def iterations_asked(self) -> list[int]:
        """Calls of step per reading, request by request; the first iteration is one."""
        return [asked.iterations if isinstance(asked, WarmUpRequest) else 1 for asked in self.asked]

    def command(self, request: FirstIterationRequest | WarmUpRequest, *, limit: float) -> list[Any]:
        self.asked.append(request)
        self.limits.append(limit)
        if isinstance(request, FirstIterationRequest):
            return [FirstIterationReply(seconds=self._step(1)) for _ in range(self._ranks)]
        seconds = [self._step(request.iterations) for _ in range(request.readings)]
        steady = self.iterations >= self._steady_after
        return [self._answer(seconds, request.iterations, rank, steady) for rank in range(self._ranks)]

    def _step(self, iterations: int) -> float:
        spent = sum(self._times(self.iterations + i) for i in range(iterations))
        self.iterations += iterations
        return spent / iterations

    def _answer(self, seconds: list[float], iterations: int, rank: int, steady: bool) -> WarmUpReply:
        own = tuple(s * (1 + rank) for s in seconds)
        reading = max(own) * iterations + self._flush
        reason = "steady" if steady else f"rank {rank} still falling"
        return WarmUpReply(seconds=own, reading_s=reading, steady=steady, reason=reason)


def settings(**fields: Any) -> Settings:
    given = {"round_seconds": 0.010, "warmup_seconds": 1.0, "warmup_window": 20, **fields}
    return Settings(precision=Precision(**given), limits=Limits(warmup=77.0))


def case(*, gpus: int = 0, **measure: Any) -> Case:
    sides = (Side("before", workload="x.y"), Side("after", workload="x.y"))
    return Case("s", "s", "t", "w", sides, measure=Measure(**measure), needs=Needs(gpus=gpus))


def warmed(
    steps: Steps, given: Case | None = None, *, single: bool = False, anew: bool = False, **fields: Any
) -> tuple[Warmup, TurnPlan]:
    chosen = given or case(clock="wall")
    return warm_up(steps, "after", chosen, settings(**fields), single=single, anew=anew)  # type: ignore[arg-type]


def test_short_steps_share_a_reading_of_a_millisecond() -> None:
    steps = Steps(lambda _: 10e-6)
    _, turn = warmed(steps)
    assert steps.iterations_asked[-1] == 100
    assert turn.iterations >= 100


def test_long_steps_have_a_reading_each() -> None:
    steps = Steps(lambda _: 5e-3)
    _, turn = warmed(steps)
    assert set(steps.iterations_asked) == {1}
    assert (turn.iterations, turn.samples, turn.reentry) == (1, 2, 1)
    assert turn.seconds == pytest.approx(2 * 5e-3 + 5e-3)


def test_a_single_iteration_a_sample_is_never_batched_however_short() -> None:
    for steps, given, single in (
        (Steps(lambda _: 10e-6), case(clock="wall"), True),
        (Steps(lambda _: 10e-6), case(clock="wall", cache="cold"), False),
    ):
        _, turn = warmed(steps, given, single=single)
        assert set(steps.iterations_asked) == {1}
        assert (turn.iterations, turn.samples) == (1, 20)


def test_event_times_need_shorter_readings_than_wall_times() -> None:
    device = Steps(lambda _: 10e-6)
    warmed(device, case(clock="device", gpus=1))
    assert device.iterations_asked[-1] == 10


def test_the_length_of_a_reading_is_corrected_once_the_step_ran_in_a_row() -> None:
    """Lone iterations are five times as slow as those in a block."""
    steps = Steps(lambda n: 50e-6 if n < 3 else 10e-6)
    warmed(steps)
    assert steps.iterations_asked[:6] == [1, 1, 1, 20, 20, 100]


@pytest.mark.parametrize("interrupted", [1, 2, 3, 150])
def test_a_probe_during_which_another_process_had_the_cpu_shortens_no_reading(interrupted: int) -> None:
    steps = Steps(lambda n: 12e-3 if n == interrupted else 10e-6)
    _, turn = warmed(steps)
    assert steps.iterations_asked[-1] == 100
    assert turn.iterations >= 50


def test_a_long_step_is_probed_once() -> None:
    steps = Steps(lambda _: 0.2)
    warmed(steps, warmup_seconds=0.0)
    assert [request.readings for request in steps.asked if isinstance(request, WarmUpRequest)][:2] == [1, 6]


def test_warm_up_counts_every_iteration_that_ran() -> None:
    for times in (10e-6, 5e-3, 0.4e-3):
        steps = Steps(lambda _, times=times: times, steady_after=500)
        warmup, _ = warmed(steps, warmup_seconds=0.0 if times > 1e-3 else 1.0)
        assert warmup.iterations == steps.iterations


def test_warm_up_ends_when_the_side_is_steady_and_tells_its_first_iteration() -> None:
    steps = Steps(lambda n: 0.3 if n == 0 else 2e-3, steady_after=60)
    warmup, _ = warmed(steps)
    assert (warmup.steady, warmup.reason) == (True, "steady")
    assert warmup.first_iteration_s == 0.3
    assert 60 <= steps.iterations <= 75


def test_a_whole_window_is_read_before_steady_is_believed() -> None:
    steps = Steps(lambda _: 2e-3)
    warmed(steps)
    assert [asked.readings for asked in steps.asked if isinstance(asked, WarmUpRequest)] == [1, 1, 21]


def test_a_side_that_is_never_steady_is_told_with_what_still_moved() -> None:
    steps = Steps(lambda _: 2e-3, steady_after=10**9)
    warmup, _ = warmed(steps, warmup_seconds=0.02)
    assert (warmup.steady, warmup.reason) == (False, "rank 0 still falling")
    assert warmup.seconds >= 0.02


def test_a_window_that_the_budget_cannot_hold_is_shortened_to_what_can_show_a_slope() -> None:
    for reading, window in ((0.1, 9), (0.5, 5), (10.0, 5), (0.01, 20)):
        steps = Steps(lambda _, reading=reading: reading)
        warmed(steps, warmup_seconds=1.0)
        assert steps.asked[-1].window == window


def test_the_slowest_rank_sets_the_times_and_an_unsteady_one_the_reason() -> None:
    steps = Steps(lambda _: 2e-3, ranks=3)
    warmup, turn = warmed(steps)
    assert warmup.first_iteration_s == 2e-3
    assert turn.samples == round(10e-3 / 6e-3)


def test_a_turn_fills_its_round_and_very_short_steps_get_longer_samples() -> None:
    _, turn = warmed(Steps(lambda _: 1e-6), round_seconds=0.1)
    assert turn.samples == 20
    assert turn.iterations * turn.samples * 1e-6 == pytest.approx(0.1, rel=0.01)


def test_a_turn_counts_the_flushes_between_its_samples() -> None:
    _, turn = warmed(Steps(lambda _: 1e-3, flush=4e-3), case(clock="wall", cache="cold"))
    assert turn.samples == 2
    assert turn.seconds == pytest.approx(2 * 5e-3 + turn.reentry * 1e-3)


@pytest.mark.parametrize(
    ("step", "gpus", "reentry"),
    [(1e-5, 0, 100), (5e-3, 0, 1), (0.05, 0, 0), (1e-9, 0, 1000), (1e-3, 1, 3), (0.5, 1, 1)],
)
def test_re_entry_is_as_long_as_the_place_needs(step: float, gpus: int, reentry: int) -> None:
    _, turn = warmed(Steps(lambda _: step), case(clock="wall", gpus=gpus))
    assert turn.reentry == reentry


def test_a_scenario_sets_its_own_re_entry() -> None:
    _, turn = warmed(Steps(lambda _: 1e-3), case(clock="wall", reentry=7))
    assert turn.reentry == 7


def test_the_limit_of_warm_up_holds_for_each_request() -> None:
    steps = Steps(lambda _: 1e-3)
    warmed(steps)
    assert set(steps.limits) == {77.0}


@pytest.mark.parametrize("single", [True, False])
def test_a_side_whose_iterations_begin_anew_is_warm_after_two(single: bool) -> None:
    steps = Steps(lambda number: 2.0 if number else 3.0, steady_after=1000)
    warmup, turn = warmed(steps, single=single, anew=True)
    assert [type(asked) for asked in steps.asked] == [FirstIterationRequest, WarmUpRequest]
    assert steps.iterations == warmup.iterations == 2
    assert (warmup.first_iteration_s, warmup.steady, warmup.reason) == (3.0, True, "each iteration begins anew")
    assert (turn.samples, turn.iterations) == (1, 1)
