"""What was found of the host as a run goes on: when it is looked at again, and which looks count for which case."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aiperf.host import outlook as module
from aiperf.host.facts import Gpu, HostFacts
from aiperf.host.findings import PASSING, Finding
from aiperf.host.outlook import STALE_S, Outlook, first_look
from aiperf.host.relevance import Fact, Fit, load_rules, wanted
from aiperf.host.survey import Survey
from aiperf.records import Case, Needs, Pair, Side

HOST = HostFacts("h", "Linux", "c", (0, 1, 2, 3), 1 << 34, 1 << 33)
GPU = Gpu(0, "NVIDIA H200", "GPU-1", "9.0", 1, 1)
GOVERNOR = Fact("hpc-kernel-governor", "warn", "powersave")
CALM = Fact("cpu-oversubscription", "warn", "CPU 12 % busy")
BUSY = Fact("cpu-oversubscription", "unfit", "CPU 97 % busy")
NUMA = Fact("numa-awareness", "warn", "CPUs of node 0-1")


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
def made() -> Callable[..., tuple[Outlook, Clock, list[frozenset[str]]]]:
    """An outlook whose next looks find what they are told, its clock, and what was asked for."""

    def _made(*facts: Fact, then: tuple[Fact, ...] = (), fit: Fit = Fit.warn):
        clock, asked = Clock(), []
        look = Outlook(fit, facts, host=HOST, again=lambda ids: asked.append(ids) or Survey(then), clock=clock)
        return look, clock, asked

    return _made


def ids(look: Outlook, of: Case) -> list[str]:
    return [f"{touch.level} {touch.id}" for touch in look.of(of)]


def test_what_comes_and_goes_is_looked_at_again_after_a_minute_and_not_before(made) -> None:
    look, clock, asked = made(GOVERNOR, then=(BUSY,))
    clock.now = STALE_S - 1
    assert (look.refresh(), asked) == ((), [])
    clock.now = STALE_S
    assert look.refresh() == (BUSY.sentence,)
    assert look.refresh() == ()
    assert len(asked) == 1
    assert {"cpu-oversubscription", "monitor-thermals-clocks", *PASSING} <= asked[0] <= wanted(load_rules())
    assert not {"hpc-kernel-governor", "numa-awareness", "roofs", "debug_env"} & asked[0]


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
    look, clock, _ = made(CALM, then=(replace(CALM, sentence="CPU 14 % busy"), NUMA))
    clock.now = STALE_S
    assert look.refresh() == (NUMA.sentence,)


def test_off_never_looks_again(made) -> None:
    look, clock, asked = made(then=(BUSY,), fit=Fit.off)
    clock.now = STALE_S
    assert (look.refresh(), asked) == ((), [])


def test_strict_refuses_by_what_lasts_before_and_by_everything_when_the_turn_comes(made) -> None:
    look, _, _ = made(BUSY, fit=Fit.strict)
    assert look.unfit(case(), steady=True) == ""
    assert look.unfit(case()).startswith("the host is unfit for this case: CPU 97 % busy: other work")
    assert made(BUSY)[0].unfit(case()) == ""
    lasting, _, _ = made(Fact("mig", "warn", "MIG: on."), fit=Fit.strict)
    assert "MIG: on" in lasting.unfit(case(gpus=2), steady=True)


def test_strict_refuses_by_a_roof_once_it_is_known(made) -> None:
    look, _, _ = made(Fact("monitor-memory", "warn", "5 % free"), fit=Fit.strict)
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
    monkeypatch.setattr(module, "near_cpus", lambda gpus, *, allowed: (NODES[0], NODES[1]))
    look, _, _ = made(NUMA)
    assert bool(look.of(case(gpus=gpus, ranks=ranks), pairs=(pair_on(*cpus),))) == told


def test_the_next_look_takes_new_findings_and_lets_the_mean_of_nvml_pass(monkeypatch) -> None:
    slept, seen = [], []

    def survey(names, told, *, data, again=False):
        seen.append((names, [finding.kind for finding in told], data, again))
        return Survey(())

    monkeypatch.setattr(module, "STALE_S", 0.0)
    monkeypatch.setattr(module, "survey", survey)
    monkeypatch.setattr(module, "passing", lambda host: (Finding("gpu_processes", "unfit", "7 is there"),))
    monkeypatch.setattr(module.time, "sleep", slept.append)
    for gpus, pauses in (((), 0), ((GPU,), 1)):
        look = first_look(Fit.warn, (), replace(HOST, gpus=gpus), data=Path("/d"), note=lambda text: None)
        look.refresh()
        assert len(slept) == pauses
    assert [(told, again) for _, told, _, again in seen] == [([], False), (["gpu_processes"], True)] * 2
