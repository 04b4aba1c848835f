"""host.task: units come out the same wherever they ran, and what was in force is read back from the processes."""

from __future__ import annotations

import os
import time

import numpy as np
import pytest
from cpu_pairs import audit, run

from aiperf.workloads import _units_pool as pools
from aiperf.workloads import host
from aiperf.workloads.contract import Context, SkipSide

CPUS = sorted(os.sched_getaffinity(0))


@pytest.fixture
def side():
    made = []

    def make(**params):
        made.append(host.task(Context(seed=3), **{"workers": 1, "units": 4, **params}))
        return made[-1]

    yield make
    for workload in made:
        workload.close()


@pytest.mark.parametrize("work", ["batch_prep", "spin", "request"])
def test_units_do_not_depend_on_who_does_them_where(side, work):
    plain = side(work=work)
    busy = side(work=work, workers=2, hogs=1, collector="frozen")
    first = audit(plain, seed=5)["results"]
    assert np.array_equal(first, audit(busy, seed=5)["results"])
    assert not np.array_equal(first, audit(plain, seed=6)["results"])
    assert len(np.unique(first)) > 3, "every unit has an answer of its own"


def test_a_spin_is_the_recurrence_that_it_says(side):
    workload = side(work="spin", units=2)
    run(workload)
    state = int(workload.inputs()["inputs"][1])
    for _ in range(host._TURNS["spin"]):
        state = (state * 1103515245 + 12345) % 2**31
    assert workload.outputs()["results"][1] == state


def test_every_unit_that_processes_share_is_told_once_with_the_time_that_it_took(side):
    workload = side(work="spin", units=6, workers=2)
    began = time.perf_counter()
    run(workload)
    run(workload)
    both = time.perf_counter() - began
    told = list(workload.latencies())
    assert (len(told), list(workload.latencies())) == (12, [])
    assert min(told) > 0
    assert len(set(told)) > 1, "of a clock"
    assert sum(told) < 2 * both, "two workers at once"
    assert sum(told) > 0.2 * both, "units are what a step does"
    assert host.task(Context(), work="touch", bytes=1 << 20).latencies is None


def test_affinity_and_collector_are_read_back_from_the_workers(side):
    pinned = side(work="spin", worker_cpus="one_each", collector="frozen", hogs=1)
    assert pinned.facts["worker_cpus"] == [[CPUS[0]]]
    assert pinned.facts["hog_cpus"] == [CPUS]
    assert pinned.facts["collecting"] == [False]
    run(pinned)
    assert pinned.counters()["cpu_changes"] == 0
    free = side(work="spin")
    assert (free.facts["worker_cpus"], free.facts["collecting"]) == ([CPUS], [True])


def test_hogs_burn_only_while_a_step_runs(side):
    workload = side(work="spin", hogs=1)
    pool = workload.step.__self__
    run(workload)
    assert pool.area[0] == 0
    pool._settle()
    spent = _cpu_ticks(pool.hogs[0].pid)
    time.sleep(0.1)
    assert spent == _cpu_ticks(pool.hogs[0].pid)
    run(workload)


def _cpu_ticks(pid: int) -> int:
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_all_processes_end_with_the_side():
    workload = host.task(Context(seed=3), work="spin", workers=1, units=1, hogs=1)
    run(workload)
    pool = workload.step.__self__
    workload.close()
    assert [child.returncode for child in [*pool.workers, *pool.hogs]] == [0, 0]


@pytest.fixture
def smt(monkeypatch):
    """Four CPUs on two cores: 0 and 2 are one, 1 and 3 the other."""
    monkeypatch.setattr(pools, "siblings_of", lambda cpu: [cpu % 2, cpu % 2 + 2])


def _places(allowed, **asked):
    return pools.places(allowed, **{"workers": 2, "worker_cpus": "free", "hog_cpus": "free", **asked})


def test_places_follow_the_cores(smt):
    assert _places(range(4)).workers == [[], []]
    assert _places(range(4), worker_cpus="one_each").workers == [[0], [1]]
    assert _places(range(4), worker_cpus="siblings").workers == [[0], [2]]
    reserved = _places(range(4), worker_cpus="reserved", hog_cpus="other")
    assert (reserved.workers, reserved.hogs) == ([[3], [2]], [0, 1])


@pytest.mark.parametrize(
    ("allowed", "asked", "message"),
    [
        ([0, 2], {"worker_cpus": "one_each"}, "2 cores; aiperf may use 1"),
        ([0, 1], {"worker_cpus": "siblings"}, "hardware threads"),
        ([0, 1], {"worker_cpus": "reserved"}, "3 CPUs"),
    ],
)
def test_places_that_these_cpus_cannot_give_skip_the_side(smt, allowed, asked, message):
    with pytest.raises(SkipSide, match=message):
        _places(allowed, **asked)


@pytest.mark.parametrize(
    ("text", "found"), [("0-1\n", [0, 1]), ("0,64\n", [0, 64]), ("0-1,8-9\n", [0, 1, 8, 9]), ("3\n", [3])]
)
def test_siblings_are_read_as_the_kernel_lists_them(tmp_path, monkeypatch, text, found):
    folder = tmp_path / "cpu0" / "topology"
    folder.mkdir(parents=True)
    (folder / "thread_siblings_list").write_text(text)
    monkeypatch.setattr(pools, "_CPUS", tmp_path)
    assert pools.siblings_of(0) == found
    assert pools.siblings_of(7) == [7], "a host that does not tell has no siblings"


@pytest.mark.parametrize(
    ("params", "message"),
    [({"units": 3, "workers": 2}, "equally"), ({"hogs": -1}, "0 or more"), ({"units": 0}, "1 or")],
)
def test_counts_that_cannot_work_are_refused(params, message):
    with pytest.raises(ValueError, match=message):
        host.task(Context(), work="spin", **{"workers": 1, **params})
