"""The energy counters that the test stand opens for a case, and that it gives them back."""

from __future__ import annotations

from dataclasses import replace

import pytest
from recipes_made import FAST, HOST, make_case, make_settings

import aiperf.recipes.session as module
from aiperf.host.energy import EnergyMeter
from aiperf.host.facts import Gpu
from aiperf.launch.gang import LaunchFailed
from aiperf.recipes.session import MeasurementSession
from aiperf.records import Failure, Needs, Side

GPUS = tuple(Gpu(i, "NVIDIA H200", f"GPU-{i}", "9.0", 1, 1) for i in range(4))


@pytest.fixture
def asked(monkeypatch):
    """Which meters were asked for, and how many were given back."""
    log = []

    def meter(name):
        log.append(name)
        return EnergyMeter((), problem="made", close=lambda: log.append("closed"))

    monkeypatch.setattr(module, "cpu_meter", lambda: meter("cpu"))
    monkeypatch.setattr(module, "gpu_meter", lambda gpus: meter([g.index for g in gpus]))
    return log


def session(**settings):
    return MeasurementSession(replace(HOST, gpus=GPUS), make_settings(**settings))


def test_a_case_is_charged_the_gpus_that_it_uses_or_else_the_cpu(asked) -> None:
    ranks = tuple(Side(name, workload="x.y", ranks=2) for name in ("before", "after"))
    wanted = session(energy_seconds=5.0)
    for case in (
        make_case(),
        replace(make_case(), needs=Needs(gpus=1)),
        replace(make_case(), needs=Needs(gpus=2)),
        replace(make_case(), needs=Needs(gpus=1), sides=ranks),
    ):
        wanted._meter(case)
    assert asked == ["cpu", [0], [0, 1], [0, 1]]


def test_no_counter_is_opened_when_energy_is_not_asked_for(asked) -> None:
    assert session()._meter(make_case()) is None
    assert asked == []


def test_the_counters_are_given_back_when_the_pair_fails(asked, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("AIPERF_SCRATCH", str(tmp_path))
    monkeypatch.setattr(module, "measure_pair", _fails)
    with session(energy_seconds=5.0, pin="none") as opened, pytest.raises(LaunchFailed):
        opened.measure(make_case(), 0, ("before", "after"), 1)
    assert asked == ["cpu", "closed"]


@pytest.mark.parametrize("settings", [{"energy_seconds": 5.0}, {}])
def test_programs_are_given_the_counters_of_their_case_and_they_are_given_back(
    asked, tmp_path, monkeypatch, settings
) -> None:
    monkeypatch.setenv("AIPERF_SCRATCH", str(tmp_path))
    sides = tuple(Side(name, command=("true",)) for name in ("before", "after"))
    with session(pin="none", precision=replace(FAST, side_seconds=0.01), **settings) as opened:
        pair = opened.measure(replace(make_case(), sides=sides), 0, ("before", "after"), 1)
    assert asked == (["cpu", "closed"] if settings else [])
    assert {name: reading.problem for name, reading in pair.energy.items()} == (
        {"before": "made", "after": "made"} if settings else {}
    )


def _fails(*arguments, **more):
    raise LaunchFailed(Failure("before", "start", "error", "made"))
