"""Steadiness: flat noise ends warm-up, anything that moves does not; every series is drawn from a fixed seed."""

import math
import random

import pytest

from aiperf.worker.steady import MIN_WINDOW, Steadiness, WarmUpReading, drift_of

WINDOW = 20
DELTA = 0.02


def judged(times, **fields):
    steadiness = Steadiness(WINDOW, DELTA)
    for i, seconds in enumerate(times):
        steadiness.feed(WarmUpReading(seconds, **{k: v[i] for k, v in fields.items()}))
    return steadiness.verdict()


def flat(sd, rng, n=WINDOW + 1):
    return [1e-3 * math.exp(rng.gauss(0, sd)) for _ in range(n)]


@pytest.mark.parametrize("sd", [0.005, 0.02, 0.05, 0.2])
def test_flat_noise_is_steady_at_nine_checks_in_ten(sd):
    rng = random.Random(7)
    share = sum(judged(flat(sd, rng))[0] for _ in range(600)) / 600
    assert share >= 0.9


@pytest.mark.parametrize("sd", [0.005, 0.02])
def test_a_drift_far_beyond_the_noise_is_never_steady(sd):
    rng = random.Random(8)
    seen = [judged([t * math.exp(-0.2 * i / WINDOW) for i, t in enumerate(flat(sd, rng))]) for _ in range(200)]
    assert sum(steady for steady, _ in seen) <= 2
    assert all(reason.startswith("times still falling (") for steady, reason in seen if not steady)


def test_the_reason_says_how_much_the_times_fell_over_the_window():
    times = [1e-3 * math.exp(-0.05 * i / WINDOW) for i in range(WINDOW + 1)]
    assert judged(times) == (False, "times still falling (4.9 % over 20 iterations)")


def test_rising_times_are_called_rising():
    times = [1e-3 * math.exp(0.05 * i / WINDOW) for i in range(WINDOW + 1)]
    assert judged(times) == (False, "times still rising (5.1 % over 20 iterations)")


def test_a_drift_below_a_quarter_of_delta_is_steady_without_noise():
    assert judged([1e-3 * math.exp(-0.004 * i / WINDOW) for i in range(WINDOW + 1)]) == (True, "steady")
    assert not judged([1e-3 * math.exp(-0.006 * i / WINDOW) for i in range(WINDOW + 1)])[0]


def test_a_decaying_series_is_not_steady_until_it_is_flat():
    rng = random.Random(9)
    steadiness = Steadiness(WINDOW, DELTA)
    first = None
    for i in range(300):
        excess = 2.0 * math.exp(-i / 25)
        steadiness.feed(WarmUpReading(1e-3 * (1 + excess) * math.exp(rng.gauss(0, 0.005))))
        if first is None and steadiness.verdict()[0]:
            first = i
    assert first is not None
    assert 100 <= first <= 200
    assert 2.0 * math.exp(-first / 25) < 0.05


def test_a_step_change_is_unsteady_while_the_window_straddles_it_and_steady_after():
    rng = random.Random(10)
    times = flat(0.005, rng, 30) + [0.8 * t for t in flat(0.005, rng, 40)]
    assert judged(times[:40])[1].startswith("times still falling")
    assert judged(times[: 30 + WINDOW + 1]) == (True, "steady")


def test_the_slow_first_iteration_is_no_part_of_the_window():
    rng = random.Random(11)
    times = flat(0.002, rng)
    assert judged([5.0, *times[1:]]) == judged(times)


def test_too_few_readings_are_never_steady():
    assert judged([1e-3] * WINDOW) == (False, "only 20 of 21 warm-up readings")
    assert judged([1e-3] * (WINDOW + 1)) == (True, "steady")


def test_a_compilation_inside_the_window_keeps_the_side_warming():
    n = WINDOW + 1
    assert judged([1e-3] * n, compile_events=[3] * (n - 1) + [4]) == (False, "still compiling")
    assert judged([1e-3] * n, compile_events=[3] + [4] * (n - 1)) == (False, "still compiling")
    assert judged([1e-3] * n, compile_events=[4] * n) == (True, "steady")


def test_compilation_is_forgotten_once_it_left_the_window():
    times, events = [1e-3] * 40, [0] * 10 + [1] * 30
    assert judged(times[:30], compile_events=events) == (False, "still compiling")
    assert judged(times[:31], compile_events=events) == (True, "steady")


def test_a_moving_allocator_is_named():
    n = WINDOW + 1
    assert judged([1e-3] * n, allocator_bytes=[0] * 5 + [4096] * (n - 5)) == (False, "allocator still growing")
    assert judged([1e-3] * n, allocator_bytes=[8] * 5 + [4] * (n - 5)) == (False, "allocator still shrinking")
    assert judged([1e-3] * n, alloc_retries=[0] * 9 + [1] * (n - 9)) == (False, "allocator still retrying")


def test_the_drift_of_a_straight_line_is_its_slope_times_its_length():
    drift, error = drift_of([0.01 * i for i in range(20)])
    assert drift == pytest.approx(0.2)
    assert error == pytest.approx(0.0, abs=1e-12)


def test_the_stated_error_of_the_drift_is_the_one_that_simulation_shows():
    rng = random.Random(12)
    drifts, errors = zip(*(drift_of([rng.gauss(0, 0.01) for _ in range(20)]) for _ in range(800)), strict=True)
    seen = math.sqrt(sum(d * d for d in drifts) / len(drifts))
    assert sum(errors) / len(errors) == pytest.approx(seen, rel=0.15)


def test_a_reading_of_zero_seconds_is_held_at_the_shortest_time():
    assert judged([0.0] * (WINDOW + 1)) == (True, "steady")


def test_senseless_settings_are_refused():
    with pytest.raises(ValueError, match="cannot show a slope"):
        Steadiness(MIN_WINDOW - 1, DELTA)
    with pytest.raises(ValueError, match="delta must be positive"):
        Steadiness(WINDOW, 0.0)
