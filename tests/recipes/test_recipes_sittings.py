"""The recipe of a calibration with a stand that hands out pairs made by hand."""

from __future__ import annotations

import math

import pytest
from recipes_made import Bench, failing, make_case, make_settings, pair

from aiperf.host.calibration import load_calibration
from aiperf.recipes.calibrate import Calibrator, SessionFailed, Wanted, equal_sides
from aiperf.store.read import find_runs, open_run
from aiperf.store.write import RunWriter


@pytest.fixture
def calibrate(tmp_path, monkeypatch):
    monkeypatch.setenv("AIPERF_STATE", str(tmp_path / "state"))
    told = []

    def _calibrate(script, wanted=Wanted(3, (), 2)):  # noqa: B008 - frozen
        writer = RunWriter.create(tmp_path / "results", hostname="h")
        calibrator = Calibrator(
            session=Bench(script), settings=make_settings(), host_id="host", writer=writer,
            done=lambda what, number, of, record: told.append((what, number, of, record.status)),
        )  # fmt: skip
        return calibrator.calibrate(make_case(), wanted)

    _calibrate.told = told
    return _calibrate


def test_equal_sides_are_the_before_side_twice_and_the_copy_can_be_slowed() -> None:
    before, after = equal_sides(make_case(), slowdown=0.05).sides
    assert (before.name, after.name, before.slowdown, after.slowdown) == ("before", "after", 0.0, 0.05)
    assert (before.workload, before.params) == (after.workload, after.params)


def test_sessions_and_injections_are_stored_and_kept_for_the_host(calibrate, tmp_path) -> None:
    outcome = calibrate([pair()], Wanted(3, (0.05,), 2))
    assert outcome.problem == ""
    assert outcome.calibration.coverage.of == 3
    assert [t[:3] for t in calibrate.told] == [
        *(("A/A", n, 3) for n in (1, 2, 3)),
        *(("+5 %", n, 2) for n in (1, 2)),
    ]
    kept = load_calibration("host")
    assert [(c.mode, c.scenario, c.sessions, c.false_positives) for c in kept] == [("process+wall", "s", 3, 0)]
    (folder,) = find_runs(tmp_path / "results")
    assert len(open_run(folder, results=tmp_path).read_cases()[0]) == 5


def test_sessions_that_disagree_raise_the_threshold(calibrate) -> None:
    steps = [pair(ratio=ratio) for ratio in (0.8, 1.25, 1.0) for _ in range(4)]
    outcome = calibrate(steps)
    assert outcome.calibration.beyond_threshold.count == 2
    assert outcome.calibration.noise.tau == pytest.approx(math.log(1.25), rel=0.05)
    assert load_calibration("host")[0].threshold > 0.4


@pytest.mark.parametrize(
    ("step", "reason"), [(failing(), "no such model"), (pair(passed=False), "out differs"), (pair(void=True), "unfit")]
)
def test_a_session_without_a_result_ends_the_calibration_and_keeps_nothing(calibrate, step, reason) -> None:
    with pytest.raises(SessionFailed) as caught:
        calibrate([step])
    assert reason in str(caught.value)
    assert load_calibration("host") == ()


def test_a_calibration_that_cannot_be_kept_is_still_returned(calibrate, monkeypatch) -> None:
    monkeypatch.setenv("AIPERF_STATE", "/proc/nowhere")
    outcome = calibrate([pair()])
    assert outcome.calibration.coverage.of == 3
    assert "the calibration of s cannot be saved" in outcome.problem
