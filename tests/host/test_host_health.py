"""What was found of the host as a run goes on: when it is looked at again, and which looks count for which case."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aiperf.host import health as module
from aiperf.host.facts import Gpu, HostFacts
from aiperf.host.health import RECORDED, STALE_S, HealthReading, HostHealth, open_health
from aiperf.host.relevance import HostCheck, load_rules, wanted
from aiperf.records import Case, HostFinding, Needs, Pair, Side

HOST = HostFacts("h", "Linux", "c", (0, 1, 2, 3), 1 << 34, 1 << 33)
GPU = Gpu(0, "NVIDIA H200", "GPU-1", "9.0", 1, 1)
GOVERNOR = HostFinding("hpc-kernel-governor", "warn", "", "powersave")
CALM = HostFinding("cpu-oversubscription", "warn", "", "CPU 12 % busy")
BUSY = HostFinding("cpu-oversubscription", "unfit", "", "CPU 97 % busy")
NUMA = HostFinding("numa-awareness", "warn", "", "CPUs of node 0-1")


def case(name: str = "a", *, gpus: int = 0, ranks: int = 1) -> Case:
    sides = tuple(Side(side, workload="x.y", ranks=ranks) for side in ("before", "after"))
    return Case(name, name, "t", "w", sides, needs=Needs(gpus=gpus))


def pair_on(*cpus: int) -> Pair:
    return Pair(0, ("before", "after"), 0, (), (), (), (), worker_seconds=0.0, seconds=0.0, cpus=cpus)


class Clock:
    """Time that only moves when it is told to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def made() -> Callable[..., tuple[HostHealth, Clock, list[frozenset[str]]]]:
    """An health whose next looks find what they are told, its clock, and what was asked for."""

    def _made(*facts: HostFinding, then: tuple[HostFinding, ...] = (), host_check: HostCheck = HostCheck.warn):
        clock, asked = Clock(), []

        def again(ids):
            asked.append(ids)
            return HealthReading(then)

        look = HostHealth(host_check, HealthReading(facts), host=HOST, again=again, clock=clock)
        return look, clock, asked

    return _made


def ids(look: HostHealth, of: Case) -> list[str]:
    return [f"{touch.level} {touch.id}" for touch in look.of(of)]


def test_what_comes_and_goes_is_looked_at_again_after_a_minute_and_not_before(made) -> None:
    look, clock, asked = made(GOVERNOR, then=(BUSY,))
    clock.now = STALE_S - 1
    assert (look.refresh(), asked) == ((), [])
    clock.now = STALE_S
    assert look.refresh() == (BUSY,)
    assert look.refresh() == ()
    assert len(asked) == 1
    assert (
        {"cpu-oversubscription", "monitor-thermals-clocks", "stale_workers", "page_cache", "gpu_processes"}
        <= asked[0]
        <= wanted(load_rules())
    )
    assert not {"hpc-kernel-governor", "numa-awareness", "peaks", "debug_env"} & asked[0]


def test_a_load_that_was_there_at_the_start_touches_no_case_that_is_measured_after_it_went(made) -> None:
    look, clock, _ = made(GOVERNOR, BUSY)
    look.see(case("first"))
    clock.now = STALE_S
    look.refresh()
    look.see(case("later"))
    assert ids(look, case("first")) == ["unfit cpu-oversubscription", "warn hpc-kernel-governor"]
    assert ids(look, case("later")) == ["warn hpc-kernel-governor"]


def test_a_case_that_is_measured_over_two_looks_keeps_the_worse_of_both(made) -> None:
    look, clock, _ = made(CALM, then=(BUSY,))
    look.see(case())
    clock.now = STALE_S
    look.refresh()
    look.see(case())
    assert ids(look, case()) == ["unfit cpu-oversubscription"]


def test_only_what_is_new_is_told(made) -> None:
    look, clock, _ = made(CALM, then=(replace(CALM, value="CPU 14 % busy"), NUMA))
    clock.now = STALE_S
    assert look.refresh() == (NUMA,)


def test_off_never_looks_again(made) -> None:
    look, clock, asked = made(then=(BUSY,), host_check=HostCheck.off)
    clock.now = STALE_S
    assert (look.refresh(), asked) == ((), [])


def test_strict_refuses_by_what_lasts_before_and_by_everything_when_the_turn_comes(made) -> None:
    look, _, _ = made(BUSY, host_check=HostCheck.strict)
    assert look.unfit(case(), steady=True) == ""
    assert look.unfit(case()).startswith("the host is unfit for this case: CPU 97 % busy; other work")
    assert made(BUSY)[0].unfit(case()) == ""
    lasting, _, _ = made(HostFinding("mig", "warn", "MIG", "on"), host_check=HostCheck.strict)
    assert "MIG: on" in lasting.unfit(case(gpus=2), steady=True)


def test_strict_refuses_by_a_roof_once_it_is_known(made) -> None:
    look, _, _ = made(HostFinding("monitor-memory", "warn", "", "5 % free"), host_check=HostCheck.strict)
    assert look.unfit(case()) == ""
    assert "a warm read needs free memory" in look.unfit(case(), ("page_cache_read",))


NODES = {0: (0, 1), 1: (2, 3)}


@pytest.mark.parametrize(
    ("pairs", "told"),
    [
        ((), True),
        ((pair_on(0, 1), pair_on(2, 3)), False),
        ((pair_on(0, 1), pair_on(1, 2)), True),
        ((pair_on(0, 1), pair_on()), True),
    ],
)
def test_the_node_of_this_process_does_not_matter_to_sides_that_are_bound_to_one(
    made, monkeypatch, pairs, told
) -> None:
    monkeypatch.setattr(module.proc, "numa_nodes", lambda: NODES)
    look, _, _ = made(NUMA)
    assert bool(look.of(case(), pairs=pairs)) == told


@pytest.mark.parametrize(
    ("gpus", "ranks", "cpus", "told"),
    [
        (1, 1, (0, 1), False),
        (1, 1, (2, 3), True),
        (2, 2, (0, 2, 1, 3), False),
        (2, 2, (0, 1, 2, 3), True),
        (2, 1, (0, 1), True),
    ],
)
def test_with_gpus_it_is_the_node_of_the_gpu_of_each_rank_that_counts(
    made, monkeypatch, gpus, ranks, cpus, told
) -> None:
    monkeypatch.setattr(module.proc, "numa_nodes", lambda: NODES)
    monkeypatch.setattr(module, "gpu_cpus", lambda gpus, *, allowed: (NODES[0], NODES[1]))
    look, _, _ = made(NUMA)
    assert bool(look.of(case(gpus=gpus, ranks=ranks), pairs=(pair_on(*cpus),))) == told


def test_the_next_reading_is_of_a_run_that_measures_and_lets_the_mean_of_nvml_pass(monkeypatch) -> None:
    slept, seen = [], []

    def read_health(ids, *, data, host, phase="start"):
        seen.append((ids <= RECORDED | wanted(load_rules()), data, phase))
        return HealthReading()

    monkeypatch.setattr(module, "STALE_S", 0.0)
    monkeypatch.setattr(module, "read_health", read_health)
    monkeypatch.setattr(module.time, "sleep", slept.append)
    for gpus, pauses in (((), 0), ((GPU,), 1)):
        open_health(HostCheck.warn, replace(HOST, gpus=gpus), data=Path("/d")).refresh()
        assert len(slept) == pauses
    assert seen == [(True, Path("/d"), "start"), (True, Path("/d"), "measuring")] * 2


@pytest.mark.parametrize(("host_check", "read"), [(HostCheck.off, False), (HostCheck.warn, True)])
def test_every_run_records_the_same_kinds_and_without_a_check_no_others_are_read(monkeypatch, host_check, read) -> None:
    asked = []
    found = HealthReading(
        (HostFinding("swap-disabled", "warn", "Swap", "on"), HostFinding("thp", "warn", "THP", "never"))
    )
    monkeypatch.setattr(module, "read_health", lambda ids, **_: asked.append(ids) or found)
    health = open_health(host_check, HOST, data=Path("/d"))
    assert [finding.id for finding in health.recorded] == ["swap-disabled"]
    assert ("thp" in asked[0]) == read
    assert bool(health.of(case())) == read
